"""Diagnostics of extended resources that ResourceClasses offer by the kubelet's device plugin interface."""

from pathlib import Path
from typing import Any

import pytest

from kerf_dra.api.core.v1 import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NODE_SETUPS,
    Container,
    NodeSetup,
    NodeSetupStatus,
    Pod,
    ResourceRequirements,
)
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.cli.cluster.why import render_report
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState, OfferedResource
from kerf_dra.driver.diagnostics.explain.report import Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_pod
from kerf_dra.driver.diagnostics.extended_resources.offered_resources import find_offered
from kerf_dra.driver.diagnostics.plan import plan_workloads
from tests.diagnostics.test_collector import cluster as served_cluster
from tests.diagnostics.test_collector import collect
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, parse, pod, replace
from tools.generate import crds

SMALL = "kerf.dev/gpu-small"
REFUSAL = "kerf.dev/gpu-small is the extended resource of the DeviceClass"


def limited(name: str, amount: int = 1, *, on: str = "", init: int = 0, claims: tuple[str, ...] = ()) -> Pod:
    """A pod that asks for so many of the resource, in two containers where it is more than one."""
    amounts = [amount - 1, 1] if amount > 1 else [amount]
    made = pod(name, *claims, node_name=on)
    containers = tuple(map(_container, amounts))
    return replace(made, spec=replace(made.spec, containers=containers, init_containers=(_container(init),)))


def _container(amount: int) -> Container:
    return Container(name="c", resources=ResourceRequirements(limits={SMALL: Quantity(amount), "cpu": Quantity(1)}))


def offering(*pods: Pod, refusal: str = "", **allocatable: int) -> ClusterState:
    """A cluster of two nodes, which list so many of the resource (``node_1=2``)."""
    listed = {name.replace("_", "-"): amount for name, amount in allocatable.items()}
    offered = OfferedResource(name=SMALL, class_name="small", per_node=2, refusal=refusal, allocatable=listed)
    return replace(gpu_cluster(nodes=2), offered_resources=(offered,), pods=pods)


def why(state: ClusterState, name: str = "p") -> WhyReport:
    return explain_pod(ClusterIndex(state), ObjectRef("default", name))


def test_why_says_of_each_node_how_many_there_are_and_who_has_them() -> None:
    report = why(offering(limited("p"), limited("a", 2, on="node-1"), node_1=2))
    assert report.verdict is Verdict.DOES_NOT_FIT
    assert [(cause.code, cause.message) for cause in report.causes] == [
        (
            "extended-resource",
            f"on node-1: {SMALL}: the pod asks for 1, and of the node's 2 pods have 2 (default/a)",
        ),
        ("extended-resource", f"on node-2: {SMALL}: the pod asks for 1, and the node has none"),
    ]
    assert "raise devicePlugin.perNode" in report.causes[0].next_step


def test_a_pod_with_limits_and_a_claim_is_not_told_to_wait_below_that_no_claim_would_help() -> None:
    """A pod of a class's limits waits for pods to end, of which the end of claims says nothing."""
    both = limited("p", claims=("c",))
    report = why(replace(offering(both, limited("a", 2, on="node-1"), node_1=2), claims=(claim("c", "1g-10gb"),)))
    assert {cause.code for cause in report.causes} == {"extended-resource"}
    text = "\n".join(render_report(report))
    assert "wait until a pod that has some ends" in " ".join(text.split())
    assert "would not fit either" not in text


@pytest.mark.parametrize(
    ("waiting", "fits"),
    [
        (limited("p", 2), ("node-2",)),
        (limited("p", 3), ()),
        (limited("p", 1, init=2), ("node-2",)),
        (limited("p", 1, init=3), ()),
        (limited("p", 1), ("node-1", "node-2")),
    ],
    ids=["two", "three", "two at first", "three at first", "one"],
)
def test_a_pod_fits_where_enough_is_free_and_init_containers_run_before(waiting: Pod, fits: tuple[str, ...]) -> None:
    finished = limited("done", 2, on="node-2")
    finished = replace(finished, status=replace(finished.status, phase="Succeeded"))
    report = why(offering(waiting, limited("a", on="node-1"), finished, node_1=2, node_2=2))
    assert report.fitting_nodes == fits


def test_a_sidecar_keeps_what_it_has_beside_the_containers() -> None:
    waiting = limited("p", 1, init=1)
    [sidecar] = (replace(each, restart_policy="Always") for each in waiting.spec.init_containers)
    beside = replace(waiting, spec=replace(waiting.spec, init_containers=(sidecar,)))
    assert why(offering(beside, node_1=1, node_2=2)).fitting_nodes == ("node-2",)


def test_of_a_resource_that_no_node_may_offer_the_classs_condition_is_told() -> None:
    report = why(offering(limited("p"), refusal=REFUSAL))
    assert report.verdict is Verdict.BLOCKED
    assert report.causes[0].code == "extended-resource-refused"
    assert report.message == f"ResourceClass small: {REFUSAL}"


def test_of_two_classes_with_one_name_the_one_that_may_offer_it_counts() -> None:
    state = offering(limited("p"), node_1=1)
    other = replace(state.offered_resources[0], class_name="younger", refusal=REFUSAL)
    for order in ((*state.offered_resources, other), (other, *state.offered_resources)):
        assert why(replace(state, offered_resources=order)).fitting_nodes == ("node-1",)


def test_a_claim_that_does_not_fit_is_told_what_is_kept_for_pods_with_limits() -> None:
    state = offering(limited("a", on="node-1"), pod("p", "p"), node_1=3, node_2=2)
    state = allocate_claims(state, claim("x", "whole"), claim("y", "whole"))
    report = why(replace(state, claims=(*state.claims, claim("p", "1g-10gb"))))
    [reserved] = [cause for cause in report.causes if cause.code == "reserved"]
    assert reserved.message == (
        f"node-1, node-2: 5 placements of ResourceClass small are kept for {SMALL}, 4 of them free: claims cannot have "
        "them"
    )
    assert not reserved.is_fault


def manifest(name: str, amount: int) -> JsonObject:
    containers = [{"name": "c", "resources": {"limits": {SMALL: str(amount)}}}]
    spec: Any = {"replicas": 3, "template": {"spec": {"containers": containers}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def test_a_plan_counts_what_its_own_pods_take_and_says_how_many_more_fit() -> None:
    cluster = ClusterIndex(offering(limited("a", on="node-1"), node_1=3, node_2=3))
    fitting = plan_workloads(cluster, parse(cluster, manifest("d", 1)).workloads)
    assert [(copy.node, copy.resources, copy.devices) for copy in fitting.placed] == [
        ("node-1", {SMALL: 1}, ()),
        ("node-1", {SMALL: 1}, ()),
        ("node-2", {SMALL: 1}, ()),
    ]
    assert [each.copies for each in fitting.more] == [2]
    larger = plan_workloads(cluster, parse(cluster, manifest("d", 2)).workloads)
    assert [copy.node for copy in larger.placed] == ["node-1", "node-2"]
    [unplaced] = larger.unplaced
    assert unplaced.copies == 1
    assert [cause.message for cause in unplaced.why.causes] == [
        f"on node-1: {SMALL}: the pod asks for 2, and of the node's 3 pods have 3 (default/a, default/d/1)",
        f"on node-2: {SMALL}: the pod asks for 2, and of the node's 3 pods have 2 (default/d/2)",
    ]


def test_only_what_classes_offer_and_nodes_list_in_numbers_is_found() -> None:
    setup = NodeSetup(metadata=ObjectMeta(name="n"), status=NodeSetupStatus(allocatable={SMALL: "2", "cpu": "4"}))
    odd = NodeSetup(metadata=ObjectMeta(name="odd"), status=NodeSetupStatus(allocatable={SMALL: "many"}))
    classes = [
        resource_class("small", {"device": "gpu", "devicePlugin": {"resource": SMALL, "perNode": 2}}),
        resource_class("odd", {"devicePlugin": {"perNode": 1}}),
        resource_class("odder", {"devicePlugin": SMALL}),
        resource_class("without", {"device": "gpu"}),
    ]
    assert list(find_offered(classes, [setup, odd])) == [
        OfferedResource(name=SMALL, class_name="small", per_node=2, refusal="", allocatable={"n": 2})
    ]


def resource_class(name: str, spec: JsonObject) -> ResourceClassObject:
    free = Condition(type="DevicePlugin", status="True", reason="NameFree", message="each node keeps 2")
    return ResourceClassObject(
        metadata=ObjectMeta(name=name), spec=spec, status=ResourceClassStatus(conditions=(free,))
    )


async def test_they_are_collected_with_what_nodes_list(tmp_path: Path) -> None:
    async with served_cluster(tmp_path) as (_, client):
        for crd in crds.documents():
            await client.apply(CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="admin")
        setup = NodeSetup(metadata=ObjectMeta(name="n"), status=NodeSetupStatus(allocatable={SMALL: "2"}))
        await client.create(NODE_SETUPS, setup)
        await client.apply(NODE_SETUPS, NODE_SETUPS.encode(setup), field_manager="kubelet", subresource="status")
        assert (await collect(client)).offered_resources == ()
        spec = {"device": "gpu", "profile": "1g.10gb", "devicePlugin": {"resource": SMALL, "perNode": 2}}
        await client.apply(RESOURCE_CLASSES, {"metadata": {"name": "small"}, "spec": spec}, field_manager="admin")
        [offered] = (await collect(client)).offered_resources
    assert (offered.name, offered.class_name, offered.allocatable) == (SMALL, "small", {"n": 2})
