"""The scheduler of Kubernetes 1.30 as far as claims go: it chooses nodes, and drivers allocate.

It writes the nodes that it considers into the PodSchedulingContext of a pod, and reads there which nodes the drivers
find unsuitable (kube-scheduler's plugin ``dynamicresources``; KEP-3063). ``decide_next_step`` and
``find_claim_to_deallocate`` are pure; ``ClassicScheduler`` carries out what they decide.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from kerf_dra.api.core.v1 import BINDINGS, NODES, PODS, Binding, Node, ObjectReference, Pod, reference
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.allocations import ResourceClaimConsumerReference
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import (
    MAX_NODES,
    ClassicClaim,
    ClassicClass,
    PodSchedulingContext,
    PodSchedulingContextSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.allocation import node_matches
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, NotFoundError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.patches import if_unchanged
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.scheduling.node_filter import filter_node, node_view
from kerf_dra.driver.scheduling.resource_fit import RequestLedger, find_shortages, pod_requests

_RETRY_S: Final = 1.0
"""The wait after a failed write, when nothing else wakes the scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSchedulingState:
    """A pod, and all that the next step depends on."""

    pod: Pod
    claims: Mapping[str, ClassicClaim]
    """All claims of the pod, by the name of their entry."""
    classes: Mapping[str, ClassicClass]
    context: PodSchedulingContext | None
    nodes: Sequence[Node]
    """The nodes that pass the node filter and have room, i.e. those the pod could run on without its claims."""
    obstacles: str = ""
    """Why other nodes are not among them, in kube-scheduler's words."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The pod cannot be scheduled now."""

    reason: str


@dataclass(frozen=True, slots=True)
class UpdateContext:
    """The PodSchedulingContext should have this spec."""

    spec: PodSchedulingContextSpec


@dataclass(frozen=True, slots=True)
class BindPod:
    """The pod can be bound."""

    node: str


def decide_next_step(state: PodSchedulingState) -> Unschedulable | UpdateContext | BindPod:
    """Return the next step for a pod: bind it, update its context, or report that it is unschedulable."""
    for entry, claim in state.claims.items():
        if reason := _find_blocker(claim, state):
            return Unschedulable(f"claim {entry}: {reason}")
    nodes = [node.metadata.name for node in state.nodes if _is_suitable(node, state)]
    if not nodes:
        return Unschedulable("no node suits the pod's claims" if state.nodes else f"no node fits: {state.obstacles}")
    pending = [entry for entry, claim in state.claims.items() if claim.status.allocation is None]
    if not pending:
        return BindPod(nodes[0])
    before = state.context.spec.selected_node if state.context else ""
    reported = {entry.name for entry in state.context.status.resource_claims} if state.context else set()
    knows_enough = len(pending) == 1 or reported.issuperset(pending)
    selected = (before if before in nodes else nodes[0]) if knows_enough else ""
    return UpdateContext(
        PodSchedulingContextSpec(selected_node=selected, potential_nodes=tuple(sorted(nodes)[:MAX_NODES]))
    )


def find_claim_to_deallocate(state: PodSchedulingState) -> str | None:
    """Return the entry of a claim to deallocate so that the pod fits another node (PostFilter); None: none."""
    for entry, claim in state.claims.items():
        users = {consumer.uid for consumer in claim.status.reserved_for}
        is_free = not claim.spec.immediate and users <= {state.pod.metadata.uid}
        if claim.status.allocation is not None and is_free and not claim.status.deallocation_requested:
            return entry
    return None


def _find_blocker(claim: ClassicClaim, state: PodSchedulingState) -> str | None:
    users = {consumer.uid for consumer in claim.status.reserved_for} - {state.pod.metadata.uid}
    allocation = claim.status.allocation
    if claim.is_terminating:
        return "is being deleted"
    if claim.status.deallocation_requested:
        return "must be reallocated"
    if allocation is None and claim.spec.immediate:
        return "unallocated immediate resourceclaim"
    if allocation is None and claim.spec.requests[0].class_name not in state.classes:
        return f"resourceclass {claim.spec.requests[0].class_name} does not exist"
    if allocation is not None and users and not allocation.shareable:
        return "is in use"
    return None


def _is_suitable(node: Node, state: PodSchedulingState) -> bool:
    reported = state.context.status.resource_claims if state.context else ()
    unsuitable = {entry.name: entry.unsuitable_nodes for entry in reported}
    for entry, claim in state.claims.items():
        allocation = claim.status.allocation
        if allocation is not None:
            selector = allocation.node_selector
        else:
            selector = state.classes[claim.spec.requests[0].class_name].suitable_nodes
            if node.metadata.name in unsuitable.get(entry, ()):
                return False
        if selector is not None and not node_matches(node_view(node), None, all_nodes=False, selector=selector):
            return False
    return True


class ClassicScheduler:
    """Schedules the pending pods, one at a time, whenever something changes; it runs until cancelled."""

    def __init__(self, client: Client, kinds: ClassicKinds, events: EventReporter) -> None:
        self._client = client
        self._kinds = kinds
        self._events = events
        self._change = Notifier()
        self._reported: dict[str, str] = {}
        self._requests = RequestLedger()
        self._pods = Informer(client, PODS, on_change=self._pod_changed)
        self._nodes = Informer(client, NODES, on_change=self._changed)
        self._claims = Informer(client, kinds.claims, on_change=self._changed)
        self._classes = Informer(client, kinds.classes, on_change=self._changed)
        self._contexts = Informer(client, kinds.scheduling_contexts, on_change=self._changed)

    async def run(self) -> None:
        informers = (self._pods, self._nodes, self._claims, self._classes, self._contexts)
        async with anyio.create_task_group() as tasks:
            for informer in informers:
                tasks.start_soon(informer.run)
            for informer in informers:
                await informer.wait_synced()
            while True:
                change = self._change.next_event
                clean = [await self._try_schedule(pod) for pod in self._pending()]
                with anyio.move_on_after(None if all(clean) else _RETRY_S):
                    await change.wait()

    def _changed(self, _: object) -> None:
        self._change.notify()

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        if change.new is None:
            self._requests.remove_pod(change.ref)
        else:
            self._requests.set_pod(change.new)
        self._change.notify()

    def _pending(self) -> Iterable[Pod]:
        pods = (pod for pod in self._pods.store.values() if not pod.spec.node_name and not pod.is_terminating)
        return sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.ref))

    async def _try_schedule(self, pod: Pod) -> bool:
        """Schedule a pod; False when a write failed."""
        try:
            await self._schedule(pod)
        except KerfError as error:
            self._report_pending(pod, str(error))
            return False
        return True

    async def _schedule(self, pod: Pod) -> None:
        state = self._build_state(pod)
        if isinstance(state, str):
            self._report_pending(pod, state)
            return
        match decide_next_step(state):
            case Unschedulable(reason):
                self._report_pending(pod, reason)
                entry = find_claim_to_deallocate(state) if not self._suitable_nodes(state) else None
                if entry is not None:
                    await self._patch_status(state.claims[entry], {"reservedFor": None})
                    await self._patch_status(state.claims[entry], {"deallocationRequested": True}, checked=False)
            case UpdateContext(spec):
                await self._write_context(state, spec)
            case BindPod(node):
                await self._bind(state, node)

    def _suitable_nodes(self, state: PodSchedulingState) -> list[str]:
        if any(_find_blocker(claim, state) for claim in state.claims.values()):
            return [""]  # the pod does not wait for a node
        return [node.metadata.name for node in state.nodes if _is_suitable(node, state)]

    def _build_state(self, pod: Pod) -> PodSchedulingState | str:
        names = pod.claim_names()
        claims = {}
        for entry in pod.spec.resource_claims:
            claim = self._claims.store.get(ObjectRef(pod.metadata.namespace, names.get(entry.name, "")))
            if claim is None:
                return f"waiting for the claim of {entry.name} to be created"
            claims[entry.name] = claim
        obstacles = {node.metadata.name: self._find_obstacles(pod, node) for node in self._nodes.store.values()}
        counted = Counter(obstacle for found in obstacles.values() for obstacle in found)
        return PodSchedulingState(
            pod=pod,
            claims=claims,
            classes={class_.metadata.name: class_ for class_ in self._classes.store.values()},
            context=self._contexts.store.get(pod.ref),
            nodes=[node for node in self._nodes.store.values() if not obstacles[node.metadata.name]],
            obstacles=", ".join(f"{number} {obstacle}" for obstacle, number in sorted(counted.items())),
        )

    def _find_obstacles(self, pod: Pod, node: Node) -> list[str]:
        """Return why ``node`` cannot take ``pod``, whatever its claims are; empty: it can."""
        if reason := filter_node(pod, node):
            return [reason]
        used, allocatable = self._requests.of_node(node.metadata.name), node.status.allocatable
        return [str(each) for each in find_shortages(pod_requests(pod), allocatable, used)] if allocatable else []

    async def _write_context(self, state: PodSchedulingState, spec: PodSchedulingContextSpec) -> None:
        kind, context, pod = self._kinds.scheduling_contexts, state.context, state.pod
        if context is None:
            owner = OwnerReference(
                api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True
            )
            metadata = ObjectMeta(name=pod.metadata.name, namespace=pod.metadata.namespace, owner_references=(owner,))
            try:
                await self._client.create(kind, PodSchedulingContext(metadata=metadata, spec=spec))
            except AlreadyExistsError:
                return  # it comes with the next watch event
        elif context.spec != spec:
            patch: JsonObject = {
                "metadata": {"uid": context.metadata.uid},
                "spec": {"selectedNode": spec.selected_node, "potentialNodes": list(spec.potential_nodes)},
            }
            await self._client.patch(
                kind, pod.metadata.name, patch, type=PatchType.MERGE, namespace=pod.metadata.namespace
            )

    async def _bind(self, state: PodSchedulingState, node: str) -> None:
        pod = state.pod
        for claim in state.claims.values():
            reserved = claim.status.reserved_for
            if pod.metadata.uid not in {consumer.uid for consumer in reserved}:
                consumer = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
                await self._patch_status(claim, {"reservedFor": to_builtins((*reserved, consumer))})
        target = ObjectReference(kind="Node", name=node)
        metadata = ObjectMeta(name=pod.metadata.name, namespace=pod.metadata.namespace)
        await self._client.create_subresource(BINDINGS, Binding(metadata=metadata, target=target), "binding")
        self._requests.set_pod(pod, node)
        self._reported.pop(pod.metadata.uid, None)
        self._events.report(
            reference(pod), type="Normal", reason="Scheduled", message=f"Successfully assigned {pod.ref} to {node}"
        )
        if state.context is not None:
            try:
                await self._client.delete(self._kinds.scheduling_contexts, pod.metadata.name, pod.metadata.namespace)
            except NotFoundError:
                return

    async def _patch_status(self, claim: ClassicClaim, status: JsonObject, *, checked: bool = True) -> None:
        metadata = if_unchanged(claim.metadata) if checked else {"uid": claim.metadata.uid}
        await self._client.patch(
            self._kinds.claims,
            claim.metadata.name,
            {"metadata": metadata, "status": status},
            type=PatchType.MERGE,
            namespace=claim.metadata.namespace,
            subresource="status",
        )

    def _report_pending(self, pod: Pod, reason: str) -> None:
        """Report a reason, once."""
        if self._reported.get(pod.metadata.uid) != reason:
            self._reported[pod.metadata.uid] = reason
            self._events.report(reference(pod), type="Warning", reason="FailedScheduling", message=reason)
