"""A pod's claims are allocated together, on the first node where they all fit."""

import dataclasses
from collections.abc import Iterable

import msgspec

from kerf_dra.api.core.v1 import Container, Node, NodeStatus, Pod, PodSpec, ResourceRequirements
from kerf_dra.api.model.allocations import AllocationResult, ResourceClaimStatus
from kerf_dra.api.model.claims import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import Condition, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import Budget, ClusterAllocator, Features, PoolIndex
from kerf_dra.driver.local.scheduler.structured import Decision, Pending, Placed, Snapshot, decide
from kerf_dra.driver.scheduling.node_filter import node_view

BUDGET = Budget()
CLASSES = {"any": DeviceClass(metadata=ObjectMeta(name="any"))}


def node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name), status=NodeStatus(conditions=(Condition(type="Ready", status="True"),)))


def slice_of(node_name: str, *devices: str) -> ResourceSlice:
    pool = ResourcePool(name=node_name, generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(
        driver="d.example", pool=pool, node_name=node_name, devices=tuple(Device(name=name) for name in devices)
    )
    return ResourceSlice(metadata=ObjectMeta(name=f"slice-{node_name}"), spec=spec)


def claim(name: str, count: int = 1, class_name: str = "any") -> ResourceClaim:
    request = DeviceRequest(name="r", exactly=ExactDeviceRequest(device_class_name=class_name, count=count))
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=(request,)))
    return ResourceClaim(metadata=ObjectMeta(name=name, namespace="ns", uid=name), spec=spec)


def allocated(claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    return msgspec.structs.replace(claim, status=ResourceClaimStatus(allocation=allocation))


def snapshot(slices: Iterable[ResourceSlice], held: Iterable[ResourceClaim] = ()) -> Snapshot:
    slices = tuple(slices)
    nodes = [node(slice_.spec.node_name or "") for slice_ in slices]
    return Snapshot(
        nodes=nodes,
        classes=CLASSES,
        allocator=ClusterAllocator(Features(), PoolIndex.build(slices), nodes=map(node_view, nodes), claims=held),
    )


def placed(claims: list[ResourceClaim], now: Snapshot, budget: Budget = BUDGET) -> Decision:
    return decide(Pod(), claims, now, share_id=lambda: "share", budget=budget)


TWO_NODES = [slice_of("node-1", "a"), slice_of("node-2", "a", "b")]


def test_the_first_node_where_everything_fits_is_taken() -> None:
    one, two = placed([claim("x")], snapshot(TWO_NODES)), placed([claim("x"), claim("y")], snapshot(TWO_NODES))
    assert isinstance(one, Placed)
    assert isinstance(two, Placed)
    assert (one.node, two.node) == ("node-1", "node-2")
    devices = [result.device for _, given in two.allocations for result in given.devices.results]
    assert devices == ["a", "b"]


def test_what_others_hold_is_not_given_again() -> None:
    first = placed([claim("x")], snapshot(TWO_NODES))
    assert isinstance(first, Placed)
    second = placed([claim("y")], snapshot(TWO_NODES, [allocated(*first.allocations[0])]))
    assert isinstance(second, Placed)
    assert second.node == "node-2"


def test_an_allocated_claim_binds_the_pod_to_its_node() -> None:
    on_two = NodeSelectorRequirement(key="metadata.name", operator="In", values=("node-2",))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(on_two,)),))
    ready = allocated(claim("x"), AllocationResult(node_selector=selector))
    assert placed([ready], snapshot(TWO_NODES)) == Placed("node-2", ())


def test_a_pod_without_claims_goes_to_the_first_node() -> None:
    assert placed([], snapshot(TWO_NODES)) == Placed("node-1", ())


def test_a_pod_that_fits_nowhere_is_told_why() -> None:
    decision = placed([claim("x", count=3)], snapshot(TWO_NODES))
    assert isinstance(decision, Pending)
    assert decision.message.startswith("0/2 nodes are available: 2 cannot allocate all claims. node-1: claim ns/x")


def test_a_search_that_was_given_up_is_told_with_its_limit() -> None:
    decision = placed([claim("x")], snapshot(TWO_NODES), Budget(steps=0))
    assert isinstance(decision, Pending)
    assert "node-2: no decision within 0 steps" in decision.message


def test_a_missing_class_stops_the_attempt() -> None:
    decision = placed([claim("x", class_name="nope")], snapshot(TWO_NODES))
    assert isinstance(decision, Pending)
    assert "nope" in decision.message


def test_nodes_without_room_are_passed_over_with_their_reasons() -> None:
    def with_amounts(name: str, **amounts: str) -> Node:
        allocatable = {resource: Quantity(amount) for resource, amount in {"pods": "110", **amounts}.items()}
        return msgspec.structs.replace(
            node(name), status=msgspec.structs.replace(node(name).status, allocatable=allocatable)
        )

    nodes = [with_amounts("node-1", cpu="2", memory="1Gi"), with_amounts("node-2", cpu="1", memory="9Gi")]
    now = dataclasses.replace(snapshot(TWO_NODES), nodes=nodes)

    def wanting(**requests: str) -> Pod:
        amounts = {resource: Quantity(amount) for resource, amount in requests.items()}
        return Pod(spec=PodSpec(containers=(Container(name="c", resources=ResourceRequirements(requests=amounts)),)))

    def decided(pod: Pod) -> Decision:
        return decide(pod, [], now, share_id=lambda: "share", budget=BUDGET)

    assert decided(wanting(cpu="2")) == Placed("node-1", ())
    assert decided(wanting(memory="2Gi")) == Placed("node-2", ())
    assert decided(wanting(cpu="2", memory="2Gi")) == Pending(
        "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
    )


def test_an_empty_cluster_says_so() -> None:
    assert placed([], snapshot([])) == Pending("0/0 nodes are available: the cluster has no node.")
