"""Placement in a whole cluster: the same as if each node were searched alone, whatever has changed since."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import DerivedAttribute, DeviceClass, ResourceClaim
from kerf_dra.api.model.devices import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourceSlice,
)
from kerf_dra.driver.allocation import (
    AllocatedState,
    Budget,
    ClusterAllocator,
    ClusterOutcome,
    Failed,
    Fits,
    NodeAllocation,
    NodeView,
    NoFittingNode,
    Outcome,
    PoolIndex,
    Undecided,
    allocate,
)
from tests.allocation.builders import (
    ALL_FEATURES,
    BUDGET,
    DRIVER,
    alternative,
    claim,
    class_,
    device,
    distinct,
    first_of,
    labelled,
    partitioned,
    request,
    same,
    share_ids,
    slice_,
)
from tests.conftest import COSTLY

CLASSES = {"any": class_()}
ATTRIBUTES = f'device.attributes["{DRIVER}"]'


def node_slices(node: str, kind: int) -> list[ResourceSlice]:
    """What a node publishes: nodes of one kind differ in names and texts only."""
    if kind == 2:
        shared = device("shared", capacity={"memory": "5"}, allow_multiple_allocations=True)
        return [slice_(device("plain", attributes={"uuid": f"{node}-0"}), shared, pool=node, node_name=node)]
    devices = [
        device(
            f"card-{card}-{half}",
            attributes={"uuid": f"{node}-{card}", "kind": kind, "half": half},
            uses={f"card-{card}": {"slices": 2}},
        )
        for card in range(2)
        for half in range(3)
    ]
    pool = partitioned(*devices, sets={f"card-{card}": {"slices": 4} for card in range(2)}, pool=node, node_name=node)
    return [replace(each, metadata=replace(each.metadata, name=f"{each.metadata.name}-{node}")) for each in pool]


def network(count: int) -> ResourceSlice:
    """A pool of many nodes."""
    devices = [
        device(f"nic-{index}", attributes={"kind": 9, "half": 0, "uuid": f"nic-{index}"}) for index in range(count)
    ]
    return slice_(*devices, pool="network", name="network", node_selector=labelled("zone", "In", "a"))


ASKED: dict[str, ResourceClaim] = {
    "any device": claim(request("r")),
    "a half": claim(request("r", f"has({ATTRIBUTES}.kind) && {ATTRIBUTES}.kind == 0")),
    "two of one card": claim(request("r", f"has({ATTRIBUTES}.kind)", count=2), constraints=[same(f"{DRIVER}/uuid")]),
    "of two cards": claim(request("r", count=2), constraints=[distinct(f"{DRIVER}/uuid")]),
    "by name of the node": claim(request("r", f'has({ATTRIBUTES}.uuid) && {ATTRIBUTES}.uuid == "n-2-1"')),
    "from the network": claim(request("r", f"has({ATTRIBUTES}.kind) && {ATTRIBUTES}.kind == 9")),
    "a share": claim(request("r", "device.allowMultipleAllocations", capacity={"memory": "2"})),
    "all halves": claim(request("r", f"has({ATTRIBUTES}.half) && {ATTRIBUTES}.half == 1", count=None)),
    "one or the other": claim(first_of("r", alternative("three", count=3), alternative("one"))),
    "what some lack": claim(request("r", f"{ATTRIBUTES}.kind == 1")),
    "derived": claim(
        request("r", count=2, derived_attributes=(DerivedAttribute(name="x", expression=f"{ATTRIBUTES}.uuid"),)),
        constraints=[same("x")],
    ),
}


@dataclass
class World:
    """The same cluster as plain objects, searched node by node."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    slices: dict[tuple[str, str], ResourceSlice] = field(default_factory=dict)
    rules: list[DeviceTaintRule] = field(default_factory=list)
    claims: dict[str, ResourceClaim] = field(default_factory=dict)

    def outcomes(self, asked: ResourceClaim, nodes: Collection[str]) -> Iterator[tuple[NodeView, Outcome]]:
        inventory = PoolIndex.build(self.slices.values(), self.rules)
        allocated = AllocatedState.from_claims(self.claims.values())
        for name in sorted(self.nodes.keys() & nodes):
            node = self.nodes[name]
            outcome: Outcome = allocate(
                inventory, [asked], node, CLASSES, allocated, ALL_FEATURES, share_id=share_ids(), budget=BUDGET
            )
            yield node, outcome

    def place(self, asked: ResourceClaim, nodes: Collection[str]) -> ClusterOutcome:
        for node, outcome in self.outcomes(asked, nodes):
            if isinstance(outcome, Fits):
                return NodeAllocation(node.name, outcome.results)
            if isinstance(outcome, Failed) and outcome.kind == "fatal":
                return outcome
        return NoFittingNode({})


class Both:
    """Changes applied to both a cluster and its plain objects."""

    def __init__(self) -> None:
        self.cluster = ClusterAllocator(ALL_FEATURES, PoolIndex.build(()))
        self.world = World()

    def set_node(self, name: str, zone: str) -> None:
        node = self.world.nodes[name] = NodeView(name, {"zone": zone})
        self.cluster.set_node(node)

    def remove_node(self, name: str) -> None:
        self.world.nodes.pop(name, None)
        self.cluster.remove_node(name)

    def set_slice(self, slice_: ResourceSlice) -> None:
        self.world.slices[slice_.spec.pool.name, slice_.metadata.name] = slice_
        self.cluster.set_slice(slice_)

    def remove_pool(self, pool: str) -> None:
        for key in [key for key in self.world.slices if key[0] == pool]:
            self.cluster.remove_slice(self.world.slices.pop(key))

    def set_claim(self, claim_: ResourceClaim) -> None:
        self.world.claims[claim_.metadata.name] = claim_
        self.cluster.set_claim(claim_)

    def remove_claim(self, name: str) -> None:
        self.cluster.remove_claim(self.world.claims.pop(name).ref)

    def set_taint(self, device: str) -> None:
        selector = DeviceTaintSelector(device=device)
        taint = DeviceTaint(key="repair", effect="NoSchedule")
        self.world.rules = [DeviceTaintRule(spec=DeviceTaintRuleSpec(device_selector=selector, taint=taint))]
        self.cluster.set_taint_rules(self.world.rules)

    def place(self, asked: ResourceClaim, nodes: frozenset[str] | None = None) -> ClusterOutcome:
        """Return the placement, compared with a search of each node."""
        offered = self.world.nodes if nodes is None else nodes
        placement = self.cluster.place([asked], CLASSES, share_id=share_ids(), budget=BUDGET, nodes=nodes)
        assert placement == self.world.place(asked, offered)
        return placement

    def ask_each(self, asked: ResourceClaim) -> None:
        outcomes = {node.name: outcome for node, outcome in self.world.outcomes(asked, self.world.nodes)}
        fitting = [name for name, outcome in outcomes.items() if isinstance(outcome, Fits)]
        assert self.cluster.fitting_nodes([asked], CLASSES, budget=BUDGET) == fitting
        for name, outcome in outcomes.items():
            said = self.cluster.allocate_on(name, [asked], CLASSES, share_id=share_ids(), budget=BUDGET)
            assert said == outcome


@COSTLY
@given(seed=st.integers(0, 2**32))
def test_a_cluster_that_changes_places_as_if_each_node_were_asked_anew(seed: int) -> None:
    random = Random(seed)
    both = Both()
    for step in range(40):
        node = f"n-{random.randint(0, 4)}"
        if random.random() < 0.3:
            both.cluster.refresh(random.randint(0, 2))
        match random.randint(0, 9):
            case 0:
                both.set_node(node, random.choice("ab"))
            case 1 if both.world.nodes and random.random() < 0.3:
                both.remove_node(random.choice(list(both.world.nodes)))
            case 2:
                both.remove_pool(node)
                for each in node_slices(node, random.randint(0, 2)):
                    both.set_slice(each)
            case 3 if random.random() < 0.5:
                both.set_slice(network(random.randint(0, 2)))
            case 5 if random.random() < 0.3:
                both.set_taint(random.choice(["card-0-0", "card-1-2", "plain", "none"]))
            case 4 if both.world.claims:
                both.remove_claim(random.choice(list(both.world.claims)))
            case _:
                asked = random.choice(list(ASKED.values()))
                offered = frozenset({f"n-{number}" for number in range(5) if random.random() < 0.7})
                placement = both.place(asked, random.choice([None, offered]))
                if isinstance(placement, NodeAllocation) and random.random() < 0.8:
                    status = ResourceClaimStatus(allocation=placement.results[0])
                    named = replace(asked.metadata, name=f"claim-{step}")
                    both.set_claim(replace(asked, metadata=named, status=status))
    for asked in ASKED.values():
        both.place(asked)
        both.ask_each(asked)


def alike(count: int) -> ClusterAllocator:
    names = [f"n-{number}" for number in range(count)]
    slices = [each for name in names for each in node_slices(name, 0)]
    return ClusterAllocator(ALL_FEATURES, PoolIndex.build(slices), nodes=[NodeView(name, {}) for name in names])


TWO = Budget(steps=2)
"""Enough for one node that fits, or to see on one that it does not."""


def test_what_does_not_fit_on_one_node_is_not_tried_on_those_that_are_alike() -> None:
    """With attempts on all of a thousand nodes this test would take minutes."""
    cluster = alike(1000)
    asked = ASKED["two of one card"]
    many = claim(request("r", count=9))
    assert isinstance(cluster.place([many], CLASSES, share_id=str, budget=BUDGET), NoFittingNode)
    placement = cluster.place([asked], CLASSES, share_id=str, budget=TWO)
    assert isinstance(placement, NodeAllocation)
    assert placement.node == "n-0"


@dataclass
class Searches:
    """Counts the looks at the clock: a search has one when it begins, and some on its way."""

    looks: int = 0

    def budget(self) -> Budget:
        self.looks = 0
        return Budget(clock=self.look)

    def look(self) -> float:
        self.looks += 1
        return 0.0


MANY = claim(request("r", f"has({ATTRIBUTES}.kind)", count=9))
"""More devices than a node has."""
FIVE_HALVES = claim(request("r", f"{ATTRIBUTES}.kind == 0", count=5))
"""Devices that a node has, but not all at once: only a search finds out."""


def test_equal_nodes_take_one_search_and_what_failed_on_them_none() -> None:
    searches = Searches()
    assert isinstance(alike(1).place([FIVE_HALVES], CLASSES, share_id=str, budget=searches.budget()), NoFittingNode)
    on_one = searches.looks
    assert on_one > 0
    cluster = alike(5)
    assert isinstance(cluster.place([FIVE_HALVES], CLASSES, share_id=str, budget=searches.budget()), NoFittingNode)
    assert searches.looks == on_one
    assert isinstance(cluster.place([FIVE_HALVES], CLASSES, share_id=str, budget=searches.budget()), NoFittingNode)
    assert searches.looks == 0, "it is remembered until something changes"


def test_admin_access_to_devices_in_use_is_found_after_a_node_without_any() -> None:
    slices = [slice_(device("d", attributes={"kind": 0}), pool="n-1", node_name="n-1")]
    cluster = ClusterAllocator(ALL_FEATURES, PoolIndex.build(slices), nodes=[NodeView("n-0", {}), NodeView("n-1", {})])
    user = claim(request("r"), name="user")
    placed = cluster.place([user], CLASSES, share_id=str, budget=BUDGET)
    assert isinstance(placed, NodeAllocation)
    cluster.set_claim(replace(user, status=ResourceClaimStatus(allocation=placed.results[0])))
    for number in range(2):
        admin = claim(request("r", f"{number} < 2", admin_access=True))
        found = cluster.place([admin], CLASSES, share_id=str, budget=BUDGET)
        assert isinstance(found, NodeAllocation)
        assert found.node == "n-1"


def test_states_that_no_node_has_any_more_are_forgotten() -> None:
    cluster = alike(2)
    asked = ASKED["any device"]
    for number in range(20):
        placed = cluster.place([asked], CLASSES, share_id=str, budget=BUDGET)
        assert isinstance(placed, NodeAllocation)
        named = replace(asked.metadata, name=f"claim-{number % 3}")
        cluster.set_claim(replace(asked, metadata=named, status=ResourceClaimStatus(allocation=placed.results[0])))
        assert len(cluster._nodes_by_state) <= 2


def test_of_many_pods_that_did_not_fit_those_asked_for_last_are_remembered() -> None:
    searches, cluster = Searches(), alike(1)

    def looks(number: int) -> int:
        asked = claim(request("r", f"{ATTRIBUTES}.kind == 0 && {number} >= 0", count=5))
        assert isinstance(cluster.place([asked], CLASSES, share_id=str, budget=searches.budget()), NoFittingNode)
        return searches.looks

    assert all(looks(number) for number in range(64)), "each is another pod"
    assert looks(0) == 0
    assert looks(64) > 0, "one more than are kept"
    assert looks(0) == 0
    assert looks(1) > 0, "it was asked for longest ago"


def test_a_node_with_too_few_devices_takes_no_search_once_the_claims_are_known_to_be_sound() -> None:
    names = {"n-0": 0, "n-1": 1, "n-2": 1}
    slices = [each for name, kind in names.items() for each in node_slices(name, kind)]
    searches = Searches()

    def looks(*nodes: str) -> int:
        cluster = ClusterAllocator(ALL_FEATURES, PoolIndex.build(slices), nodes=[NodeView(name, {}) for name in nodes])
        assert isinstance(cluster.place([MANY], CLASSES, share_id=str, budget=searches.budget()), NoFittingNode)
        return searches.looks

    assert looks("n-0", "n-1") == looks("n-0") > 0


def test_a_node_on_which_the_budget_ran_out_is_named_and_not_remembered() -> None:
    cluster = alike(2)
    asked = ASKED["two of one card"]
    assert cluster.place([asked], CLASSES, share_id=str, budget=Budget(steps=1)) == NoFittingNode(
        {"n-0": Undecided("steps", 1), "n-1": Undecided("steps", 1)}
    )
    assert isinstance(cluster.place([asked], CLASSES, share_id=str, budget=TWO), NodeAllocation)


def test_changed_nodes_are_worked_out_in_parts_and_only_these() -> None:
    cluster = alike(5)
    assert [cluster.refresh(2) for _ in range(4)] == [True, True, False, False]
    cluster.set_slice(node_slices("n-1", 1)[0])
    cluster.remove_node("n-4")
    assert [cluster.refresh(1) for _ in range(2)] == [False, False]
    placement = cluster.place([ASKED["any device"]], CLASSES, share_id=str, budget=BUDGET)
    assert isinstance(placement, NodeAllocation)


def test_what_each_node_would_give_is_found_once_for_equal_nodes() -> None:
    cluster, asked = alike(4), ASKED["any device"]
    placed = cluster.place([asked], CLASSES, share_id=str, budget=BUDGET)
    assert isinstance(placed, NodeAllocation)
    cluster.set_claim(replace(asked, status=ResourceClaimStatus(allocation=placed.results[0])))
    offered = frozenset({"n-0", "n-1", "n-3", "unknown"})
    found = list(cluster.allocate_on_each([asked], CLASSES, budget=BUDGET, nodes=offered))
    assert sorted(each.nodes for each in found) == [("n-0",), ("n-1", "n-3")]
    for each in found:
        result = each.results[0].devices.results[0]
        expected = cluster.allocate_on(each.nodes[0], [asked], CLASSES, share_id=str, budget=BUDGET)
        assert isinstance(expected, Fits)
        assert result.device == expected.results[0].devices.results[0].device
    assert list(cluster.allocate_on_each([MANY], CLASSES, budget=BUDGET, nodes=offered)) == []


def test_only_the_nodes_that_are_offered_are_tried() -> None:
    placement = alike(3).place(
        [ASKED["any device"]], CLASSES, share_id=str, budget=BUDGET, nodes=frozenset({"n-2", "unknown"})
    )
    assert isinstance(placement, NodeAllocation)
    assert placement.node == "n-2"
    nowhere = alike(3).place([ASKED["any device"]], CLASSES, share_id=str, budget=BUDGET, nodes=frozenset())
    assert not isinstance(nowhere, NodeAllocation), "where no node is offered none is tried"


def test_taint_rules_hold_in_a_cluster_too() -> None:
    rule = DeviceTaintRule(spec=DeviceTaintRuleSpec(taint=DeviceTaint(key="repair", effect="NoSchedule")))
    node = NodeView("n", {})
    cluster = ClusterAllocator(ALL_FEATURES, PoolIndex.build(node_slices("n", 0), [rule]), nodes=[node])
    assert isinstance(cluster.place([ASKED["any device"]], CLASSES, share_id=str, budget=BUDGET), NoFittingNode)


@pytest.mark.parametrize("classes", [{}, {"any": class_("any", "device.nope")}])
def test_a_failure_of_the_pod_ends_the_attempt(classes: dict[str, DeviceClass]) -> None:
    placement = alike(3).place([ASKED["any device"]], classes, share_id=str, budget=BUDGET)
    assert isinstance(placement, Failed)
    assert placement.kind == "fatal"


def test_a_class_that_changes_is_another_question() -> None:
    cluster = alike(1)
    asked = ASKED["any device"]
    none = {"any": class_("any", "false")}
    assert isinstance(cluster.place([asked], none, share_id=str, budget=BUDGET), NoFittingNode)
    assert isinstance(cluster.place([asked], CLASSES, share_id=str, budget=BUDGET), NodeAllocation)
