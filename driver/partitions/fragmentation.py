"""How well the free part of a card can still be used."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from driver.partitions.geometry import Card, Partition
from driver.partitions.partition_specs import Cut
from driver.partitions.unit_map import Free, Grid, grid_of, longest_run

_STATES: Final = 4096
"""Sets of free units that are remembered: a card of eight units has 256, and a cluster few models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """The free part of one card, in units (memory slices or slots)."""

    card_uuid: str
    units: int
    free_units: int
    largest_free_run: int
    stranded_units: int
    """Free units that no choice of partitions can use: an eighth slice of seven 1g, or a hole that nothing fits."""
    free_instances: Mapping[str, int]
    """How many of each profile or function can be had at once, each taken alone; ``""`` for runs of slots without a
    function."""

    @property
    def usable_units(self) -> int:
        """Free units that some choice of partitions can use."""
        return self.free_units - self.stranded_units


def fragmentation(card: Card, taken: Collection[Partition]) -> Fragmentation:
    """Of ``card`` while ``taken`` are in use; partitions of other cards are passed over."""
    grid = grid_of(card)
    free = grid.free(partition for partition in taken if partition.card_uuid == card.uuid)
    return Fragmentation(
        card_uuid=card.uuid,
        units=grid.units,
        free_units=free.units,
        largest_free_run=longest_run(free.mask),
        stranded_units=free.units - grid.packable(free.mask),
        free_instances=_free_instances(grid, free),
    )


@lru_cache(maxsize=_STATES)
def _free_instances(grid: Grid, free: Free) -> Mapping[str, int]:
    cuts: dict[str, list[Cut]] = {}
    for cut in grid.cuts:
        if cut.placement is not None:
            named = cut.profile or cut.function
            cuts.setdefault(named.name if named else "", []).append(cut)
    return MappingProxyType({name: _most(grid, of_name, free) for name, of_name in cuts.items()})


def _most(grid: Grid, cuts: Iterable[Cut], free: Free) -> int:
    """The most of ``cuts`` that can be had together: taking the one that ends first is optimal for intervals."""
    count = 0
    for cut in sorted(cuts, key=lambda cut: (cut.mask.bit_length(), -cut.mask)):
        if grid.fits(cut, free):
            engines = (have - use for have, use in zip(free.engines, cut.engines, strict=True))
            free = Free(free.mask & ~cut.mask, tuple(engines))
            count += 1
    return count
