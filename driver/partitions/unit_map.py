"""The units of a card: which are free, which partitions still fit, and the placement value of the free units.

A ``UnitMap`` belongs to a geometry (a GPU model or a shell), not to a card. Sets of units are bitsets: unit i is bit i
of an int. Results are cached for each set: eight units have 256 sets, twelve have 4096.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from driver.partitions.geometry import Card, GpuCard, GpuModel, Partition, Shell
from driver.partitions.partition_specs import PartitionSpec, exclusive_engines, list_partition_specs, unit_mask

_UNIT_MAPS: Final = 256
"""The most unit maps kept: more than there are models and shells in any cluster, including variants of a model."""


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
    """The compute slices, or the slots, of one partition."""
    masks: tuple[int, ...]
    """The bitsets of the placements, ascending by the last unit."""


class UnitMap:
    """The partitions of one geometry, and arithmetic over sets of its units."""

    def __init__(self, geometry: GpuModel | Shell) -> None:
        self.specs: Final[tuple[PartitionSpec, ...]] = list_partition_specs(geometry)
        """The partitions, smallest first, the whole card last."""
        whole = self.specs[-1]
        self.all: Final[FreeUnits] = FreeUnits(whole.mask, whole.engines)
        self.units: Final[int] = self.all.units
        self.engine_names: Final[tuple[str, ...]] = geometry.exclusive_engines if isinstance(geometry, GpuModel) else ()
        self._profile_engines = _profile_engines(geometry)
        self._groups = _group_by_placements(self.specs)
        self._single = sum({spec.mask for spec in self.specs if spec.mask.bit_count() == 1})
        """The bitset of units that are a partition each: every free one of them is usable."""
        self._values: dict[int, int] = {}
        self._usable: dict[int, int] = {}

    def free(self, taken: Iterable[Partition]) -> FreeUnits:
        """Return the free units and engines while ``taken``, partitions of one card of this geometry, are in use.

        An unknown profile, which another program created, takes its placement and no engines.
        """
        mask, engines = self.all
        nothing = (0,) * len(engines)
        for partition in taken:
            if partition.placement is None:
                return FreeUnits(0, nothing)
            mask &= ~unit_mask(partition.placement)
            used = self._profile_engines.get(partition.profile, nothing)
            engines = tuple(max(0, have - use) for have, use in zip(engines, used, strict=True))
        return FreeUnits(mask, engines)

    def fits(self, spec: PartitionSpec, free: FreeUnits) -> bool:
        return not spec.mask & ~free.mask and all(
            use <= have for use, have in zip(spec.engines, free.engines, strict=True)
        )

    def without(self, spec: PartitionSpec, free: FreeUnits) -> FreeUnits:
        """Return the rest of ``free`` once ``spec``, which fits, is taken."""
        engines = tuple(have - use for have, use in zip(free.engines, spec.engines, strict=True))
        return FreeUnits(free.mask & ~spec.mask, engines)

    def placement_value(self, mask: int) -> int:
        """Return the placement value of the units ``mask`` as the KEEP rule defines it.

        That is the sum over all profiles (or functions, or lengths of a run of slots), each taken alone, of its weight
        times the number of its instances that fit into ``mask`` together.
        """
        known = self._values.get(mask)
        if known is None:
            counted = (group.weight * _count_disjoint(group.masks, mask) for group in self._groups)
            known = self._values[mask] = sum(counted)
        return known

    def count_usable_units(self, mask: int) -> int:
        """Return the most units of ``mask`` that a choice of disjoint partitions can cover.

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
    """Return the unit map of the card's model or shell."""
    return get_geometry_unit_map(card.model if isinstance(card, GpuCard) else card.shell)


@lru_cache(maxsize=_UNIT_MAPS)
def get_geometry_unit_map(geometry: GpuModel | Shell) -> UnitMap:
    """Return the unit map of ``geometry``: the same object as long as it is in use."""
    return UnitMap(geometry)


def longest_run(mask: int) -> int:
    """Return the length of the longest run of set bits."""
    length = 0
    while mask:
        mask &= mask << 1
        length += 1
    return length


def _profile_engines(geometry: GpuModel | Shell) -> Mapping[str | None, tuple[int, ...]]:
    if not isinstance(geometry, GpuModel):
        return {}
    return {profile.name: exclusive_engines(geometry, profile.engines) for profile in geometry.profiles}


def _group_by_placements(specs: Iterable[PartitionSpec]) -> tuple[_PlacementGroup, ...]:
    """Group all partitions by placements; bare runs of slots count by their length, the whole card not at all."""
    by_name: dict[object, list[PartitionSpec]] = {}
    for spec in specs:
        if spec.placement is not None:
            by_name.setdefault(spec.profile or spec.function or spec.placement.size, []).append(spec)
    groups = set()
    for named in by_name.values():
        masks = sorted((spec.mask for spec in named), key=int.bit_length)
        weight = min(spec.profile.compute_slices if spec.profile else spec.mask.bit_count() for spec in named)
        groups.add(_PlacementGroup(weight, tuple(masks)))
    return tuple(sorted(groups))


def _count_disjoint(masks: Iterable[int], free: int) -> int:
    """The most disjoint ``masks`` inside ``free``: greedy by earliest end is optimal (interval scheduling)."""
    count = 0
    for mask in masks:
        if not mask & ~free:
            free &= ~mask
            count += 1
    return count
