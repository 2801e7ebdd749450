"""Fragmentation of one card: the number of free units that partitions can still use."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from kerf_dra.driver.partitions.geometry import Card, Partition, PartitionSpec
from kerf_dra.driver.partitions.unit_map import (
    FreeUnits,
    LayoutUnits,
    UnitMap,
    count_disjoint,
    get_unit_map,
    longest_run,
)

_STATES: Final = 4096
"""The most sets of free units kept: a card of eight units has 256, and a cluster few models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """The free units of one card; of several layouts those of the one in use, or else of the one with most units."""

    card_uuid: str
    units: int
    free_units: int
    largest_free_run: int
    stranded_units: int
    """Free units that no choice of partitions can use: an eighth slice of seven 1g, or a gap that no placement fits."""
    free_instances: Mapping[str, int]
    """The number of partitions of each profile or function that fit at once, each taken alone, in any layout; ``""``
    stands for bare sets of units."""

    @property
    def usable_units(self) -> int:
        """Free units that some choice of partitions can use."""
        return self.free_units - self.stranded_units


def fragmentation(card: Card, taken: Collection[Partition]) -> Fragmentation:
    """Return the fragmentation of ``card`` while ``taken`` are in use; partitions of other cards are ignored."""
    unit_map = get_unit_map(card)
    own = [partition for partition in taken if partition.card_uuid == card.uuid]
    free = unit_map.free(own)
    units = _find_layout(unit_map, own)
    mask = free.mask & units.mask
    return Fragmentation(
        card_uuid=card.uuid,
        units=units.mask.bit_count(),
        free_units=mask.bit_count(),
        largest_free_run=longest_run(mask),
        stranded_units=mask.bit_count() - unit_map.count_usable_units(mask),
        free_instances=_free_instances(unit_map, free),
    )


def _find_layout(unit_map: UnitMap, taken: Iterable[Partition]) -> LayoutUnits:
    """Return the layout that ``taken`` are of; nothing is taken, or the whole card: the one with most units."""
    in_use = [partition.placement.layout for partition in taken if partition.placement is not None]
    found = [unit_map.layouts[layout] for layout in in_use if layout in unit_map.layouts]
    return found[0] if found else max(unit_map.layouts.values(), key=lambda layout: layout.mask.bit_count())


@lru_cache(maxsize=_STATES)
def _free_instances(unit_map: UnitMap, free: FreeUnits) -> Mapping[str, int]:
    by_name: dict[str, list[PartitionSpec]] = {}
    for spec in unit_map.specs:
        if spec.placement is not None:
            by_name.setdefault(spec.profile or spec.function or "", []).append(spec)
    return MappingProxyType({name: _count_instances(unit_map, specs, free) for name, specs in by_name.items()})


def _count_instances(unit_map: UnitMap, specs: Collection[PartitionSpec], free: FreeUnits) -> int:
    """The most of ``specs`` that fit together, in whichever layout has most."""
    return max(_count_in_layout(unit_map, specs, free._replace(mask=mask)) for mask in unit_map.list_layouts(free))


def _count_in_layout(unit_map: UnitMap, specs: Iterable[PartitionSpec], free: FreeUnits) -> int:
    ordered = sorted(specs, key=lambda spec: (spec.mask.bit_length(), -spec.mask))
    if not free.engines:
        return count_disjoint([spec.mask for spec in ordered], free.mask)
    count = 0
    for spec in ordered:  # all are runs: greedy by earliest end is optimal (interval scheduling)
        if unit_map.fits(spec, free):
            free = unit_map.without(spec, free)
            count += 1
    return count
