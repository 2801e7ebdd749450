"""Markov chains of the partitions on a few H100 cards, under a given placement policy or under any.

A card is a tuple with a bitset of units for each partition in use. The profile of a partition does not matter once it
exists, because all partitions end at the same rate.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import permutations
from typing import Final, TypeAlias

from kerf_dra.driver.partitions.geometry import unit_mask
from kerf_dra.driver.partitions.publish_order import get_load_state, rank_placement
from kerf_dra.driver.partitions.unit_map import FreeUnits, get_unit_map
from tests.bench.markov_decision import Chain, explore
from tests.bench.offline_optimum import MODEL
from tests.bench.repack_policy import can_pack
from tests.partitions.cards import gpu
from tests.partitions.loss_system import MEMORY_SLICES

Card: TypeAlias = tuple[int, ...]
"""The bitset of each partition in use, ascending."""
State: TypeAlias = tuple[Card, ...]
Policy: TypeAlias = Callable[[State, str], Iterable[tuple[int, int]]]
"""What gives the placements that a request may get: the index of the card and the units."""

PLACEMENTS: Final = {
    profile: [unit_mask(place) for place in known.placements]
    for profile in MEMORY_SLICES
    if (known := MODEL.profile(profile))
}
UNITS: Final = range(MODEL.memory_slices)


def build_chain(cards: int, policy: Policy, canonical: Callable[[State], State] = lambda state: state) -> Chain:
    """Return the chain of ``policy``; ``canonical`` maps states that the policy cannot tell apart to one of them."""

    def choices(state: State, profile: str) -> set[State]:
        return {canonical(_with(state, card, (*state[card], units))) for card, units in policy(state, profile)}

    def leaving(state: State) -> Counter[State]:
        return Counter(
            canonical(_with(state, number, card[:at] + card[at + 1 :]))
            for number, card in enumerate(state)
            for at in range(len(card))
        )

    empty: State = ((),) * cards
    return explore(empty, list(MEMORY_SLICES), choices, leaving)


def _with(state: State, number: int, card: Card) -> State:
    return (*state[:number], tuple(sorted(card)), *state[number + 1 :])


def all_placements(state: State, profile: str) -> Iterator[tuple[int, int]]:
    """Yield every placement that fits."""
    for number, card in enumerate(state):
        yield from ((number, units) for units in PLACEMENTS[profile] if not units & sum(card))


def build_repacking_chain(cards: int) -> Chain:
    """Return the chain in which every partition may be moved at any time, so that a state is a count of each profile.

    Whatever is accepted on cards where nothing can be moved can be accepted here. So no policy that does not know the
    future, refuses what it likes and puts the rest where it likes, accepts more than the best of this chain.
    """
    profiles = list(MEMORY_SLICES)

    def choices(state: tuple[int, ...], profile: str) -> list[tuple[int, ...]]:
        more = _changed(state, profiles.index(profile), 1)
        return [more] if can_pack(dict(zip(profiles, more, strict=True)), cards) else []

    def leaving(state: tuple[int, ...]) -> dict[tuple[int, ...], int]:
        return {_changed(state, at, -1): count for at, count in enumerate(state) if count}

    return explore((0,) * len(profiles), profiles, choices, leaving)


def _changed(counts: tuple[int, ...], at: int, by: int) -> tuple[int, ...]:
    return (*counts[:at], counts[at] + by, *counts[at + 1 :])


def first_fit(state: State, profile: str) -> list[tuple[int, int]]:
    return list(all_placements(state, profile))[:1]


def publish_order(state: State, profile: str) -> list[tuple[int, int]]:
    """Return the placement that comes first in the publish order."""
    best = [(rank, number, units) for number, card in enumerate(state) for rank, units in _best(sum(card), profile)]
    return [min(best)[1:]] if best else []


@cache
def _best(used: int, profile: str) -> list[tuple[tuple[int, ...], int]]:
    """Return the first placement of the publish order on one card, with its rank."""
    card = gpu()
    unit_map = get_unit_map(card)
    free = FreeUnits(unit_map.all.mask & ~used, unit_map.all.engines)
    specs = [spec for spec in unit_map.specs if spec.profile == profile and not spec.mask & used]
    ranks = [(rank_placement(unit_map, spec, free, get_load_state(card)), spec.mask) for spec in specs]
    return [min(ranks)] if ranks else []


def canonicalize(state: State) -> State:
    """Return one representative of the states that differ only in the order of cards and in symmetries of a card."""
    return tuple(sorted(_canonicalize_card(card) for card in state))


@cache
def _canonicalize_card(card: Card) -> Card:
    blocked = [_blocked(units) for units in card]
    return min(tuple(sorted(_permute(units, order) for units in blocked)) for order in _symmetries())


def _blocked(units: int) -> int:
    """Return ``units`` with all units that no partition can use while ``units`` are in use."""
    free = [place for places in PLACEMENTS.values() for place in places if not place & units]
    return sum(1 << unit for unit in UNITS if not any(place >> unit & 1 for place in free))


@cache
def _symmetries() -> list[tuple[int, ...]]:
    """Return the permutations of a card's units that map the placements of each profile onto themselves."""
    return [
        order
        for order in permutations(UNITS)
        if all({_permute(place, order) for place in places} == set(places) for places in PLACEMENTS.values())
    ]


@cache
def _permute(units: int, order: tuple[int, ...]) -> int:
    return sum(1 << order[unit] for unit in UNITS if units >> unit & 1)
