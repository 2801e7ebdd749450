"""The loss system on several nodes, where the scheduler chooses the node: a model without a cluster.

kube-scheduler keeps the nodes on which a claim fits, scores them by the CPU and memory that pods request, and takes one
of the best: Kubernetes 1.30 at random, 1.37 mostly the first of its own list (kubernetes/kubernetes#141024). On
that node it takes the first device that matches, in published order. So Kerf's publish order chooses the place on a
node, and never the node, unless the scheduler extender adds its scores. ``tests/bench/placement_cluster.py`` runs the
same requests through a real kube-scheduler.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from statistics import mean
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.publish_order import LoadState, publish_order, rank_placement
from kerf_dra.driver.partitions.unit_map import get_unit_map
from kerf_dra.driver.placement.node_scores import score_nodes
from kerf_dra.driver.placement.placement_value import NodeRank
from tests.bench import offline_optimum
from tests.partitions import loss_system
from tests.partitions.loss_system import MEMORY_SLICES, Accepted

REQUESTS: Final = 12_000
WARM_UP: Final = 3_000
"""As in the tables of one node; so are the seeds."""
MIXES: Final = ("uniform", "small")
LOAD: Final = 1.0
_MAX_ALTERNATIVES: Final = 8
"""``FirstAvailableDeviceRequestMaxSize``."""
_HIGHEST_RANKS: Final = (0, 2)
"""The highest ``lossRank`` of each alternative of a graded request but the last, which takes any."""


class Candidate(NamedTuple):
    """A node on which a request fits."""

    number: int
    """Its position in the order of names."""
    held: int
    """Memory slices in use. Where pods request CPU and memory in proportion, the scheduler's own scores depend on
    nothing else."""
    rank: NodeRank = NodeRank(0, 0)
    """The rank of the first device there, by which the extender scores nodes."""
    alternative: int = 0
    """The first alternative of a graded request that the node satisfies (``deploy/graded-placement``)."""
    slices: int = 8
    """Memory slices of all its cards."""
    given: int = 0
    """Memory slices of the device that the request gets there."""


Choice: TypeAlias = Callable[[Sequence[Candidate], Random], Candidate]
"""One of the nodes on which a request fits, of which there is at least one."""
FindBest: TypeAlias = Callable[[Sequence[Candidate], int], Sequence[Candidate]]
"""The nodes that are best, and so equal for the scheduler, of those on which a request fits. The number: CPUs that a
node has for each of its memory slices, where pods request one for each slice."""


def first_by_name(candidates: Sequence[Candidate], _: Random) -> Candidate:
    """The choice of ``ClusterAllocator``, and so of ``kerf plan`` and the embedded scheduler."""
    return candidates[0]


def at_random(candidates: Sequence[Candidate], random: Random) -> Candidate:
    """About the choice of kube-scheduler where scores do not tell nodes apart: pods request neither CPU nor memory."""
    return random.choice(candidates)


def least_allocated(candidates: Sequence[Candidate], random: Random) -> Candidate:
    """The choice of kube-scheduler by default (NodeResourcesFit with LeastAllocated)."""
    return random.choice(with_least_held(candidates))


def most_allocated(candidates: Sequence[Candidate], random: Random) -> Candidate:
    """The choice of kube-scheduler where NodeResourcesFit has the scoring strategy MostAllocated."""
    return random.choice(with_most_held(candidates))


def by_extender(candidates: Sequence[Candidate], random: Random) -> Candidate:
    """The choice of kube-scheduler by default, with the scores of Kerf's scheduler extender."""
    return random.choice(with_best_rank(candidates))


def with_least_held(candidates: Sequence[Candidate], _: int = 1) -> Sequence[Candidate]:
    """Return the nodes that have the best score by LeastAllocated, which are equal for the scheduler."""
    held = min(each.held for each in candidates)
    return [each for each in candidates if each.held == held]


def with_most_held(candidates: Sequence[Candidate], _: int = 1) -> Sequence[Candidate]:
    """Return the nodes that have the best score by MostAllocated."""
    held = max(each.held for each in candidates)
    return [each for each in candidates if each.held == held]


def with_best_rank(candidates: Sequence[Candidate], _: int = 1) -> Sequence[Candidate]:
    """Return the nodes that have the best sum of the extender's score and LeastAllocated.

    With the weight 10 one step of the extender counts 100, more than LeastAllocated can differ among nodes with room.
    """
    scores = score_nodes(map(str, range(len(candidates))), {str(at): each.rank for at, each in enumerate(candidates)})
    best = max(scores.values())
    return with_least_held([candidates[int(at)] for at, score in scores.items() if score == best])


def with_best_grade(candidates: Sequence[Candidate], cpus_of_slice: int) -> Sequence[Candidate]:
    """Return the nodes that have the best sum of DynamicResources, whose weight is 2, and LeastAllocated.

    The i-th alternative is worth 8 - i, and the best node 100 (``computeScore`` of ``dynamicresources.go``,
    ``DefaultNormalizeScore``, Kubernetes 1.37). Memory is in proportion to CPU, so BalancedAllocation is equal.
    """
    best = max(_MAX_ALTERNATIVES - each.alternative for each in candidates)

    def score(each: Candidate) -> int:
        cpus = each.slices * cpus_of_slice
        free = cpus - each.held - each.given
        return 2 * ((_MAX_ALTERNATIVES - each.alternative) * 100 // best) + free * 100 // cpus

    highest = max(map(score, candidates))
    return [each for each in candidates if score(each) == highest]


def graded_plentiful(candidates: Sequence[Candidate], random: Random) -> Candidate:
    """The choice of kube-scheduler by default for graded requests, where nodes have CPU for four times their slices."""
    return random.choice(with_best_grade(candidates, 4))


def graded_scarce(candidates: Sequence[Candidate], random: Random) -> Candidate:
    """The choice of kube-scheduler by default for graded requests, where nodes have CPU for just their slices."""
    return random.choice(with_best_grade(candidates, 1))


def keep(candidates: Sequence[Candidate], _: Random) -> Candidate:
    """The choice of KEEP over all cards, where each node has one."""
    return min(candidates, key=lambda each: (each.rank, each.number))


Order: TypeAlias = Callable[[Sequence[Card], Collection[Partition]], Mapping[str, Partition]]
"""The first free device of each profile on a node, in the order in which the node's devices are published."""


def by_name(cards: Sequence[Card], taken: Collection[Partition]) -> Mapping[str, Partition]:
    """Devices are published in the order of their names."""
    first = {profile: loss_system.first_fit(cards, taken, profile) for profile in MEMORY_SLICES}
    return {profile: partition for profile, partition in first.items() if partition is not None}


def by_publish_order(cards: Sequence[Card], taken: Collection[Partition]) -> Mapping[str, Partition]:
    """Devices are published as Kerf does it."""
    order = publish_order(cards, taken)
    found: dict[str, Partition] = {}
    for partition in order.partitions:
        if partition in order.available:
            found.setdefault(partition.profile or "", partition)
    return found


CHOICES: Final[Sequence[Choice]] = (
    first_by_name,
    at_random,
    least_allocated,
    most_allocated,
    graded_plentiful,
    graded_scarce,
    by_extender,
)
_GRADED: Final = frozenset({graded_plentiful, graded_scarce})
"""Choices that the model has for Kerf's order only: there the first device of a profile is of the lowest rank, while in
another order a graded request takes another device."""
_FEW: Final = 8
"""Cards of which more seeds are affordable, and needed."""
_WINDOW: Final = 500
"""Requests in one linear program, as in ``limits``: a second each."""
_LARGE_WINDOW: Final = 2_000
"""With a hundred cards, where most of 500 would fit on the empty cards that a window begins with: half a minute each,
so one seed must do."""
_REMEMBERED: Final = 20_000
"""Nodes with what is held there, for which the first devices are known: some 20 MB."""


class _Offer(NamedTuple):
    """What a request for some profile would get on a node."""

    candidate: Candidate
    partition: Partition


class OnNodes:
    """A policy of the loss system that takes a node by ``choose``, and the first device there in ``order``."""

    def __init__(self, cards: int, order: Order, choose: Choice, random: Random) -> None:
        """``cards``: how many each node has. ``random`` breaks ties."""
        self._cards = cards
        self._order = order
        self._choose = choose
        self._random = random
        self._offers: dict[tuple[int, frozenset[Partition]], Mapping[str, _Offer]] = {}

    def __call__(self, cards: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
        fitting = self.find_fitting(cards, taken, profile)
        return fitting[self._choose(list(fitting), self._random)] if fitting else None

    def find_fitting(
        self, cards: Sequence[Card], taken: Collection[Partition], profile: str
    ) -> Mapping[Candidate, Partition]:
        """Return the nodes on which a request for ``profile`` fits, and the device that it gets there."""
        node_of = {card.uuid: number // self._cards for number, card in enumerate(cards)}
        nodes: list[set[Partition]] = [set() for _ in range(0, len(cards), self._cards)]
        for partition in taken:
            nodes[node_of[partition.card_uuid]].add(partition)
        fitting: dict[Candidate, Partition] = {}
        for number, held in enumerate(nodes):
            offer = self._on_node(number, cards, frozenset(held)).get(profile)
            if offer is not None:
                fitting[offer.candidate] = offer.partition
        return fitting

    def _on_node(self, number: int, cards: Sequence[Card], held: frozenset[Partition]) -> Mapping[str, _Offer]:
        key = number, held
        if key not in self._offers:
            if len(self._offers) >= _REMEMBERED:
                self._offers.clear()
            own = cards[number * self._cards : (number + 1) * self._cards]
            self._offers[key] = {
                profile: _Offer(_describe(number, own, held, partition), partition)
                for profile, partition in self._order(own, held).items()
                if profile in MEMORY_SLICES
            }
        return self._offers[key]


def _describe(number: int, cards: Sequence[Card], held: Collection[Partition], given: Partition) -> Candidate:
    """Describe a node with ``cards``, of one of which ``given`` would be taken."""
    card = next(card for card in cards if card.uuid == given.card_uuid)
    unit_map = get_unit_map(card)
    spec = unit_map.find(given)
    assert spec is not None
    free = unit_map.free([each for each in held if each.card_uuid == card.uuid])
    rank = rank_placement(unit_map, spec, free, LoadState())
    loss_rank = unit_map.list_losses(spec).index(rank.loss)
    return Candidate(
        number=number,
        held=slices(held),
        rank=NodeRank(rank.loss, rank.free),
        alternative=sum(loss_rank > highest for highest in _HIGHEST_RANKS),
        slices=8 * len(cards),
        given=slices([given]),
    )


def slices(partitions: Collection[Partition]) -> int:
    """Memory slices of GPU partitions."""
    return sum(MEMORY_SLICES[each.profile or ""] for each in partitions)


class Nodes(NamedTuple):
    """Equal nodes."""

    number: int
    cards: int
    """Of each."""

    @classmethod
    def parse(cls, text: str) -> "Nodes":
        """``8x1``: eight nodes with one card. Raises ValueError."""
        return cls(*map(int, text.split("x")))

    @property
    def seeds(self) -> range:
        return range(6 if self.number * self.cards <= _FEW else 3)

    def __str__(self) -> str:
        return f"{self.number} x {self.cards} H100"


USUAL: Final = (Nodes(8, 1), Nodes(2, 4), Nodes(25, 4))
"""The first two have the eight cards of the other tables."""
HEADER: Final = (
    "WHAT",
    "DEVICES",
    *(each.__name__.removeprefix("by_").replace("_", " ").upper() for each in CHOICES),
    "KEEP",
    "BOUND",
)
DEVICES: Final[Mapping[str, Order]] = {"by name": by_name, "Kerf's order": by_publish_order}


def rows(nodes: Nodes) -> Iterator[tuple[str, ...]]:
    """For each mix and each order of devices; KEEP is one policy over all cards, and BOUND holds for every policy."""
    for mix in MIXES:
        kept = _mean(Nodes(nodes.number * nodes.cards, 1), mix, by_publish_order, keep)
        most = bound(nodes, mix)
        for name, order in DEVICES.items():
            texts = [
                "" if choose in _GRADED and order is not by_publish_order else _say(_mean(nodes, mix, order, choose))
                for choose in CHOICES
            ]
            yield f"{nodes}, {mix}, load {LOAD}", name, *texts, _say(kept), _say(most)


def _say(accepted: Accepted) -> str:
    return f"{accepted.requests:.1f} ({accepted.slices:.1f})"


def bound(nodes: Nodes, mix: str) -> Accepted:
    """Return what no policy exceeds of the same requests, whatever it knows of the future (``offline_optimum``)."""
    cards = nodes.number * nodes.cards
    seeds, window = (nodes.seeds, _WINDOW) if cards <= _FEW else (nodes.seeds[:1], _LARGE_WINDOW)
    bounds = []
    for seed in seeds:
        arrivals = loss_system.arrivals(cards=cards, mix=mix, load=LOAD, seed=seed, requests=REQUESTS)
        counted = list(arrivals)[WARM_UP:]
        for worth in ([1] * len(counted), [MEMORY_SLICES[each.profile] for each in counted]):
            most = offline_optimum.relaxed_bound(counted, cards=cards, worth=worth, size=window)
            bounds.append(100 * most / sum(worth))
    return Accepted(mean(bounds[::2]), mean(bounds[1::2]))


def _mean(nodes: Nodes, mix: str, order: Order, choose: Choice) -> Accepted:
    given = {"cards": nodes.number * nodes.cards, "requests": REQUESTS, "warm_up": WARM_UP}
    runs = [
        loss_system.run(OnNodes(nodes.cards, order, choose, Random(seed)), mix=mix, load=LOAD, seed=seed, **given)
        for seed in nodes.seeds
    ]
    return Accepted(mean(run.requests for run in runs), mean(run.slices for run in runs))
