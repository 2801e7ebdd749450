"""The devices of published slices that a node can use."""

from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.devices import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourceSlice,
)
from kerf_dra.api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kerf_dra.driver.allocation import (
    AllocatedState,
    DoesNotFit,
    Failed,
    Features,
    Fits,
    NodeView,
    Obstacle,
    Outcome,
    PoolIndex,
    allocate,
)
from tests.allocation.builders import (
    ALL_FEATURES,
    BUDGET,
    DRIVER,
    NODE,
    claim,
    class_,
    decide,
    device,
    labelled,
    partitioned,
    request,
    slice_,
)

ONE = claim(request("r"))
ALL = claim(request("r", count=None))


def names(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Fits), outcome
    return [f"{each.pool}/{each.device}" for result in outcome.results for each in result.devices.results]


def test_devices_come_in_the_order_driver_pool_slice_position() -> None:
    slices = [
        slice_(device("z"), device("a"), name="s2", driver="b.example.com", pool="p1", slices=2),
        slice_(device("y"), name="s1", driver="b.example.com", pool="p1", slices=2),
        slice_(device("x"), name="s9", driver="b.example.com", pool="p0"),
        slice_(device("w"), name="s8", driver="a.example.com", pool="p2"),
    ]
    outcome = decide(slices, claim(request("r", count=5)))
    assert names(outcome) == ["p2/w", "p0/x", "p1/y", "p1/z", "p1/a"]


def test_pools_with_binding_conditions_come_last() -> None:
    slices = [slice_(device("slow", binding_conditions=("ready",)), pool="a"), slice_(device("quick"), pool="b")]
    assert names(decide(slices, claim(request("r", count=2)))) == ["b/quick", "a/slow"]


PLACES = [
    ({"node_name": "node-1"}, True),
    ({"node_name": "node-2"}, False),
    ({"all_nodes": True}, True),
    ({"node_selector": labelled("zone", "In", "east", "west")}, True),
    ({"node_selector": labelled("zone", "In", "west")}, False),
    ({"node_selector": labelled("zone", "NotIn", "west")}, True),
    ({"node_selector": labelled("rack", "NotIn", "r1")}, True),
    ({"node_selector": labelled("zone", "Exists")}, True),
    ({"node_selector": labelled("rack", "Exists")}, False),
    ({"node_selector": labelled("rack", "DoesNotExist")}, True),
    ({"node_selector": labelled("rank", "Gt", "4")}, True),
    ({"node_selector": labelled("rank", "Lt", "4")}, False),
    ({"node_selector": labelled("zone", "Gt", "4")}, False),
    ({"node_selector": NodeSelector(node_selector_terms=(NodeSelectorTerm(),))}, False),
    ({"node_selector": NodeSelector(node_selector_terms=())}, False),
]


@pytest.mark.parametrize(("place", "is_here"), PLACES)
def test_a_slice_is_for_the_nodes_that_it_names_or_selects(place: dict[str, Any], is_here: bool) -> None:
    assert isinstance(decide([slice_(device("d"), **place)], ONE), Fits) is is_here


@pytest.mark.parametrize(("place", "is_here"), PLACES)
def test_a_device_can_say_for_itself_which_nodes_it_is_for(place: dict[str, Any], is_here: bool) -> None:
    there = device("there", all_nodes=True)
    slices = [slice_(device("d", **place), there, per_device_node_selection=True)]
    assert names(decide(slices, ONE)) == ["pool/d" if is_here else "pool/there"]


def test_the_field_of_a_node_selector_is_the_nodes_name() -> None:
    by_name = NodeSelectorRequirement(key="metadata.name", operator="In", values=(NODE.name,))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(by_name,)),))
    assert isinstance(decide([slice_(device("d"), node_selector=selector)], ONE), Fits)
    other = NodeView("node-2", {})
    assert isinstance(decide([slice_(device("d"), node_selector=selector)], ONE, node=other), DoesNotFit)


@pytest.mark.parametrize(
    "selector",
    [
        labelled("zone", "Like", "e*"),
        labelled("zone", "In"),
        labelled("zone", "Exists", "x"),
        labelled("rank", "Gt", "x"),
    ],
)
def test_a_node_selector_that_breaks_the_rules_fails_the_attempt(selector: NodeSelector) -> None:
    outcome = decide([slice_(device("d"), node_selector=selector)], ONE)
    assert isinstance(outcome, Failed)
    assert outcome.kind == "fatal"


def test_only_the_highest_generation_counts() -> None:
    slices = [slice_(device("old"), name="a", generation=1), slice_(device("new"), name="b", generation=2)]
    assert names(decide(slices, ONE)) == ["pool/new"]


def test_an_old_pool_is_gone_when_the_new_generation_has_nothing_for_the_node() -> None:
    slices = [
        slice_(device("old"), name="a", generation=1, slices=2),
        slice_(device("new"), name="b", generation=2, node_name="node-2"),
    ]
    outcome = decide(slices, ONE)
    assert isinstance(outcome, DoesNotFit)
    assert [reason.obstacle for reason in outcome.reasons] == [Obstacle.NO_POOL]


def test_slices_for_other_nodes_make_a_pool_whole() -> None:
    slices = [
        slice_(device("here"), name="a", slices=2),
        slice_(device("there"), name="b", slices=2, node_name="node-2"),
    ]
    assert names(decide(slices, ALL)) == ["pool/here"]


INCOMPLETE = [slice_(device("d"), slices=2)]
TWICE = [slice_(device("d"), name="a", slices=2), slice_(device("d"), name="b", slices=2)]
NOWHERE = partitioned(device("d", uses={"missing": {"c": 1}}), sets={"set": {"c": 1}})
NO_COUNTER = partitioned(device("d", uses={"set": {"missing": 1}}), sets={"set": {"c": 1}})
TWO_SETS = [
    slice_(device("d"), name="a", slices=3),
    slice_(name="b", slices=3, sets={"set": {"c": 1}}),
    slice_(name="c", slices=3, sets={"set": {"c": 1}}),
]


def test_an_incomplete_pool_gives_nothing_and_says_so() -> None:
    outcome = decide(INCOMPLETE, ONE)
    assert isinstance(outcome, DoesNotFit)
    assert [reason.obstacle for reason in outcome.reasons] == [Obstacle.POOL_INCOMPLETE]
    assert "1 of 2 slices" in str(outcome.reasons[0])


@pytest.mark.parametrize("slices", [TWICE, NOWHERE, NO_COUNTER, TWO_SETS])
def test_an_invalid_pool_is_an_error_of_the_node_when_nothing_else_serves(slices: list[ResourceSlice]) -> None:
    outcome = decide(slices, ONE)
    assert isinstance(outcome, Failed)
    assert outcome.kind == "node"
    assert names(decide([*slices, slice_(device("spare"), pool="spare")], ONE)) == ["spare/spare"]


@pytest.mark.parametrize("slices", [INCOMPLETE, TWICE])
def test_all_devices_cannot_be_had_while_a_pool_is_in_doubt(slices: list[ResourceSlice]) -> None:
    outcome = decide([*slices, slice_(device("spare"), pool="spare")], ALL)
    assert isinstance(outcome, Failed)
    assert outcome.kind == "fatal"


def test_counters_and_devices_may_share_a_slice_as_before_kubernetes_1_35() -> None:
    half = {"card": {"slices": 2}}
    old = [slice_(*(device(name, uses=half) for name in "abc"), sets={"card": {"slices": 4}})]
    assert names(decide(old, claim(request("r", count=2)))) == ["pool/a", "pool/b"]
    assert isinstance(decide(old, claim(request("r", count=3))), DoesNotFit)


@pytest.mark.parametrize(
    ("slices", "features"),
    [
        (
            partitioned(device("d", uses={"set": {"c": 1}}), sets={"set": {"c": 1}}),
            Features(partitionable_devices=False),
        ),
        ([slice_(device("d", all_nodes=True), per_device_node_selection=True)], Features(partitionable_devices=False)),
        (
            partitioned(device("d", uses={"set": {"c": 1}}, groups={"set": ["mig"]}), sets={"set": {"c": 1}}),
            Features(compatibility_groups=False),
        ),
        ([slice_(device("d", binding_conditions=("ready",)))], Features(device_binding_and_status=False)),
        ([slice_(device("d"), skip_node_operations=("*",), node_name="node-1")], Features()),
    ],
)
def test_devices_that_need_a_switched_off_feature_are_not_used(slices: list[ResourceSlice], features: Features) -> None:
    assert isinstance(decide(slices, ONE, features=features), DoesNotFit)


def test_node_operations_are_left_out_only_where_the_kubelet_knows_of_it() -> None:
    slices = [slice_(device("d"), skip_node_operations=("*",), node_name="node-1")]
    assert isinstance(decide(slices, ONE), DoesNotFit)
    able = NodeView(NODE.name, NODE.labels, frozenset({"DRAOptionalNodeOperations"}))
    outcome = decide(slices, ONE, node=able)
    assert isinstance(outcome, Fits)
    assert outcome.results[0].devices.results[0].skip_node_operations == ("*",)


def rule(**selector: str) -> DeviceTaintRule:
    return DeviceTaintRule(
        spec=DeviceTaintRuleSpec(
            device_selector=DeviceTaintSelector(**selector), taint=DeviceTaint(key="repair", effect="NoSchedule")
        )
    )


@pytest.mark.parametrize(
    ("selector", "is_tainted"),
    [
        ({}, True),
        ({"driver": "gpu.example.com"}, True),
        ({"driver": "other.example.com"}, False),
        ({"pool": "pool"}, True),
        ({"pool": "other"}, False),
        ({"pool": "pool", "device": "d"}, True),
        ({"device": "other"}, False),
    ],
)
def test_a_rule_taints_what_matches_everything_it_names(selector: dict[str, str], is_tainted: bool) -> None:
    outcome = decide([slice_(device("d"))], ONE, taint_rules=[rule(**selector)])
    assert isinstance(outcome, DoesNotFit) is is_tainted


def test_a_changed_slice_changes_its_pool_and_leaves_the_others() -> None:
    before = PoolIndex.build([slice_(device("a")), slice_(device("b"), name="t", pool="other")])
    after = before.with_slice(slice_(device("a"), device("c")))
    assert [view.id.name for view in after.views(NODE, ALL_FEATURES)] == ["other", "pool"]
    old, new = (inventory.views(NODE, ALL_FEATURES) for inventory in (before, after))
    assert new[0] is old[0]
    assert [each.id.device for each in new[1].devices] == ["a", "c"]
    assert [each.id.device for each in old[1].devices] == ["a"]


def test_a_removed_slice_is_gone_and_one_that_moves_is_seen_from_its_new_node() -> None:
    listed = slice_(device("a"))
    inventory = PoolIndex.build([listed])
    assert inventory.without_slice(listed).views(NODE, ALL_FEATURES) == []
    moved = inventory.without_slice(listed).with_slice(slice_(device("a"), node_name="node-2"))
    assert moved.views(NODE, ALL_FEATURES) == []
    assert len(moved.views(NodeView("node-2", {}), ALL_FEATURES)) == 1


def test_every_device_of_a_pool_has_the_texts_of_its_own_slice() -> None:
    """The texts of a pool are kept in one row, and devices say where in it theirs stand."""
    slices = [
        slice_(*(device(f"{part}{number}", attributes={"uuid": f"{part}-{number}"}) for number in range(3)), name=part)
        for part in ("left", "right")
    ]
    slices = [
        replace(each, spec=replace(each.spec, pool=replace(each.spec.pool, resource_slice_count=2))) for each in slices
    ]
    for part in ("left", "right"):
        for number in range(3):
            one = claim(request("r", f'device.attributes["{DRIVER}"].uuid == "{part}-{number}"'))
            assert names(decide(slices, one)) == [f"pool/{part}{number}"]


def test_of_a_pool_with_slices_for_two_nodes_each_sees_its_own() -> None:
    slices = [slice_(device(f"of-{node}"), name=node, slices=2, node_name=node) for node in ("node-1", "node-2")]
    inventory = PoolIndex.build(slices)
    for node in ("node-1", "node-2", "node-1"):
        outcome = allocate(
            inventory,
            [ONE],
            NodeView(node, {}),
            {"any": class_()},
            AllocatedState(),
            ALL_FEATURES,
            share_id=str,
            budget=BUDGET,
        )
        assert names(outcome) == [f"pool/of-{node}"]
