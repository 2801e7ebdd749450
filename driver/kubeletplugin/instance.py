"""One instance of one family's plugin: its sockets for its whole life, its work while it is active.

An instance that starts with the instance lock discovers its cards, opens the DRA socket, registers and publishes, in
this order, so that nothing is published that cannot be prepared. One that starts while another is active serves and
registers first, and does the rest after the handover (docs/rolling-update.md). At the end the kubelet forgets the
plugin, calls in flight end, hardware work in flight ends, and the lock is released.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from kerf_dra import cdi
from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.api.errors import PermanentError
from kerf_dra.api.registration.v1 import PluginInfo
from kerf_dra.driver.kubeletplugin.backends.base import Backend
from kerf_dra.driver.kubeletplugin.call_watchdog import CallWatchdog
from kerf_dra.driver.kubeletplugin.claims.cdi_spec import file_prefix
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint, open_checkpoint
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.grpc.device_plugin import DevicePluginServer
from kerf_dra.driver.kubeletplugin.grpc.dra_service import NodeClaimService
from kerf_dra.driver.kubeletplugin.grpc.health_service import HealthFeed
from kerf_dra.driver.kubeletplugin.grpc.pod_resources import PodResourcesClient
from kerf_dra.driver.kubeletplugin.grpc.registration import Registrar
from kerf_dra.driver.kubeletplugin.grpc.server import serving_at, was_removed
from kerf_dra.driver.kubeletplugin.handover import ActiveInstanceProxy, AlreadyRunningError, InstanceLock
from kerf_dra.driver.kubeletplugin.plugin import NodePlugin
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.file_lock import FileLock
from kerf_dra.driver.runtime.notifier import forward
from kerf_dra.driver.runtime.probes import Check

_ACTIVE: Final = metrics.gauge("kerf_instance_active", "1 while this instance is the active one, else 0.", ["driver"])

_log = logging.getLogger(__name__)

CHECKS: Final = ("cards", "kubelet", "handover")
"""The names of an instance's readiness checks."""
HANGING_EXIT_CODE: Final = 70
"""Exit code of a process that ends because a hardware call hangs (``EX_SOFTWARE`` of sysexits.h)."""


def end_process() -> None:
    """End this process at once with all its threads; what it has locked is released when the last of them is gone."""
    os._exit(HANGING_EXIT_CODE)


class Service(Protocol):
    """What a plugin does beside its work on claims."""

    async def run(self) -> None:
        """Work until cancelled."""
        ...


class SocketRemovedError(PermanentError):
    """The socket that the plugin serves at was removed."""


def acquire_free_lock(settings: Settings, instance_lock: InstanceLock, *, boot_id: str) -> FileLock | None:
    """Take the instance lock if it is free; None: another instance holds it, and will be asked to hand over.

    Blocks while files are written and synced: the process calls it in a worker thread. Raises AlreadyRunningError when
    the other one has the same sockets, LockError when the lock cannot be made, and CheckpointError, before anything
    else is begun, when the checkpoint cannot be read.
    """
    try:
        lock = instance_lock.acquire_nowait()
    except AlreadyRunningError:
        if not settings.instance:
            raise
        _log.info("process %s works on this node, it will be asked to hand over", instance_lock.holder)
        return None
    with ExitStack() as on_error:
        on_error.enter_context(lock)
        with _open_checkpoint(settings, boot_id):
            on_error.pop_all()
    return lock


def _open_checkpoint(settings: Settings, boot_id: str) -> AbstractContextManager[Checkpoint]:
    def find_cdi_files() -> Sequence[Path]:
        store = cdi.Store(settings.cdi_dir)
        try:
            return [store.path(name) for name in store.names(file_prefix(settings.driver_name))]
        except cdi.CDIError as error:
            remedy = "without a checkpoint, CDI files show which claims are prepared: make their directory readable"
            raise CheckpointError(str(settings.state), str(error), remedy) from error

    return open_checkpoint(settings.state, boot_id=boot_id, find_cdi_files=find_cdi_files)


@asynccontextmanager
async def _opening_checkpoint(settings: Settings, boot_id: str) -> AsyncIterator[Checkpoint]:
    """Open the checkpoint, and close it at the end, in worker threads: a slow disk takes seconds for what both sync."""
    opened = _open_checkpoint(settings, boot_id)
    checkpoint = await anyio.to_thread.run_sync(opened.__enter__)
    try:
        await anyio.to_thread.run_sync(checkpoint.begin_log)
        yield checkpoint
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(opened.__exit__, None, None, None)


class Instance:
    """One instance of one family's plugin, with sockets of its own."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        backends: Sequence[Backend],
        instance_lock: InstanceLock,
        *,
        boot_id: str,
        services: Sequence[Service] = (),
        end_process: Callable[[], None] = end_process,
    ) -> None:
        """``services`` run, beside the work on claims, while this instance is the active one.

        Tests give ``end_process``, which ends this process at once, with all its threads.
        """
        self._settings = settings
        self._cluster = cluster
        self._backends = {backend.name: backend for backend in backends}
        self._instance_lock = instance_lock
        self._boot_id = boot_id
        self._services = services
        self._end_process = end_process
        self._proxy = ActiveInstanceProxy()
        self._health_feed = HealthFeed(self._proxy, interval_s=settings.health_interval_s)
        self._registrar = self._make_registrar()
        self._plugin: NodePlugin | None = None
        self._was_active = False
        self._active = _ACTIVE.labels(settings.driver_name)
        self.checks: Mapping[str, Check] = {
            "cards": lambda: self._plugin.publisher.problem if self._plugin else None,
            "kubelet": lambda: self._registrar.problem,
            "handover": self._why_not_active,
        }
        """The readiness checks, by name (``CHECKS``)."""
        self._may_serve = anyio.Event()
        self._is_serving = anyio.Event()
        self._work_scope = anyio.CancelScope(shield=True)

    async def run(self, lock: FileLock | None, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; has started once the kubelet can find the instance.

        ``lock`` comes from ``acquire_free_lock``. Raises SocketError, CheckpointError, and SocketRemovedError and
        HangingCallError for a process that is better started again.
        """
        async with anyio.create_task_group() as group:
            try:
                group.start_soon(self._work, lock)
                await self._may_serve.wait()
                await self._serve(task_status)
            finally:
                self._work_scope.cancel()  # the sockets are closed; work in flight gets time to end

    async def _serve(self, task_status: TaskStatus[None]) -> None:
        claims = NodeClaimService(self._proxy, self._cluster.kubelet_services.services)
        handlers = {**claims.handlers, **self._health_feed.handlers}
        async with serving_at(self._settings.dra_socket, handlers, grace_s=self._settings.rpc_grace_s):
            try:
                async with anyio.create_task_group() as services:
                    await services.start(self._registrar.run)
                    services.start_soon(self._guard_socket)
                    self._is_serving.set()
                    task_status.started()
            finally:
                self._health_feed.close()
                self._proxy.close()

    async def _work(self, lock: FileLock | None) -> None:
        """Be active whenever this instance holds the lock."""
        with self._work_scope:
            if lock is None:
                self._may_serve.set()
                lock = await self._instance_lock.acquire(may_request=self._can_be_called)
            while True:
                with lock:
                    await self._work_once()
                _log.info("another instance takes over")
                lock = await self._instance_lock.acquire(may_request=lambda: False)

    async def _work_once(self) -> None:
        async with _opening_checkpoint(self._settings, self._boot_id) as checkpoint, anyio.create_task_group() as tasks:
            pod_resources = PodResourcesClient(self._settings.pod_resources_socket)
            plugin = NodePlugin(
                self._settings,
                self._cluster,
                self._backends,
                checkpoint,
                boot_id=self._boot_id,
                tasks=tasks,
                list_uses=pod_resources.list_uses,
                list_device_uses=pod_resources.list_device_uses,
            )
            try:
                await plugin.initialize()
                self._activate(plugin)
                self._may_serve.set()
                await self._is_serving.wait()
                await self._run_until_requested(plugin)
                self._deactivate()
                await plugin.drain(self._settings.handover_grace_s)
            finally:
                self._deactivate()
                with anyio.CancelScope(shield=True):
                    await plugin.drain(self._settings.shutdown_grace_s)
                    await plugin.close()
                if plugin.card_executor.has_hanging_calls:
                    self._end_watchdog_process(plugin.card_executor.stuck.values())

    def _end_watchdog_process(self, reasons: Iterable[str]) -> None:
        """End the process while it still has the lock: a call that hangs may yet change its card.

        The kernel releases the lock when the last thread is gone, and only then another instance may work on the card.
        """
        _log.critical(
            "the process ends with its hardware calls, as no other instance may start before: %s", "; ".join(reasons)
        )
        self._end_process()

    async def _run_until_requested(self, plugin: NodePlugin) -> None:
        async with anyio.create_task_group() as services:
            services.start_soon(plugin.run)
            services.start_soon(forward, plugin.state.health_changed, self._health_feed.change)
            services.start_soon(CallWatchdog(plugin.card_executor, self._settings).run)
            services.start_soon(DevicePluginServer(self._settings, plugin.allocator).run)
            for service in self._services:
                services.start_soon(service.run)
            await self._instance_lock.wait_for_request()
            services.cancel_scope.cancel()

    def _activate(self, plugin: NodePlugin) -> None:
        self._plugin = plugin
        self._was_active = True
        self._proxy.activate(plugin)
        self._health_feed.change.notify()
        self._active.set(1)

    def _deactivate(self) -> None:
        self._plugin = None
        self._proxy.deactivate()
        self._active.set(0)

    def _why_not_active(self) -> str | None:
        """Return why this instance has not taken over yet; once it has, it is ready and the old one may end."""
        waiting = f"process {self._instance_lock.holder} has not handed over yet"
        return None if self._was_active else waiting

    def _can_be_called(self) -> bool:
        """Whether the kubelet calls this instance, or calls none."""
        return self._is_serving.is_set() and (self._registrar.problem is None or self._registrar.was_silent)

    def _make_registrar(self) -> Registrar:
        info = PluginInfo(
            name=self._settings.driver_name,
            endpoint=str(self._settings.dra_socket),
            supported_versions=self._cluster.kubelet_services.supported_versions,
        )
        return Registrar(
            info,
            self._settings.registration_socket,
            silence_s=self._settings.registration_silence_s,
            poll_s=self._settings.socket_poll_s,
            grace_s=self._settings.rpc_grace_s,
            backoff=self._settings.retry,
        )

    async def _guard_socket(self) -> None:
        """Fail when the socket was removed: the kubelet could no longer call a process that seems to run."""
        socket = self._settings.dra_socket
        while not await anyio.to_thread.run_sync(was_removed, socket):  # noqa: ASYNC110  (a directory sets no event)
            await anyio.sleep(self._settings.socket_poll_s)
        raise SocketRemovedError(f"{self._settings.dra_socket} was removed: starting again makes a new one")
