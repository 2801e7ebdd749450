"""The scheduler of Kubernetes 1.30 as far as claims go: it chooses nodes, drivers allocate.

It writes what it thinks of into the pod's PodSchedulingContext and reads there which nodes drivers cannot serve
(kube-scheduler's plugin ``dynamicresources``; KEP-3063). ``wish`` and ``stuck`` decide, the rest carries out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from api.core.v1 import BINDINGS, NODES, PODS, Binding, Node, ObjectReference, Pod, reference
from api.errors import KerfError
from api.model.allocations import ResourceClaimConsumerReference
from api.model.base import JsonObject
from api.model.classic import (
    MAX_NODES,
    ClassicClaim,
    ClassicClass,
    PodSchedulingContext,
    PodSchedulingContextSpec,
)
from api.model.metadata import ObjectMeta, OwnerReference
from api.model.names import ObjectRef
from api.resource.classic import ClassicKinds
from api.wire import to_builtins
from driver.allocation import node_matches
from driver.kube.events import EventReporter
from driver.kube.http.client import Client, PatchType
from driver.kube.http.errors import AlreadyExistsError, NotFoundError
from driver.kube.informer import Informer
from driver.kube.patches import if_unchanged
from driver.runtime.notifier import Pulse
from driver.scheduling.node_filter import filter_node, node_view

_RETRY_S: Final = 1.0
"""After a failed write, when nothing else wakes the scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A pod and what decides about it."""

    pod: Pod
    claims: Mapping[str, ClassicClaim]
    """By entry; every claim that the pod has."""
    classes: Mapping[str, ClassicClass]
    context: PodSchedulingContext | None
    nodes: Sequence[Node]
    """That the pod could go to if it had no claims."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """What the context should say."""

    spec: PodSchedulingContextSpec


@dataclass(frozen=True, slots=True)
class Go:
    """The pod can be bound."""

    node: str


def wish(situation: Situation) -> Wait | Ask | Go:
    """What the scheduler does next for a pod."""
    for entry, claim in situation.claims.items():
        if reason := _blocking(claim, situation):
            return Wait(f"claim {entry}: {reason}")
    nodes = [node.metadata.name for node in situation.nodes if _suits(node, situation)]
    if not nodes:
        return Wait("no node suits the pod's claims")
    pending = [entry for entry, claim in situation.claims.items() if claim.status.allocation is None]
    if not pending:
        return Go(nodes[0])
    before = situation.context.spec.selected_node if situation.context else ""
    reported = {entry.name for entry in situation.context.status.resource_claims} if situation.context else set()
    knows_enough = len(pending) == 1 or reported.issuperset(pending)
    selected = (before if before in nodes else nodes[0]) if knows_enough else ""
    return Ask(PodSchedulingContextSpec(selected_node=selected, potential_nodes=tuple(sorted(nodes)[:MAX_NODES])))


def stuck(situation: Situation) -> str | None:
    """The entry whose claim should be deallocated, so that the pod can go elsewhere (PostFilter)."""
    for entry, claim in situation.claims.items():
        users = {consumer.uid for consumer in claim.status.reserved_for}
        is_free = not claim.spec.immediate and users <= {situation.pod.metadata.uid}
        if claim.status.allocation is not None and is_free and not claim.status.deallocation_requested:
            return entry
    return None


def _blocking(claim: ClassicClaim, situation: Situation) -> str | None:
    users = {consumer.uid for consumer in claim.status.reserved_for} - {situation.pod.metadata.uid}
    allocation = claim.status.allocation
    if claim.is_terminating:
        return "is being deleted"
    if claim.status.deallocation_requested:
        return "must be reallocated"
    if allocation is None and claim.spec.immediate:
        return "unallocated immediate resourceclaim"
    if allocation is None and claim.spec.requests[0].class_name not in situation.classes:
        return f"resourceclass {claim.spec.requests[0].class_name} does not exist"
    if allocation is not None and users and not allocation.shareable:
        return "is in use"
    return None


def _suits(node: Node, situation: Situation) -> bool:
    reported = situation.context.status.resource_claims if situation.context else ()
    unsuitable = {entry.name: entry.unsuitable_nodes for entry in reported}
    for entry, claim in situation.claims.items():
        allocation = claim.status.allocation
        if allocation is not None:
            selector = allocation.node_selector
        else:
            selector = situation.classes[claim.spec.requests[0].class_name].suitable_nodes
            if node.metadata.name in unsuitable.get(entry, ()):
                return False
        if selector is not None and not node_matches(node_view(node), None, all_nodes=False, selector=selector):
            return False
    return True


class ClassicScheduler:
    """One pod at a time, whenever something changes. Runs until cancelled."""

    def __init__(self, client: Client, kinds: ClassicKinds, events: EventReporter) -> None:
        self._client = client
        self._kinds = kinds
        self._events = events
        self._change = Pulse()
        self._told: dict[str, str] = {}
        self._pods = Informer(client, PODS, on_change=self._changed)
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
                change = self._change.next
                clean = [await self._try(pod) for pod in self._pending()]
                with anyio.move_on_after(None if all(clean) else _RETRY_S):
                    await change.wait()

    def _changed(self, _: object) -> None:
        self._change.beat()

    def _pending(self) -> Iterable[Pod]:
        pods = (pod for pod in self._pods.store.values() if not pod.spec.node_name and not pod.is_terminating)
        return sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.ref))

    async def _try(self, pod: Pod) -> bool:
        """Whether all writes went well."""
        try:
            await self._schedule(pod)
        except KerfError as error:
            self._tell(pod, str(error))
            return False
        return True

    async def _schedule(self, pod: Pod) -> None:
        situation = self._situation(pod)
        if isinstance(situation, str):
            self._tell(pod, situation)
            return
        match wish(situation):
            case Wait(reason):
                self._tell(pod, reason)
                entry = stuck(situation) if not self._suitable_nodes(situation) else None
                if entry is not None:
                    await self._patch_status(situation.claims[entry], {"reservedFor": None})
                    await self._patch_status(situation.claims[entry], {"deallocationRequested": True}, checked=False)
            case Ask(spec):
                await self._ask(situation, spec)
            case Go(node):
                await self._go(situation, node)

    def _suitable_nodes(self, situation: Situation) -> list[str]:
        if any(_blocking(claim, situation) for claim in situation.claims.values()):
            return [""]  # it waits for something else than a node
        return [node.metadata.name for node in situation.nodes if _suits(node, situation)]

    def _situation(self, pod: Pod) -> Situation | str:
        names = pod.claim_names()
        claims = {}
        for entry in pod.spec.resource_claims:
            claim = self._claims.store.get(ObjectRef(pod.metadata.namespace, names.get(entry.name, "")))
            if claim is None:
                return f"waiting for the claim of {entry.name} to be created"
            claims[entry.name] = claim
        return Situation(
            pod=pod,
            claims=claims,
            classes={class_.metadata.name: class_ for class_ in self._classes.store.values()},
            context=self._contexts.store.get(pod.ref),
            nodes=[node for node in self._nodes.store.values() if filter_node(pod, node) is None],
        )

    async def _ask(self, situation: Situation, spec: PodSchedulingContextSpec) -> None:
        kind, context, pod = self._kinds.scheduling_contexts, situation.context, situation.pod
        if context is None:
            owner = OwnerReference(
                api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True
            )
            metadata = ObjectMeta(name=pod.metadata.name, namespace=pod.metadata.namespace, owner_references=(owner,))
            try:
                await self._client.create(kind, PodSchedulingContext(metadata=metadata, spec=spec))
            except AlreadyExistsError:
                return  # the watch will tell of it
        elif context.spec != spec:
            patch: JsonObject = {
                "metadata": {"uid": context.metadata.uid},
                "spec": {"selectedNode": spec.selected_node, "potentialNodes": list(spec.potential_nodes)},
            }
            await self._client.patch(
                kind, pod.metadata.name, patch, type=PatchType.MERGE, namespace=pod.metadata.namespace
            )

    async def _go(self, situation: Situation, node: str) -> None:
        pod = situation.pod
        for claim in situation.claims.values():
            reserved = claim.status.reserved_for
            if pod.metadata.uid not in {consumer.uid for consumer in reserved}:
                consumer = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
                await self._patch_status(claim, {"reservedFor": to_builtins((*reserved, consumer))})
        target = ObjectReference(kind="Node", name=node)
        metadata = ObjectMeta(name=pod.metadata.name, namespace=pod.metadata.namespace)
        await self._client.create_subresource(BINDINGS, Binding(metadata=metadata, target=target), "binding")
        self._told.pop(pod.metadata.uid, None)
        self._events.report(
            reference(pod), type="Normal", reason="Scheduled", message=f"Successfully assigned {pod.ref} to {node}"
        )
        if situation.context is not None:
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

    def _tell(self, pod: Pod, reason: str) -> None:
        """Once for each reason."""
        if self._told.get(pod.metadata.uid) != reason:
            self._told[pod.metadata.uid] = reason
            self._events.report(reference(pod), type="Warning", reason="FailedScheduling", message=reason)


__all__ = ["Ask", "ClassicScheduler", "Go", "Situation", "Wait", "stuck", "wish"]
