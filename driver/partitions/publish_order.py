"""The publish order of partitions, which decides placement although the scheduler chooses.

kube-scheduler takes the first device that matches, in the order slices and devices are published
(kubernetes/dynamic-resource-allocation ``structured``, Kubernetes 1.36). So the order is the placement policy:

1. from small to large, so that "at least 18 Gi" matches the smallest partition that has it first; whole cards last;
2. inside one size a sequence: the best placement by the rules below, then the best once that is taken, and so on until
   none fits. Claims that come faster than slices are published walk it, and are placed as if they had come one by one;
3. after the last placement of a card in that sequence what else is available there, which overlaps the sequence or
   competes with it for engines, by the same rules as things are now. A claim of one size never comes to it; one that
   finds the sequence taken by claims of other sizes stays on a card that is broken already;
4. then what is not available.

The best placement of a size:

1. functions: where the function is loaded already, then where nothing is, then where a load replaces another function,
   last where the card needs another layout first;
2. KEEP: the placement whose loss is least. A card's placement value (``UnitMap.placement_value``) is the sum over its
   profiles of their weight times how many more of that profile still fit; the loss is the decrease of that value;
3. the fullest card, so that empty cards stay whole;
4. the order of the cards, then the first unit.

Eight claims of 1g.10gb that come at once to eight empty H100 get seven partitions of one card and one of another; an
order by the losses of now alone would give them a partition of each card. On one node with eight H100 at 85 to 100 %
load this order accepts 0.7 to 2.0 in a hundred more requests than the order of names, and never fewer in any measured
mix (``tests/partitions/test_publish_order.py`` has the table). Across nodes it orders nothing (``docs/placement.md``).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.driver.partitions.geometry import Card, Partition, PartitionSpec, Placement
from kerf_dra.driver.partitions.unit_map import FreeUnits, UnitMap, get_unit_map

_CARD_ORDERS: Final = 1024
"""The most orders of single cards that are kept, of some kilobytes each: more states than the cards of a node go
through in hours. Equal cards in equal states share one."""

Size: TypeAlias = tuple[bool, tuple[int, ...]]
"""Whether it is the whole card, and the size of the partition: from small to large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOrder:
    """All partitions of some cards, in the order in which they should be published."""

    partitions: tuple[Partition, ...]
    available: frozenset[Partition]
    """The partitions that were free when the order was computed."""
    losses: Mapping[Partition, int]
    """The loss of each available partition at that time, by which ``lossRank`` grades devices (docs/placement.md)."""


class PlacementRank(NamedTuple):
    """The rank of an available placement among those of its size on all cards: the lower one is better."""

    reload: int
    """0: the function is loaded; 1: the units are blank; 2: a loaded function would be replaced; 3: the card has
    another layout now."""
    loss: int
    """The decrease of the card's placement value (KEEP)."""
    free: int
    """The free units of the card: the fullest first."""


class LoadState(NamedTuple):
    """What is loaded on a card, as far as it makes one placement better than another."""

    layout: str = ""
    """The layout that the card has."""
    functions: tuple[tuple[Placement, str], ...] = ()
    """The loaded functions by placement, in order."""


class _Candidate(NamedTuple):
    """An available partition of a card."""

    rank: PlacementRank
    number: int
    """The number of its spec in the geometry."""


class _SizeOrder(NamedTuple):
    """The order of one card's partitions of one size."""

    sequence: tuple[_Candidate, ...]
    """The partitions that fit together, each the best once those before it are taken, with its rank then."""
    unreached: tuple[_Candidate, ...]
    """The other available ones, with their ranks now, the best first."""
    unavailable: tuple[int, ...]
    """The numbers of the specs that do not fit now."""
    losses: Mapping[int, int]
    """The losses now of the available ones, by the numbers of their specs."""


def publish_order(cards: Sequence[Card], taken: Collection[Partition]) -> PublishOrder:
    """Compute the order for ``cards`` (stable order, distinct UUIDs) while ``taken`` are in use by any claims.

    It is deterministic. Partitions of one size that are not available keep their order among each other, so that the
    order changes only where this can change what is allocated.
    """
    held: dict[str, list[Partition]] = {}
    for partition in taken:
        held.setdefault(partition.card_uuid, []).append(partition)
    by_size: dict[Size, list[tuple[int, _SizeOrder]]] = {}
    unit_maps = [get_unit_map(card) for card in cards]
    for position, (card, unit_map) in enumerate(zip(cards, unit_maps, strict=True)):
        free = unit_map.free(held.get(card.uuid, ()))
        for size, order in _order_card(unit_map, free, get_load_state(card)).items():
            by_size.setdefault(size, []).append((position, order))
    ordered: list[Partition] = []
    losses: dict[Partition, int] = {}
    for _, orders in sorted(by_size.items()):
        by_position = dict(orders)
        found = {
            unit_maps[at].specs[number].of(cards[at].uuid): by_position[at].losses[number]
            for at, number in _list_available(orders)
        }
        losses |= found
        ordered += found
        ordered += [
            unit_maps[at].specs[number].of(cards[at].uuid) for at, order in orders for number in order.unavailable
        ]
    return PublishOrder(partitions=tuple(ordered), available=frozenset(losses), losses=losses)


def needs_republish(old: PublishOrder, new: PublishOrder, *, with_losses: bool = False) -> bool:
    """Whether publishing ``new`` instead of ``old`` changes what a first-fit scheduler would choose now.

    Only the order among the partitions that are available now counts, but all of it, because claims that come at once
    walk it. Claims of one size leave of its sequence what is the sequence then. ``with_losses``: devices say their
    losses, so those of available partitions count too.
    """
    if frozenset(old.partitions) != frozenset(new.partitions):
        return True
    if with_losses and any(old.losses.get(each) != loss for each, loss in new.losses.items()):
        return True
    return [p for p in old.partitions if p in new.available] != [p for p in new.partitions if p in new.available]


def get_load_state(card: Card) -> LoadState:
    """Return what is loaded on ``card``."""
    return LoadState(card.layout, tuple(sorted(card.loaded.items())))


def rank_placement(unit_map: UnitMap, spec: PartitionSpec, free: FreeUnits, loaded: LoadState) -> PlacementRank:
    """Return the rank of ``spec``, which fits into ``free``, on a card with ``loaded``."""
    return PlacementRank(_reload_rank(spec, loaded), unit_map.loss(spec, free), free.units)


def _reload_rank(spec: PartitionSpec, loaded: LoadState) -> int:
    placement = spec.placement
    if placement is None:
        return 1
    if placement.layout != loaded.layout:
        return 3
    if _is_loaded(spec, loaded):
        return 0
    return 2 if any(placement.overlaps(other) for other, _ in loaded.functions) else 1


def _is_loaded(spec: PartitionSpec, loaded: LoadState) -> bool:
    return spec.placement is not None and (spec.placement, spec.function) in loaded.functions


def _replace_loaded(spec: PartitionSpec, loaded: LoadState) -> LoadState:
    """Return what is loaded once ``spec``, whose function is not loaded there, is taken: it replaces what is there."""
    placement = spec.placement
    if placement is None:
        return LoadState(loaded.layout)
    kept = tuple((other, function) for other, function in loaded.functions if not placement.overlaps(other))
    return LoadState(placement.layout, kept)


@lru_cache(maxsize=_CARD_ORDERS)
def _order_card(unit_map: UnitMap, free: FreeUnits, loaded: LoadState) -> Mapping[Size, _SizeOrder]:
    """Return the order of a card's partitions by size. What is best on a card does not depend on other cards."""
    by_size = groupby(enumerate(unit_map.specs), key=lambda numbered: _size(numbered[1]))
    return {size: _order_size(unit_map, dict(specs), free, loaded) for size, specs in by_size}


def _size(spec: PartitionSpec) -> Size:
    return (spec.placement is None, spec.size)


def _order_size(
    unit_map: UnitMap, specs: Mapping[int, PartitionSpec], free: FreeUnits, loaded: LoadState
) -> _SizeOrder:
    fitting = {number: spec for number, spec in specs.items() if unit_map.fits(spec, free)}
    sequence = tuple(_take_best_first(unit_map, fitting, free, loaded))
    reached = {candidate.number for candidate in sequence}
    unreached = sorted(
        _Candidate(rank_placement(unit_map, spec, free, loaded), number)
        for number, spec in fitting.items()
        if number not in reached
    )
    losses = {number: unit_map.loss(spec, free) for number, spec in fitting.items()}
    return _SizeOrder(sequence, tuple(unreached), tuple(number for number in specs if number not in fitting), losses)


def _take_best_first(
    unit_map: UnitMap, fitting: Mapping[int, PartitionSpec], free: FreeUnits, loaded: LoadState
) -> Iterator[_Candidate]:
    """Yield the best of ``fitting``, take it, and so on until nothing fits."""
    while fitting:
        best = min(_Candidate(rank_placement(unit_map, spec, free, loaded), number) for number, spec in fitting.items())
        yield best
        chosen = fitting[best.number]
        free = unit_map.without(chosen, free)
        if not _is_loaded(chosen, loaded):
            loaded = _replace_loaded(chosen, loaded)
        fitting = {number: spec for number, spec in fitting.items() if unit_map.fits(spec, free)}


def _list_available(orders: Sequence[tuple[int, _SizeOrder]]) -> Iterator[tuple[int, int]]:
    """Yield the available partitions of one size, by card and spec, of the ``orders`` of all cards.

    The best of all cards is the best of one of them, and taking it changes nothing on the others. So the sequence over
    all cards takes the best of what comes next in theirs.
    """
    following = {at: order for at, order in orders if order.sequence}
    heads = [(order.sequence[0].rank, at, order.sequence[0].number, 0) for at, order in following.items()]
    heapify(heads)
    while heads:
        _, at, number, step = heads[0]
        yield at, number
        if step + 1 < len(following[at].sequence):
            rank, number = following[at].sequence[step + 1]
            heapreplace(heads, (rank, at, number, step + 1))
        else:
            heappop(heads)
            yield from ((at, number) for _, number in following[at].unreached)
