"""How large values in CEL can be, as far as that can be said without a device; sums and products that end somewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

MOST: Final = 2**64 - 1
"""Costs and sizes end here, and what is more counts as this."""


class Size(NamedTuple):
    """How long a text, how large a list or map may be."""

    least: int
    most: int


UNKNOWN: Final = Size(0, MOST)


def total(*costs: int) -> int:
    return min(MOST, sum(costs))


def times(one: int, other: int) -> int:
    return min(MOST, one * other)


def scaled(size: int, factor: float) -> int:
    """``size`` times ``factor``, rounded up. By floating point, as there: large figures differ otherwise."""
    return min(MOST, ceil(float(size) * factor))


def joined(one: Size, other: Size) -> Size:
    """The size of two things put together."""
    return Size(total(one.least, other.least), total(one.most, other.most))


def united(one: Size, other: Size) -> Size:
    """The size of either of two things."""
    return Size(min(one.least, other.least), max(one.most, other.most))


@dataclass(frozen=True, slots=True, eq=False)
class Declared:
    """A place of which it is declared how large it can be."""

    most: int
    key: "Declared | None" = None
    element: "Declared | None" = None

    def at(self, step: str) -> "Declared | None":
        """One step further: ``@items``, ``@values``, ``@keys``, or a name that somebody gave an attribute."""
        if step in ("@items", "@values"):
            return self.element
        if step == "@keys":
            return self.key
        return VALUE if self.element is VALUE else None


# The limits of resource.k8s.io/v1. A value is a text of 64 bytes or a list of 48 elements: nobody knows beforehand.
_ID: Final = Declared(32)
_DOMAIN: Final = Declared(63)
VALUE: Final = Declared(64)
AMOUNT: Final = Declared(0)
DEVICE: Final[Mapping[str, Declared]] = {
    "device.driver": _DOMAIN,
    "device.allowMultipleAllocations": Declared(1),
    "device.attributes": Declared(32, _DOMAIN, Declared(32, _ID, VALUE)),
    "device.capacity": Declared(32, _DOMAIN, Declared(32, _ID, AMOUNT)),
}
