"""The kubelet plugin as a process: it hosts the plugin of each chosen family, with one connection to the API server.

Each family is a plugin of its own, with sockets, folder, checkpoint and lock (``instance``). One that fails is started
again with back-off while others go on, and the process is not ready meanwhile; the process ends when all have failed.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import anyio
from anyio import to_thread

from kerf_dra.api.core.v1 import NODES
from kerf_dra.api.errors import KerfError, PermanentError, TransientError
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.kube.api_changes import watch_features
from kerf_dra.driver.kube.discovery import ApiFeatures, ClassicFeatures, discover_any
from kerf_dra.driver.kube.events import EventReporter, report_undone_writes
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.errors import ApiError
from kerf_dra.driver.kube.http.write_history import WriteHistory
from kerf_dra.driver.kubeletplugin.backends.base import OutdatedProcessError
from kerf_dra.driver.kubeletplugin.backends.registry import load_backends
from kerf_dra.driver.kubeletplugin.call_watchdog import HangingCallError
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster, node_reference
from kerf_dra.driver.kubeletplugin.cluster.node_watch import NodeWatch
from kerf_dra.driver.kubeletplugin.cluster.resource_classes import ResourceClassWatch
from kerf_dra.driver.kubeletplugin.cluster.structured import StructuredCluster
from kerf_dra.driver.kubeletplugin.grpc.server import check_path
from kerf_dra.driver.kubeletplugin.handover import InstanceLock
from kerf_dra.driver.kubeletplugin.instance import CHECKS, Instance, Service, acquire_free_lock
from kerf_dra.driver.kubeletplugin.settings import NAME, ProcessSettings, Settings
from kerf_dra.driver.runtime import logs, metrics
from kerf_dra.driver.runtime.boot import read_boot_id
from kerf_dra.driver.runtime.file_lock import FileLock
from kerf_dra.driver.runtime.lifecycle import iter_leaf_errors
from kerf_dra.driver.runtime.probes import Check, Probes

_log = logging.getLogger(__name__)


class ClassicClusterError(PermanentError):
    """The cluster allocates by Kerf's own controller, and is too old for a family.

    The family ``shared`` needs kubelets that take CDI devices from device plugins (``CDI_DEVICES_SINCE``); any other
    one whose devices several nodes reach needs a scheduler that allocates.
    """

    def __init__(self, family: str, since: str) -> None:
        super().__init__(
            f"devices of the family {family} need Kubernetes {since} or later: leave its backend out of this node's "
            "plugin"
        )


class UnknownNodeError(PermanentError):
    """The API server says that it has no Node of the name that the plugin was given."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the API server has no Node {name}: give the plugin the name of its Node (--node-name)")


async def run(settings: ProcessSettings) -> None:
    """Run the kubelet plugin until cancelled. Raises the KerfError that a person has to resolve."""
    boot_id = await to_thread.run_sync(read_boot_id)
    access = await load_access(settings.kubeconfig)
    history = WriteHistory()
    async with Client(access, user_agent=NAME, history=history) as client:
        connector = ClusterConnector(client, settings.node_name, history)
        families = [
            HostedFamily(plugin, connector.connect, boot_id=boot_id, services=connector.list_services(plugin))
            for plugin in settings.plugins
        ]
        async with anyio.create_task_group() as group:
            group.start_soon(connector.run)
            await host(families, settings.probes_address)


async def host(families: Sequence["HostedFamily"], probes_address: str) -> None:
    """Run ``families`` and the probes of their process until cancelled. Raises the error of the last one that fails.

    The probes answer before a family starts, which takes as long as its disk, its cards and the API server take.
    """
    probes = Probes(metrics.REGISTRY)
    for family in families:
        for name, check in family.checks.items():
            probes.add_check(f"{family.name}/{name}", check)
    async with anyio.create_task_group() as group:
        await group.start(probes.serve, probes_address)
        for family in families:
            group.start_soon(family.run, lambda: all(each.has_failed for each in families))


class ClusterConnector:
    """The API server as all families see it: its features, the node and the classes are read once for all of them.

    ``run`` notices what of it changes later.
    """

    def __init__(self, client: Client, node_name: str, history: WriteHistory | None = None) -> None:
        """``history`` is that of the client's writes."""
        self._client = client
        self._history = history or WriteHistory()
        self._node_name = node_name
        self._reading = anyio.Lock()
        self._classes = ResourceClassWatch(client)
        self._events = EventReporter(client, component=NAME, instance=node_name)
        self._features: ApiFeatures | ClassicFeatures | None = None
        self._node: NodeWatch | None = None
        self._has_read = anyio.Event()

    async def run(self) -> None:
        """Follow what was read for the first family, until cancelled.

        Raises ApiChangedError when the API server has become another one: the process is to start again.
        """
        await self._has_read.wait()
        async with anyio.create_task_group() as group:
            if self._features is not None and self._node is not None:
                group.start_soon(self._events.run)
                group.start_soon(self._node.run, self._events)
                group.start_soon(report_undone_writes, self._history, self._events, node_reference(self._node.node))
                await watch_features(self._client, self._features)

    def list_services(self, settings: Settings) -> Sequence[Service]:
        """Return what a family's plugin does beside the work on claims."""
        return (_DiscoveryService(settings, self._client),) if settings.driver_name == SHARED.driver else ()

    async def connect(self, settings: Settings) -> Cluster:
        """Return the cluster as soon as the API server answers. Raises KerfError for what waiting does not resolve."""
        for delay_s in settings.retry.delays():
            try:
                return await self._connect(settings)
            except (TransientError, ApiError) as error:
                if isinstance(error, PermanentError):
                    raise
                _log.warning("cannot reach the API server yet: %s", error)
                await anyio.sleep(delay_s)
        raise AssertionError("delays never end")

    async def _connect(self, settings: Settings) -> Cluster:
        """Choose the way of publishing by what the API server serves."""
        async with self._reading:
            if self._features is None:
                self._features = await discover_any(self._client)
            if self._node is None:
                found = await self._client.find(NODES, self._node_name)
                if found is None:
                    raise UnknownNodeError(self._node_name)
                self._node = NodeWatch(self._client, found)
                self._has_read.set()
        if isinstance(self._features, ApiFeatures):
            return await StructuredCluster.connect(self._client, self._features, self._node, settings, self._classes)
        return self._connect_classic(self._features, self._node, settings)

    def _connect_classic(self, features: ClassicFeatures, node: NodeWatch, settings: Settings) -> Cluster:
        # The modules are needed only before Kubernetes 1.32.
        from kerf_dra.driver.kubeletplugin.cluster import discovered_device_objects
        from kerf_dra.driver.kubeletplugin.cluster.classic import ClassicCluster

        kind = ClassicCluster
        if settings.driver_name == SHARED.driver:
            if features.kubernetes < discovered_device_objects.CDI_DEVICES_SINCE:
                raise ClassicClusterError(settings.family.name, "1.29")
            kind = discovered_device_objects.DiscoveredDeviceCluster
        elif settings.family.is_network_attached:
            raise ClassicClusterError(settings.family.name, "1.32")
        return kind(self._client, features, node, settings, now=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class _DiscoveryService:
    """The discovery of devices of the family ``shared``."""

    settings: Settings
    client: Client

    async def run(self) -> None:
        """Have discovery handlers look for devices, until cancelled."""
        from kerf_dra.driver.kubeletplugin.discovery_handlers import service  # no other family needs its modules

        await service.run_discovery(self.settings, self.client)


class HostedFamily:
    """The plugin of one family in a process that may host others."""

    def __init__(
        self,
        settings: Settings,
        connect: Callable[[Settings], Awaitable[Cluster]],
        *,
        boot_id: str,
        services: Sequence[Service] = (),
    ) -> None:
        """``services`` run while this process has the active instance of the family."""
        self.name = settings.family.name
        self.has_failed = False
        """Whether it has failed, and has not started again since."""
        self._settings = settings
        self._connect = connect
        self._boot_id = boot_id
        self._services = services
        self._problem: str | None = "it is starting"
        self._has_run = False
        self._instance: Instance | None = None
        self.checks: Mapping[str, Check] = {
            "start": lambda: self._problem,
            **{name: partial(self._check, name) for name in CHECKS},
        }
        """The readiness checks, by name."""

    async def run(self, have_all_failed: Callable[[], bool]) -> None:
        """Run until cancelled, with back-off after an error while not all families of the process have failed.

        Raises the KerfErrors that end this family's plugin when they have, OutdatedProcessError, HangingCallError, and
        any error that is no KerfError: a fault of the program, after which nothing is known about its state.
        """
        with logs.context(node=self._settings.node_name, driver=self._settings.driver_name):
            while True:
                for delay_s in self._settings.retry.delays():
                    self._has_run = False
                    try:
                        await self._run_once()
                    except Exception as error:
                        self._instance = None
                        self.has_failed = True
                        problem = _problem_of(error)
                        if problem is None or have_all_failed() or _takes_another_process(error):
                            raise
                        self._note(problem)
                    await anyio.sleep(delay_s)
                    if self._has_run:
                        break

    async def _run_once(self) -> None:
        check_path(self._settings.dra_socket)
        check_path(self._settings.registration_socket)
        instance_lock, free_lock = await to_thread.run_sync(self._acquire_lock)
        with free_lock or nullcontext() as lock:
            backends = load_backends(self._settings.family, self._settings.backends)
            cluster = await self._connect(self._settings)
            self._instance = Instance(
                self._settings, cluster, backends, instance_lock, boot_id=self._boot_id, services=self._services
            )
            async with anyio.create_task_group() as group:
                await group.start(self._instance.run, lock)
                self._started()

    def _acquire_lock(self) -> tuple[InstanceLock, FileLock | None]:
        instance_lock = InstanceLock(self._settings.state, self._settings.profile)
        return instance_lock, acquire_free_lock(self._settings, instance_lock, boot_id=self._boot_id)

    def _check(self, name: str) -> str | None:
        return self._instance.checks[name]() if self._instance is not None else None

    def _note(self, problem: str) -> None:
        if problem != self._problem:  # each try fails alike: one line is enough
            _log.error("family %s does not run, and is tried again and again: %s", self.name, problem)
        self._problem = problem

    def _started(self) -> None:
        if self.has_failed:
            _log.info("family %s runs now", self.name)
        self.has_failed = False
        self._has_run = True
        self._problem = None


def _takes_another_process(error: Exception) -> bool:
    return any(isinstance(leaf, OutdatedProcessError | HangingCallError) for leaf in iter_leaf_errors(error))


def _problem_of(error: Exception) -> str | None:
    """Return what a person has to resolve; None: ``error`` is, or contains, a fault of the program."""
    leaves = list(iter_leaf_errors(error))
    return "; ".join(dict.fromkeys(map(str, leaves))) if all(isinstance(leaf, KerfError) for leaf in leaves) else None
