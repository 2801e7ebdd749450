"""Where evicted pods fit: by cases, and compared with a judge that tries every node with the allocator itself."""

import itertools
import time
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace

from kerf_dra.api.core.policy import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodSelector,
)
from kerf_dra.api.core.v1 import Node, Pod, Taint
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import LabelSelectorRequirement, ObjectMeta, OwnerReference
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import AllocatedState, Budget, Features, Fits, PoolIndex, allocate
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.node_fit import restore_requests, sum_requests
from kerf_dra.driver.reclaim.cards import DrainableCard, find_cards
from kerf_dra.driver.reclaim.plan import ReclaimPlan, ReclaimSnapshot, find_blocking_budgets, plan_reclaim
from kerf_dra.driver.scheduling.node_filter import filter_node, node_view
from tests.conftest import COSTLY
from tests.fakes.cluster_states import (
    CLASSES,
    allocate_claims,
    claim,
    gpu_cluster,
    node,
    owned,
    placed_pod,
    state,
    with_amounts,
)
from tests.fakes.cluster_states import slices as published_slices

BUDGET = Budget(steps=100_000, seconds=60.0, clock=time.monotonic)


def snapshot(now: ClusterState, budgets: list[PodDisruptionBudget] | None = None) -> ReclaimSnapshot:
    return ReclaimSnapshot(
        nodes=now.nodes,
        pods=now.pods,
        claims=now.claims,
        classes=now.classes,
        slices=tuple(now.slices),
        features=Features(),
        budget=BUDGET,
        requested=restore_requests(now.requested),
        disruption_budgets=budgets,
    )


def with_pods(now: ClusterState, **fields: Any) -> ClusterState:
    """Return ``now`` with a pod of a ReplicaSet for each claim, which is its own, on the node of its devices."""
    pods = []
    now = replace(now, claims=tuple(map(_own, now.claims)))
    for one in now.claims:
        assert one.status.allocation is not None
        on = one.status.allocation.devices.results[0].pool.partition("/")[0]
        pods.append(owned(placed_pod(one.metadata.name, one.metadata.name, on=on, **fields), "ReplicaSet", "web"))
    return replace(now, pods=(*now.pods, *pods))


def _own(one: ResourceClaim, *pods: str) -> ResourceClaim:
    """Return a claim that was made for ``pods``; without any for the pod of its name."""
    names = pods or (one.metadata.name,)
    owners = (OwnerReference(api_version="v1", kind="Pod", name=name, uid=f"uid-{name}") for name in names)
    return replace(one, metadata=replace(one.metadata, owner_references=tuple(owners)))


def find(now: ClusterState, name: str, on: str = "node-1") -> DrainableCard:
    return next(card for card in find_cards(now.slices, on) if card.name == name)


def rooms(plan: ReclaimPlan) -> dict[str, str]:
    return {str(each.holder.pod): each.new_node for each in plan.evicted}


def test_each_pod_fits_on_another_card_of_its_node_and_what_it_gets_is_said() -> None:
    now = with_pods(allocate_claims(gpu_cluster(cards=2), claim("a", "3g-40gb"), claim("b", "1g-10gb")))
    plan = plan_reclaim(snapshot(now), find(now, "gpu-0"), evicts_bare=False)
    assert rooms(plan) == {"default/a": "node-1", "default/b": "node-1"}
    assert all(device.startswith("gpu-1-") for each in plan.evicted for device in each.new_devices)
    assert plan.others == ()


def test_a_pod_that_fits_nowhere_comes_last_and_has_no_node() -> None:
    now = allocate_claims(gpu_cluster(cards=2), claim("a", "7g-80gb"), claim("z", "1g-10gb"))
    plan = plan_reclaim(snapshot(with_pods(now)), find(now, "gpu-0"), evicts_bare=False)
    assert rooms(plan) == {"default/a": ""}, "the other card has a part in use"
    now = allocate_claims(gpu_cluster(cards=2), claim("a", "4g-40gb"), claim("b", "3g-40gb"), claim("c", "4g-40gb"))
    plan = plan_reclaim(snapshot(with_pods(now)), find(now, "gpu-0"), evicts_bare=False)
    assert list(rooms(plan).items()) == [("default/b", "node-1"), ("default/a", "")]


def test_the_drained_card_is_no_room_even_for_what_it_has_just_had() -> None:
    now = with_pods(allocate_claims(gpu_cluster(cards=1), claim("a", "1g-10gb")))
    assert rooms(plan_reclaim(snapshot(now), find(now, "gpu-0"), evicts_bare=False)) == {"default/a": ""}


@pytest.mark.parametrize(
    "limits", [{"spec": {"unschedulable": True}}, {"spec": {"taints": (Taint(key="k", effect="NoSchedule"),)}}]
)
def test_a_node_that_the_pod_may_not_run_on_is_no_room(limits: dict[str, Any]) -> None:
    other = node("node-2", **limits["spec"])
    now = gpu_cluster(nodes=2)
    now = replace(now, nodes=(now.nodes[0], other))
    now = with_pods(allocate_claims(now, claim("a", "1g-10gb"), on="node-1"))
    assert rooms(plan_reclaim(snapshot(now), find(now, "gpu-0"), evicts_bare=False)) == {"default/a": ""}


def test_what_nodes_have_left_of_other_resources_counts_and_what_the_pod_gives_back_is_there_again() -> None:
    now = with_pods(allocate_claims(gpu_cluster(nodes=2, cards=2), claim("a", "1g-10gb"), on="node-1"))
    full = with_amounts(now, pods="1")
    assert rooms(plan_reclaim(snapshot(full), find(now, "gpu-0"), evicts_bare=False)) == {"default/a": "node-1"}
    none = replace(full, nodes=tuple(_with_pods(each, "0") for each in full.nodes))
    assert rooms(plan_reclaim(snapshot(none), find(now, "gpu-0"), evicts_bare=False)) == {"default/a": ""}


def _with_pods(one: Node, amount: str) -> Node:
    return replace(one, status=replace(one.status, allocatable={"pods": Quantity(amount)}))


def test_a_claim_on_another_card_that_others_use_too_keeps_a_pod_on_its_node() -> None:
    """The pod is evicted for its own claim; its other one stays allocated on the first node, whoever else uses it."""
    now = allocate_claims(
        gpu_cluster(nodes=2, cards=2), claim("own", "7g-80gb"), claim("other", "1g-10gb"), on="node-1"
    )
    own, other = now.claims
    both = owned(placed_pod("own", "own", "other"), "ReplicaSet", "web")
    users = (replace(other.status.reserved_for[0], name=name, uid=f"uid-{name}") for name in ("own", "stays"))
    other = replace(other, status=replace(other.status, reserved_for=tuple(users)))
    pods = (both, owned(placed_pod("stays", "other"), "ReplicaSet", "web"))
    now = replace(now, claims=(_own(own), other), pods=pods)
    assert find(now, "gpu-0").owns(own.status.allocation.devices.results[0].id)  # type: ignore[union-attr]
    assert rooms(plan_reclaim(snapshot(now), find(now, "gpu-0"), evicts_bare=False)) == {"default/own": ""}
    alone = replace(other, status=replace(other.status, reserved_for=other.status.reserved_for[:1]))
    now = replace(now, claims=(_own(own), alone), pods=pods[:1])
    assert rooms(plan_reclaim(snapshot(now), find(now, "gpu-0"), evicts_bare=False)) == {"default/own": ""}
    now = replace(now, claims=(_own(own), _own(alone, "own")))
    assert rooms(plan_reclaim(snapshot(now), find(now, "gpu-0"), evicts_bare=False)) == {"default/own": "node-2"}


def test_pods_of_a_shared_claim_are_not_placed_for_they_are_not_evicted() -> None:
    now = allocate_claims(gpu_cluster(nodes=2), claim("a", "1g-10gb"), on="node-1")
    pods = (owned(placed_pod("a", "a"), "ReplicaSet", "web"),)
    plan = plan_reclaim(snapshot(replace(now, pods=pods)), find(now, "gpu-0"), evicts_bare=False)
    assert (rooms(plan), [str(each.holder.pod) for each in plan.others]) == ({}, ["default/a"])


def budget(
    name: str, allowed: int, labels: dict[str, str] | None, namespace: str = "default", *expressions: Any
) -> PodDisruptionBudget:
    selector = None if labels is None else PodSelector(match_labels=labels, match_expressions=expressions)
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=PodDisruptionBudgetSpec(selector=selector),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def test_budgets_that_allow_no_eviction_now_are_named_with_the_pods_that_they_protect() -> None:
    pod = Pod(metadata=ObjectMeta(name="a", namespace="default", labels={"app": "web", "tier": "front"}))
    exists = LabelSelectorRequirement(key="tier", operator="Exists")
    absent = LabelSelectorRequirement(key="tier", operator="DoesNotExist")
    budgets = [
        budget("match", 0, {"app": "web"}),
        budget("all", 0, {}),
        budget("expression", 0, {}, "default", exists),
        budget("other-expression", 0, {}, "default", absent),
        budget("allows", 1, {"app": "web"}),
        budget("other-label", 0, {"app": "db"}),
        budget("other-namespace", 0, {"app": "web"}, "other"),
        budget("none", 0, None),
    ]
    assert list(find_blocking_budgets(budgets, pod)) == ["default/match", "default/all", "default/expression"]


def test_without_known_budgets_none_is_named() -> None:
    now = with_pods(allocate_claims(gpu_cluster(cards=2), claim("a", "1g-10gb")))
    for budgets, named in ((None, ()), ([budget("all", 0, {})], ("default/all",))):
        [planned] = plan_reclaim(snapshot(now, budgets), find(now, "gpu-0"), evicts_bare=False).evicted
        assert planned.blocked_by == named


# --- compared with a judge --------------------------------------------------------------------------------------------

SIZES = ("1g-10gb", "1g-20gb", "2g-20gb", "3g-40gb", "4g-40gb", "7g-80gb")


@st.composite
def clusters(draw: st.DrawFn) -> tuple[ClusterState, str]:
    """A cluster of two nodes with pods on their cards, and the card of the first node that is drained."""
    cards = draw(st.integers(1, 2))
    nodes = [node("node-1"), node("node-2", unschedulable=draw(st.booleans()))]
    now = state(*nodes, published=[each for one in nodes for each in published_slices(one.metadata.name, cards)])
    for number in range(draw(st.integers(1, 6))):
        size = draw(st.sampled_from(SIZES))
        on = draw(st.sampled_from(["node-1", "node-1", "node-2"]))
        try:
            now = allocate_claims(now, claim(f"claim-{number}", size), on=on)
        except StopIteration:
            continue
    now = with_pods(now)
    allowed = draw(st.integers(1, 6))
    amounts = (_with_pods(each, str(allowed)) for each in now.nodes)
    now = replace(now, nodes=tuple(amounts), requested=sum_requests(now.pods))
    return now, f"gpu-{draw(st.integers(0, cards - 1))}"


def judge(now: ClusterState, card: DrainableCard) -> dict[str, str]:
    """Place the pods of a card again one by one, each by trying every node with ``allocate``."""
    holds = {
        one.metadata.name
        for one in now.claims
        if one.status.allocation is not None
        and any(card.owns(each.id) for each in one.status.allocation.devices.results)
    }
    staying = [one for one in now.claims if one.metadata.name not in holds]
    pools = PoolIndex.build(_cut_card_out(each, card) for each in now.slices)
    classes = {one.metadata.name: one for one in CLASSES}
    counts = {one.metadata.name: 0 for one in now.nodes}
    for pod in now.pods:
        counts[pod.spec.node_name] += pod.metadata.name not in holds
    found: dict[str, str] = {}
    numbers = itertools.count()
    for pod in sorted((one for one in now.pods if one.metadata.name in holds), key=lambda one: one.metadata.name):
        [its] = [one for one in now.claims if one.metadata.name == pod.metadata.name]
        wanted: ResourceClaim = replace(its, status=ResourceClaimStatus())
        found[str(pod.ref)] = ""
        for one in sorted(now.nodes, key=lambda one: one.metadata.name):
            limit = int(str(one.status.allocatable["pods"]))
            if filter_node(pod, one) is not None or counts[one.metadata.name] >= limit:
                continue
            outcome = allocate(
                pools,
                [wanted],
                node_view(one),
                classes,
                AllocatedState.from_claims(staying),
                Features(),
                share_id=lambda: str(next(numbers)),
                budget=BUDGET,
            )
            if isinstance(outcome, Fits):
                found[str(pod.ref)] = one.metadata.name
                counts[one.metadata.name] += 1
                staying.append(replace(wanted, status=ResourceClaimStatus(allocation=outcome.results[0])))
                break
    return found


def _cut_card_out(one: ResourceSlice, card: DrainableCard) -> ResourceSlice:
    if one.spec.node_name != card.node:
        return one
    kept = [each for each in one.spec.devices if each.name != card.name and not each.name.startswith(f"{card.name}-")]
    return replace(one, spec=replace(one.spec, devices=tuple(kept)))


@COSTLY
@given(case=clusters())
def test_where_pods_fit_is_what_the_judge_says(case: tuple[ClusterState, str]) -> None:
    now, name = case
    card = find(now, name)
    assert rooms(plan_reclaim(snapshot(now), card, evicts_bare=False)) == judge(now, card)
