"""The embedded cluster: API server, ResourceClaim controller, scheduler, and one kubelet stand-in for each node.

Each part is a client of the API server over HTTP, as in a real cluster; nothing here knows Kerf.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
import yaml
from anyio.abc import TaskGroup, TaskStatus

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.resource.kinds import ResourceKinds
from kerf_dra.driver.kube.discovery import discover, discover_classic
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from kerf_dra.driver.local.controllers.resource_claims import ClaimController, classic_lifecycle, structured_lifecycle
from kerf_dra.driver.local.controllers.workloads import WorkloadController
from kerf_dra.driver.local.kubelet import Kubelet, KubeletSettings
from kerf_dra.driver.local.scheduler.classic import ClassicScheduler
from kerf_dra.driver.local.scheduler.structured import Scheduler

_ESTABLISH_S: Final = 60.0
"""The time for the API server to establish a new kind, which it does at once, on a machine that is busy as well."""
_POLL_S: Final = 0.02
"""Seconds between two requests for a definition that is not established yet."""
_FIELD_MANAGER: Final = "local-cluster"
_CLASSIC_SETTINGS: Final = ApiServerSettings(kubernetes=(1, 30), resource_versions=("v1alpha2",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The parts of an embedded cluster."""

    root: Path
    """A folder of the cluster's own, with a short path: the sockets of its nodes lie below."""
    nodes: tuple[str, ...]
    crds: Sequence[JsonObject] = ()
    """The CustomResourceDefinitions that exist from the start."""
    classic: bool = False
    """Whether it is Kubernetes 1.30, where drivers allocate (KEP-3063)."""


class LocalCluster:
    """One embedded cluster; its addresses are known once ``run`` has started."""

    def __init__(self, settings: ClusterSettings, *, share_id: Callable[[], str], boot_id: Callable[[], str]) -> None:
        self._settings = settings
        self._share_id = share_id
        self._boot_id = boot_id
        served = _CLASSIC_SETTINGS if settings.classic else ApiServerSettings()
        self.server = ApiServer(settings=served, pod_log=self._pod_log)
        self.kubelets: Mapping[str, Kubelet] = {}

    @property
    def kubeconfig(self) -> Path:
        return self._settings.root / "kubeconfig"

    def kubelet_root(self, node: str) -> Path:
        return self._settings.root / node / "kubelet"

    def device_plugins_dir(self, node: str) -> Path:
        """The folder of the device plugin interface: of the kubelet's socket for registrations, and of plugins' own."""
        return self.kubelet_root(node) / "device-plugins"

    def cdi_dir(self, node: str) -> Path:
        return self._settings.root / node / "cdi"

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Run until cancelled."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.server.serve)
            self.kubeconfig.touch(mode=0o600)  # it holds the token
            self.kubeconfig.write_text(yaml.safe_dump(self.server.kubeconfig()))
            async with Client(await load_access(self.kubeconfig), user_agent="kerf-local") as client:
                await self._install_kinds(client)
                events = EventReporter(client, component="local-cluster", instance="local-cluster")
                tasks.start_soon(events.run)
                kinds = await self._start_control_plane(client, events, tasks)
                self.kubelets = {
                    node: Kubelet(client, kinds, events, self._kubelet_settings(node)) for node in self._settings.nodes
                }
                for kubelet in self.kubelets.values():
                    tasks.start_soon(kubelet.run)
                task_status.started()
                await anyio.sleep_forever()

    async def _start_control_plane(
        self, client: Client, events: EventReporter, tasks: TaskGroup
    ) -> ResourceKinds | ClassicKinds:
        """Start the controllers, and those of the generation of DRA that discovery finds: who allocates differs."""
        tasks.start_soon(WorkloadController(client).run)
        classic = await discover_classic(client)
        if classic is not None:
            tasks.start_soon(ClaimController(client, classic_lifecycle(classic.resource), events).run)
            tasks.start_soon(ClassicScheduler(client, classic.resource, events).run)
            return classic.resource
        api = await discover(client)
        tasks.start_soon(ClaimController(client, structured_lifecycle(api.resource), events).run)
        tasks.start_soon(Scheduler(client, api, events, share_id=self._share_id).run)
        return api.resource

    def _pod_log(self, pod: JsonObject, container: str) -> str:
        """Return what stands for the log of a container: what it would have got."""
        kubelet = self.kubelets.get((pod.get("spec") or {}).get("nodeName") or "")
        found = kubelet.describe_container(pod, container) if kubelet else "The pod is on no node yet.\n"
        return f"No container runs in this cluster, so this is no log.\n{found}"

    def _kubelet_settings(self, node: str) -> KubeletSettings:
        settings = KubeletSettings(
            node_name=node, root=self.kubelet_root(node), cdi_dir=self.cdi_dir(node), boot_id=self._boot_id(), labels={}
        )
        return replace(settings, versions=("1.0.0",), release="v1.30.14") if self._settings.classic else settings

    async def _install_kinds(self, client: Client) -> None:
        for crd in self._settings.crds:
            installed = await client.apply(CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager=_FIELD_MANAGER)
            with anyio.fail_after(_ESTABLISH_S):
                while not installed.is_established:
                    await anyio.sleep(_POLL_S)
                    installed = await client.get(CUSTOM_RESOURCE_DEFINITIONS, installed.metadata.name)
