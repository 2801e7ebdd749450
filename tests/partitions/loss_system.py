"""A loss system: requests arrive, hold a partition for a while, and are lost when nothing fits. Exactly reproducible.

Poisson arrivals, exponential holding times of mean 1, requests for one profile each. The load is the offered memory
slices over those of all cards. Random numbers are drawn per request in the order gap, profile, holding time.
"""

import heapq
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.publish_order import publish_order
from tests.partitions.cards import gpu_partition, gpus

Policy: TypeAlias = Callable[[Sequence[Card], Collection[Partition], str], Partition | None]

MEMORY_SLICES: Final = {"1g.10gb": 1, "1g.20gb": 2, "2g.20gb": 2, "3g.40gb": 4, "4g.40gb": 4, "7g.80gb": 8}
MIXES: Final[dict[str, tuple[float, ...]]] = {
    "uniform": (1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6),
    "small": (0.40, 0.20, 0.20, 0.10, 0.06, 0.04),
    "big": (0.05, 0.05, 0.15, 0.25, 0.25, 0.25),
    "bimodal": (0.45, 0.05, 0.05, 0.05, 0.05, 0.35),
}


class Accepted(NamedTuple):
    """In percent, of requests and of the memory slices they ask for."""

    requests: float
    slices: float


def published_order(cards: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
    """What the scheduler does with Kerf's order: the first published device that matches and is free."""
    order = publish_order(cards, taken)
    return next((p for p in order.partitions if p.profile == profile and p in order.available), None)


def first_fit(cards: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
    """The first card, the lowest start: devices in the order of their names."""
    for card in cards:
        specs = (spec for spec in card.geometry.specs if spec.profile == profile)
        for start in sorted(spec.placement.start for spec in specs if spec.placement):
            partition = gpu_partition(card, profile, start)
            if not any(partition.overlaps(other) for other in taken):
                return partition
    return None


class Request(NamedTuple):
    """One request, in mean holding times since the start."""

    at: float
    profile: str
    until: float
    """When it ends, if it is accepted."""


def rate(*, cards: int, mix: str, load: float) -> float:
    """Requests per mean holding time."""
    mean_slices = sum(weight * size for weight, size in zip(MIXES[mix], MEMORY_SLICES.values(), strict=True))
    return load * 8 * cards / mean_slices


def arrivals(*, cards: int, mix: str, load: float, seed: int, requests: int) -> Iterator[Request]:
    rng, profiles, weights = random.Random(seed), list(MEMORY_SLICES), MIXES[mix]
    requests_per_time = rate(cards=cards, mix=mix, load=load)
    now = 0.0
    for _ in range(requests):
        now += rng.expovariate(requests_per_time)
        profile = rng.choices(profiles, weights)[0]
        yield Request(now, profile, now + rng.expovariate(1))


def run(policy: Policy, *, cards: int, mix: str, load: float, seed: int, requests: int, warm_up: int) -> Accepted:
    offered = arrivals(cards=cards, mix=mix, load=load, seed=seed, requests=requests)
    return replay(policy, offered, cards=cards, warm_up=warm_up)


def replay(policy: Policy, requests: Iterable[Request], *, cards: int, warm_up: int = 0) -> Accepted:
    """``requests`` in order of their arrival, of which the first ``warm_up`` are not counted."""
    node = gpus(cards)
    taken, ends = set[Partition](), list[tuple[float, int, Partition]]()
    answers: list[tuple[int, bool]] = []
    for request in requests:
        while ends and ends[0][0] <= request.at:
            taken.discard(heapq.heappop(ends)[2])
        partition = policy(node, taken, request.profile)
        if partition is not None:
            taken.add(partition)
            heapq.heappush(ends, (request.until, len(answers), partition))
        answers.append((MEMORY_SLICES[request.profile], partition is not None))
    counted = answers[warm_up:]
    return Accepted(
        requests=100 * sum(accepted for _, accepted in counted) / len(counted),
        slices=100 * sum(size for size, accepted in counted if accepted) / sum(size for size, _ in counted),
    )
