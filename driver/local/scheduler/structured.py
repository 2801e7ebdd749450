"""The scheduler: it finds a node and devices for every pending pod with ``kerf_dra.driver.allocation``.

What kube-scheduler does with DRA (KEP-4381): the pod's claims are allocated together on the first node that has room
for its CPU, memory and extended resources and where they all fit, the allocation and the pod's reservation are written
to each claim's status, then, when the devices are ready (KEP-5007), the pod is bound. One pod at a time; own writes
count before the watch shows them, so no device is given twice.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias

import anyio
from msgspec.structs import replace

from kerf_dra.api.core.v1 import (
    BINDINGS,
    NODES,
    PODS,
    Binding,
    ContainerExtendedResourceRequest,
    Node,
    ObjectReference,
    Pod,
    PodExtendedResourceClaimStatus,
    reference,
)
from kerf_dra.api.errors import KerfError, TransientError
from kerf_dra.api.model.allocations import AllocationResult, ResourceClaimConsumerReference
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import DeviceClass, DeviceRequest, ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.times import format_time
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.allocation import (
    Budget,
    ClusterAllocator,
    DoesNotFit,
    Failed,
    Features,
    NodeAllocation,
    Outcome,
    PoolIndex,
)
from kerf_dra.driver.kube.assume_cache import AssumeCache
from kerf_dra.driver.kube.discovery import ApiFeatures
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.patches import if_unchanged
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.local.controllers.resource_claims import FINALIZER, owning_pod
from kerf_dra.driver.scheduling.binding_conditions import BindingFailed, BindingPending, check_binding
from kerf_dra.driver.scheduling.extended_resources import build_claim, build_requests, classes_by_resource
from kerf_dra.driver.scheduling.node_filter import filter_node, find_claim_elsewhere, node_view
from kerf_dra.driver.scheduling.resource_fit import Amounts, RequestLedger, find_shortages, pod_requests

log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
"""Seconds after a failed write, or a failed preparation of devices, when nothing else wakes the scheduler."""
_REASONS: Final = 3
"""Reasons reported for each node: the first obstacles are the ones to remove first."""

_DEFAULT_FEATURES: Final = Features()
_BUDGET: Final = Budget(seconds=2.0, clock=time.monotonic)
"""The limit for each node. kube-scheduler's is ten seconds (gate DRASchedulerFilterTimeout), but here everything
else of the embedded cluster waits meanwhile."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A decision: the pod's node, and the allocation of each claim that had none."""

    node: str
    allocations: tuple[tuple[ResourceClaim, AllocationResult], ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """A decision: the reason why the pod cannot be placed now, for its condition and event."""

    message: str


Decision: TypeAlias = Placed | Pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of the cluster that one decision is based on."""

    nodes: Sequence[Node]
    """The nodes, sorted by name."""
    classes: dict[str, DeviceClass]
    allocator: ClusterAllocator
    requests: RequestLedger = field(default_factory=RequestLedger)
    """What the pods of the nodes request."""


def decide(
    pod: Pod, claims: Sequence[ResourceClaim], now: Snapshot, *, share_id: Callable[[], str], budget: Budget
) -> Decision:
    """Choose a node for ``pod`` and devices for those of its ``claims`` that have none; ``budget`` is for each node."""
    unallocated = [claim for claim in claims if claim.status.allocation is None]
    requests, backed = pod_requests(pod), classes_by_resource(now.classes.values())
    reasons = {
        node.metadata.name: _filter(pod, claims, node) or _find_shortages(requests, node, now.requests, backed)
        for node in now.nodes
    }
    open_ = [name for name, found in reasons.items() if not found]
    if not unallocated and open_:
        return Placed(open_[0], ())
    obstacles = Counter(reason for found in reasons.values() for reason in found)
    details: list[str] = []
    if open_:
        placement = now.allocator.place(
            unallocated, now.classes, share_id=share_id, budget=budget, nodes=frozenset(open_)
        )
        if isinstance(placement, NodeAllocation):
            return Placed(placement.node, tuple(zip(unallocated, placement.results, strict=True)))
        if isinstance(placement, Failed):
            return Pending(placement.message)
        obstacles["cannot allocate all claims"] = len(open_)
        for name in open_:
            outcome = placement.undecided.get(name) or now.allocator.allocate_on(
                name, unallocated, now.classes, share_id=share_id, budget=budget
            )
            details += [f"{name}: {detail}" for detail in _details(outcome)]
    summary = ", ".join(f"{count} {reason}" for reason, count in sorted(obstacles.items())) or "the cluster has no node"
    return Pending(f"0/{len(now.nodes)} nodes are available: {summary}." + "".join(f" {text}." for text in details))


def _filter(pod: Pod, claims: Sequence[ResourceClaim], node: Node) -> list[str]:
    """Return why a node cannot take a pod, whatever is free there; empty: it can."""
    if reason := filter_node(pod, node):
        return [reason]
    return ["node(s) are not where an allocated claim can be used"] if find_claim_elsewhere(claims, node) else []


def _find_shortages(requests: Amounts, node: Node, ledger: RequestLedger, backed: Mapping[str, str]) -> list[str]:
    """Return what a node has too little of; of one that has reported no amounts nothing is known to be short."""
    if not node.status.allocatable:
        return []
    used = ledger.of_node(node.metadata.name)
    return [str(each) for each in find_shortages(requests, node.status.allocatable, used, backed)]


def _details(outcome: Outcome) -> list[str]:
    match outcome:
        case DoesNotFit(reasons):
            return [str(reason) for reason in reasons[:_REASONS]]
        case Failed(message=message):
            return [message]
        case _:
            return [f"{outcome}; fewer devices or constraints in one pod are decided sooner"]


class DevicesNotReadyError(TransientError):
    """Devices of a pod could not be made ready; its claims are to be allocated again."""


class Scheduler:
    """Places pods that name no other scheduler. Runs until cancelled."""

    def __init__(
        self,
        client: Client,
        api: ApiFeatures,
        events: EventReporter,
        *,
        share_id: Callable[[], str],
        features: Features = _DEFAULT_FEATURES,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._kinds = api.resource
        self._events = events
        self._share_id = share_id
        self._clock = clock
        self._again_s = math.inf
        """When to try again although nothing has changed, in seconds."""
        self._wake = anyio.Event()
        self._allocator = ClusterAllocator(features, PoolIndex.build(()))
        self._bound: set[ObjectRef] = set()
        """Pods that are bound, until the watch shows it."""
        self._requests = RequestLedger()
        self._extended: dict[str, str] = {}
        """Claims made for extended resources, by pod UID, until the pods show them."""
        self._pods = Informer(client, PODS, on_change=self._pod_changed)
        self._nodes = Informer(client, NODES, on_change=self._node_changed)
        self._classes = Informer(client, api.resource.device_classes, on_change=self._changed)
        self._claims = Informer(client, api.resource.resource_claims, on_change=self._claim_changed)
        self._assumed = AssumeCache(self._claims.store)
        self._slices = Informer(client, api.resource.resource_slices, on_change=self._slice_changed)
        self._rules = Informer(
            client, api.device_taint_rules or api.resource.device_taint_rules, on_change=self._rules_changed
        )

    async def run(self) -> None:
        informers = (self._pods, self._nodes, self._classes, self._claims, self._slices, self._rules)
        async with anyio.create_task_group() as tasks:
            for informer in informers:
                tasks.start_soon(informer.run)
            for informer in informers:
                await informer.wait_synced()
            while True:
                self._wake = anyio.Event()
                self._again_s = math.inf
                await self._schedule_all()
                with anyio.move_on_after(self._again_s):
                    await self._wake.wait()

    async def _schedule_all(self) -> None:
        """Try every pending pod, the oldest first."""
        waiting = [pod for pod in self._pods.store.values() if _is_pending(pod) and pod.ref not in self._bound]
        for pod in sorted(waiting, key=_age):
            try:
                await self._schedule(pod)
            except KerfError as error:
                log.info("pod %s: %s; trying again", pod.ref, error)
                self._retry_after(_RETRY_S)

    async def _schedule(self, pod: Pod) -> None:
        claims = self._claims_of(pod)
        if isinstance(claims, str):
            await self._report_pending(pod, claims)
            return
        requests, mappings = build_requests(pod, classes_by_resource(self._classes.store.values()))
        if requests:
            extended = await self._extended_claim(pod, requests, mappings)
            if extended is None:
                return  # its creation wakes the scheduler
            claims.append(extended)
        decision = decide(pod, claims, self._snapshot(), share_id=self._share_id, budget=_BUDGET)
        if isinstance(decision, Pending):
            await self._report_pending(pod, decision.message)
            return
        allocations = {claim.ref: allocation for claim, allocation in decision.allocations}
        reserved = [await self._reserve(claim, allocations.get(claim.ref), pod) for claim in claims]
        match check_binding(reserved, self._clock()):
            case BindingPending(left_s):
                self._retry_after(left_s)
                await self._report_pending(pod, f"waiting for devices to be made ready on node {decision.node}")
                return
            case BindingFailed(claim, message):
                await self._deallocate(claim)
                await self._report_pending(pod, message)
                raise DevicesNotReadyError(message)
        target = ObjectReference(kind="Node", name=decision.node)
        binding = Binding(metadata=ObjectMeta(name=pod.metadata.name, namespace=pod.metadata.namespace), target=target)
        await self._client.create_subresource(BINDINGS, binding, "binding")
        self._bound.add(pod.ref)
        self._requests.set_pod(pod, decision.node)
        message = f"Successfully assigned {pod.ref} to {decision.node}"
        self._events.report(reference(pod), type="Normal", reason="Scheduled", message=message)

    def _claims_of(self, pod: Pod) -> list[ResourceClaim] | str:
        """Return the pod's claims as last written or seen; or what is still missing."""
        names, claims = pod.claim_names(), []
        for entry in pod.spec.resource_claims:
            ref = ObjectRef(pod.metadata.namespace, names.get(entry.name, ""))
            claim = self._assumed.get(ref)
            if claim is None:
                return f"waiting for the claim of {entry.name!r} to be created"
            if claim.is_terminating:
                return f"claim {ref.name} is being deleted"
            owner = owning_pod(claim)
            if entry.resource_claim_template_name and (owner is None or owner.uid != pod.metadata.uid):
                return f"claim {ref.name} was not created for this pod"
            claims.append(claim)
        return claims

    async def _extended_claim(
        self, pod: Pod, requests: tuple[DeviceRequest, ...], mappings: tuple[ContainerExtendedResourceRequest, ...]
    ) -> ResourceClaim | None:
        """Return the pod's claim for extended resources, created if there is none; None: it is not seen yet."""
        if name := pod.extended_claim_name:
            ref = ObjectRef(pod.metadata.namespace, name)
            return self._assumed.get(ref)
        name = self._extended.get(pod.metadata.uid)
        if name is None:
            claim = await self._client.create(self._kinds.resource_claims, build_claim(pod, requests))
            name = self._extended[pod.metadata.uid] = claim.metadata.name
        status = PodExtendedResourceClaimStatus(resource_claim_name=name, request_mappings=mappings)
        patch: JsonObject = {
            "metadata": {"uid": pod.metadata.uid},
            "status": {"extendedResourceClaimStatus": to_builtins(status)},
        }
        await self._client.patch(
            PODS, pod.metadata.name, patch, type=PatchType.MERGE, namespace=pod.metadata.namespace, subresource="status"
        )
        return None

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            nodes=sorted(self._nodes.store.values(), key=lambda node: node.metadata.name),
            classes={class_.metadata.name: class_ for class_ in self._classes.store.values()},
            allocator=self._allocator,
            requests=self._requests,
        )

    async def _reserve(self, claim: ResourceClaim, allocation: AllocationResult | None, pod: Pod) -> ResourceClaim:
        """Write the allocation, unless it is there already, and the pod's reservation; the claim as it is then."""
        name, namespace = claim.metadata.name, claim.metadata.namespace
        if FINALIZER not in claim.metadata.finalizers:
            finalizers = [*claim.metadata.finalizers, FINALIZER]
            protect = {"metadata": {**if_unchanged(claim.metadata), "finalizers": finalizers}}
            claim = await self._patch(name, namespace, protect)
        consumer = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        if consumer in claim.status.reserved_for and allocation is None:
            return claim
        consumers = dict.fromkeys((*claim.status.reserved_for, consumer))
        status: JsonObject = {"reservedFor": to_builtins(tuple(consumers))}
        if allocation is not None:
            status["allocation"] = to_builtins(_stamped(allocation, self._clock()))
        patch: JsonObject = {"metadata": if_unchanged(claim.metadata), "status": status}
        claim = await self._patch(name, namespace, patch, "status")
        self._assume(claim)
        return claim

    async def _deallocate(self, claim: ResourceClaim) -> None:
        """Take back an allocation whose devices cannot be made ready, and every pod's reservation."""
        status: JsonObject = {"reservedFor": None, "allocation": None, "devices": None}
        patch: JsonObject = {"metadata": if_unchanged(claim.metadata), "status": status}
        claim = await self._patch(claim.metadata.name, claim.metadata.namespace, patch, "status")
        self._assume(claim)

    def _assume(self, claim: ResourceClaim) -> None:
        """Let an own write count until the watch shows it."""
        if self._assumed.assume(claim):
            self._allocator.set_claim(claim)

    def _retry_after(self, seconds: float) -> None:
        self._again_s = min(self._again_s, seconds)

    async def _patch(self, name: str, namespace: str, patch: JsonObject, subresource: str = "") -> ResourceClaim:
        return await self._client.patch(
            self._kinds.resource_claims,
            name,
            patch,
            type=PatchType.MERGE,
            namespace=namespace,
            subresource=subresource,
        )

    async def _report_pending(self, pod: Pod, message: str) -> None:
        condition = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
        known = next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)
        if known is not None and known.message == message:
            return
        others = [condition for condition in pod.status.conditions if condition.type != "PodScheduled"]
        patch: JsonObject = {
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": to_builtins([*others, condition])},
        }
        await self._client.patch(
            PODS, pod.metadata.name, patch, type=PatchType.MERGE, namespace=pod.metadata.namespace, subresource="status"
        )
        self._events.report(reference(pod), type="Warning", reason="FailedScheduling", message=message)

    def _changed(self, _: object) -> None:
        self._wake.set()

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        if change.new is None:
            self._allocator.remove_node(change.ref.name)
        else:
            self._allocator.set_node(node_view(change.new))
        self._wake.set()

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        if change.new is None or change.new.spec.node_name:
            self._bound.discard(change.ref)
        if change.new is None:
            self._requests.remove_pod(change.ref)
        else:
            self._requests.set_pod(change.new)
        if change.old is not None and (change.new is None or change.new.extended_claim_name):
            self._extended.pop(change.old.metadata.uid, None)
        self._wake.set()

    def _claim_changed(self, change: ObjectChange[ResourceClaim]) -> None:
        self._assumed.on_change(change)
        claim = self._assumed.get(change.ref)
        if claim is None:
            self._allocator.remove_claim(change.ref)
        else:
            self._allocator.set_claim(claim)
        self._wake.set()

    def _slice_changed(self, change: ObjectChange[ResourceSlice]) -> None:
        if change.old is not None and (change.new is None or _pool(change.old) != _pool(change.new)):
            self._allocator.remove_slice(change.old)
        if change.new is not None:
            self._allocator.set_slice(change.new)
        self._wake.set()

    def _rules_changed(self, _: object) -> None:
        self._allocator.set_taint_rules(self._rules.store.values())
        self._wake.set()


def _stamped(allocation: AllocationResult, now: datetime) -> AllocationResult:
    """Return the allocation with its time, when a pod waits for its devices (KEP-5007)."""
    if not any(result.binding_conditions for result in allocation.devices.results):
        return allocation
    return replace(allocation, allocation_timestamp=format_time(now))


def _pool(slice_: ResourceSlice) -> tuple[str, str]:
    return slice_.spec.driver, slice_.spec.pool.name


def _is_pending(pod: Pod) -> bool:
    is_ours = pod.spec.scheduler_name in {"", "default-scheduler"}
    return is_ours and not (pod.spec.node_name or pod.is_terminating or pod.is_finished or pod.spec.scheduling_gates)


def _age(pod: Pod) -> tuple[str, int]:
    return (pod.metadata.creation_timestamp or "", pod.metadata.version)
