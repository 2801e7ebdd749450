"""``CardPicture``: what is on one card, in the form that is drawn, whatever it is drawn as."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from kerf_dra.api.model.names import list_names


class UnitState(StrEnum):
    """The state of a unit. Each has a symbol in text, a pattern in SVG, and words in the legend of both."""

    FREE = "free"
    STRANDED = "stranded"
    """Free, and no published device that has it would fit now."""
    HELD = "held"
    """A claim holds a device that has it."""
    SHARED = "shared"
    """Claims hold shares of a device that has it (KEP-5075)."""
    CONTESTED = "contested"
    """Claims hold devices that have it and exclude one another, which is a fault."""
    TAINTED = "tainted"
    """Free, and every device that would fit has a taint (KEP-5055), as where a card is drained."""
    WITHHELD = "withheld"
    """No published device has it: the driver has withdrawn what is in use outside of claims."""
    RESERVED = "reserved"
    """Taken out of the counters, or in use, for an extended resource of the device plugin interface."""
    STATIC = "static"
    """A partition that an administrator has made for claims, which no claim holds."""
    FOREIGN = "foreign"
    """Another program than the driver holds it."""


MEANINGS: Final[Mapping[UnitState, str]] = MappingProxyType(
    {
        UnitState.FREE: "free",
        UnitState.STRANDED: "stranded: free, nothing fits",
        UnitState.HELD: "held by a claim",
        UnitState.SHARED: "shared by claims",
        UnitState.CONTESTED: "held more than once",
        UnitState.TAINTED: "tainted: free with a toleration",
        UnitState.WITHHELD: "not offered by the driver",
        UnitState.RESERVED: "reserved for an extended resource",
        UnitState.STATIC: "static: made by an administrator, free",
        UnitState.FOREIGN: "held by another program",
    }
)
"""What the legend says of each state: in 40 columns it has room beside its symbol."""
_RUNS: Final = 32
"""Runs of units that are described in words: more than any card has; a pool may have ten thousand devices."""
OWNED: Final = frozenset({UnitState.HELD, UnitState.SHARED})
"""The states of units that are drawn by their holders, with a letter and a color."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One unit of a card."""

    state: UnitState = UnitState.FREE
    holders: tuple[str, ...] = ()
    """The claims that hold it, as ``namespace/name``."""
    part: str = ""
    """The name of the device that has it; units beside one another with the same part are drawn as one."""
    label: str = ""
    """What the part is, such as a profile."""
    note: str = ""
    """What else is to be known of it, such as the taint of a device that a claim holds."""


FREE_UNIT: Final = Unit()
"""A unit of which nothing is to be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRow:
    """Units in the order of their numbers."""

    name: str
    """What the units are, such as ``memory-slice``."""
    numbers: tuple[int, ...]
    units: tuple[Unit, ...]

    @property
    def title(self) -> str:
        """The name with the numbers, such as ``memory-slice 0-7``."""
        first, last = self.numbers[0], self.numbers[-1]
        return f"{self.name} {first}-{last}" if len(self.numbers) > 1 else f"{self.name} {first}"

    @property
    def parts(self) -> tuple[tuple[int, tuple[Unit, ...]], ...]:
        """The runs of units that are drawn as one, each with the index of its first unit. A free unit is one by
        itself.
        """
        runs = groupby(enumerate(self.units), key=lambda each: (each[1], -1 if each[1].part else each[0]))
        parts = (tuple(run) for _, run in runs)
        return tuple((part[0][0], tuple(unit for _, unit in part)) for part in parts)

    @property
    def description(self) -> str:
        """What the units are, in words, such as ``0-3 1g.10gb default/a, 4 free``."""
        runs = groupby(zip(self.numbers, self.units, strict=True), key=itemgetter(1))
        return list_names([_describe(unit, [number for number, _ in run]) for unit, run in runs], _RUNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """An amount of which claims hold a part."""

    name: str
    used: str
    """The amount that claims hold, as a quantity."""
    total: str
    permille: int
    """The part in use in thousandths, rounded up; more than 1000 where claims hold more than there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPicture:
    """One card, or the devices of one pool that consume no counters."""

    node: str
    """The node of the card; empty for hardware that several nodes can use."""
    driver: str
    pool: str
    name: str
    """The counter set of the card; empty for the devices of a pool that consume no counters."""
    model: str
    rows: tuple[UnitRow, ...]
    gauges: tuple[Gauge, ...] = ()
    problems: tuple[str, ...] = ()
    """Why the picture may be wrong: what contradicts itself in the slices or between them and the claims."""

    @property
    def title(self) -> str:
        """The card's name on its node, or that of the driver whose whole devices these are."""
        return self.name or (self.driver if self.pool == self.node else f"{self.driver} {self.pool}")

    @property
    def description(self) -> str:
        """What the units are, in words, for those who do not see the picture."""
        rows = "; ".join(f"{row.title}: {row.description}" for row in self.rows)
        return f"{self.title}: {rows}" if rows else self.title

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units of all rows."""
        return tuple(unit for row in self.rows for unit in row.units)

    @property
    def holders(self) -> tuple[str, ...]:
        """The claims that hold units, each once, in the order of the units."""
        return tuple(dict.fromkeys(holder for unit in self.units for holder in unit.holders))


def _describe(unit: Unit, numbers: Sequence[int]) -> str:
    place = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
    state = MEANINGS[unit.state] if unit.state is not UnitState.HELD else ""
    return " ".join(word for word in (place, unit.label, state, list_names(unit.holders), unit.note) if word)


def units_of(holders: Iterable[str]) -> tuple[Unit, ...]:
    """Return a unit for each of ``holders``, of which an empty one holds nothing."""
    return tuple(
        Unit(state=UnitState.HELD, holders=(holder,), part=holder) if holder else FREE_UNIT for holder in holders
    )
