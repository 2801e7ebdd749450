"""The claim controller: it makes claims from templates, and releases what no pod uses any longer.

It does what kube-controller-manager's ``resourceclaim`` controller does (``pkg/controller/resourceclaim``; KEP-4381):

- for every entry of a pod that names a template it creates one claim and records its name in the pod's status;
- when a pod is done it removes the pod from ``reservedFor``; a claim without consumers loses its allocation and its
  finalizer. Where drivers allocate (Kubernetes 1.27 to 1.31, KEP-3063) the controller cannot clear an allocation: it
  sets ``deallocationRequested`` instead, and an Immediate claim stays allocated;
- it deletes a generated claim when its pod is done.

What differs between the two generations of DRA is a ``ClaimLifecycle``; everything else is one code path.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from anyio import create_task_group

from kerf_dra.api.core.v1 import PODS, Pod, PodResourceClaim, reference
from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import POD_CLAIM_NAME, ResourceClaim, ResourceClaimTemplate
from kerf_dra.api.model.classic import ClassicClaim, ClassicTemplate
from kerf_dra.api.model.metadata import Object, ObjectMeta, OwnerReference
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.resource.kinds import ResourceKinds
from kerf_dra.api.wire import Kind, to_builtins
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.patches import if_unchanged
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.runtime.work_queue import WorkQueue

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of an allocated claim, until it is deallocated (``k8s.io/api/resource/v1`` Finalizer)."""
_WORKERS: Final = 4
"""Keys reconciled at once: enough to hide the round trips of a burst of pods."""

ClaimT = TypeVar("ClaimT", ResourceClaim, ClassicClaim)
TemplateT = TypeVar("TemplateT", ResourceClaimTemplate, ClassicTemplate)


@dataclass(frozen=True)
class ClaimLifecycle(Generic[ClaimT, TemplateT]):
    """How claims are made and released, which depends on who allocates: the scheduler or drivers."""

    claims: Kind[ClaimT]
    templates: Kind[TemplateT]
    from_template: Callable[[ObjectMeta, TemplateT], ClaimT]
    release: Callable[[ClaimT, Mapping[str, Pod | None]], JsonObject | None]
    """The status patch that removes consumers that are done, and with the last one releases the claim.

    Its second argument has the pod of each UID in ``reservedFor``, None for one that is gone. The patch is None when
    there is nothing to do.
    """


def structured_lifecycle(kinds: ResourceKinds) -> ClaimLifecycle[ResourceClaim, ResourceClaimTemplate]:
    """Return the lifecycle of claims that the scheduler allocates."""
    return ClaimLifecycle(kinds.resource_claims, kinds.resource_claim_templates, from_template, release)


class ClaimQueueKey(NamedTuple):
    """The pod or claim to reconcile."""

    what: Literal["pod", "claim"]
    ref: ObjectRef


def is_done(pod: Pod | None) -> bool:
    """Whether a pod will not use its claims any more: it has finished, or is deleted before it was bound."""
    return pod is None or pod.is_finished or (pod.is_terminating and not pod.spec.node_name)


def from_template(metadata: ObjectMeta, template: ResourceClaimTemplate) -> ResourceClaim:
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def generated_metadata(pod: Pod, entry: PodResourceClaim, wanted: ObjectMeta) -> ObjectMeta:
    """Return the metadata of the claim for an entry of a pod, with the labels and annotations of its template."""
    owner = OwnerReference(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return ObjectMeta(
        generate_name=f"{pod.metadata.name}-{entry.name}-",
        namespace=pod.metadata.namespace,
        labels=wanted.labels,
        annotations={**wanted.annotations, POD_CLAIM_NAME: entry.name},
        owner_references=(owner,),
    )


def release(claim: ResourceClaim, pods: Mapping[str, Pod | None]) -> JsonObject | None:
    """Implement ``ClaimLifecycle.release`` for structured claims: the last consumer's end clears the allocation."""
    reserved = claim.status.reserved_for
    kept = tuple(consumer for consumer in reserved if consumer.resource != "pods" or not is_done(pods[consumer.uid]))
    if kept == reserved and (kept or claim.status.allocation is None):
        return None
    status: JsonObject = {"reservedFor": to_builtins(kept) or None}
    if not kept:
        status |= {"allocation": None, "devices": None}
    return {"metadata": if_unchanged(claim.metadata), "status": status}


def classic_lifecycle(kinds: ClassicKinds) -> ClaimLifecycle[ClassicClaim, ClassicTemplate]:
    """Return the lifecycle of claims that drivers allocate."""
    return ClaimLifecycle(kinds.claims, kinds.templates, classic_from_template, release_classic)


def classic_from_template(metadata: ObjectMeta, template: ClassicTemplate) -> ClassicClaim:
    return ClassicClaim(metadata=metadata, spec=template.spec.spec)


def release_classic(claim: ClassicClaim, pods: Mapping[str, Pod | None]) -> JsonObject | None:
    """Implement ``ClaimLifecycle.release`` for classic claims: the last consumer's end requests deallocation."""
    reserved = claim.status.reserved_for
    kept = tuple(consumer for consumer in reserved if consumer.resource != "pods" or not is_done(pods[consumer.uid]))
    if kept == reserved:
        return None
    status: JsonObject = {"reservedFor": to_builtins(kept) or None}
    if not kept and not claim.spec.immediate:
        status["deallocationRequested"] = True
    return {"metadata": if_unchanged(claim.metadata), "status": status}


def owning_pod(claim: Object) -> OwnerReference | None:
    """Return the pod for which a claim was generated; None for a user's own claim."""
    return next((owner for owner in claim.metadata.owner_references if owner.controller and owner.kind == "Pod"), None)


class ClaimController(Generic[ClaimT, TemplateT]):
    """The controller of claims; it runs until cancelled."""

    def __init__(self, client: Client, lifecycle: ClaimLifecycle[ClaimT, TemplateT], events: EventReporter) -> None:
        self._client = client
        self._lifecycle: ClaimLifecycle[ClaimT, TemplateT] = lifecycle
        self._events = events
        self._queue: WorkQueue[ClaimQueueKey] = WorkQueue()
        self._pods = Informer(client, PODS, on_change=self._pod_changed)
        self._claims: Informer[ClaimT] = Informer(
            client, lifecycle.claims, indexers={"owner": _owners_of}, on_change=self._claim_changed
        )

    async def run(self) -> None:
        async with create_task_group() as tasks:
            tasks.start_soon(self._pods.run)
            tasks.start_soon(self._claims.run)
            await self._pods.wait_synced()
            await self._claims.wait_synced()
            await self._queue.run(self._reconcile, workers=_WORKERS)

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        self._queue.add(ClaimQueueKey("pod", change.ref))
        for pod in (change.old, change.new):
            for name in pod.all_claim_names if pod else ():
                self._queue.add(ClaimQueueKey("claim", ObjectRef(change.ref.namespace, name)))

    def _claim_changed(self, change: ObjectChange[ClaimT]) -> None:
        self._queue.add(ClaimQueueKey("claim", change.ref))

    async def _reconcile(self, key: ClaimQueueKey) -> None:
        try:
            if key.what == "pod":
                await self._reconcile_pod(self._pods.store.get(key.ref))
            else:
                await self._reconcile_claim(self._claims.store.get(key.ref))
        except NotFoundError:
            return  # deleted since the last watch event; the next one says so

    async def _reconcile_pod(self, pod: Pod | None) -> None:
        if pod is None or pod.is_terminating or is_done(pod):
            return
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if entry.template_name and entry.name not in made:
                made[entry.name] = await self._ensure_claim(pod, entry, entry.template_name)
        if len(made) > len(pod.status.resource_claim_statuses):
            await self._record_claims(pod, made)

    async def _ensure_claim(self, pod: Pod, entry: PodResourceClaim, template_name: str) -> str:
        """Return the name of the entry's claim, which is created unless it exists."""
        for claim in self._claims.store.indexed("owner", pod.metadata.uid):
            if claim.metadata.annotations.get(POD_CLAIM_NAME) == entry.name and not claim.is_terminating:
                return claim.metadata.name
        try:
            template = await self._client.get(self._lifecycle.templates, template_name, pod.metadata.namespace)
        except NotFoundError as error:
            message = (
                f"spec.resourceClaims: ResourceClaimTemplate {template_name!r} does not exist in namespace "
                f"{pod.metadata.namespace}; create it, or correct resourceClaimTemplateName of {entry.name!r}"
            )
            self._events.report(reference(pod), type="Warning", reason="FailedResourceClaimCreation", message=message)
            raise TransientError(message) from error
        metadata = generated_metadata(pod, entry, template.spec.metadata)
        claim = await self._client.create(self._lifecycle.claims, self._lifecycle.from_template(metadata, template))
        return claim.metadata.name

    async def _record_claims(self, pod: Pod, made: Mapping[str, str | None]) -> None:
        statuses = [{"name": entry, "resourceClaimName": claim} for entry, claim in made.items()]
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": statuses}}
        await self._client.patch(
            PODS, pod.metadata.name, patch, type=PatchType.MERGE, namespace=pod.metadata.namespace, subresource="status"
        )

    async def _reconcile_claim(self, claim: ClaimT | None) -> None:
        if claim is None:
            return
        name, namespace = claim.metadata.name, claim.metadata.namespace
        consumers = [consumer for consumer in claim.status.reserved_for if consumer.resource == "pods"]
        patch = self._lifecycle.release(
            claim, {pod.uid: await self._pod(namespace, pod.name, pod.uid) for pod in consumers}
        )
        if patch is not None:
            claim = await self._client.patch(
                self._lifecycle.claims, name, patch, type=PatchType.MERGE, namespace=namespace, subresource="status"
            )
        if claim.status.allocation is None and FINALIZER in claim.metadata.finalizers:
            rest = [finalizer for finalizer in claim.metadata.finalizers if finalizer != FINALIZER]
            unprotect: JsonObject = {"metadata": {**if_unchanged(claim.metadata), "finalizers": rest or None}}
            claim = await self._client.patch(
                self._lifecycle.claims, name, unprotect, type=PatchType.MERGE, namespace=namespace
            )
        owner = owning_pod(claim)
        if owner and not claim.is_terminating and is_done(await self._pod(namespace, owner.name, owner.uid)):
            await self._client.delete(self._lifecycle.claims, name, namespace, uid=claim.metadata.uid)

    async def _pod(self, namespace: str, name: str, uid: str) -> Pod | None:
        """Return the pod as it is now; None when it is gone, or replaced by another one of its name.

        A pod that is not in the cache may be too new for it, so the API server decides.
        """
        pod = self._pods.store.get(ObjectRef(namespace, name))
        if pod is None or pod.metadata.uid != uid:
            try:
                pod = await self._client.get(PODS, name, namespace)
            except NotFoundError:
                return None
        return pod if pod.metadata.uid == uid else None


def _owners_of(claim: Object) -> tuple[str, ...]:
    owner = owning_pod(claim)
    return (owner.uid,) if owner else ()
