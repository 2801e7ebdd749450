"""The best online policies: exact values on few cards, and a bound on more.

The best policy for requests and the best for memory slices differ; each figure is the maximum of its kind.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from tests.bench import card_states
from tests.bench.markov_decision import Chain, solve_best_policy
from tests.partitions import loss_system
from tests.partitions.loss_system import MEMORY_SLICES, Accepted

HEADER: Final = ("WHAT", "FIRST FIT", "KEEP", "BOTH", "PLACED", "REFUSING", "REPACKED", "REPACKED, REFUSING")
POLICIES_UP_TO: Final = 2
"""The number of cards up to which fixed policies are solved: on three, first fit has 72 million states."""
PLACES_UP_TO: Final = 3
"""The number of cards up to which the best policy is solved: three have 171,700 states, four 4.4 million."""
PRICES: Final = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)
"""Lagrange multipliers: prices of a slice in requests. Finer steps improved the bound by 0.01 points."""
_SIZES: Final = list(MEMORY_SLICES.values())


def rows(cards: int, loads: Sequence[tuple[str, float]]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each mix and load."""
    policies = [card_states.first_fit, card_states.publish_order] if cards <= POLICIES_UP_TO else []
    fixed = [card_states.build_chain(cards, policy) for policy in policies]
    best = (
        card_states.build_chain(cards, card_states.all_placements, card_states.canonicalize)
        if cards <= PLACES_UP_TO
        else None
    )
    repacked = card_states.build_repacking_chain(cards)
    for mix, load in loads:
        rate = loss_system.rate(cards=cards, mix=mix, load=load)
        arrivals = [rate * weight for weight in loss_system.MIXES[mix]]
        known = [_solve_both_rewards(chain, arrivals) for chain in fixed]
        both = f"{_bound_requests(best, arrivals, known[-1].slices):.2f}" if best and known else ""
        placed = [_text(_solve_both_rewards(best, arrivals, may_refuse=each)) if best else "" for each in (False, True)]
        moved = [_text(_solve_both_rewards(repacked, arrivals, may_refuse=each)) for each in (False, True)]
        texts = [_text(each) for each in known] or ["", ""]
        yield f"{cards} H100, {mix}, load {load}", *texts, both, *placed, *moved


def _solve_both_rewards(chain: Chain, arrivals: Sequence[float], *, may_refuse: bool = False) -> Accepted:
    answers = (
        solve_best_policy(chain, arrivals, worth, may_refuse=may_refuse) for worth in ([1] * len(arrivals), _SIZES)
    )
    return Accepted(*(sum(answer) / 2 for answer in answers))


def _bound_requests(chain: Chain, arrivals: Sequence[float], slices: float) -> float:
    """No way to place that accepts at least so many ``slices``, in percent, accepts more requests than this.

    Whatever the price, the best policy earns at least as much as any of these by requests and slices together
    (Lagrangian relaxation).
    """
    requests_offered = sum(arrivals)
    slices_offered = sum(rate * size for rate, size in zip(arrivals, _SIZES, strict=True))

    def bound(price: float) -> float:
        earned = solve_best_policy(chain, arrivals, [1 + price * size for size in _SIZES], may_refuse=False).high
        by_slices = price * slices_offered
        return (earned * (requests_offered + by_slices) - slices * by_slices) / requests_offered

    return min(map(bound, PRICES))


def _text(accepted: Accepted) -> str:
    return f"{accepted.requests:.2f} ({accepted.slices:.2f})"
