"""How well the free part of a card can still be used."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from driver.partitions.geometry import Card, Partition
from driver.partitions.grids import grid_of, longest_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """The free part of one card, in units (memory slices or slots)."""

    card_uuid: str
    units: int
    free_units: int
    largest_free_run: int
    stranded_units: int
    """Free units that no choice of partitions can use: an eighth slice of seven 1g, or a hole that nothing fits."""
    free_placements: Mapping[str, int]
    """How many placements of each profile or function can be had now; ``""`` for runs of slots without a function."""


def fragmentation(card: Card, taken: Collection[Partition]) -> Fragmentation:
    """Of ``card`` while ``taken`` are in use; partitions of other cards are passed over."""
    grid = grid_of(card)
    free = grid.free(partition for partition in taken if partition.card_uuid == card.uuid)
    placements: dict[str, int] = {}
    for cut in grid.cuts:
        if cut.placement is not None:
            named = cut.profile or cut.function
            name = named.name if named else ""
            placements[name] = placements.get(name, 0) + grid.fits(cut, free)
    return Fragmentation(
        card_uuid=card.uuid,
        units=grid.units,
        free_units=free.units,
        largest_free_run=longest_run(free.mask),
        stranded_units=free.units - grid.packable(free.mask),
        free_placements=MappingProxyType(placements),
    )
