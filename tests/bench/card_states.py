"""What lies where on a few H100 cards, as the states of a chain: for the policies there are, and for the best.

A card is the units of each partition in use, as bits. Which profile a partition has no longer matters once it is there:
all leave at the same rate.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import permutations
from typing import Final, TypeAlias

from driver.partitions.partition_specs import unit_mask
from driver.partitions.publish_order import rank_placement
from driver.partitions.unit_map import FreeUnits, get_unit_map
from tests.bench.markov_decision import Chain, explore
from tests.bench.offline_optimum import MODEL
from tests.bench.repack_policy import packs
from tests.partitions.cards import gpu
from tests.partitions.loss_system import MEMORY_SLICES

Card: TypeAlias = tuple[int, ...]
"""Ascending."""
State: TypeAlias = tuple[Card, ...]
Policy: TypeAlias = Callable[[State, str], Iterable[tuple[int, int]]]
"""The places a request may get: which card, which units."""

PLACES: Final = {
    profile: [unit_mask(place) for place in known.placements]
    for profile in MEMORY_SLICES
    if (known := MODEL.profile(profile))
}
UNITS: Final = range(MODEL.memory_slices)


def placed(cards: int, policy: Policy, same: Callable[[State], State] = lambda state: state) -> Chain:
    """``same`` gives one state for all that are alike to the policy."""

    def choices(state: State, profile: str) -> set[State]:
        return {same(_with(state, card, (*state[card], units))) for card, units in policy(state, profile)}

    def leaving(state: State) -> Counter[State]:
        return Counter(
            same(_with(state, number, card[:at] + card[at + 1 :]))
            for number, card in enumerate(state)
            for at in range(len(card))
        )

    empty: State = ((),) * cards
    return explore(empty, list(MEMORY_SLICES), choices, leaving)


def _with(state: State, number: int, card: Card) -> State:
    return (*state[:number], tuple(sorted(card)), *state[number + 1 :])


def anywhere(state: State, profile: str) -> Iterator[tuple[int, int]]:
    """Wherever it fits."""
    for number, card in enumerate(state):
        yield from ((number, units) for units in PLACES[profile] if not units & sum(card))


def repacked(cards: int) -> Chain:
    """Where every partition may be moved at any time, so that only how many of each profile there are matters.

    Whatever is accepted on cards where nothing can be moved can be accepted here. So no policy that does not know the
    future, refuses what it likes and puts the rest where it likes, accepts more than the best of this chain.
    """
    profiles = list(MEMORY_SLICES)

    def choices(state: tuple[int, ...], profile: str) -> list[tuple[int, ...]]:
        more = _changed(state, profiles.index(profile), 1)
        return [more] if packs(dict(zip(profiles, more, strict=True)), cards) else []

    def leaving(state: tuple[int, ...]) -> dict[tuple[int, ...], int]:
        return {_changed(state, at, -1): count for at, count in enumerate(state) if count}

    return explore((0,) * len(profiles), profiles, choices, leaving)


def _changed(counts: tuple[int, ...], at: int, by: int) -> tuple[int, ...]:
    return (*counts[:at], counts[at] + by, *counts[at + 1 :])


def first_fit(state: State, profile: str) -> list[tuple[int, int]]:
    return list(anywhere(state, profile))[:1]


def kept(state: State, profile: str) -> list[tuple[int, int]]:
    """Where the publish order has it first."""
    best = [(rank, number, units) for number, card in enumerate(state) for rank, units in _best(sum(card), profile)]
    return [min(best)[1:]] if best else []


@cache
def _best(used: int, profile: str) -> list[tuple[tuple[int, ...], int]]:
    """Of one card, with its rank."""
    card = gpu()
    unit_map = get_unit_map(card)
    free = FreeUnits(unit_map.all.mask & ~used, unit_map.all.engines)
    specs = [spec for spec in unit_map.specs if spec.profile and spec.profile.name == profile and not spec.mask & used]
    ranks = [(rank_placement(card, unit_map, spec, free), spec.mask) for spec in specs]
    return [min(ranks)] if ranks else []


def alike(state: State) -> State:
    """The same for states with the same future under the best policy: cards stand in no order, nor do equal places."""
    return tuple(sorted(_alike(card) for card in state))


@cache
def _alike(card: Card) -> Card:
    blocked = [_blocked(units) for units in card]
    return min(tuple(sorted(_moved(units, order) for units in blocked)) for order in _symmetries())


def _blocked(units: int) -> int:
    """With what cannot be had while ``units`` are in use: nothing is cut from the last unit alone."""
    free = [place for places in PLACES.values() for place in places if not place & units]
    return sum(1 << unit for unit in UNITS if not any(place >> unit & 1 for place in free))


@cache
def _symmetries() -> list[tuple[int, ...]]:
    """Orders of a card's units by which the places of every profile only change among each other."""
    return [
        order
        for order in permutations(UNITS)
        if all({_moved(place, order) for place in places} == set(places) for places in PLACES.values())
    ]


@cache
def _moved(units: int, order: tuple[int, ...]) -> int:
    return sum(1 << order[unit] for unit in UNITS if units >> unit & 1)
