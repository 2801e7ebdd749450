"""The plugin's parts on one node, wired together: who is given what, what is started in which order, how it ends.

Start: cards, DRA socket, registration, publishing; so nothing is offered that cannot be prepared. End: the kubelet
forgets the plugin, calls in flight end, hardware work in flight ends. Slices stay, for a successor.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

import cdi
from api.dra.registry import SUPPORTED_VERSIONS
from api.errors import PermanentError
from api.model.prepared import PreparedClaim
from api.registration.v1 import PluginInfo
from driver.kubeletplugin.backends.base import Backend
from driver.kubeletplugin.checkpointing import Checkpoint
from driver.kubeletplugin.cluster import Cluster
from driver.kubeletplugin.collecting import Collecting
from driver.kubeletplugin.health import HealthBoard
from driver.kubeletplugin.inventory import Place
from driver.kubeletplugin.inventorying import Inventorying
from driver.kubeletplugin.lanes import Lanes
from driver.kubeletplugin.metadatafiles import FOLDER, MetadataFiles
from driver.kubeletplugin.parts import partition_of
from driver.kubeletplugin.preloading import Preloading
from driver.kubeletplugin.preparing import Preparing
from driver.kubeletplugin.registering import Registering
from driver.kubeletplugin.serving import DraNode, HealthFeed
from driver.kubeletplugin.settings import Settings
from driver.kubeletplugin.sockets import serving_at
from driver.kubeletplugin.stepping import Stepping
from driver.partitions.geometry import Partition
from driver.runtime import metrics
from driver.runtime.backoff import Backoff
from driver.runtime.probes import Probes

_RETRY: Final = Backoff(first_s=0.5, factor=2, limit_s=60, jitter=0.2)
"""For the kubelet and failed backends: soon at first, at most a minute apart."""


class SocketRemovedError(PermanentError):
    """Somebody removed the socket that the plugin serves at."""


async def serve_node(
    settings: Settings,
    cluster: Cluster,
    backends: Sequence[Backend],
    checkpoint: Checkpoint,
    *,
    boot_id: str,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one node with this cluster and this hardware until cancelled; started once it is offered to the kubelet.

    Raises SocketError, and SocketRemovedError for a process that is better started again.
    """
    async with anyio.create_task_group() as works:
        node = _Node(settings, cluster, {backend.name: backend for backend in backends}, checkpoint, boot_id, works)
        try:
            await node.serve(task_status)
        finally:
            with anyio.CancelScope(shield=True):
                await node.preparing.drain(settings.shutdown_grace_s)


def taken(records: Iterable[PreparedClaim]) -> list[Partition]:
    """What claims have of the hardware, each part once; admin access only looks (KEP-5018)."""
    devices = (device for record in records for device in record.devices)
    return list(dict.fromkeys(partition_of(device.part) for device in devices if not device.admin_access))


class _Node:
    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        backends: dict[str, Backend],
        checkpoint: Checkpoint,
        boot_id: str,
        works: TaskGroup,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._backends = backends
        self._checkpoint = checkpoint
        self._boot_id = boot_id
        self._random = Random()  # noqa: S311  (jitter, not a secret)
        self._store = cdi.Store(settings.cdi_dir)
        # In the kubelet's directory: the container runtime must find the files under the path that the plugin has.
        self._metadata = MetadataFiles(settings.plugin_dir / FOLDER)
        self._board = HealthBoard(driver=settings.driver_name, now=time.time)
        self._feed = HealthFeed(
            lambda: self._board.reports(checkpoint.records.values()), interval_s=settings.health_interval_s
        )
        self._inventorying = self._make_inventorying()
        self.preparing = self._make_preparing(works)
        self._collecting = self._make_collecting()
        self._preloading = self._make_preloading()
        self._registering = self._make_registering()
        self._probes = Probes(metrics.REGISTRY)
        self._probes.add_check("cards", lambda: self._inventorying.problem)
        self._probes.add_check("kubelet", lambda: self._registering.problem)

    async def serve(self, task_status: TaskStatus[None]) -> None:
        """In the order of the module's head; contexts end in the reverse order."""
        await self._inventorying.refresh()
        self._collecting.sweep_files()
        handlers = {**DraNode(self.preparing).handlers, **self._feed.handlers}
        async with serving_at(self._settings.dra_socket, handlers, grace_s=self._settings.rpc_grace_s):
            try:
                async with anyio.create_task_group() as services:
                    await services.start(self._probes.serve, self._settings.probes_address)
                    await services.start(self._registering.run)
                    if self._inventorying.inventory.loads_slowly(self._settings.early_load_s):
                        services.start_soon(self._preloading.run)
                        with anyio.move_on_after(self._settings.follow_patience_s):
                            await self._preloading.wait_on()
                    services.start_soon(self._cluster.run, self._inventorying.changed)
                    services.start_soon(self._inventorying.run)
                    services.start_soon(self._collecting.run)
                    services.start_soon(self._guard_socket)
                    for name in self._backends:
                        services.start_soon(self._inventorying.watch_health, name)
                    task_status.started()
            finally:
                self._feed.close()

    def _make_inventorying(self) -> Inventorying:
        return Inventorying(
            place=self._place,
            backends=self._backends,
            taken=lambda: taken(self._checkpoint.records.values()),
            publish=self._cluster.publish,
            board=self._board,
            on_health=self._feed.changed,
            interval_s=self._settings.discovery_interval_s,
            timeout_s=self._settings.discovery_timeout_s,
            backoff=_RETRY,
            random=self._random,
        )

    def _make_preparing(self, works: TaskGroup) -> Preparing:
        driver = self._settings.driver_name
        stepping = Stepping(
            driver=driver,
            boot_id=self._boot_id,
            checkpoint=self._checkpoint,
            lanes=Lanes(self._backends, timeout_s=self._settings.hardware_timeout_s),
            store=self._store,
            metadata=self._metadata,
            on_change=self._claims_changed,
            on_conflict=lambda claim: self._collecting.suspect(claim),
        )
        return Preparing(
            driver=driver,
            boot_id=self._boot_id,
            checkpoint=self._checkpoint,
            stepping=stepping,
            read_claim=self._cluster.read_claim,
            inventory=lambda: self._inventorying.inventory,
            tasks=works,
        )

    def _place(self) -> Place:
        """Conditions are published only while somebody sees to them."""
        early_load_s = self._settings.early_load_s if self._preloading.is_on else None
        return replace(self._cluster.place, early_load_s=early_load_s)

    def _make_preloading(self) -> Preloading:
        return Preloading(
            driver=self._settings.driver_name,
            inventory=lambda: self._inventorying.inventory,
            cluster=self._cluster,
            preparing=self.preparing,
            checkpoint=self._checkpoint,
            board=self._board,
            suspect=self._collecting.suspect,
            on_change=self._inventorying.changed,
            now=time.time,
            patience_s=self._settings.load_patience_s,
            setback_s=self._settings.load_setback_s,
        )

    def _make_collecting(self) -> Collecting:
        return Collecting(
            driver=self._settings.driver_name,
            boot_id=self._boot_id,
            preparing=self.preparing,
            checkpoint=self._checkpoint,
            store=self._store,
            metadata=self._metadata,
            read_claim=self._cluster.read_claim,
            interval_s=self._settings.collect_interval_s,
            grace_s=self._settings.gone_grace_s,
            clock=time.monotonic,
        )

    def _make_registering(self) -> Registering:
        info = PluginInfo(
            name=self._settings.driver_name,
            endpoint=str(self._settings.dra_socket),
            supported_versions=SUPPORTED_VERSIONS,
        )
        return Registering(
            info,
            self._settings.registration_socket,
            silence_s=self._settings.registration_silence_s,
            poll_s=self._settings.socket_poll_s,
            grace_s=self._settings.rpc_grace_s,
            backoff=_RETRY,
            random=self._random,
        )

    def _claims_changed(self) -> None:
        self._inventorying.changed()
        self._feed.changed()

    async def _guard_socket(self) -> None:
        """A process without its socket is useless, and looks alive."""
        while await anyio.Path(self._settings.dra_socket).exists():  # noqa: ASYNC110  (a directory sets no event)
            await anyio.sleep(self._settings.socket_poll_s)
        raise SocketRemovedError(f"{self._settings.dra_socket} was removed: starting again makes a new one")
