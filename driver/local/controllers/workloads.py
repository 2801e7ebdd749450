"""The controllers of Deployments, ReplicaSets, StatefulSets and Jobs: they make pods from templates.

Of kube-controller-manager's controllers (``pkg/controller/{deployment,replicaset,statefulset,job}``) they do what a
user of devices sees: so many pods, names and labels by which kubectl and ``kerf why`` find them, new pods for deleted
ones and for a changed template. They do not update step by step, start the pods of a StatefulSet together, and a Job's
pods never complete, because no container runs.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from anyio import create_task_group

from kerf_dra.api.core.v1 import PODS, Pod
from kerf_dra.api.core.workloads import (
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    WORKLOADS,
    PodTemplate,
    WorkloadObject,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import Object, ObjectMeta, ObjectT, OwnerReference
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.wire import Kind, identity_kind
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, NotFoundError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.runtime.work_queue import WorkQueue

_HASH: Final = "pod-template-hash"
"""The label of a Deployment's ReplicaSets and their pods (``k8s.io/api/apps/v1``)."""
_WORKERS: Final = 4
"""Keys reconciled at once, as the controller of claims has."""
_SUFFIX: Final = 5
"""Characters that make the name of a pod its own, as generated names have."""


class _RawPod(Object):
    """A pod as the template has it, with fields that Kerf does not know."""

    spec: JsonObject = {}


class _RawReplicaSet(Object):
    spec: JsonObject = {}


class WorkloadKey(NamedTuple):
    """The object to reconcile."""

    kind: str
    ref: ObjectRef


_RAW_PODS: Final = identity_kind(_RawPod, group="", version="v1", plural="pods", namespaced=True, kind="Pod")
_RAW_REPLICA_SETS: Final = identity_kind(
    _RawReplicaSet, group="apps", version="v1", plural="replicasets", namespaced=True, kind="ReplicaSet"
)


class WorkloadController:
    """The controllers of all kinds; runs until cancelled."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queue: WorkQueue[WorkloadKey] = WorkQueue()
        self._reported: dict[str, Mapping[str, int]] = {}
        """The numbers that were last written, by UID."""
        self._workloads = {
            kind.kind: Informer(client, kind, indexers={"owner": _owner_uids}, on_change=self._changed(kind.kind))
            for kind in WORKLOADS
        }
        self._pods = Informer(client, PODS, indexers={"owner": _owner_uids}, on_change=self._owned_changed)

    async def run(self) -> None:
        informers: list[Informer[Any]] = [*self._workloads.values(), self._pods]
        async with create_task_group() as tasks:
            for informer in informers:
                tasks.start_soon(informer.run)
            for informer in informers:
                await informer.wait_synced()
            await self._queue.run(self._reconcile, workers=_WORKERS)

    def _changed(self, kind: str) -> Callable[[ObjectChange[WorkloadObject]], None]:
        def changed(change: ObjectChange[WorkloadObject]) -> None:
            self._queue.add(WorkloadKey(kind, change.ref))
            self._owned_changed(change)

        return changed

    def _owned_changed(self, change: ObjectChange[Pod] | ObjectChange[WorkloadObject]) -> None:
        for each in (change.old, change.new):
            for owner in each.metadata.owner_references if each else ():
                if owner.kind in self._workloads:
                    self._queue.add(WorkloadKey(owner.kind, ObjectRef(change.ref.namespace, owner.name)))

    async def _reconcile(self, key: WorkloadKey) -> None:
        workload = self._workloads[key.kind].store.get(key.ref)
        if workload is None or workload.is_terminating:
            return
        try:
            if key.kind == DEPLOYMENTS.kind:
                await self._reconcile_deployment(workload)
            else:
                await self._reconcile_pods(key.kind, workload)
        except NotFoundError:
            return  # deleted since the last watch event; the next one says so

    async def _reconcile_deployment(self, deployment: WorkloadObject) -> None:
        """Have one ReplicaSet for the present template, and those of earlier ones without pods."""
        hash_ = _hash(deployment.spec.template)
        name = f"{deployment.metadata.name}-{hash_}"
        own = [*self._workloads[REPLICA_SETS.kind].store.indexed("owner", deployment.metadata.uid)]
        for replica_set in own:
            wanted = deployment.spec.replicas if replica_set.metadata.name == name else 0
            if replica_set.spec.replicas != wanted:
                patch: JsonObject = {"spec": {"replicas": wanted}}
                await self._client.patch(
                    REPLICA_SETS,
                    replica_set.metadata.name,
                    patch,
                    type=PatchType.MERGE,
                    namespace=replica_set.metadata.namespace,
                )
        if all(each.metadata.name != name for each in own):
            await self._create_replica_set(deployment, name, hash_)
        ready = sum(self._count_ready(each) for each in own)
        await self._report(DEPLOYMENTS, deployment, sum(each.status.replicas for each in own), ready)

    async def _create_replica_set(self, deployment: WorkloadObject, name: str, hash_: str) -> None:
        template = deployment.spec.template
        labels = {**_labels(template), _HASH: hash_}
        spec: JsonObject = {
            "replicas": deployment.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {**template.metadata, "labels": labels}, "spec": template.spec},
        }
        await self._create(
            _RAW_REPLICA_SETS, _RawReplicaSet(metadata=_metadata(deployment, "Deployment", name, labels), spec=spec)
        )

    async def _reconcile_pods(self, kind: str, workload: WorkloadObject) -> None:
        """Have as many pods as the workload wants: each has a number, from which its name follows."""
        wanted = {_pod_name(kind, workload, number) for number in range(_count_wanted(kind, workload))}
        own = {pod.metadata.name: pod for pod in self._pods.store.indexed("owner", workload.metadata.uid)}
        for name in sorted(own.keys() - wanted):
            if not own[name].is_terminating:
                await self._client.delete(PODS, name, workload.metadata.namespace, uid=own[name].metadata.uid)
        for name in sorted(wanted - own.keys()):
            template = workload.spec.template
            extra = {"batch.kubernetes.io/job-name": workload.metadata.name} if kind == JOBS.kind else {}
            metadata = _metadata(workload, kind, name, {**_labels(template), **extra})
            await self._create(_RAW_PODS, _RawPod(metadata=metadata, spec=template.spec))
        await self._report(self._kind(kind), workload, len(own), self._count_ready(workload))

    async def _create(self, kind: Kind[ObjectT], value: ObjectT) -> None:
        try:
            await self._client.create(kind, value)
        except AlreadyExistsError:
            return  # the cache does not show it yet, or its predecessor still ends: its next event comes back here

    async def _report(self, kind: Kind[WorkloadObject], workload: WorkloadObject, pods: int, ready: int) -> None:
        """Write the numbers of pods that kubectl shows, if they have changed."""
        numbers: Mapping[str, int] = (
            {"active": pods, "ready": ready}
            if kind is JOBS
            else {"replicas": pods, "readyReplicas": ready, "availableReplicas": ready, "updatedReplicas": pods}
        )
        if self._reported.get(workload.metadata.uid) == numbers:
            return
        self._reported[workload.metadata.uid] = numbers
        status = {**numbers, "observedGeneration": workload.metadata.generation} if kind is not JOBS else numbers
        await self._client.patch(
            kind,
            workload.metadata.name,
            {"status": status},
            type=PatchType.MERGE,
            namespace=workload.metadata.namespace,
            subresource="status",
        )

    def _count_ready(self, owner: WorkloadObject) -> int:
        pods = self._pods.store.indexed("owner", owner.metadata.uid)
        return sum(pod.status.phase == "Running" and not pod.is_terminating for pod in pods)

    @staticmethod
    def _kind(name: str) -> Kind[WorkloadObject]:
        return next(kind for kind in WORKLOADS if kind.kind == name)


def _count_wanted(kind: str, workload: WorkloadObject) -> int:
    spec = workload.spec
    if kind != JOBS.kind:
        return spec.replicas
    return (
        0 if spec.suspend else min(spec.parallelism, spec.parallelism if spec.completions is None else spec.completions)
    )


def _pod_name(kind: str, workload: WorkloadObject, number: int) -> str:
    name = workload.metadata.name
    if kind == STATEFUL_SETS.kind:
        return f"{name}-{number}"
    return f"{name}-{_digest(f'{workload.metadata.uid}/{number}')[:_SUFFIX]}"


def _metadata(owner: WorkloadObject, kind: str, name: str, labels: Mapping[str, str]) -> ObjectMeta:
    reference = OwnerReference(
        api_version="batch/v1" if kind == JOBS.kind else "apps/v1",
        kind=kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return ObjectMeta(name=name, namespace=owner.metadata.namespace, labels=dict(labels), owner_references=(reference,))


def _labels(template: PodTemplate) -> dict[str, str]:
    return dict(template.metadata.get("labels") or {})


def _hash(template: PodTemplate) -> str:
    return _digest(msgspec.json.encode(template, order="deterministic").decode())[:10]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _owner_uids(each: Object) -> tuple[str, ...]:
    return tuple(owner.uid for owner in each.metadata.owner_references if owner.controller)
