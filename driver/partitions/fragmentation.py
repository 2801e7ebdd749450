"""Fragmentation of one card: the number of free units that partitions can still use."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from driver.partitions.geometry import Card, Partition, PartitionSpec
from driver.partitions.unit_map import FreeUnits, UnitMap, get_unit_map, longest_run

_STATES: Final = 4096
"""The most sets of free units kept: a card of eight units has 256, and a cluster few models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """The free units of one card."""

    card_uuid: str
    units: int
    free_units: int
    largest_free_run: int
    stranded_units: int
    """Free units that no choice of partitions can use: an eighth slice of seven 1g, or a gap that no placement fits."""
    free_instances: Mapping[str, int]
    """The number of partitions of each profile or function that fit at once, each taken alone; ``""`` stands for bare
    runs of units."""

    @property
    def usable_units(self) -> int:
        """Free units that some choice of partitions can use."""
        return self.free_units - self.stranded_units


def fragmentation(card: Card, taken: Collection[Partition]) -> Fragmentation:
    """Return the fragmentation of ``card`` while ``taken`` are in use; partitions of other cards are ignored."""
    unit_map = get_unit_map(card)
    free = unit_map.free(partition for partition in taken if partition.card_uuid == card.uuid)
    return Fragmentation(
        card_uuid=card.uuid,
        units=unit_map.units,
        free_units=free.units,
        largest_free_run=longest_run(free.mask),
        stranded_units=free.units - unit_map.count_usable_units(free.mask),
        free_instances=_free_instances(unit_map, free),
    )


@lru_cache(maxsize=_STATES)
def _free_instances(unit_map: UnitMap, free: FreeUnits) -> Mapping[str, int]:
    by_name: dict[str, list[PartitionSpec]] = {}
    for spec in unit_map.specs:
        if spec.placement is not None:
            by_name.setdefault(spec.profile or spec.function or "", []).append(spec)
    return MappingProxyType({name: _count_instances(unit_map, specs, free) for name, specs in by_name.items()})


def _count_instances(unit_map: UnitMap, specs: Iterable[PartitionSpec], free: FreeUnits) -> int:
    """The most of ``specs`` that fit together: greedy by earliest end is optimal (interval scheduling)."""
    count = 0
    for spec in sorted(specs, key=lambda spec: (spec.mask.bit_length(), -spec.mask)):
        if unit_map.fits(spec, free):
            free = unit_map.without(spec, free)
            count += 1
    return count
