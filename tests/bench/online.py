"""What is accepted at best by one who does not know the future: exactly on few cards, as a bound on more.

The best for requests and the best for memory slices are two policies; each figure is the most of its kind.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tests.bench import card_states
from tests.bench.markov_decision import Chain, most
from tests.partitions import loss_system
from tests.partitions.loss_system import MEMORY_SLICES, Accepted

HEADER: Final = ("WHAT", "FIRST FIT", "KEEP", "BOTH", "PLACED", "REFUSING", "REPACKED", "REPACKED, REFUSING")
POLICIES_UP_TO: Final = 2
"""Cards. On three, 72 million arrangements differ for the first fit."""
PLACES_UP_TO: Final = 3
"""Cards. Three have 171,700 arrangements that differ for the best policy, four 4.4 million."""
PRICES: Final = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)
"""Of a slice, in requests. Each gives a bound; the best of finer steps was 0.01 points better."""
_SIZES: Final = list(MEMORY_SLICES.values())


def rows(cards: int, loads: Sequence[tuple[str, float]]) -> Iterator[tuple[str, ...]]:
    """For each mix and load."""
    policies = [card_states.first_fit, card_states.kept] if cards <= POLICIES_UP_TO else []
    fixed = [card_states.placed(cards, policy) for policy in policies]
    best = card_states.placed(cards, card_states.anywhere, card_states.alike) if cards <= PLACES_UP_TO else None
    repacked = card_states.repacked(cards)
    for mix, load in loads:
        rate = loss_system.rate(cards=cards, mix=mix, load=load)
        arrivals = [rate * weight for weight in loss_system.MIXES[mix]]
        known = [_most(chain, arrivals) for chain in fixed]
        both = f"{_both(best, arrivals, known[-1].slices):.2f}" if best and known else ""
        placed = [_text(_most(best, arrivals, may_refuse=each)) if best else "" for each in (False, True)]
        moved = [_text(_most(repacked, arrivals, may_refuse=each)) for each in (False, True)]
        texts = [_text(each) for each in known] or ["", ""]
        yield f"{cards} H100, {mix}, load {load}", *texts, both, *placed, *moved


def _most(chain: Chain, arrivals: Sequence[float], *, may_refuse: bool = False) -> Accepted:
    answers = (most(chain, arrivals, worth, may_refuse=may_refuse) for worth in ([1] * len(arrivals), _SIZES))
    return Accepted(*(sum(answer) / 2 for answer in answers))


def _both(chain: Chain, arrivals: Sequence[float], slices: float) -> float:
    """No way to place that accepts at least so many ``slices``, in percent, accepts more requests than this.

    Whatever the price, the best policy earns at least as much as any of these by requests and slices together
    (Lagrangian relaxation).
    """
    requests_offered = sum(arrivals)
    slices_offered = sum(rate * size for rate, size in zip(arrivals, _SIZES, strict=True))

    def bound(price: float) -> float:
        earned = most(chain, arrivals, [1 + price * size for size in _SIZES], may_refuse=False).high
        by_slices = price * slices_offered
        return (earned * (requests_offered + by_slices) - slices * by_slices) / requests_offered

    return min(map(bound, PRICES))


def _text(accepted: Accepted) -> str:
    return f"{accepted.requests:.2f} ({accepted.slices:.2f})"
