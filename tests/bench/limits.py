"""The offline bound beside KEEP, the repacking policy and the choices of a scheduler, on the same requests.

The scheduler chooses among nodes with one card each, by default, by MostAllocated, or with Kerf's scheduler extender.

All begin on empty cards, and the first requests do not count. The bound is worked out for requests in one run and for
memory slices in another; each figure comes from its own run.
"""

from collections.abc import Sequence
from random import Random
from statistics import mean
from typing import Final, NamedTuple

from tests.bench import node_choice, offline_optimum, policies, repack_policy
from tests.partitions import loss_system
from tests.partitions.loss_system import MEMORY_SLICES, Accepted, Request

_CHOICES: Final = (node_choice.least_allocated, node_choice.most_allocated, node_choice.by_extender)
HEADER: Final = ("WHAT", "LEAST ALLOCATED", "MOST ALLOCATED", "EXTENDER", "KEEP", "REPACKED", "BOUND")
SEEDS: Final = range(3)
REQUESTS: Final = 3_000
WARM_UP: Final = 1_000
"""Two windows: afterwards the empty cards at the beginning have no influence."""
WINDOW: Final = 500
"""Requests in one integer program: with 2,000 the bound was 0.1 points lower, in twice the time."""
WINDOW_S: Final = 60.0
"""Most windows take a few seconds; the bound holds wherever the search ends."""


class Limits(NamedTuple):
    """What each schedule accepts of the same requests."""

    least_allocated: Accepted
    most_allocated: Accepted
    extender: Accepted
    kept: Accepted
    repacked: Accepted
    bound: Accepted
    """What no schedule exceeds, whatever it knows of the future."""


def row(cards: int, mix: str, load: float) -> tuple[str, ...]:
    """Return a row of means over all seeds."""
    means = [
        f"{mean(each.requests for each in column):.1f} ({mean(each.slices for each in column):.1f})"
        for column in zip(*(limits(cards, mix, load, seed) for seed in SEEDS), strict=True)
    ]
    return f"{cards} H100, {mix}, load {load}", *means


def limits(cards: int, mix: str, load: float, seed: int, count: int = REQUESTS, warm_up: int = WARM_UP) -> Limits:
    """Return the limits for ``count`` requests, of which the first ``warm_up`` do not count."""
    requests = list(loss_system.arrivals(cards=cards, mix=mix, load=load, seed=seed, requests=count))
    kept, repacked = (
        loss_system.replay(policy, requests, cards=cards, warm_up=warm_up)
        for policy in (policies.keep(), repack_policy.repacked())
    )
    least, most, extender = (
        loss_system.replay(
            node_choice.OnNodes(1, node_choice.by_publish_order, choose, Random(seed)),
            requests,
            cards=cards,
            warm_up=warm_up,
        )
        for choose in _CHOICES
    )
    counted = requests[warm_up:]
    by_requests = _bound(counted, cards, [1] * len(counted))
    by_slices = _bound(counted, cards, [MEMORY_SLICES[each.profile] for each in counted])
    return Limits(least, most, extender, kept, repacked, Accepted(by_requests, by_slices))


def _bound(requests: Sequence[Request], cards: int, worth: Sequence[int]) -> float:
    """Return the bound in percent of the worth of all requests."""
    found = offline_optimum.solve_windows(requests, cards=cards, worth=worth, size=WINDOW, limit_s=WINDOW_S)
    return 100 * found.bound / sum(worth)
