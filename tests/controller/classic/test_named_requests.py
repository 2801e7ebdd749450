"""Claims of Kubernetes 1.31: the claim says who allocates, has several named requests, and parameters of its own."""

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import ClassicClaim, ClassicClaimSpec, ClassicClass, ClassicRequest
from kerf_dra.api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from kerf_dra.api.resource.v1alpha3 import KINDS
from kerf_dra.driver.controller.classic.allocator import only_node
from kerf_dra.driver.controller.classic.claims import ClaimPlan, plan_claim
from kerf_dra.driver.controller.classic.reconcile_result import Requeue
from kerf_dra.driver.controller.classic.scheduling_contexts import ContextPlan, plan_context
from tests.controller.classic.cluster_builder import ClusterBuilder, context, pod
from tests.controller.classic.hardware import DRIVER

API = "kerf.dev/v1alpha1"


def parameters(spec: JsonObject, kind: str = "GpuClaimParameters") -> JsonObject:
    return {"apiVersion": API, "kind": kind, "spec": spec}


def claim(*requests: ClassicRequest, controller: str = DRIVER) -> ClassicClaim:
    metadata = ObjectMeta(name="claim", namespace="ns", uid="claim", resource_version="1")
    return ClassicClaim(metadata=metadata, spec=ClassicClaimSpec(requests=requests, controller=controller))


def small(name: str, **fields: object) -> ClassicRequest:
    return ClassicRequest(name=name, class_name="gpu", **fields)  # type: ignore[arg-type]


@pytest.fixture
def builder() -> ClusterBuilder:
    """One H100, and a class that leaves everything open."""
    builder = ClusterBuilder()
    builder.node("n1")
    offer = parameters({"allowWhole": True}, "GpuClassParameters")
    builder.stores.classes.put(ClassicClass(metadata=ObjectMeta(name="gpu", uid="c"), parameters={DRIVER: offer}))
    return builder


def planned(builder: ClusterBuilder, value: ClassicClaim) -> ContextPlan:
    builder.put_claim(value)
    return plan_context(context(selected="n1", potential=("n1",)), pod(), builder.view)


def test_every_device_is_for_a_request_that_the_claim_has(builder: ClusterBuilder) -> None:
    # V-12
    wish = parameters({"profile": "2g.20gb"})
    value = claim(
        small("small", parameters=(parameters({"profile": "1g.10gb"}),)), small("two", parameters=(wish,), count=2)
    )
    (grant,) = planned(builder, value).allocations
    results = KINDS.allocated(grant.allocation, DRIVER)["allocation"]["devices"]["results"]
    assert [result["request"] for result in results] == ["small", "two", "two"]
    assert len({result["device"] for result in results}) == 3
    assert {(result["driver"], result["pool"]) for result in results} == {(DRIVER, "n1/gpu")}


def test_an_immediate_claim_keeps_to_the_nodes_of_all_its_classes(builder: ClusterBuilder) -> None:
    for name, labels in (("n2", {"rack": "b"}), ("n3", {"row": "c"}), ("n4", {"rack": "b", "row": "c"})):
        builder.node(name, labels=labels)
    for name, key, value in (("rack-b", "rack", "b"), ("row-c", "row", "c")):
        term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=key, operator="In", values=(value,)),))
        builder.resource_class(name, {}, suitable_nodes=NodeSelector(node_selector_terms=(term,)))
    named = [ClassicRequest(name=name, class_name=name) for name in ("rack-b", "row-c")]
    for requests in (named, named[::-1]):
        held = claim(*requests)
        held = replace(held, spec=replace(held.spec, immediate=True))
        builder.put_claim(held)
        found = plan_claim(held, builder.view)
        assert found.allocation is not None
        assert found.allocation.allocation.node_selector == only_node("n4")


def test_the_claim_says_who_allocates_whatever_its_class(builder: ClusterBuilder) -> None:
    # C-11, S-8, T-C wrong-driver of 1.31
    value = claim(small("a"), controller="other.example")
    assert planned(builder, value) == ContextPlan(rule="S-11", requeue=Requeue.PERIODIC)
    assert plan_claim(value, builder.view) == ClaimPlan(rule="C-11")


REFUSED = {
    'spec.profil: unknown field; did you mean "profile"?': small("a", parameters=(parameters({"profil": "1g.10gb"}),)),
    "request a: selectors, adminAccess: a claim of Kerf cannot have it": small(
        "a", unsupported=("selectors", "adminAccess")
    ),
    "class nowhere does not exist": ClassicRequest(name="a", class_name="nowhere"),
    "these are parameters for classes": small("a", parameters=(parameters({}, "GpuClassParameters"),)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_request_that_cannot_be_met_is_told_of(builder: ClusterBuilder, message: str) -> None:
    # S-10, R-29
    found = planned(builder, claim(small("fine", parameters=(parameters({"profile": "1g.10gb"}),)), REFUSED[message]))
    assert (found.rule, found.allocations) == ("S-10", ())
    assert message in found.warnings[0].message
