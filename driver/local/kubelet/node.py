"""The kubelet stand-in of one node: it registers the node and reconciles the pods that are bound to it.

A pod is admitted, with its devices of extended resources, before its claims are prepared and its containers start.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from kerf_dra.api.core.v1 import NODES, PODS, Container, Node, Pod, reference
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef, ObjectRef
from kerf_dra.api.model.prepared import ReportedDevice
from kerf_dra.api.model.times import format_time
from kerf_dra.api.podresources.v1 import ClaimUse, PodUses
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.resource.kinds import ResourceKinds
from kerf_dra.api.wire import to_builtins
from kerf_dra.cdi import CDIError
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, ConflictError, NotFoundError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.local.kubelet.claims import NodeClaims
from kerf_dra.driver.local.kubelet.containers import ContainerBundles
from kerf_dra.driver.local.kubelet.device_allocations import (
    REJECTED,
    DeviceAllocations,
    PodRejectedError,
    build_annotations,
    build_environment,
)
from kerf_dra.driver.local.kubelet.device_plugins import DevicePlugins
from kerf_dra.driver.local.kubelet.plugins import PluginWatcher
from kerf_dra.driver.local.kubelet.pod_resources import serve_pod_resources
from kerf_dra.driver.runtime.work_queue import WorkQueue

log = logging.getLogger(__name__)

_WORKERS: Final = 8
"""Pods reconciled at once: the kubelet has a worker for each pod, and eight keep all cards of a node busy."""
_READY_CONDITIONS: Final = ("Initialized", "ContainersReady", "Ready")
"""The conditions of running pods that ``kubectl wait`` and ``kubectl get`` read."""
_AMOUNTS: Final = {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"}
"""What each node has for its pods, whatever the machine has, because no container runs: a large server's amounts, and
the kubelet's own limit of pods."""
_HEARTBEAT_S: Final = 10.0
"""Seconds between two updates of the node's Ready condition, as those of the kubelet's lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """The settings of one stand-in."""

    node_name: str
    root: Path
    """The ``--root-dir`` of the kubelet, with ``plugins/`` and ``plugins_registry/``."""
    cdi_dir: Path
    boot_id: str
    labels: dict[str, str]
    versions: tuple[str, ...] = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
    """The versions of the DRA service that this kubelet supports."""
    release: str = "v1.37.0"
    """The ``kubeletVersion`` that it reports."""
    wipe_after_s: float = 30.0
    """The time without its socket after which a driver loses its slices (kubernetes/kubernetes#132058)."""


class Kubelet:
    """The kubelet of one node; it runs until cancelled."""

    def __init__(
        self,
        client: Client,
        kinds: ResourceKinds | ClassicKinds,
        events: EventReporter,
        settings: KubeletSettings,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._events = events
        self._settings = settings
        self._clock = clock
        self._queue: WorkQueue[ObjectRef] = WorkQueue()
        self._unregistered: WorkQueue[str] = WorkQueue()
        self.plugins = PluginWatcher(settings.root / "plugins_registry", settings.versions, self._driver_changed)
        self._device_plugins = DevicePlugins(settings.root / "device-plugins")
        self._devices = DeviceAllocations(self._device_plugins)
        self._claims = NodeClaims(client, kinds, self.plugins)
        self._started: dict[ObjectRef, Pod] = {}
        self._containers = ContainerBundles(settings.root / "containers", [settings.cdi_dir])
        self._pods = Informer(
            client, PODS, field_selector=f"spec.nodeName={settings.node_name}", on_change=self._pod_changed
        )

    def prepared(self, pod: Pod) -> Mapping[ClaimRef, tuple[ReportedDevice, ...]]:
        """Return the devices that drivers prepared for each claim of a pod."""
        return self._claims.devices(pod)

    def extended_devices(self, pod: Pod) -> Mapping[str, tuple[str, ...]]:
        """Return the devices that a pod has by the device plugin interface, by resource."""
        return self._devices.list_devices(pod.metadata.uid)

    def was_listed(self, pod: Pod) -> bool:
        """Whether the account that plugins have asked for had the pod's devices of the device plugin interface."""
        return self._devices.was_listed(pod.metadata.uid)

    def describe_container(self, pod: JsonObject, name: str) -> str:
        """Return in words what the container of this name would have got, without a name the first; one text."""
        names = [container["name"] for container in pod["spec"].get("containers") or ()]
        return self._containers.describe(pod["metadata"]["uid"], name or names[0])

    def list_uses(self) -> PodUses:
        """Return the claims and the devices of extended resources that pods use.

        Kubelets list claims from Kubernetes 1.34 on.
        """
        claims = () if isinstance(self._kinds, ClassicKinds) else self._list_claim_uses()
        return PodUses(claims=tuple(claims), devices=self._devices.list_uses())

    def _list_claim_uses(self) -> Iterator[ClaimUse]:
        for pod in self._pods.store.values():
            for claim in self._claims.devices(pod):
                yield ClaimUse(claim=ObjectRef(claim.namespace, claim.name), pod=pod.ref)

    async def run(self) -> None:
        await self._wipe_slices()
        await self._register_node()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.plugins.run)
            tasks.start_soon(self._device_plugins.run)
            tasks.start_soon(serve_pod_resources, self._settings.root, self)
            tasks.start_soon(self._pods.run)
            tasks.start_soon(self._heartbeat)
            tasks.start_soon(partial(self._unregistered.run, self._wipe_if_absent, workers=1))
            await self._pods.wait_synced()
            await self._queue.run(self._reconcile, workers=_WORKERS)

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        self._queue.add(change.ref)

    async def _reconcile(self, ref: ObjectRef) -> None:
        pod, started = self._pods.store.get(ref), self._started.get(ref)
        try:
            if started is not None and (pod is None or pod.metadata.uid != started.metadata.uid):
                await self._release(started)  # its predecessor was deleted by force
            if pod is not None and pod.is_terminating:
                await self._terminate(pod)
            elif pod is not None and not pod.is_finished and ref not in self._started:
                await self._start(pod)
        except (KerfError, CDIError) as error:
            about = pod or started
            assert about is not None, "without a pod there was nothing to do"
            reason = "FailedPrepareDynamicResources" if about is pod and not pod.is_terminating else "FailedKillPod"
            self._events.report(reference(about), type="Warning", reason=reason, message=str(error))
            raise

    async def _start(self, pod: Pod) -> None:
        try:
            await self._devices.admit(pod)
        except PodRejectedError as error:
            await self._reject(pod, str(error))
            return
        await self._claims.prepare(pod)
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            allocations = await self._devices.prepare_start(pod, container)
            cdi_ids = (
                *self._claims.cdi_ids(pod, container),
                *(name for one in allocations for name in one.cdi_devices),
            )
            self._containers.start(
                pod,
                container,
                tuple(dict.fromkeys(cdi_ids)),
                environment=build_environment(allocations),
                annotations=build_annotations(allocations),
            )
        if pod.status.phase != "Running":
            await self._set_status(pod, _running_status(pod, format_time(self._clock())))
            self._events.report(reference(pod), type="Normal", reason="Started", message="Started the pod's containers")
        self._started[pod.ref] = pod

    async def _reject(self, pod: Pod, message: str) -> None:
        """Let a pod fail for good that cannot be admitted: only its maker, if it has one, tries again."""
        self._events.report(reference(pod), type="Warning", reason=REJECTED, message=message)
        status: JsonObject = {"phase": "Failed", "reason": REJECTED, "message": f"Pod was rejected: {message}"}
        await self._set_status(pod, status)

    async def _terminate(self, pod: Pod) -> None:
        await self._release(pod)
        try:
            await self._set_status(pod, {"phase": "Succeeded"})
            await self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace_s=0)
        except (NotFoundError, ConflictError):
            return  # already gone, or replaced by another pod of its name

    async def _release(self, pod: Pod) -> None:
        self._containers.stop(pod)
        await self._claims.unprepare(pod)
        self._devices.remove(pod.metadata.uid)
        self._started.pop(pod.ref, None)

    async def _set_status(self, pod: Pod, status: JsonObject) -> None:
        patch: JsonObject = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        await self._client.patch(
            PODS, pod.metadata.name, patch, type=PatchType.MERGE, namespace=pod.metadata.namespace, subresource="status"
        )

    async def _register_node(self) -> None:
        name = self._settings.node_name
        labels = {"kubernetes.io/hostname": name, **self._settings.labels}
        try:
            await self._client.create(NODES, Node(metadata=ObjectMeta(name=name, labels=labels)))
        except AlreadyExistsError:
            await self._client.patch(NODES, name, {"metadata": {"labels": labels}}, type=PatchType.MERGE)
        await self._report_ready()

    async def _heartbeat(self) -> None:
        """Report the node as ready at intervals, and whenever device plugins list other devices."""
        change = self._device_plugins.changed.next_event
        while True:
            with anyio.move_on_after(_HEARTBEAT_S):
                await change.wait()
            change = self._device_plugins.changed.next_event
            try:
                await self._report_ready()
            except KerfError as error:
                log.warning("cannot report node %s as ready: %s", self._settings.node_name, error)

    async def _report_ready(self) -> None:
        now = format_time(self._clock())
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the stand-in is running"}
        status = {
            "conditions": [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}],
            "capacity": {**_AMOUNTS, **_print(self._device_plugins.count_capacity())},
            "allocatable": {**_AMOUNTS, **_print(self._device_plugins.count_allocatable())},
            "nodeInfo": {"bootID": self._settings.boot_id, "kubeletVersion": self._settings.release},
        }
        await self._client.patch(
            NODES, self._settings.node_name, {"status": status}, type=PatchType.MERGE, subresource="status"
        )

    def _driver_changed(self, name: str, is_registered: bool) -> None:
        for pod in self._pods.store.values():
            self._queue.add(pod.ref)
        if not is_registered:
            self._unregistered.add(name, after_s=self._settings.wipe_after_s)

    async def _wipe_if_absent(self, driver: str) -> None:
        if self.plugins.get(driver) is None:
            log.warning(
                "driver %s was not registered for %s s: deleting its slices", driver, self._settings.wipe_after_s
            )
            await self._wipe_slices(driver)

    async def _wipe_slices(self, driver: str | None = None) -> None:
        if isinstance(self._kinds, ClassicKinds):
            return  # where drivers allocate there are no slices
        selector = f"spec.nodeName={self._settings.node_name}" + (f",spec.driver={driver}" if driver else "")
        kind = self._kinds.resource_slices
        for slice_ in (await self._client.list(kind, field_selector=selector)).items:
            try:
                await self._client.delete(kind, slice_.metadata.name, uid=slice_.metadata.uid)
            except NotFoundError:
                continue


def _print(counts: Mapping[str, int]) -> dict[str, str]:
    return {resource: str(count) for resource, count in counts.items()}


def _running_status(pod: Pod, now: str) -> JsonObject:
    kept = [condition for condition in pod.status.conditions if condition.type not in _READY_CONDITIONS]
    met = [{"type": type_, "status": "True", "lastTransitionTime": now} for type_ in _READY_CONDITIONS]
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": [*to_builtins(kept), *met],
        "containerStatuses": [_container_status(container, now) for container in pod.spec.containers],
    }


def _container_status(container: Container, now: str) -> JsonObject:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": now}},
    }
