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


def qualify_function(function: str, layout: str) -> str:
    """Return what stands for a function of a layout: each layout of a card may have one of the same name. ``layout`` is
    empty for the first, or the only one.
    """
    return f"{layout}/{function}" if layout else function


def format_refusals(reasons: Mapping[str, str]) -> str:
    """Return the text for reasons by (qualified) function, in the order of their names; what does not fit is left out.

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


def select_refusals(text: str, layout: str) -> dict[str, str]:
    """Return the reasons in a text of ``format_refusals`` for the functions of one layout.

    >>> select_refusals("aes=Missing flat/aes=WrongDigest", "flat")
    {'aes': 'WrongDigest'}
    """
    found = ((name.rpartition("/"), reason) for name, reason in parse_refusals(text).items())
    return {function: reason for (of_layout, _, function), reason in found if of_layout == layout}
