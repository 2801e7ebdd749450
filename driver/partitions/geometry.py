"""The values that describe cards and their partitions: placements, partition specs, geometries, cards.

A card is a row of *units*, such as the memory slices of a GPU or the slots of an FPGA, and a partition covers a
contiguous run of them, its *placement*. Two partitions of a card can coexist when their placements are disjoint and
together they need no more exclusive engines than there are. A *geometry* lists the partitions that all cards of one
model can have; each family of devices builds its own (``driver.families``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from api.errors import PermanentError
from api.model.devices import Attribute
from api.model.quantity import Quantity

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


class Placement(NamedTuple):
    """A run of ``size`` units from unit ``start`` (0-based)."""

    start: int
    size: int

    @property
    def units(self) -> range:
        return range(self.start, self.start + self.size)

    def overlaps(self, other: "Placement") -> bool:
        return self.start < other.start + other.size and other.start < self.start + self.size


def unit_mask(placement: Placement) -> int:
    """Return the bitset of units that ``placement`` covers: unit i is bit i."""
    return ((1 << placement.size) - 1) << placement.start


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """One partition that a card of some geometry can have, before it belongs to a card."""

    kind: str
    """The name of the family of devices."""
    profile: str | None = None
    """The name of the profile; None: the partition is a function, a bare run of units, or the whole card."""
    function: str | None = None
    """The name of the function that is loaded into the placement; None: none, or the claim's configuration names it."""
    placement: Placement | None = None
    """The placement; None: the whole card."""
    mask: int
    """The bitset of units that the partition covers."""
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
    engines: tuple[tuple[str, int], ...] = ()
    """The exclusive engines, for which partitions compete beyond their placements, and how many the card has."""
    specs: tuple[PartitionSpec, ...]
    """The partitions, as ``order_specs`` orders them: the whole card is the last."""
    attributes: tuple[tuple[str, Attribute], ...] = ()
    """Attributes of the model, such as its architecture."""
    shareable: str = ""
    """The capacity in bytes that shares of a partition divide (KEP-5075); empty: nothing of it can be shared."""

    def __post_init__(self) -> None:
        """Raises InvalidGeometryError when a spec does not fit the geometry, or names or orders contradict."""
        if not self.specs or [spec.placement is None for spec in self.specs].count(True) != 1:
            raise InvalidGeometryError(self.model, "needs the whole card, once and as its last partition")
        if self.specs != order_specs(self.specs):
            raise InvalidGeometryError(self.model, "lists its partitions in another order than order_specs")
        totals = tuple(total for _, total in self.engines)
        for spec in self.specs:
            placement = spec.placement or Placement(0, self.units)
            if placement.start < 0 or placement.size < 1 or placement.start + placement.size > self.units:
                raise InvalidGeometryError(self.model, f"has {self.units} units, but a partition at {placement}")
            if spec.kind != self.kind or spec.mask != unit_mask(placement):
                raise InvalidGeometryError(self.model, f"has a partition of another kind or mask at {placement}")
            if len(spec.engines) != len(totals) or any(map(int.__gt__, spec.engines, totals)):
                raise InvalidGeometryError(self.model, f"has not the engines that a partition at {placement} takes")
        if len({(spec.profile, spec.function, spec.placement) for spec in self.specs}) < len(self.specs):
            raise InvalidGeometryError(self.model, "has two partitions of one profile or function and placement")

    def __hash__(self) -> int:
        """Hash by what nearly always differs: the many specs would make each look-up in a cache slow."""
        return hash((self.kind, self.model, self.units, len(self.specs)))

    @property
    def whole(self) -> PartitionSpec:
        """The whole card."""
        return self.specs[-1]


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

    It has a profile, or a function, or is a bare run of units whose function the claim's configuration names. Without
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
        """Whether the two partitions have units of the same card in common."""
        if self.card_uuid != other.card_uuid:
            return False
        if self.placement is None or other.placement is None:
            return True
        return self.placement.overlaps(other.placement)
