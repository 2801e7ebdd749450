"""The scores of nodes, from what kube-scheduler sends and what informers show."""

from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.driver.controller.structured.placement.scheduler_extender import (
    MOST_NODES,
    SCORING_S,
    InvalidRequestError,
    decode_args,
)
from kerf_dra.driver.placement.node_scores import score_nodes
from kerf_dra.driver.placement.placement_value import NodeRank
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.allocation.builders import claim, class_, device, partitioned, request, slice_
from tests.controller.structured.placement.cluster import DRIVER, Cluster, body, claim_for, pod


@pytest.fixture(params=["built before", "built after"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Three nodes with one H100 each: ``a`` holds a 4g.40gb, ``b`` a 1g.10gb, and ``c`` is empty.

    The allocator is built when the objects are there already, or follows their changes.
    """
    made = Cluster()
    if request.param == "built before":
        made.index.build()
    for name in "abc":
        made.add_node(name)
    made.allocate(claim_for("4g.40gb", "held-a"), "a")
    made.allocate(claim_for("1g.10gb", "held-b"), "b")
    if request.param == "built after":
        made.index.build()
    return made


def outcomes() -> dict[str, float]:
    return {
        sample.labels["outcome"]: sample.value
        for metric in REGISTRY.collect()
        if metric.name == "kerf_placement_requests"
        for sample in metric.samples
        if sample.name.endswith("_total")
    }


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("1g.10gb", {"a": 9, "b": 10, "c": 8}),  # beside the other small one: it breaks nothing that is whole
        ("3g.40gb", {"a": 10, "b": 9, "c": 8}),
        ("4g.40gb", {"a": 0, "b": 10, "c": 9}),  # on a it does not fit any more
        ("7g.80gb", {"a": 0, "b": 0, "c": 10}),
    ],
)
def test_the_node_is_preferred_where_least_is_lost(cluster: Cluster, profile: str, expected: dict[str, int]) -> None:
    cluster.set_claim(claim_for(profile, "new"))
    assert cluster.scores(pod("new"), "a", "b", "c") == expected


def test_nodes_that_are_not_asked_about_have_no_score_and_unknown_ones_get_none_of_it(cluster: Cluster) -> None:
    cluster.set_claim(claim_for("1g.10gb", "new"))
    assert cluster.scores(pod("new"), "c", "gone", "a") == {"c": 9, "gone": 0, "a": 10}


def test_equal_nodes_have_equal_scores(cluster: Cluster) -> None:
    for number in range(5):
        cluster.add_node(f"d{number}")
    cluster.set_claim(claim_for("1g.10gb", "new"))
    scores = cluster.scores(pod("new"), "a", "c", "d0", "d1", "d2", "d3", "d4")
    assert scores.pop("a") == 10
    assert set(scores.values()) == {9}


def test_claims_of_templates_are_found_by_the_pods_status(cluster: Cluster) -> None:
    cluster.set_claim(claim_for("7g.80gb", "p-t-x7f"))
    assert cluster.scores(pod(templated=["p-t-x7f"]), "a", "c") == {"a": 0, "c": 10}


def test_all_claims_of_a_pod_count_together(cluster: Cluster) -> None:
    """Each of the two fits on ``a``, but not both."""
    cluster.set_claim(claim_for("3g.40gb", "one"))
    cluster.set_claim(claim_for("2g.20gb", "two"))
    assert cluster.scores(pod("one", "two"), "a", "c") == {"a": 0, "c": 10}


def test_claims_that_are_allocated_already_do_not_count(cluster: Cluster) -> None:
    cluster.set_claim(claim_for("1g.10gb", "new"))
    assert cluster.scores(pod("held-a"), "a", "b", "c") == {"a": 0, "b": 0, "c": 0}
    assert cluster.scores(pod("held-a", "new"), "a", "b") == {"a": 9, "b": 10}


def test_a_pod_that_requests_an_extended_resource_is_scored_by_the_claim_that_it_will_get(cluster: Cluster) -> None:
    selecting = class_("large", f'device.attributes["{DRIVER}"].profile == "7g.80gb"')
    cluster.classes.put(replace(selecting, spec=replace(selecting.spec, extended_resource_name="example.com/large")))
    assert cluster.scores(pod(resources={"example.com/large": "1"}), "a", "c") == {"a": 0, "c": 10}
    by_class = pod(resources={"deviceclass.resource.kubernetes.io/large": "1"})
    assert cluster.scores(by_class, "a", "c") == {"a": 0, "c": 10}
    assert cluster.scores(pod(resources={"example.com/other": "1", "cpu": "2"}), "a", "c") == {"a": 0, "c": 0}


def test_devices_of_other_drivers_are_scored_too(cluster: Cluster) -> None:
    units = [f"memory-slice-{number}" for number in range(4)]
    for name in "xy":
        parts = [device(f"part-{unit}", attributes={"profile": "1"}, uses={"card": {unit: 1}}) for unit in units]
        whole = device("all", attributes={"profile": "4"}, uses={"card": dict.fromkeys(units, 1)})
        slices = partitioned(*parts, whole, sets={"card": dict.fromkeys(units, 1)}, pool=name, node_name=name)
        cluster.add_node(name, *(_named(each, f"{each.metadata.name}-{name}") for each in slices))
    expression = 'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].profile == "1"'
    cluster.allocate(claim(request("r", expression), name="held"), "y")
    cluster.set_claim(claim(request("r", expression), name="new"))
    assert cluster.scores(pod("new"), "x", "y") == {"x": 9, "y": 10}


def _named(slice_: ResourceSlice, name: str) -> ResourceSlice:
    return replace(slice_, metadata=replace(slice_.metadata, name=name))


SPREAD = "Spread"


@pytest.mark.parametrize(
    ("placement", "is_compiled", "expected"),
    [
        (None, True, {"a": 9, "b": 10, "c": 8}),
        ("Packed", True, {"a": 9, "b": 10, "c": 8}),
        (SPREAD, True, {"a": 8, "b": 9, "c": 10}),
        ("None", True, {"a": 0, "b": 0, "c": 0}),
        (SPREAD, False, {"a": 9, "b": 10, "c": 8}),  # the DeviceClass of this name is another program's
    ],
)
def test_a_pod_is_scored_by_the_placement_that_its_class_asks_for(
    cluster: Cluster, placement: str | None, is_compiled: bool, expected: dict[str, int]
) -> None:
    cluster.set_placement(placement, is_compiled=is_compiled)
    cluster.set_claim(claim_for("1g.10gb", "new"))
    assert cluster.scores(pod("new"), "a", "b", "c") == expected


def test_a_class_that_asks_for_another_placement_is_followed_at_once(cluster: Cluster) -> None:
    cluster.set_claim(claim_for("1g.10gb", "new"))
    cluster.set_placement(SPREAD)
    assert cluster.scores(pod("new"), "b", "c") == {"b": 9, "c": 10}
    cluster.set_placement("Packed")
    assert cluster.scores(pod("new"), "b", "c") == {"b": 10, "c": 9}


def test_spread_pods_go_where_claims_of_their_class_hold_least_whatever_else_is_in_use(cluster: Cluster) -> None:
    """``a`` is in use by the class ``any``, and ``c`` is empty; the class ``other`` has one device on ``c``."""
    cluster.classes.put(class_("other"))
    cluster.set_placement(SPREAD, "other")
    cluster.allocate(_of_class(claim_for("1g.10gb", "held-c"), "other"), "c")
    cluster.set_claim(_of_class(claim_for("1g.10gb", "new"), "other"))
    assert cluster.scores(pod("new"), "a", "b", "c") == {"a": 9, "b": 10, "c": 8}
    cluster.remove_claim(_of_class(claim_for("1g.10gb", "held-c"), "other"))
    assert cluster.scores(pod("new"), "a", "b", "c") == {"a": 8, "b": 9, "c": 10}


def test_equal_nodes_are_spread_over_though_one_search_serves_them_all(cluster: Cluster) -> None:
    """``c`` and ``d`` have the same devices in use, ``c`` for another class."""
    cluster.classes.put(class_("other"))
    cluster.set_placement(SPREAD, "other")
    cluster.add_node("d")
    cluster.allocate(claim_for("2g.20gb", "held-c"), "c")
    cluster.allocate(_of_class(claim_for("2g.20gb", "held-d"), "other"), "d")
    cluster.set_claim(_of_class(claim_for("1g.10gb", "new"), "other"))
    assert cluster.scores(pod("new"), "c", "d") == {"c": 10, "d": 9}


def test_spread_whole_devices_of_another_driver_go_to_the_node_with_the_most_that_are_free(cluster: Cluster) -> None:
    for name, count in (("x", 2), ("y", 3)):
        devices = (device(f"gpu-{number}") for number in range(count))
        cluster.add_node(name, slice_(*devices, name=f"whole-{name}", pool=name, node_name=name))
    cluster.set_placement(SPREAD)
    cluster.set_claim(claim(request("r", 'device.driver == "gpu.example.com"'), name="new"))
    assert cluster.scores(pod("new"), "x", "y") == {"x": 9, "y": 10}


def test_classes_of_one_pod_that_contradict_each_other_prefer_no_node(cluster: Cluster) -> None:
    cluster.classes.put(class_("other"))
    cluster.set_placement(SPREAD, "other")
    cluster.set_claim(claim_for("1g.10gb", "one"))
    cluster.set_claim(_of_class(claim_for("1g.10gb", "two"), "other"))
    assert cluster.scores(pod("one", "two"), "a", "b", "c") == {"a": 8, "b": 9, "c": 10}, "one says nothing"
    cluster.set_placement("Packed")
    assert cluster.scores(pod("one", "two"), "a", "b", "c") == {"a": 0, "b": 0, "c": 0}


def test_extended_resources_are_of_the_class_that_backs_them(cluster: Cluster) -> None:
    selecting = class_("large", f'device.attributes["{DRIVER}"].profile == "1g.10gb"')
    cluster.classes.put(replace(selecting, spec=replace(selecting.spec, extended_resource_name="example.com/small")))
    cluster.set_placement(SPREAD, "large")
    assert cluster.scores(pod(resources={"example.com/small": "1"}), "a", "b", "c") == {"a": 8, "b": 9, "c": 10}


def _of_class(value: ResourceClaim, name: str) -> ResourceClaim:
    """The claim, for devices of another class."""
    requests = tuple(
        replace(each, exactly=replace(each.exactly, device_class_name=name))
        for each in value.spec.devices.requests
        if each.exactly is not None
    )
    return replace(value, spec=replace(value.spec, devices=replace(value.spec.devices, requests=requests)))


@pytest.mark.parametrize("placement", ["None", "Spread"])
def test_a_pod_without_a_preference_is_answered_without_a_search(cluster: Cluster, placement: str) -> None:
    cluster.set_placement(placement)
    cluster.set_claim(claim_for("1g.10gb", "new"))
    cluster.step_s = SCORING_S * 2
    before = outcomes()
    cluster.scores(pod("new"), "a", "b")
    outcome = "no-preference" if placement == "None" else "late"
    assert outcomes()[outcome] == before.get(outcome, 0) + 1


@pytest.mark.parametrize(
    ("of", "outcome"),
    [
        (pod(), "no-devices"),
        (pod(resources={"cpu": "1", "nvidia.com/gpu": "1"}), "no-devices"),
        (pod("nowhere"), "unknown-claim"),
        (pod(templated=[""]), "unknown-claim"),
        (pod("new", "nowhere"), "unknown-claim"),
        (pod("new"), "scored"),
    ],
)
def test_a_pod_without_known_claims_gives_every_node_the_same_score(
    cluster: Cluster, of: dict[str, Any], outcome: str
) -> None:
    cluster.set_claim(claim_for("1g.10gb", "new"))
    before = outcomes().get(outcome, 0)
    scores = cluster.scores(of, "a", "b")
    assert len(set(scores.values())) == (2 if outcome == "scored" else 1)
    assert outcomes()[outcome] == before + 1


def test_a_template_that_needs_no_claim_is_not_waited_for(cluster: Cluster) -> None:
    """The pod's status says of such an entry that no claim was made for it."""
    of = pod("new", templated=[""])
    of["status"]["resourceClaimStatuses"] = [{"name": "t0"}]
    cluster.set_claim(claim_for("7g.80gb", "new"))
    assert cluster.scores(of, "a", "c") == {"a": 0, "c": 10}


def test_a_class_that_was_deleted_meanwhile_leaves_all_scores_equal(cluster: Cluster) -> None:
    cluster.set_claim(claim_for("1g.10gb", "new"))
    cluster.classes.remove(class_().ref)
    assert cluster.scores(pod("new"), "a", "b") == {"a": 0, "b": 0}


def test_scores_follow_what_happens_to_claims_slices_and_nodes(cluster: Cluster) -> None:
    cluster.set_claim(claim_for("1g.10gb", "new"))
    cluster.remove_claim(claim_for("4g.40gb", "held-a"))
    assert cluster.scores(pod("new"), "a", "b", "c") == {"a": 9, "b": 10, "c": 9}
    cluster.allocate(claim_for("7g.80gb", "whole"), "a")
    assert cluster.scores(pod("new"), "a", "b", "c") == {"a": 0, "b": 10, "c": 9}
    cluster.remove_node("b")
    assert cluster.scores(pod("new"), "a", "b", "c") == {"a": 0, "b": 0, "c": 10}
    cluster.set_claim(replace(claim_for("7g.80gb", "whole"), status=ResourceClaimStatus()))
    assert cluster.scores(pod("new"), "a", "b", "c") == {"a": 10, "b": 0, "c": 10}


def test_a_node_whose_slices_are_incomplete_has_no_score_until_they_are_complete(cluster: Cluster) -> None:
    cluster.set_claim(claim_for("1g.10gb", "new"))
    of_c = [each for each in cluster.stored.values() if each.spec.node_name == "c"]
    newer = [_of_generation(each, 2) for each in of_c]
    cluster.set_slice(newer[0])
    assert cluster.scores(pod("new"), "a", "c") == {"a": 10, "c": 0}
    for each in newer[1:]:
        cluster.set_slice(each)
    assert cluster.scores(pod("new"), "a", "c") == {"a": 10, "c": 9}


def test_a_slice_that_moves_to_another_pool_is_not_counted_twice(cluster: Cluster) -> None:
    cluster.set_claim(claim_for("7g.80gb", "new", count=2))
    for each in [each for each in cluster.stored.values() if each.spec.node_name == "c"]:
        pool = replace(each.spec.pool, name="moved")
        cluster.set_slice(replace(each, spec=replace(each.spec, pool=pool)))
    assert cluster.scores(pod("new"), "b", "c") == {"b": 0, "c": 0}


def _of_generation(slice_: ResourceSlice, generation: int) -> ResourceSlice:
    pool = replace(slice_.spec.pool, generation=generation)
    return replace(slice_, spec=replace(slice_.spec, pool=pool))


def test_nodes_that_there_is_no_time_for_have_no_score(cluster: Cluster) -> None:
    cluster.set_claim(claim_for("1g.10gb", "new"))
    cluster.step_s = SCORING_S * 0.6
    before = outcomes().get("late", 0)
    scores = cluster.scores(pod("new"), "a", "b", "c")
    assert sorted(scores.values()) == [0, 9, 10]
    assert outcomes()["late"] == before + 1


def test_more_nodes_than_a_cluster_has_are_answered_without_a_score(cluster: Cluster) -> None:
    cluster.set_claim(claim_for("1g.10gb", "new"))
    names = [f"n-{number}" for number in range(MOST_NODES)]
    scores = cluster.scores(pod("new"), "a", *names, "b")
    assert len(scores) == MOST_NODES + 2
    assert (scores["a"], scores["b"]) == (10, 0)


def test_from_the_eleventh_rank_on_scores_are_equal() -> None:
    ranks = {f"n-{loss:02}": NodeRank(loss, 8) for loss in range(14)}
    scores = score_nodes([*ranks, "none"], ranks)
    assert list(scores.values()) == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0]


def test_of_equal_losses_the_fuller_card_is_preferred() -> None:
    ranks = {"full": NodeRank(3, 2), "empty": NodeRank(3, 8), "better": NodeRank(2, 8)}
    assert score_nodes(ranks, ranks) == {"full": 9, "empty": 8, "better": 10}


DEEP = b'{"Pod": {"metadata": {"annotations": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b'}}, "NodeNames": []}'


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"", "no ExtenderArgs"),
        (b"\xff\xfe", "no ExtenderArgs"),
        (b"[]", "no ExtenderArgs"),
        (b'{"NodeNames": ["a"]}', "no pod"),
        (b'{"Pod": null, "NodeNames": ["a"]}', "no ExtenderArgs"),
        (b'{"Pod": {"spec": {"resourceClaims": 7}}, "NodeNames": ["a"]}', "resourceClaims"),
        (b'{"Pod": {}, "NodeNames": [7]}', "no ExtenderArgs"),
        (b'{"Pod": {}, "Nodes": {"items": []}, "NodeNames": null}', "nodeCacheCapable"),
        (b'{"Pod": {}, "Nodes": {"items": []}}', "nodeCacheCapable"),
        (DEEP, "no ExtenderArgs"),
    ],
)
def test_a_malformed_body_is_refused_with_the_reason(cluster: Cluster, sent: bytes, message: str) -> None:
    before = outcomes().get("invalid", 0)
    with pytest.raises(InvalidRequestError, match=message):
        cluster.extender.prioritize(sent)
    assert outcomes()["invalid"] == before + 1


def test_names_of_fields_are_read_whatever_their_case() -> None:
    """Go's decoder, which other extenders use, does so, and kube-scheduler's types had other tags once."""
    lower = body(pod(), "a").replace(b'"Pod"', b'"pod"').replace(b'"NodeNames"', b'"nodenames"')
    assert decode_args(lower) == decode_args(body(pod(), "a"))
