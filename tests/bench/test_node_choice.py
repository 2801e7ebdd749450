"""The model of several nodes, compared with the allocator; and the figures of a run on a cluster."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import DeviceRequest
from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation import Budget, ClusterAllocator, Features, NodeAllocation, NodeView, PoolIndex
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.pool_compiler import CompiledPool, compile_pool
from kerf_dra.driver.partitions.publish_order import PublishOrder, publish_order
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from kerf_dra.driver.placement.placement_value import NodeRank
from tests.allocation.builders import alternative, claim, first_of, request
from tests.bench import node_choice
from tests.bench.node_choice import (
    CHOICES,
    Candidate,
    Choice,
    Nodes,
    OnNodes,
    at_random,
    by_extender,
    by_name,
    by_publish_order,
    first_by_name,
    graded_plentiful,
    graded_scarce,
    keep,
    least_allocated,
    most_allocated,
)
from tests.bench.placement_cluster import HEADER, VARIANTS, Course, Decision, Run, rows
from tests.bench.policies import CLASS, DRIVER
from tests.partitions import loss_system
from tests.partitions.loss_system import Accepted, published_order


class Published:
    """A policy: the allocator over nodes whose slices are published in Kerf's order, anew before each request."""

    def __init__(self, cards: int, build_request: Callable[[str], DeviceRequest] | None = None) -> None:
        """``cards``: how many each node has. ``build_request`` makes a request with a selector; None: a plain one."""
        self._cards = cards
        self._build_request = build_request or partial(request, "r")
        self.satisfied: list[str] = []
        """The alternative of each request that fitted, as the results name it; empty: it has none."""
        self._cluster = ClusterAllocator(Features(), PoolIndex.build(()))
        self._held: dict[Partition, ObjectRef] = {}
        self._published: dict[str, tuple[PublishOrder, CompiledPool]] = {}
        self._number = 0

    def __call__(self, cards: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
        for partition in [each for each in self._held if each not in taken]:
            self._cluster.remove_claim(self._held.pop(partition))
        nodes = [cards[start : start + self._cards] for start in range(0, len(cards), self._cards)]
        published = {f"n-{number}": self._publish(f"n-{number}", each, taken) for number, each in enumerate(nodes)}
        self._number += 1
        expression = f'device.attributes["{DRIVER}"].profile == "{profile}"'
        asked = claim(self._build_request(expression), name=f"c{self._number}")
        classes = {CLASS.metadata.name: CLASS}
        fitting = self._cluster.fitting_nodes([asked], classes, budget=Budget())
        found = self._cluster.place([asked], classes, share_id=str, budget=Budget())
        if not isinstance(found, NodeAllocation):
            assert not fitting
            return None
        assert found.node == fitting[0]
        self._cluster.set_claim(replace(asked, status=ResourceClaimStatus(allocation=found.results[0])))
        (given,) = found.results[0].devices.results
        self.satisfied.append(given.request.partition("/")[2])
        partition = published[found.node].partitions[given.device]
        self._held[partition] = asked.ref
        return partition

    def _publish(self, node: str, cards: Sequence[Card], taken: Collection[Partition]) -> CompiledPool:
        uuids = {card.uuid for card in cards}
        order = publish_order(cards, [each for each in taken if each.card_uuid in uuids])
        if node in self._published and self._published[node][0] == order:
            return self._published[node][1]
        compiled = compile_pool(node, node, cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, order=order)
        self._published[node] = order, compiled
        count = len(compiled.pool.slices)
        for number, content in enumerate(compiled.pool.slices):
            spec = ResourceSliceSpec(
                driver=DRIVER,
                pool=ResourcePool(name=node, generation=1, resource_slice_count=count),
                node_name=node,
                devices=content.devices,
                shared_counters=content.shared_counters,
            )
            self._cluster.set_slice(ResourceSlice(metadata=ObjectMeta(name=f"{number}-{node}"), spec=spec))
        self._cluster.set_node(NodeView(node, {}))
        return compiled


LEVELS: Final = ("rank-0", "rank-2", "any")


def graded(expression: str) -> DeviceRequest:
    """A request as the policy of graded placement leaves it."""
    rank = f'device.attributes["{DRIVER}"].lossRank'
    selectors: Sequence[Sequence[str]] = ([f"has({rank}) && {rank} == 0"], [f"has({rank}) && {rank} <= 2"], [])
    levels = zip(LEVELS, selectors, strict=True)
    return first_of("r", *(alternative(level, expression, *own) for level, own in levels))


def played(policy: loss_system.Policy) -> list[Partition | None]:
    """What the policy gives to each request."""
    given: list[Partition | None] = []

    def recorded(cards: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
        given.append(policy(cards, taken, profile))
        return given[-1]

    loss_system.run(recorded, cards=4, mix="uniform", load=1.0, seed=1, requests=80, warm_up=0)
    return given


@pytest.mark.parametrize("cards", [1, 2, 4])
def test_the_first_node_by_name_is_what_the_allocator_gives_choice_by_choice(cards: int) -> None:
    assert played(OnNodes(cards, by_publish_order, first_by_name, Random(0))) == played(Published(cards))


@pytest.mark.parametrize("choose", CHOICES)
def test_where_one_node_has_all_cards_nobody_chooses(choose: Choice) -> None:
    assert played(OnNodes(4, by_publish_order, choose, Random(0))) == played(published_order)


def test_keep_over_nodes_with_one_card_is_the_publish_order_of_one_node_with_all_cards() -> None:
    assert played(OnNodes(1, by_publish_order, keep, Random(0))) == played(published_order)


def test_first_fit_of_nodes_with_one_card_is_first_fit_of_all_cards() -> None:
    policy = OnNodes(1, by_name, first_by_name, Random(0))
    assert played(policy) == played(loss_system.first_fit)


def test_a_choice_takes_any_of_the_best() -> None:
    candidates = [
        Candidate(0, 4, NodeRank(2, 8)),
        Candidate(1, 2, NodeRank(1, 8)),
        Candidate(2, 4, NodeRank(1, 6)),
        Candidate(3, 2, NodeRank(1, 6)),
        Candidate(4, 2, NodeRank(1, 6), alternative=2),
    ]
    expected: Mapping[Choice, set[int]] = {
        first_by_name: {0},
        at_random: {0, 1, 2, 3, 4},
        least_allocated: {1, 3, 4},
        most_allocated: {0, 2},
        graded_plentiful: {1, 3},
        graded_scarce: {1, 3},
        by_extender: {3, 4},
    }
    random = Random(0)
    for choose in CHOICES:
        assert {choose(candidates, random).number for _ in range(100)} == expected[choose]


@pytest.mark.parametrize(
    ("candidates", "plentiful", "scarce"),
    [
        ([Candidate(0, 7, alternative=0), Candidate(1, 0, alternative=2)], 0, 1),
        ([Candidate(0, 2, alternative=1), Candidate(1, 0, alternative=2)], 0, 0),
        ([Candidate(0, 9, alternative=0, slices=32), Candidate(1, 0, alternative=1, slices=32)], 0, 1),
    ],
)
def test_the_alternatives_weigh_less_where_the_pods_use_most_of_the_cpus(
    candidates: Sequence[Candidate], plentiful: int, scarce: int
) -> None:
    """One alternative is worth 24 to 28 of the 100 points that CPU and memory can differ in."""
    assert graded_plentiful(candidates, Random(0)).number == plentiful
    assert graded_scarce(candidates, Random(0)).number == scarce


@pytest.mark.parametrize("cards", [1, 2, 4])
def test_a_graded_request_takes_the_device_of_a_plain_one_by_the_alternative_of_the_model(cards: int) -> None:
    """The slices are what the plugin publishes; the scheduler takes the first device of the first alternative."""
    found: list[int] = []

    def choose(candidates: Sequence[Candidate], _: Random) -> Candidate:
        found.append(candidates[0].alternative)
        return candidates[0]

    published = Published(cards, build_request=graded)
    assert played(OnNodes(cards, by_publish_order, choose, Random(0))) == played(published)
    assert [LEVELS[alternative] for alternative in found] == published.satisfied
    assert set(found) == {0, 1, 2}


def test_nodes_are_told_by_their_number_and_their_cards() -> None:
    assert Nodes.parse("25x4") == Nodes(25, 4)
    assert str(Nodes(2, 4)) == "2 x 4 H100"


def test_a_course_says_what_was_accepted_and_which_nodes_were_taken() -> None:
    low, high = Candidate(0, 1), Candidate(1, 5)
    course = Course()
    course.answers = [("7g.80gb", False), ("4g.40gb", True), ("1g.10gb", False), ("1g.20gb", True), ("1g.10gb", True)]
    course.decisions = [Decision([low, high], high), Decision([low, high], low), Decision([low, Candidate(1, 1)], low)]
    assert course.accepted(warm_up=1) == Accepted(75.0, 100 * 7 / 8)
    assert [str(share) for share in course.shares()] == ["50 (50)"] * 2


def test_a_row_compares_the_scheduler_with_policies_for_the_same_requests() -> None:
    (variant,) = (each for each in VARIANTS if each.name == "one")
    run = Run("small", seed=0, requests=12, warm_up=2)
    policy = loss_system.published_order
    course = Course()
    course.answers = [(each.profile, True) for each in run.arrivals()]
    (row,) = rows({variant: [course]}, [run])
    shown = dict(zip(HEADER, row, strict=True))
    assert shown["WHAT"] == "1 x 8 H100, small, load 1.0"
    assert shown["KUBE-SCHEDULER"] == "100.0 (100.0)"
    assert shown["MODEL"] == shown["KEEP"]
    assert shown["KEEP"].startswith(f"{run.replay(policy).requests:.1f} ")


def test_no_choice_of_nodes_accepts_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_choice, "MIXES", ("uniform",))
    monkeypatch.setattr(node_choice, "REQUESTS", 60)
    monkeypatch.setattr(node_choice, "WARM_UP", 0)
    for row in node_choice.rows(Nodes(2, 1)):
        shown = dict(zip(node_choice.HEADER, row, strict=True))
        figures = [float(text.split()[0]) for text in row[2:] if text]
        assert shown["BOUND"].startswith(f"{max(figures):.1f} "), row
        assert figures[-1] < 100
