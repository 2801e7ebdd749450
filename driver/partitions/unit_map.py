"""The units of a card: which are free, which partitions still fit, and the placement value of the free units.

A ``UnitMap`` belongs to a geometry, not to a card. Sets of units are bitsets: unit i is bit i
of an int. Results are cached for each set: eight units have 256 sets, twelve have 4096. The units of all layouts stand
in a row; those of the layouts that are not in use are not free.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.partitions.geometry import (
    NOTHING,
    Amounts,
    Card,
    Geometry,
    Partition,
    PartitionSpec,
    Placement,
    unit_mask,
)

MOST_GRADED_UNITS: Final = 8
"""The most units of a card whose losses are listed, which takes steps in proportion to 2 to that power: no known card
has more, and one of an unknown model with 25 took minutes."""
_UNIT_MAPS: Final = 256
"""The most unit maps kept: more than there are geometries in any cluster, including variants of a model."""


class FreeUnits(NamedTuple):
    """The free units and engines of a card."""

    mask: int
    """The bitset of free units."""
    engines: tuple[int, ...]
    """The number of free engines of each exclusive kind."""

    @property
    def units(self) -> int:
        return self.mask.bit_count()


class _PlacementGroup(NamedTuple):
    """Partitions with the same placements: profiles that differ only in engines are one group."""

    weight: int
    """The worth of one partition."""
    masks: tuple[int, ...]
    """The bitsets of the placements, ascending by the last unit."""


class LayoutUnits(NamedTuple):
    """The place of a layout in the row of a card's units."""

    start: int
    """The first unit."""
    mask: int
    """The bitset of its units."""


class UnitMap:
    """The partitions of one geometry, and arithmetic over sets of its units."""

    def __init__(self, geometry: Geometry) -> None:
        self.specs: Final[tuple[PartitionSpec, ...]] = geometry.specs
        """The partitions, smallest first, the whole card last."""
        self.all: Final[FreeUnits] = FreeUnits(geometry.whole.mask, tuple(total for _, total in geometry.engines))
        self.units: Final[int] = geometry.units
        self.layouts: Final[Mapping[str, LayoutUnits]] = _place_layouts(geometry)
        """Where the units of each layout are, by its name."""
        several = self.layouts if len(self.layouts) > 1 else {}
        self._others = {name: self.all.mask & ~units.mask for name, units in several.items()}
        """The bitset of the units of all other layouts; empty: there is but one."""
        self._shareable = geometry.shareable
        self._profile_engines = {spec.profile: spec.engines for spec in self.specs if spec.profile is not None}
        self._specs = {(spec.profile, spec.function, spec.placement): spec for spec in self.specs}
        self._groups = _group_by_placements(self.specs)
        self._single = sum({spec.mask for spec in self.specs if spec.mask.bit_count() == 1})
        """The bitset of units that are a partition each: every free one of them is usable."""
        self._values: dict[int, int] = {}
        self._losses: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._usable: dict[int, int] = {}

    def find(self, partition: Partition) -> PartitionSpec | None:
        """Return the spec of ``partition``; None: the geometry has no such partition."""
        return self._specs.get((partition.profile, partition.function, partition.placement))

    def is_divisible(self, partition: Partition) -> bool:
        """Whether ``partition`` has something that shares of it divide."""
        spec = self.find(partition)
        return spec is not None and bool(spec.amount(self._shareable))

    def free(self, taken: Iterable[Partition]) -> FreeUnits:
        """Return the free units and engines while ``taken``, partitions of one card of this geometry, are in use.

        An unknown profile, which another program created, takes its placement and no engines; a placement of an unknown
        layout takes the card.
        """
        mask, engines = self.all
        nothing = (0,) * len(engines)
        for partition in taken:
            placement = partition.placement
            if placement is None or placement.layout not in self.layouts:
                return FreeUnits(0, nothing)
            own = unit_mask(placement) << self.layouts[placement.layout].start
            mask &= ~(own | self._others.get(placement.layout, 0))
            used = self._profile_engines.get(partition.profile or "", nothing)
            engines = tuple(max(0, have - use) for have, use in zip(engines, used, strict=True))
        return FreeUnits(mask, engines)

    def fits(self, spec: PartitionSpec, free: FreeUnits) -> bool:
        return not spec.mask & ~free.mask and all(
            use <= have for use, have in zip(spec.engines, free.engines, strict=True)
        )

    def without(self, spec: PartitionSpec, free: FreeUnits) -> FreeUnits:
        """Return the rest of ``free`` once ``spec``, which fits, is taken."""
        engines = tuple(have - use for have, use in zip(free.engines, spec.engines, strict=True))
        others = self._others.get(spec.placement.layout, 0) if spec.placement is not None else 0
        return FreeUnits(free.mask & ~(spec.mask | others), engines)

    def list_layouts(self, free: FreeUnits) -> list[int]:
        """Return the units of each layout that are free if this layout is chosen."""
        return [free.mask & units.mask for units in self.layouts.values()]

    def placement_value(self, mask: int) -> int:
        """Return the placement value of the units ``mask`` as the KEEP rule defines it.

        That is the sum over all profiles (or functions, or sizes of a bare set of units), each taken alone, of its
        weight times the number of its instances that fit into ``mask`` together. Each layout counts for itself.
        """
        known = self._values.get(mask)
        if known is None:
            counted = (group.weight * count_disjoint(group.masks, mask) for group in self._groups)
            known = self._values[mask] = sum(counted)
        return known

    def loss(self, spec: PartitionSpec, free: FreeUnits) -> int:
        """Return the decrease of the placement value of ``free`` when ``spec``, which fits, is taken."""
        return self.placement_value(free.mask) - self.placement_value(self.without(spec, free).mask)

    def list_losses(self, spec: PartitionSpec) -> tuple[int, ...]:
        """Return the losses that partitions of the size of ``spec`` can have, ascending, whatever else is in use.

        Each placement is tried with every set of other free units, of eight units 128 sets for a partition of one: for
        cards of at most ``MOST_GRADED_UNITS``. The losses of an H100's 1g.10gb are 1, 2, 4, 5, 7, 11, 12, 14 and 18,
        and its 7g.80gb always has 34.
        """
        known = self._losses.get(spec.size)
        if known is None:
            found = {
                self.loss(each, FreeUnits(each.mask | others, self.all.engines))
                for each in self.specs
                if each.size == spec.size
                for others in _subsets(self.all.mask & ~each.mask)
            }
            known = self._losses[spec.size] = tuple(sorted(found))
        return known

    def count_usable_units(self, mask: int) -> int:
        """Return the most units of ``mask``, which are of one layout, that a choice of disjoint partitions can cover.

        Dynamic programming over the lowest unit: either no partition covers it, or one of those that do is chosen.
        """
        if not mask & ~self._single:
            return mask.bit_count()
        known = self._usable.get(mask)
        if known is None:
            lowest = mask & -mask
            without = self.count_usable_units(mask & ~lowest)
            using = [
                spec.mask.bit_count() + self.count_usable_units(mask & ~spec.mask)
                for spec in self.specs
                if spec.mask & lowest and not spec.mask & ~mask
            ]
            known = self._usable[mask] = max([without, *using])
        return known


def get_unit_map(card: Card) -> UnitMap:
    """Return the unit map of the card's geometry."""
    return get_geometry_unit_map(card.geometry)


@lru_cache(maxsize=_UNIT_MAPS)
def get_geometry_unit_map(geometry: Geometry) -> UnitMap:
    """Return the unit map of ``geometry``: the same object as long as it is in use."""
    return UnitMap(geometry)


def quota_totals(geometry: Geometry) -> Mapping[str, Quantity]:
    """Return the totals of the geometry's quota counters: what the whole card or its fullest legal division consumes.

    The sum of the partitions of a division may exceed the card's own amount: four of a GH200's partitions have more
    memory together than the driver states for the GPU.
    """
    names = dict.fromkeys(name for spec in geometry.specs for name, _ in spec.quota)
    return {name: _fullest_division(geometry, name) for name in names}


def _fullest_division(geometry: Geometry, counter: str) -> Quantity:
    """Dynamic programming over the units: from each, either none or one of the partitions that start there.

    A geometry with quota counters has runs of units of one layout only.
    """
    by_start: dict[int, list[tuple[int, PartitionSpec, Quantity]]] = {}
    for spec in geometry.specs[:-1]:
        assert spec.placement is not None, "only the whole card has none"
        placement = spec.placement
        by_start.setdefault(placement.start, []).append((placement.end, spec, _amount(spec.quota, counter)))

    @cache
    def most(unit: int, engines: tuple[int, ...]) -> Quantity:
        if unit >= geometry.units:
            return NOTHING
        best = most(unit + 1, engines)
        for end, spec, amount in by_start.get(unit, ()):
            left = tuple(have - use for have, use in zip(engines, spec.engines, strict=True))
            if all(count >= 0 for count in left):
                best = max(best, amount + most(end, left))
        return best

    return max(_amount(geometry.whole.quota, counter), most(0, tuple(total for _, total in geometry.engines)))


def _amount(amounts: Amounts, name: str) -> Quantity:
    return next((amount for known, amount in amounts if known == name), NOTHING)


def longest_run(mask: int) -> int:
    """Return the length of the longest run of set bits."""
    length = 0
    while mask:
        mask &= mask << 1
        length += 1
    return length


def _place_layouts(geometry: Geometry) -> dict[str, LayoutUnits]:
    placed: dict[str, LayoutUnits] = {}
    for layout in geometry.all_layouts:
        everything = Placement(0, layout.units, layout=layout.name)
        mask = geometry.mask(everything)
        placed[layout.name] = LayoutUnits(mask.bit_length() - layout.units, mask)
    return placed


def _group_by_placements(specs: Iterable[PartitionSpec]) -> tuple[_PlacementGroup, ...]:
    """Group all partitions by placements; bare sets of units count by their size, the whole card not at all."""
    by_name: dict[object, list[PartitionSpec]] = {}
    for spec in specs:
        if spec.placement is not None:
            name = spec.profile or spec.function or spec.placement.size
            by_name.setdefault((spec.placement.layout, name), []).append(spec)
    groups = set()
    for named in by_name.values():
        masks = sorted((spec.mask for spec in named), key=int.bit_length)
        weight = min(spec.weight for spec in named)
        groups.add(_PlacementGroup(weight, tuple(masks)))
    return tuple(sorted(groups))


def count_disjoint(masks: Sequence[int], free: int) -> int:
    """Return the most disjoint ``masks``, ascending by their last unit, inside ``free``.

    Runs: greedy by earliest end is optimal (interval scheduling). A set with gaps makes it set packing: from the lowest
    free unit on, either none or one of the sets that begin there; a card has few units.
    """
    fitting = [mask for mask in masks if not mask & ~free]
    if all(_is_run(mask) for mask in fitting):
        count = 0
        for mask in fitting:
            if not mask & ~free:
                free &= ~mask
                count += 1
        return count
    by_start: dict[int, list[int]] = {}
    for mask in fitting:
        by_start.setdefault(mask & -mask, []).append(mask)

    @cache
    def most(left: int) -> int:
        if not left:
            return 0
        lowest = left & -left
        using = (1 + most(left & ~mask) for mask in by_start.get(lowest, ()) if not mask & ~left)
        return max(most(left & ~lowest), *using, 0)

    return most(free)


def _subsets(mask: int) -> Iterator[int]:
    """Yield all subsets of a bitset, itself and the empty one included."""
    subset = mask
    while subset:
        yield subset
        subset = (subset - 1) & mask
    yield 0


def _is_run(mask: int) -> bool:
    ended = mask + (mask & -mask)
    return not ended & (ended - 1)
