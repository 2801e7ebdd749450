"""Placing by one who knows what will come and when everything ends, but refuses nothing that fits: a beam search.

Of all arrangements that the requests so far could have led to, it goes on from the few that promise most: by what they
have accepted, and by what KEEP's worth says of their free units. What it finds is a schedule that exists; the best
there is may be better.
"""

from collections.abc import Iterator, Sequence
from heapq import nlargest, nsmallest
from statistics import mean
from typing import Final, NamedTuple, TypeAlias

from driver.partitions.unit_map import get_unit_map
from tests.bench.card_states import PLACES
from tests.partitions.cards import gpu
from tests.partitions.loss_system import Request

UNIT_MAP: Final = get_unit_map(gpu())
HOPE: Final = 0.03
"""What a unit of KEEP's worth counts, in requests: of 0.01, 0.03 and 0.06 the best on some requests of one cell."""
BRANCHES: Final = 8
"""Places tried for a request in one arrangement, least loss first."""


class _Card(NamedTuple):
    free: int
    held: tuple[tuple[float, int], ...]
    """When each partition in use ends, the first to end first, and its units."""


_Cards: TypeAlias = tuple[_Card, ...]


class _Past(NamedTuple):
    value: float
    accepted: bool
    before: "_Past | None"


def search(requests: Sequence[Request], *, cards: int, worth: Sequence[float], width: int) -> list[bool]:
    """Which of ``requests``, in order of their arrival on empty cards, the best found accepts."""
    hope = HOPE * mean(worth)
    beam: dict[_Cards, _Past] = {(_Card(UNIT_MAP.all.mask, ()),) * cards: _Past(0, False, None)}
    for request, value in zip(requests, worth, strict=True):
        following: dict[_Cards, _Past] = {}
        for arrangement, past in beam.items():
            now = tuple(sorted(_after(card, request.at) for card in arrangement))
            placed = list(_placed(now, request))
            then = _Past(past.value + value * bool(placed), bool(placed), past)
            for each in placed or [now]:
                if each not in following or following[each].value < then.value:
                    following[each] = then
        best = nlargest(width, following, key=lambda each: following[each].value + hope * _worth(each))
        beam = {each: following[each] for each in best}
    return _accepted(max(beam.values(), key=lambda past: past.value))


def _after(card: _Card, now: float) -> _Card:
    free, held = card
    while held and held[0][0] <= now:
        free, held = free | held[0][1], held[1:]
    return _Card(free, held)


def _placed(cards: _Cards, request: Request) -> Iterator[_Cards]:
    places = [
        (
            UNIT_MAP.placement_value(card.free) - UNIT_MAP.placement_value(card.free & ~units),
            card.free.bit_count(),
            number,
            units,
        )
        for number, card in enumerate(cards)
        if number == 0 or card != cards[number - 1]
        for units in PLACES[request.profile]
        if not units & ~card.free
    ]
    for _, _, number, units in nsmallest(BRANCHES, places):
        free, held = cards[number]
        card = _Card(free & ~units, tuple(sorted((*held, (request.until, units)))))
        yield tuple(sorted((*cards[:number], card, *cards[number + 1 :])))


def _worth(cards: _Cards) -> int:
    return sum(UNIT_MAP.placement_value(card.free) for card in cards)


def _accepted(past: _Past) -> list[bool]:
    answers = []
    while past.before is not None:
        answers.append(past.accepted)
        past = past.before
    return answers[::-1]
