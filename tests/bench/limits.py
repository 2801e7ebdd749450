"""Clairvoyant schedules and the offline bound beside KEEP and the repacking policy, on the same requests.

All begin on empty cards, and the first requests do not count. The clairvoyant schedules maximize requests in one run
and memory slices in another; each figure comes from its own run.
"""

from collections.abc import Sequence
from itertools import compress
from statistics import mean, stdev
from typing import Final, NamedTuple

from tests.bench import clairvoyant_search, offline_optimum, policies, repack_policy
from tests.partitions import loss_system
from tests.partitions.loss_system import MEMORY_SLICES, Accepted, Request

HEADER: Final = ("WHAT", "KEEP", "REPACKED", "CLAIRVOYANT", "SELECTIVE", "BOUND", "SELECTIVE − REPACKED")
SEEDS: Final = range(3)
REQUESTS: Final = 3_000
WARM_UP: Final = 1_000
"""Two windows: afterwards the empty cards at the beginning have no influence."""
WINDOW: Final = 500
"""Requests in one integer program: with 2,000 the bound was 0.1 points lower, in twice the time."""
WINDOW_S: Final = 60.0
"""Most windows take a few seconds; the bound holds wherever the search ends."""
WIDTH: Final = 30
"""The width of the beam: 100 in place of 20 found 0.3 to 1.5 points more requests."""


class Limits(NamedTuple):
    """What each schedule accepts of the same requests."""

    kept: Accepted
    repacked: Accepted
    clairvoyant: Accepted
    """By the clairvoyant search, which refuses nothing that fits."""
    selective: Accepted
    """By the clairvoyant search among the requests that the offline optimum accepts."""
    bound: Accepted


def row(cards: int, mix: str, load: float) -> tuple[str, ...]:
    """Return a row of means over all seeds; the last column is a difference with its standard error."""
    found = [limits(cards, mix, load, seed) for seed in SEEDS]
    means = [
        f"{mean(each.requests for each in column):.1f} ({mean(each.slices for each in column):.1f})"
        for column in zip(*found, strict=True)
    ]
    requests = _difference([each.selective.requests - each.repacked.requests for each in found])
    slices = _difference([each.selective.slices - each.repacked.slices for each in found])
    return f"{cards} H100, {mix}, load {load}", *means, f"{requests} ({slices})"


def _difference(samples: Sequence[float]) -> str:
    return f"{mean(samples):.1f} ± {stdev(samples) / len(samples) ** 0.5:.1f}"


def limits(cards: int, mix: str, load: float, seed: int, count: int = REQUESTS, warm_up: int = WARM_UP) -> Limits:
    """Return the limits for ``count`` requests, of which the first ``warm_up`` do not count."""
    requests = list(loss_system.arrivals(cards=cards, mix=mix, load=load, seed=seed, requests=count))
    kept, repacked = (
        loss_system.replay(policy, requests, cards=cards, warm_up=warm_up)
        for policy in (policies.keep(), repack_policy.repacked())
    )
    by_requests = _measure_clairvoyant(requests, cards, [1] * len(requests), warm_up)
    by_slices = _measure_clairvoyant(requests, cards, [MEMORY_SLICES[each.profile] for each in requests], warm_up)
    return Limits(kept, repacked, *map(Accepted, by_requests, by_slices))


def _measure_clairvoyant(
    requests: Sequence[Request], cards: int, worth: Sequence[int], warm_up: int
) -> tuple[float, float, float]:
    """Return the clairvoyant and selective schedules and the bound, in percent of the worth of all requests."""
    before, counted = (
        offline_optimum.solve_windows(requests[part], cards=cards, worth=worth[part], size=WINDOW, limit_s=WINDOW_S)
        for part in (slice(warm_up), slice(warm_up, None))
    )
    wanted = [*before.accepted, *counted.accepted]
    offered = sum(worth[warm_up:])
    accepted = (
        sum(compress(worth[warm_up:], _search_placements(requests, cards, worth, among)[warm_up:]))
        for among in ([True] * len(requests), wanted)
    )
    clairvoyant, selective = (100 * each / offered for each in accepted)
    return clairvoyant, selective, 100 * counted.bound / offered


def _search_placements(
    requests: Sequence[Request], cards: int, worth: Sequence[int], wanted: Sequence[bool]
) -> list[bool]:
    """Return which of the ``wanted`` requests the clairvoyant search places."""
    chosen, values = list(compress(requests, wanted)), list(compress(worth, wanted))
    found = iter(clairvoyant_search.search(chosen, cards=cards, worth=values, width=WIDTH))
    return [each and next(found) for each in wanted]
