"""The values that describe cards and their partitions: placements, partition specs, geometries, cards.

A card is a row of *units*, such as the memory slices of a GPU or the slots of an FPGA, and a partition covers some of
them, its *placement*: mostly a run. Two partitions of a card can coexist when their placements are disjoint and
together they need no more exclusive engines than there are. A card that can be divided into units in several ways has
several *layouts*, each with units of its own, of which one is in use at a time: partitions of two layouts never
coexist. A *geometry* lists the partitions that all cards of one model can have; each family of devices builds its own
(``kerf_dra.driver.families``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.quantity import Quantity

NOTHING: Final = Quantity(0)

Amounts: TypeAlias = tuple[tuple[str, Quantity], ...]
"""Amounts by the names of capacities or counters, in a fixed order; a tuple, so that it can be hashed."""


def select_present(*amounts: tuple[str, Quantity]) -> Amounts:
    """Return those of ``amounts`` that are not 0, such as the memory of a GPU that has none of its own.

    What a spec does not name is 0 anyway: the compiler of pools fills it in.
    """
    return tuple((name, amount) for name, amount in amounts if amount)


class InvalidGeometryError(PermanentError):
    """A geometry contradicts itself; the message names its model and the fault."""

    def __init__(self, model: str, reason: str) -> None:
        self.model = model
        super().__init__(f"the geometry of {model!r} {reason}")


class Run(NamedTuple):
    """A run of ``size`` units from unit ``start`` (0-based): what records have of placements without gaps."""

    start: int
    size: int


class Placement(NamedTuple):
    """A set of ``size`` units of one layout, of which ``start`` (0-based) is the first: a run, if it has no gaps."""

    start: int
    size: int
    gaps: int = 0
    """The bitset of the units between the first and the last that are not of the set: unit i is bit i."""
    layout: str = ""
    """The layout whose units they are, which numbers them from 0; empty: the one without a name."""

    @classmethod
    def of_units(cls, units: Iterable[int], layout: str = "") -> "Placement":
        """Return the placement of ``units``, of which there is at least one.

        >>> Placement.of_units([3, 0])
        Placement(start=0, size=2, gaps=6, layout='')
        """
        chosen = sorted({*units})
        gaps = {*range(chosen[0], chosen[-1])} - {*chosen}
        return cls(chosen[0], len(chosen), sum(1 << unit for unit in gaps), layout)

    @property
    def end(self) -> int:
        """The unit behind the last one."""
        return self.start + self.size + self.gaps.bit_count()

    @property
    def units(self) -> Sequence[int]:
        """The units, in ascending order."""
        units = range(self.start, self.end)
        return tuple(unit for unit in units if not self.gaps >> unit & 1) if self.gaps else units

    @property
    def run(self) -> Run | None:
        """What a record has of it; None: it has gaps, or is of a layout with a name."""
        return None if self.gaps or self.layout else Run(self.start, self.size)

    def overlaps(self, other: "Placement") -> bool:
        """Whether the two cannot coexist: they have units in common, or are of two layouts."""
        if self.layout != other.layout:
            return True
        if self.gaps or other.gaps:
            return bool(unit_mask(self) & unit_mask(other))
        return self.start < other.start + other.size and other.start < self.start + self.size


def unit_mask(placement: Placement) -> int:
    """Return the bitset of units of its layout that ``placement`` covers: unit i is bit i."""
    return ((1 << placement.end) - (1 << placement.start)) & ~placement.gaps


class Layout(NamedTuple):
    """One way in which a card can be divided into units."""

    name: str
    """The name, a DNS label without dashes; empty for a card's only layout, or its first."""
    units: int
    """The number of units."""


def card_mask(model: str, layouts: Iterable[Layout], placement: Placement | None) -> int:
    """Return the bitset of units that ``placement`` covers of a card, in which those of each of the ``layouts`` follow
    those of the one before; None: the whole card.

    Raises InvalidGeometryError when the ``model`` has no such layout.
    """
    start = 0
    for layout in layouts:
        if placement is not None and layout.name == placement.layout:
            return unit_mask(placement) << start
        start += layout.units
    if placement is not None:
        raise InvalidGeometryError(model, f"has no layout {placement.layout!r}")
    return (1 << start) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """One partition that a card of some geometry can have, before it belongs to a card."""

    kind: str
    """The name of the family of devices."""
    profile: str | None = None
    """The name of the profile; None: the partition is a function, a bare set of units, or the whole card."""
    function: str | None = None
    """The name of the function that is loaded into the placement; None: none, or the claim's configuration names it."""
    placement: Placement | None = None
    """The placement; None: the whole card."""
    mask: int
    """The bitset of the card's units that the partition covers, those of all layouts in a row (``Geometry.mask``)."""
    engines: tuple[int, ...] = ()
    """The number of each of the geometry's exclusive engines that the partition takes, in their order."""
    size: tuple[int, ...]
    """The sort key from small to large, also across models. Partitions of one size serve a request equally."""
    weight: int
    """The worth of one partition in the placement value (``UnitMap.placement_value``)."""
    capacity: Amounts = ()
    """The capacities of the device; those of the family that are not named are 0."""
    quota: Amounts = ()
    """What the device consumes of the card's further counters, such as memory, beside units and engines."""
    load_s: float = 0.0
    """How long it may take to make the partition ready, as far as that is a load whose time is known."""
    attributes: tuple[tuple[str, Attribute], ...] = ()
    """Further attributes of the device, in place of those of the card."""

    def of(self, card_uuid: str) -> "Partition":
        """Return this partition of one card."""
        return Partition(
            kind=self.kind,
            card_uuid=card_uuid,
            profile=self.profile,
            placement=self.placement,
            function=self.function,
        )

    def amount(self, capacity: str) -> Quantity:
        """Return the amount of ``capacity``; 0: it has none."""
        return next((amount for name, amount in self.capacity if name == capacity), NOTHING)


def order_specs(specs: Iterable[PartitionSpec]) -> tuple[PartitionSpec, ...]:
    """Return ``specs`` smallest first, the whole card last; equal sizes are in the order of their first unit."""
    return tuple(sorted(specs, key=lambda spec: (spec.placement is None, spec.size, spec.placement or ())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What the cards of one model can be partitioned into."""

    kind: str
    """The name of the family of devices."""
    model: str
    """The name of the model, which is the device attribute ``model``."""
    unit: str
    """The name of a unit in counter names, such as ``memory-slice``."""
    units: int
    """The number of units; of a card with several layouts that of all of them together."""
    layouts: tuple[Layout, ...] = ()
    """The layouts of which a card has one at a time; empty: it has but one, without a name."""
    engines: tuple[tuple[str, int], ...] = ()
    """The exclusive engines, for which partitions compete beyond their placements, and how many the card has."""
    specs: tuple[PartitionSpec, ...]
    """The partitions, as ``order_specs`` orders them: the whole card is the last."""
    attributes: tuple[tuple[str, Attribute], ...] = ()
    """Attributes of the model, such as its architecture."""
    shareable: str = ""
    """The capacity that shares of a partition divide (KEP-5075); empty: nothing of it can be shared."""

    def __post_init__(self) -> None:
        """Raises InvalidGeometryError when a spec does not fit the geometry, or names or orders contradict."""
        if not self.specs or [spec.placement is None for spec in self.specs].count(True) != 1:
            raise InvalidGeometryError(self.model, "needs the whole card, once and as its last partition")
        if self.specs != order_specs(self.specs):
            raise InvalidGeometryError(self.model, "lists its partitions in another order than order_specs")
        self._check_layouts()
        totals = tuple(total for _, total in self.engines)
        for spec in self.specs:
            placement = spec.placement
            if placement is not None and not self._is_within(placement):
                raise InvalidGeometryError(self.model, f"has {self.units} units, but a partition at {placement}")
            if spec.kind != self.kind or spec.mask != self.mask(placement):
                raise InvalidGeometryError(self.model, f"has a partition of another kind or mask at {placement}")
            if len(spec.engines) != len(totals) or any(map(int.__gt__, spec.engines, totals)):
                raise InvalidGeometryError(self.model, f"has not the engines that a partition at {placement} takes")
            if placement is not None and placement.run is None and (spec.quota or totals):
                reason = (
                    "has engines or quota counters, for which a partition must be a run of units of its only layout"
                )
                raise InvalidGeometryError(self.model, reason)
        if len({(spec.profile, spec.function, spec.placement) for spec in self.specs}) < len(self.specs):
            raise InvalidGeometryError(self.model, "has two partitions of one profile or function and placement")

    def __hash__(self) -> int:
        """Hash by what nearly always differs: the many specs would make each look-up in a cache slow."""
        return hash((self.kind, self.model, self.units, len(self.specs)))

    @property
    def whole(self) -> PartitionSpec:
        """The whole card."""
        return self.specs[-1]

    @property
    def all_layouts(self) -> tuple[Layout, ...]:
        """The layouts, also of a card that has but one."""
        return self.layouts or (Layout("", self.units),)

    def mask(self, placement: Placement | None) -> int:
        """Return the bitset of the card's units that ``placement`` covers, as ``card_mask`` does."""
        return card_mask(self.model, self.all_layouts, placement)

    def _check_layouts(self) -> None:
        layouts = self.all_layouts
        if len({layout.name for layout in layouts}) < len(layouts) or any(layout.units < 1 for layout in layouts):
            raise InvalidGeometryError(self.model, "has two layouts of one name, or one without units")
        if sum(layout.units for layout in layouts) != self.units:
            raise InvalidGeometryError(self.model, f"has {self.units} units, but its layouts others together")

    def _is_within(self, placement: Placement) -> bool:
        if placement.start < 0 or placement.size < 1 or placement.gaps < 0:
            return False
        is_canonical = placement == Placement.of_units(placement.units, placement.layout)
        return is_canonical and any(
            one.name == placement.layout and placement.end <= one.units for one in self.all_layouts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card of the node."""

    uuid: str
    index: int
    """The number of the card on its node, which is part of device names and must not change while the node is up."""
    geometry: Geometry
    pci_bus_id: str = ""
    pcie_root: str = ""
    """The PCIe root complex, such as ``pci0000:00``; empty: unknown."""
    numa_node: int = 0
    driver_version: str = ""
    """The version of the kernel driver, as it states it."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """Further attributes of the family, in place of those of the geometry. PCIe root and NUMA node may be lists, for a
    card that is near several: where lists cannot be published, their first value is."""
    whole_attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """The same for the whole card only, in place of those of the card."""
    loaded: Mapping[Placement, str] = field(default_factory=dict)
    """The functions that are loaded now, by placement, which can be allocated there without a load."""
    layout: str = ""
    """The layout that the card has now; a partition of another one can be allocated while none of this one is."""

    @property
    def kind(self) -> str:
        """The name of the family of devices."""
        return self.geometry.kind

    @property
    def units(self) -> int:
        return self.geometry.units


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The part of a card, or the whole card, that a published device represents.

    It has a profile, or a function, or is a bare set of units whose function the claim's configuration names. Without
    a placement it is the whole card.
    """

    kind: str
    card_uuid: str
    profile: str | None = None
    placement: Placement | None = None
    function: str | None = None
    shared: bool = False
    """Whether several claims may hold the partition (KEP-5075)."""

    @property
    def is_whole(self) -> bool:
        return self.placement is None

    def overlaps(self, other: "Partition") -> bool:
        """Whether the two partitions cannot coexist: they have units of one card in common, or are of two layouts."""
        if self.card_uuid != other.card_uuid:
            return False
        if self.placement is None or other.placement is None:
            return True
        return self.placement.overlaps(other.placement)
