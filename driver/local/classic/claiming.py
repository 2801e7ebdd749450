"""The claim controller of Kubernetes 1.30: claims from templates, release of what is no longer used.

Where drivers allocate it clears no allocation itself: with the last consumer of a claim it asks the driver to
(``deallocationRequested``; KEP-3063). An Immediate claim stays allocated.
"""

from collections.abc import Mapping

from anyio import create_task_group

from api.core.v1 import PODS, Pod, PodResourceClaim
from api.kinds import to_builtins
from api.model.base import JsonObject
from api.model.classic import ClassicClaim, ClassicTemplate
from api.model.names import ObjectRef
from api.resource.classic import ClassicKinds
from driver.kube.caching import Change
from driver.kube.client import Client, PatchType
from driver.kube.errors import NotFoundError
from driver.kube.watching import Informer
from driver.local.claiming import POD_CLAIM_NAME, Key, as_read, generated_metadata, is_done
from driver.runtime.queueing import KeyedQueue

_WORKERS = 4
"""Keys synced at once, as in the newer controller."""


def claim_from_template(pod: Pod, entry: PodResourceClaim, template: ClassicTemplate) -> ClassicClaim:
    """The claim that a pod's entry gets: owned by the pod, named after both."""
    return ClassicClaim(metadata=generated_metadata(pod, entry, template.spec.metadata), spec=template.spec.spec)


def release(claim: ClassicClaim, pods: Mapping[str, Pod | None]) -> JsonObject | None:
    """The status patch that drops consumers that are done, and asks for deallocation with the last; None: nothing.

    ``pods`` holds what every pod UID of ``reservedFor`` stands for now; None: it is gone.
    """
    reserved = claim.status.reserved_for
    kept = tuple(consumer for consumer in reserved if not is_done(pods[consumer.uid]))
    if kept == reserved:
        return None
    status: JsonObject = {"reservedFor": to_builtins(kept) or None}
    if not kept and not claim.spec.immediate:
        status["deallocationRequested"] = True
    return {"metadata": as_read(claim.metadata), "status": status}


class ClassicClaimController:
    """Keeps claims in step with pods. Runs until cancelled."""

    def __init__(self, client: Client, kinds: ClassicKinds) -> None:
        self._client = client
        self._kinds = kinds
        self._queue: KeyedQueue[Key] = KeyedQueue()
        self._pods = Informer(client, PODS, on_change=self._pod_changed)
        self._claims = Informer(client, kinds.claims, on_change=self._claim_changed)

    async def run(self) -> None:
        async with create_task_group() as tasks:
            tasks.start_soon(self._pods.run)
            tasks.start_soon(self._claims.run)
            await self._pods.wait_synced()
            await self._claims.wait_synced()
            await self._queue.run(self._sync, workers=_WORKERS)

    def _pod_changed(self, change: Change[Pod]) -> None:
        self._queue.add(Key("pod", change.ref))
        for pod in (change.old, change.new):
            for name in pod.claim_names().values() if pod else ():
                self._queue.add(Key("claim", ObjectRef(change.ref.namespace, name)))

    def _claim_changed(self, change: Change[ClassicClaim]) -> None:
        self._queue.add(Key("claim", change.ref))

    async def _sync(self, key: Key) -> None:
        try:
            if key.what == "pod":
                await self._sync_pod(self._pods.store.get(key.ref))
            else:
                await self._sync_claim(self._claims.store.get(key.ref))
        except NotFoundError:
            return  # gone since the watch last told of it; that is what it will tell next

    async def _sync_pod(self, pod: Pod | None) -> None:
        if pod is None or pod.is_terminating or is_done(pod):
            return
        made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            if entry.template_name and entry.name not in made:
                made[entry.name] = await self._make_claim(pod, entry, entry.template_name)
        if len(made) > len(pod.status.resource_claim_statuses):
            statuses = [{"name": entry, "resourceClaimName": claim} for entry, claim in made.items()]
            patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": statuses}}
            await self._client.patch(
                PODS,
                pod.metadata.name,
                patch,
                type=PatchType.MERGE,
                namespace=pod.metadata.namespace,
                subresource="status",
            )

    async def _make_claim(self, pod: Pod, entry: PodResourceClaim, template_name: str) -> str:
        """The name of the entry's claim, which may be there already."""
        for claim in self._claims.store.values():
            owners = {owner.uid for owner in claim.metadata.owner_references}
            if pod.metadata.uid in owners and claim.metadata.annotations.get(POD_CLAIM_NAME) == entry.name:
                return claim.metadata.name
        template = await self._client.get(self._kinds.templates, template_name, pod.metadata.namespace)
        return (await self._client.create(self._kinds.claims, claim_from_template(pod, entry, template))).metadata.name

    async def _sync_claim(self, claim: ClassicClaim | None) -> None:
        if claim is None:
            return
        name, namespace = claim.metadata.name, claim.metadata.namespace
        pods = {one.uid: await self._pod(namespace, one.name, one.uid) for one in claim.status.reserved_for}
        patch = release(claim, pods)
        if patch is not None:
            await self._client.patch(
                self._kinds.claims, name, patch, type=PatchType.MERGE, namespace=namespace, subresource="status"
            )
        owners = (owner for owner in claim.metadata.owner_references if owner.controller and owner.kind == "Pod")
        owner = next(owners, None)
        if owner and not claim.is_terminating and is_done(await self._pod(namespace, owner.name, owner.uid)):
            await self._client.delete(self._kinds.claims, name, namespace, uid=claim.metadata.uid)

    async def _pod(self, namespace: str, name: str, uid: str) -> Pod | None:
        """The pod as it is now; None when it is gone, or replaced by another one of its name."""
        try:
            pod = await self._client.get(PODS, name, namespace)
        except NotFoundError:
            return None
        return pod if pod.metadata.uid == uid else None
