"""What a node publishes of the images that it cannot load: a word for each, in an attribute of its cards. Pure.

The whole reason is in the log of the node's plugin: an attribute has 64 characters.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

BLANK: Final = "(blank)"
"""What stands for a shell's blank image where functions are named."""
_MOST: Final = 64
"""The most characters of an attribute (DeviceAttributeMaxValueLength)."""
_MORE: Final = "..."


class ImageRefusal(NamedTuple):
    """Why an image cannot be loaded."""

    reason: str
    """One word, such as WrongDigest."""
    message: str
    """A sentence for people."""


def format_refusals(reasons: Mapping[str, str]) -> str:
    """Return the text for reasons by function, in the order of their names; what does not fit is left out.

    >>> format_refusals({"fft": "Missing", "aes": "WrongDigest"})
    'aes=WrongDigest fft=Missing'
    """
    entries = [f"{function}={reason}" for function, reason in sorted(reasons.items())]
    text = " ".join(entries)
    while len(text) > _MOST:
        entries.pop()
        text = " ".join([*entries, _MORE])
    return text


def parse_refusals(text: str) -> dict[str, str]:
    """Return the reasons in a text of ``format_refusals``; whatever else is in it is left out: a node may
    publish anything.

    >>> parse_refusals("aes=WrongDigest ...")
    {'aes': 'WrongDigest'}
    """
    found = (entry.partition("=") for entry in text.split())
    return {function: reason for function, _, reason in found if reason.isascii() and reason.isalpha()}
