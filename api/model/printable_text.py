"""Text of others, such as users, servers and processes, made fit to be shown in terminals, logs and messages."""

from typing import Final

UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"
"""What stands for each character that is not printable: control characters, and those that change the direction."""


def replace_unprintable(text: str, *, kept: str = "") -> str:
    """Return ``text`` with each character that is not printable replaced, except those of ``kept``."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in kept else UNPRINTABLE for one in text)


def to_one_line(text: str) -> str:
    """Return ``text`` as one line without control characters."""
    return replace_unprintable(" ".join(text.split()))
