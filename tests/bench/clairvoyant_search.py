"""Clairvoyant placement: a beam search that knows all requests and their ends, and refuses nothing that fits.

Of all arrangements of partitions that the requests so far can lead to, the search keeps the ``width`` best, ranked by
what they have accepted and by KEEP's worth of their free units. The result is a feasible schedule, and so a lower bound
on the optimum.
"""

from collections.abc import Iterator, Sequence
from heapq import nlargest, nsmallest
from statistics import mean
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.driver.partitions.unit_map import get_unit_map
from tests.bench.card_states import PLACEMENTS
from tests.partitions.cards import gpu
from tests.partitions.loss_system import Request

UNIT_MAP: Final = get_unit_map(gpu())
WORTH_WEIGHT: Final = 0.03
"""The weight of KEEP's worth, in requests: the best of 0.01, 0.03 and 0.06 on some requests of one case."""
BRANCHES: Final = 8
"""Placements that are tried for a request in one arrangement, the least loss of worth first."""


class _Card(NamedTuple):
    free: int
    held: tuple[tuple[float, int], ...]
    """The end and the units of each partition in use, by end."""


_Cards: TypeAlias = tuple[_Card, ...]


class _SearchNode(NamedTuple):
    """The decision on one request, and the node before it."""

    value: float
    accepted: bool
    before: "_SearchNode | None"


def search(requests: Sequence[Request], *, cards: int, worth: Sequence[float], width: int) -> list[bool]:
    """Return which of ``requests``, in order of arrival on empty cards, the best schedule found accepts."""
    weight = WORTH_WEIGHT * mean(worth)
    beam: dict[_Cards, _SearchNode] = {(_Card(UNIT_MAP.all.mask, ()),) * cards: _SearchNode(0, False, None)}
    for request, value in zip(requests, worth, strict=True):
        following: dict[_Cards, _SearchNode] = {}
        for arrangement, node in beam.items():
            now = tuple(sorted(_free_ended(card, request.at) for card in arrangement))
            placed = list(_place(now, request))
            then = _SearchNode(node.value + value * bool(placed), bool(placed), node)
            for each in placed or [now]:
                if each not in following or following[each].value < then.value:
                    following[each] = then
        best = nlargest(width, following, key=lambda each: following[each].value + weight * _worth(each))
        beam = {each: following[each] for each in best}
    return _accepted(max(beam.values(), key=lambda node: node.value))


def _free_ended(card: _Card, now: float) -> _Card:
    free, held = card
    while held and held[0][0] <= now:
        free, held = free | held[0][1], held[1:]
    return _Card(free, held)


def _place(cards: _Cards, request: Request) -> Iterator[_Cards]:
    places = [
        (
            UNIT_MAP.placement_value(card.free) - UNIT_MAP.placement_value(card.free & ~units),
            card.free.bit_count(),
            number,
            units,
        )
        for number, card in enumerate(cards)
        if number == 0 or card != cards[number - 1]
        for units in PLACEMENTS[request.profile]
        if not units & ~card.free
    ]
    for _, _, number, units in nsmallest(BRANCHES, places):
        free, held = cards[number]
        card = _Card(free & ~units, tuple(sorted((*held, (request.until, units)))))
        yield tuple(sorted((*cards[:number], card, *cards[number + 1 :])))


def _worth(cards: _Cards) -> int:
    return sum(UNIT_MAP.placement_value(card.free) for card in cards)


def _accepted(node: _SearchNode) -> list[bool]:
    answers = []
    while node.before is not None:
        answers.append(node.accepted)
        node = node.before
    return answers[::-1]
