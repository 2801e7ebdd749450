"""Builders of clusters for the tests of diagnostics: nodes with real cards, and claims that the allocator placed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kerf_dra.api.core.v1 import (
    Container,
    ContainerClaim,
    Event,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectReference,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Taint,
)
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.allocations import (
    AllocatedDeviceStatus,
    AllocationResult,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import (
    CelSelector,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.api.model.devices import (
    Attribute,
    Device,
    DeviceTaintRule,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import Condition, ObjectMeta, OwnerReference
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import Fits
from kerf_dra.driver.controller.planned_classes import compile_classes
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.manifests.workload import ParsedManifests, read_workloads
from kerf_dra.driver.diagnostics.node_fit import sum_requests
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.slice_limits import SliceLayout

replace = msgspec.structs.replace
REFUSED: Final = "NodePrepareResources failed for ResourceClaim p: Insufficient Resources"
"""How a kubelet quotes a plugin that refuses to prepare the claim ``p``."""
ATTRIBUTES: Final = f'device.attributes["{GPU.driver}"]'


def card(index: int, node: str = "node-1", model: str = "h100-80gb-sxm") -> Card:
    return Card(
        uuid=f"GPU-{node}-{index}",
        index=index,
        geometry=gpu_geometry(gpu_model(model)),
        pci_bus_id=f"0000:{index:02x}:00.0",
        numa_node=0,
        driver_version="550.54.15",
    )


def slices(node: str, cards: int = 1, model: str = "h100-80gb-sxm") -> list[ResourceSlice]:
    """Return the slices of a node with ``cards`` GPUs."""
    name = pool_name(node, "gpu")
    pool = compile_pool(
        name,
        node,
        [card(index, node, model) for index in range(cards)],
        vocabulary=GPU.vocabulary,
        layout=SliceLayout.SPLIT,
    ).pool
    return [
        ResourceSlice(
            metadata=ObjectMeta(name=f"{node}-{number}"),
            spec=ResourceSliceSpec(
                driver=GPU.driver,
                pool=ResourcePool(name=name, generation=1, resource_slice_count=len(pool.slices)),
                node_name=node,
                devices=tuple(map(_with_start, content.devices)),
                shared_counters=content.shared_counters,
            ),
        )
        for number, content in enumerate(pool.slices)
    ]


def _with_start(device: Device) -> Device:
    """Return ``device`` with an attribute for its first unit, by which tests choose placements."""
    start = device.name.rpartition("-at-")[2] if "-at-" in device.name else "0"
    return replace(device, attributes={**device.attributes, "start": Attribute.of(int(start))})


def node(name: str, *, labels: Mapping[str, str] | None = None, taints: Sequence[Taint] = (), **spec: Any) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels=dict(labels or {})),
        spec=NodeSpec(taints=tuple(taints), **spec),
        status=NodeStatus(conditions=(Condition(type="Ready", status="True"),)),
    )


def device_class(name: str, *expressions: str) -> DeviceClass:
    selectors = tuple(DeviceSelector(cel=CelSelector(expression=expression)) for expression in expressions)
    return DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=selectors))


def profile_class(profile: str) -> DeviceClass:
    """Return a class as ``kerf controller`` compiles it."""
    return device_class(
        profile.replace(".", "-"),
        f'device.driver == "{GPU.driver}" &&\n{ATTRIBUTES}.cut == "partition" &&\n{ATTRIBUTES}.profile == "{profile}"',
    )


WHOLE: Final = device_class("whole", f'device.driver == "{GPU.driver}" && {ATTRIBUTES}.cut == "whole"')
CLASSES: Final = (*map(profile_class, ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")), WHOLE)


def placed_class(name: str, placement: str | None, condition: str = "True ExtenderActive") -> ResourceClassObject:
    """A ResourceClass that asks for ``placement``; empty ``condition``: it has no condition Placement."""
    status, _, reason = condition.partition(" ")
    said = Condition(type="Placement", status=status, reason=reason, message=f"not in effect: {reason} is why")
    return ResourceClassObject(
        metadata=ObjectMeta(name=name),
        spec={"device": "gpu"} | ({"placement": placement} if placement else {}),
        status=ResourceClassStatus(device_class_name=name, conditions=(said,) if condition else ()),
    )


def request(name: str, class_name: str, *selectors: str, **fields: Any) -> DeviceRequest:
    chosen = tuple(DeviceSelector(cel=CelSelector(expression=expression)) for expression in selectors)
    return DeviceRequest(
        name=name, exactly=ExactDeviceRequest(device_class_name=class_name, selectors=chosen, **fields)
    )


def claim(name: str, *requests: DeviceRequest | str, constraints: Iterable[DeviceConstraint] = ()) -> ResourceClaim:
    """Return a claim; a request may be given as the name of its class."""
    asked = tuple(request(f"r{index}", each) if isinstance(each, str) else each for index, each in enumerate(requests))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=asked, constraints=tuple(constraints))),
    )


def pod(name: str, *claims: str, conditions: Sequence[Condition] = (), **spec: Any) -> Pod:
    """Return a pod that waits for claims of these names."""
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"),
        spec=PodSpec(
            containers=(Container(name="main", resources=_using(*claims)),),
            resource_claims=tuple(PodResourceClaim(name=each, resource_claim_name=each) for each in claims),
            **spec,
        ),
        status=PodStatus(conditions=tuple(conditions)),
    )


def _using(*claims: str) -> ResourceRequirements:
    return ResourceRequirements(claims=tuple(ContainerClaim(name=each) for each in claims))


def templated_pod(name: str, template: str, claim_name: str | None = None) -> Pod:
    statuses = (PodResourceClaimStatus(name="gpu", resource_claim_name=claim_name),) if claim_name else ()
    return replace(
        pod(name),
        spec=PodSpec(
            containers=(Container(name="main", resources=_using("gpu")),),
            resource_claims=(PodResourceClaim(name="gpu", resource_claim_template_name=template),),
        ),
        status=PodStatus(resource_claim_statuses=statuses),
    )


def allocated_claim(claim: ResourceClaim, allocation: AllocationResult, *pods: str) -> ResourceClaim:
    users = tuple(ResourceClaimConsumerReference(resource="pods", name=each, uid=f"uid-{each}") for each in pods)
    return replace(claim, status=ResourceClaimStatus(allocation=allocation, reserved_for=users))


def state(
    *nodes: Node,
    published: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim] = (),
    pods: Iterable[Pod] = (),
    classes: Iterable[DeviceClass] = CLASSES,
    taint_rules: Iterable[DeviceTaintRule] = (),
) -> ClusterState:
    return ClusterState(
        kubernetes="1.37",
        gathered_at="2026-11-21T08:00:00+00:00",
        nodes=nodes,
        pods=tuple(pods),
        claims=tuple(claims),
        classes=tuple(classes),
        slices=tuple(published),
        taint_rules=tuple(taint_rules),
    )


def allocate_claims(now: ClusterState, *claims: ResourceClaim, on: str | None = None) -> ClusterState:
    """Return ``now`` with ``claims`` allocated in order, each on the first node that fits or on the node ``on``.

    Each claim is used by a pod of the same name.
    """
    for each in claims:
        cluster = ClusterIndex(now)
        candidates = [one for one in cluster.nodes if on in (None, one.metadata.name)]
        outcomes = (cluster.attempt([each], one) for one in candidates)
        fit = next(outcome for outcome in outcomes if isinstance(outcome, Fits))
        now = replace(now, claims=(*now.claims, allocated_claim(each, fit.results[0], each.metadata.name)))
    return now


def report_devices(now: ClusterState, claim_name: str, *data: JsonObject) -> ClusterState:
    """Return ``now`` in which the node reports ``data`` of the devices of a claim, in the order of its allocation."""
    [found] = [each for each in now.claims if each.metadata.name == claim_name]
    assert found.status.allocation is not None
    devices = tuple(
        AllocatedDeviceStatus(
            driver=result.driver, pool=result.pool, device=result.device, share_id=result.share_id, data=each
        )
        for result, each in zip(found.status.allocation.devices.results, data, strict=True)
    )
    changed = replace(found, status=replace(found.status, devices=devices))
    return replace(now, claims=tuple(changed if each is found else each for each in now.claims))


def gpu_cluster(nodes: int = 1, cards: int = 1) -> ClusterState:
    """Return a cluster of nodes ``node-1`` … with H100 cards."""
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    return state(*map(node, names), published=[each for name in names for each in slices(name, cards)])


def with_amounts(now: ClusterState, **amounts: str) -> ClusterState:
    """Return ``now`` with nodes that list these amounts; what its pods request of them is known."""
    listed = {name: Quantity(amount) for name, amount in amounts.items()}
    nodes = (replace(each, status=replace(each.status, allocatable=listed)) for each in now.nodes)
    return replace(now, nodes=tuple(nodes), requested=sum_requests(now.pods))


def parse(cluster: ClusterIndex, *documents: JsonObject, namespace: str = "default") -> ParsedManifests:
    """Return the content of ``documents``, with ResourceClasses compiled as ``kerf plan`` does."""
    return read_workloads(cluster, documents, namespace=namespace, compile_classes=compile_classes)


def placed_pod(name: str, *claims: str, on: str = "node-1", **status: Any) -> Pod:
    """Return a pod on a node, which has not started, with these fields of its status."""
    return replace(pod(name, *claims, node_name=on), status=PodStatus(**status))


def prepare_failure(name: str, message: str, count: int = 1) -> Event:
    """Return the kubelet's event about a pod whose claims cannot be prepared."""
    return Event(
        involved_object=ObjectReference(kind="Pod", namespace="default", name=name, uid=f"uid-{name}"),
        reason="FailedPrepareDynamicResources",
        message=f"Failed to prepare dynamic resources: prepare dynamic resources: {message}",
        type="Warning",
        count=count,
        first_timestamp="2026-11-21T07:59:00Z",
        last_timestamp="2026-11-21T07:59:30Z",
    )


def owned(pod: Pod, kind: str, name: str, **labels: str) -> Pod:
    """Return the pod with a controlling owner."""
    owner = OwnerReference(api_version="apps/v1", kind=kind, name=name, uid=f"uid-{name}", controller=True)
    return replace(pod, metadata=replace(pod.metadata, owner_references=(owner,), labels=labels))
