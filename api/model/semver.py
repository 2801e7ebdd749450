"""Semantic versions (semver.org 2.0.0), as the CEL function ``semver`` and version attributes have them, and the
versions of others, such as drivers, as far as they can be read so.

Build metadata is read and dropped: it has no part in precedence, and Kubernetes compares by precedence.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_IDENTIFIER: Final = rf"(?:{_NUMBER}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SYNTAX: Final = re.compile(
    rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})"
    rf"(?:-(?P<pre>{_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
_MAX_NUMBER: Final = 2**64 - 1
"""The largest number that Kubernetes reads in a version."""
_MAX_DIGITS: Final = 20
"""The digits of ``_MAX_NUMBER``: Python refuses to convert thousands of digits."""
_FOREIGN_NUMBER: Final = re.compile(r"[0-9]{1,18}")
"""A number in a version of others; a longer one, which no driver has, is read as several."""
_CACHE_SIZE: Final = 1024
"""The parsed versions that are kept: a cluster has few driver and firmware versions."""


class _Identifier(NamedTuple):
    """One dot-separated identifier of a pre-release; tuple order puts numbers before words."""

    is_word: bool
    number: int
    word: str


class Version(NamedTuple):
    """A parsed version, to be compared with ``compare``: a release follows its pre-releases, unlike in tuple order."""

    major: int
    minor: int
    patch: int
    pre: tuple[_Identifier, ...]

    def __str__(self) -> str:
        core = f"{self.major}.{self.minor}.{self.patch}"
        words = ".".join(part.word if part.is_word else str(part.number) for part in self.pre)
        return f"{core}-{words}" if words else core


def compare(one: Version, other: Version) -> int:
    """Return -1, 0 or 1 as ``one`` precedes, equals or follows ``other``."""
    mine = (one[:3], not one.pre, one.pre)
    theirs = (other[:3], not other.pre, other.pre)
    return (mine > theirs) - (mine < theirs)


@lru_cache(maxsize=_CACHE_SIZE)
def parse_version(text: str, *, normalize: bool = False) -> Version | None:
    """Parse ``text``; None: it is not a semantic version.

    ``normalize`` first drops a leading ``v`` and leading zeros and adds a missing minor or patch number.
    """
    match = _SYNTAX.fullmatch(_normalized(text) if normalize else text)
    if match is None:
        return None
    pre = match["pre"].split(".") if match["pre"] else []
    numbers = [match["major"], match["minor"], match["patch"], *(part for part in pre if part.isdecimal())]
    if any(len(number) > _MAX_DIGITS or int(number) > _MAX_NUMBER for number in numbers):
        return None
    parts = tuple(_Identifier(False, int(part), "") if part.isdecimal() else _Identifier(True, 0, part) for part in pre)
    return Version(int(match["major"]), int(match["minor"]), int(match["patch"]), parts)


def coerce_version(text: str) -> str:
    """Return the first three numbers of ``text`` as a semantic version, as attributes need it for versions of others.

    >>> coerce_version("535.104.05"), coerce_version("550.54"), coerce_version("")
    ('535.104.5', '550.54.0', '0.0.0')
    """
    return ".".join(map(str, (*version_numbers(text), 0, 0, 0)[:3]))


@lru_cache(maxsize=_CACHE_SIZE)
def version_numbers(text: str) -> tuple[int, ...]:
    """Return all numbers of ``text`` without zeros at the end, which compare as versions of others do: drivers have two
    to four numbers. A version that is not known is older than any other.

    >>> version_numbers("535.104.05") < version_numbers("550.54") == version_numbers("550.54.0")
    True
    >>> version_numbers("2.17.319.0"), version_numbers("")
    ((2, 17, 319), ())
    """
    numbers = [int(number) for number in _FOREIGN_NUMBER.findall(text)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _normalized(text: str) -> str:
    parts = [re.sub(r"^0+(?=[0-9])", "", part) for part in text.removeprefix("v").split(".", 2)]
    is_short_with_suffix = len(parts) < 3 and re.search(r"[-+]", parts[-1]) is not None
    return text if is_short_with_suffix else ".".join(parts + ["0"] * (3 - len(parts)))
