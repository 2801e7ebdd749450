"""A card as a row of units: what of it is free, what still fits there, and what the free part is worth.

A grid belongs to a geometry (a GPU model or a shell), not to a card, and remembers what it computed for a set of free
units: of eight units there are 256 sets, of twelve 4096.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from driver.partitions.geometry import Card, GpuCard, GpuModel, Partition, Shell
from driver.partitions.partition_specs import Cut, cuts_of, exclusive_engines, mask_of

_GRIDS: Final = 256
"""Grids remembered: more than there are models and shells in any cluster, live variants of a model included."""


class Free(NamedTuple):
    """What is left of a card: units, and how many of each exclusive engine."""

    mask: int
    engines: tuple[int, ...]

    @property
    def units(self) -> int:
        return self.mask.bit_count()


class _Shape(NamedTuple):
    """Cuts that lie in the same places: profiles that differ only in engines are one shape."""

    weight: int
    """Compute slices, or slots."""
    masks: tuple[int, ...]
    """Ascending by the last unit."""


class Grid:
    """The cuts of one geometry, and arithmetic over sets of its units."""

    def __init__(self, geometry: GpuModel | Shell) -> None:
        self.cuts: Final[tuple[Cut, ...]] = cuts_of(geometry)
        """Smallest first, the whole card last."""
        whole = self.cuts[-1]
        self.all: Final[Free] = Free(whole.mask, whole.engines)
        self.units: Final[int] = self.all.units
        self.engine_names: Final[tuple[str, ...]] = geometry.exclusive_engines if isinstance(geometry, GpuModel) else ()
        self._profile_engines = _profile_engines(geometry)
        self._shapes = _shapes(self.cuts)
        self._single = sum({cut.mask for cut in self.cuts if cut.mask.bit_count() == 1})
        """Units that can be had alone: every free one of them is of use."""
        self._worth: dict[int, int] = {}
        self._packable: dict[int, int] = {}

    def free(self, taken: Iterable[Partition]) -> Free:
        """What is left while ``taken``, partitions of one card with this grid, are in use.

        A profile that the geometry does not know, cut by somebody else, takes its placement and no engines.
        """
        mask, engines = self.all
        nothing = (0,) * len(engines)
        for partition in taken:
            if partition.placement is None:
                return Free(0, nothing)
            mask &= ~mask_of(partition.placement)
            used = self._profile_engines.get(partition.profile, nothing)
            engines = tuple(max(0, have - use) for have, use in zip(engines, used, strict=True))
        return Free(mask, engines)

    def fits(self, cut: Cut, free: Free) -> bool:
        return not cut.mask & ~free.mask and all(
            use <= have for use, have in zip(cut.engines, free.engines, strict=True)
        )

    def without(self, cut: Cut, free: Free) -> Free:
        """What is left of ``free`` once ``cut``, which fits, is taken."""
        engines = tuple(have - use for have, use in zip(free.engines, cut.engines, strict=True))
        return Free(free.mask & ~cut.mask, engines)

    def worth(self, mask: int) -> int:
        """Sum over all shapes: weight times how many more of it fit into the units ``mask``, each shape alone."""
        known = self._worth.get(mask)
        if known is None:
            known = self._worth[mask] = sum(shape.weight * _count(shape.masks, mask) for shape in self._shapes)
        return known

    def packable(self, mask: int) -> int:
        """How many of the units ``mask`` can be used by disjoint cuts at best."""
        if not mask & ~self._single:
            return mask.bit_count()
        known = self._packable.get(mask)
        if known is None:
            lowest = mask & -mask
            without = self.packable(mask & ~lowest)
            using = [
                cut.mask.bit_count() + self.packable(mask & ~cut.mask)
                for cut in self.cuts
                if cut.mask & lowest and not cut.mask & ~mask
            ]
            known = self._packable[mask] = max([without, *using])
        return known


def grid_of(card: Card) -> Grid:
    """The grid of the card's model or shell."""
    return grid_of_geometry(card.model if isinstance(card, GpuCard) else card.shell)


@lru_cache(maxsize=_GRIDS)
def grid_of_geometry(geometry: GpuModel | Shell) -> Grid:
    return Grid(geometry)


def longest_run(mask: int) -> int:
    """Length of the longest run of set bits."""
    length = 0
    while mask:
        mask &= mask << 1
        length += 1
    return length


def _profile_engines(geometry: GpuModel | Shell) -> Mapping[str | None, tuple[int, ...]]:
    if not isinstance(geometry, GpuModel):
        return {}
    return {profile.name: exclusive_engines(geometry, profile.engines) for profile in geometry.profiles}


def _shapes(cuts: Iterable[Cut]) -> tuple[_Shape, ...]:
    """Distinct shapes of all partitions; raw runs of slots count by their length, the whole card not at all."""
    places: dict[object, list[Cut]] = {}
    for cut in cuts:
        if cut.placement is not None:
            places.setdefault(cut.profile or cut.function or cut.placement.size, []).append(cut)
    shapes = set()
    for group in places.values():
        masks = sorted((cut.mask for cut in group), key=int.bit_length)
        weight = min(cut.profile.compute_slices if cut.profile else cut.mask.bit_count() for cut in group)
        shapes.add(_Shape(weight, tuple(masks)))
    return tuple(sorted(shapes))


def _count(masks: Iterable[int], free: int) -> int:
    """The most disjoint ``masks`` inside ``free``: taking the one that ends first is optimal for intervals."""
    count = 0
    for mask in masks:
        if not mask & ~free:
            free &= ~mask
            count += 1
    return count
