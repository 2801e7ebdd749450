"""The scheduler of 1.30: the nodes that it suggests, when it selects one, when it deallocates a claim."""

from typing import Any

import pytest

from kerf_dra.api.core.v1 import Node, NodeStatus
from kerf_dra.api.model.classic import ClassicAllocation, ClassicClass, PodSchedulingContextSpec
from kerf_dra.api.model.metadata import Condition, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from kerf_dra.driver.local.controllers.resource_claims import release_classic
from kerf_dra.driver.local.scheduler.classic import (
    BindPod,
    PodSchedulingState,
    Unschedulable,
    UpdateContext,
    decide_next_step,
    find_claim_to_deallocate,
)
from tests.controller.classic.cluster_builder import claim, consumer, context, pod

ON_N1 = NodeSelector(
    node_selector_terms=(
        NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("n1",)),)),
    )
)
ALLOCATED = ClassicAllocation(node_selector=ON_N1, drivers=("gpu.kerf.dev",))


def node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name), status=NodeStatus(conditions=(Condition(type="Ready", status="True"),)))


def state(*nodes: str, **more: Any) -> PodSchedulingState:
    fields: dict[str, Any] = {
        "pod": pod(),
        "claims": {"gpu": claim()},
        "classes": {"gpu": ClassicClass(metadata=ObjectMeta(name="gpu"), driver_name="gpu.kerf.dev")},
        "context": None,
        "nodes": [node(name) for name in nodes or ("n1", "n2")],
    }
    return PodSchedulingState(**(fields | more))


def test_with_one_pending_claim_a_node_is_selected_at_once() -> None:
    assert decide_next_step(state()) == UpdateContext(
        PodSchedulingContextSpec(selected_node="n1", potential_nodes=("n1", "n2"))
    )


def test_with_several_it_waits_until_every_one_has_a_report() -> None:
    claims = {"gpu": claim(), "nic": claim("nic")}
    asked = decide_next_step(state(claims=claims, context=context(potential=("n1", "n2"), reported={"gpu": ()})))
    assert asked == UpdateContext(PodSchedulingContextSpec(potential_nodes=("n1", "n2")))
    known = decide_next_step(state(claims=claims, context=context(reported={"gpu": ("n1",), "nic": ()})))
    assert known == UpdateContext(PodSchedulingContextSpec(selected_node="n2", potential_nodes=("n2",)))


def test_a_node_that_a_driver_cannot_serve_is_not_selected_again() -> None:
    found = decide_next_step(state(context=context(selected="n1", reported={"gpu": ("n1",)})))
    assert found == UpdateContext(PodSchedulingContextSpec(selected_node="n2", potential_nodes=("n2",)))


def test_once_all_claims_are_allocated_the_pod_goes_where_they_are() -> None:
    assert decide_next_step(state(claims={"gpu": claim(allocation=ALLOCATED)})) == BindPod("n1")


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (claim(class_name="missing"), "does not exist"),
        (claim(immediate=True), "unallocated immediate"),
        (claim(allocation=ALLOCATED, deallocate=True), "must be reallocated"),
        (claim(allocation=ALLOCATED, reserved_for=(consumer("other"),)), "is in use"),
        (claim(deleted=True, finalizers=("x",)), "is being deleted"),
    ],
)
def test_what_keeps_a_pod_waiting(held: Any, reason: str) -> None:
    found = decide_next_step(state(claims={"gpu": held}))
    assert isinstance(found, Unschedulable)
    assert reason in found.reason


def test_a_claim_on_a_node_that_does_not_suit_is_to_be_deallocated() -> None:
    elsewhere = state("n2", claims={"gpu": claim(allocation=ALLOCATED)})
    assert isinstance(decide_next_step(elsewhere), Unschedulable)
    assert find_claim_to_deallocate(elsewhere) == "gpu"
    used = claim(allocation=ALLOCATED, reserved_for=(consumer("other"),))
    assert find_claim_to_deallocate(state("n2", claims={"gpu": used})) is None
    assert find_claim_to_deallocate(state("n2", claims={"gpu": claim(allocation=ALLOCATED, immediate=True)})) is None


def test_with_its_last_pod_a_claim_is_to_be_deallocated_unless_it_is_immediate() -> None:
    held = claim(allocation=ALLOCATED, reserved_for=(consumer(),))
    patch = release_classic(held, {"pod-pod": None})
    assert patch is not None
    assert patch["status"] == {"reservedFor": None, "deallocationRequested": True}
    immediate = release_classic(
        claim(allocation=ALLOCATED, reserved_for=(consumer(),), immediate=True), {"pod-pod": None}
    )
    assert immediate is not None
    assert immediate["status"] == {"reservedFor": None}
    assert release_classic(held, {"pod-pod": pod()}) is None
