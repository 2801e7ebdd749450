"""A cluster: starting and ending it, and its nodes with and without a kubelet."""

import ipaddress
import os
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Self

import aiohttp
import anyio
import msgspec
import yaml

from tools.realcluster import documents, instances, parts
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.builds import build
from tools.realcluster.image import write_image
from tools.realcluster.machine import Machine
from tools.realcluster.parts import Plan
from tools.realcluster.paths import ROOTS, ClusterPaths, NodePaths, Ports, free_port, free_ports
from tools.realcluster.processes import Processes
from tools.realcluster.versions import VERSIONS, KubernetesVersion, find

_READY_S: Final = 120.0
"""The time limit for the control plane or a node on an idle machine, where they take 4 s and 10 s."""
_MOST_LOAD: Final = 5.0
"""The load per core that waiting times follow: with more, something else is wrong, and tests have a limit, too."""
_NODE_PREFIX: Final = 26
"""Four nodes with a kubelet in a cluster, and 61 pods on each: more than two cores can run."""
_POLL_S: Final = 0.1
_PRIVATE: Final = 0o700
"""The mode of folders with tokens and keys, which only root may read."""
_CONTROL_PLANE: Final = ("etcd", "apiserver", "controller-manager", "scheduler")


class NotReadyError(RuntimeError):
    """A part did not become ready in time; the message has the end of its log."""


def ready_s(load: float | None = None, cores: int | None = None) -> float:
    """Return the time limit for whatever becomes ready, which follows the load: other clusters may start beside.

    The arguments are those of ``load_factor``.
    """
    return _READY_S * load_factor(load, cores)


def load_factor(load: float | None = None, cores: int | None = None) -> float:
    """Return by what to multiply the time limits of an idle machine: the load of each core, at least 1.

    ``load`` is the number of processes that want to run; by default what the kernel says now.
    """
    per_core = (os.getloadavg()[0] if load is None else load) / (cores or os.cpu_count() or 1)
    return min(max(per_core, 1.0), _MOST_LOAD)


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``cluster.json``."""

    release: str
    ports: Ports
    pod_network: str
    service_network: str
    nodes: tuple[str, ...]
    bare_nodes: tuple[str, ...]


class Cluster:
    """One cluster. Whatever it starts is recorded in its folder, so that another process can end it."""

    def __init__(self, paths: ClusterPaths, state: _State) -> None:
        self.paths = paths
        self.version = find(state.release)
        self.nodes = state.nodes
        """The nodes with a kubelet."""
        self.bare_nodes = state.bare_nodes
        self.processes = Processes(paths.pids, paths.logs)
        self.ports = state.ports
        self._state = state
        self._plans: dict[str, Plan] = {}

    @property
    def _plan(self) -> Plan:
        """What the command lines depend on. Raises BuildError when the programs cannot be built."""
        if self.version.release not in self._plans:
            self._plans[self.version.release] = Plan(
                version=self.version,
                programs=build(self.version),
                paths=self.paths,
                ports=self.ports,
                service_network=self._state.service_network,
                has_bare_nodes=bool(self.bare_nodes),
            )
        return self._plans[self.version.release]

    @classmethod
    def planned(
        cls,
        version: KubernetesVersion,
        *,
        nodes: Sequence[str],
        bare_nodes: Sequence[str] = (),
        instance: int = instances.BY_HAND,
    ) -> Self:
        """Return a new cluster, not yet started. ``instance`` distinguishes concurrent clusters of one release."""
        build(version)  # or fails, before anything of the cluster is there
        state = _State(
            release=version.release,
            ports=free_ports(),
            pod_network=_network("10.88", version, instance),
            service_network=_network("10.97", version, instance),
            nodes=tuple(nodes),
            bare_nodes=tuple(bare_nodes),
        )
        return cls(_paths(version, instance), state)

    @classmethod
    def existing(cls, paths: ClusterPaths) -> Self:
        """Return the cluster that was started in ``paths``. Raises FileNotFoundError when there is none."""
        return cls(paths, msgspec.json.decode(paths.state.read_bytes(), type=_State))

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator."""
        return self.paths.kubeconfig("admin")

    @property
    def server(self) -> str:
        return self._plan.server

    @property
    def service_address(self) -> str:
        """The address at which pods look for the API server, port 443: see ``pod_access``."""
        return str(next(ipaddress.ip_network(self._state.service_network).hosts()))

    def import_image(self, node: str, archive: Path) -> None:
        """Give the containers of a node an image. Raises CalledProcessError."""
        self.machine(node).run(parts.import_image(self._plan, self.node_paths(node), archive))

    def list_containers(self, node: str) -> frozenset[tuple[str, str, str]]:
        """Return ID, process and state of each container and sandbox of a node, as containerd lists them.

        Raises CalledProcessError.
        """
        _, *lines = self.machine(node).run(parts.list_containers(self._plan, self.node_paths(node))).splitlines()
        return frozenset((name, process, state) for name, process, state in (line.split() for line in lines))

    def node_paths(self, name: str) -> NodePaths:
        return self.paths.node(name)

    def machine(self, node: str) -> Machine:
        return Machine(self.processes, self.node_paths(node))

    async def up(self) -> None:
        """Start everything and wait until it is ready.

        Raises NotReadyError when a part is not ready in time, and PartDiedError when one ends.
        """
        self._write_documents()
        for part in _CONTROL_PLANE[:2]:
            self.start_part(part)
        await self.wait_served()
        for part in _CONTROL_PLANE[2:]:
            self.start_part(part)
        async with Api(self.kubeconfig) as api:
            async with anyio.create_task_group() as group:
                for name in self.bare_nodes:
                    group.start_soon(add_bare_node, api, name)
            for name in self.nodes:
                await self.boot_node(name)
            for name in self.nodes:
                await self.wait_node_ready(api, name)
                if self.bare_nodes:  # no controller watches nodes: see Plan.has_bare_nodes
                    await _remove_not_ready_taint(api, name)
            await self._wait("controller-manager", lambda: _has_default_account(api))

    async def down(self) -> None:
        """Kill everything and remove the folder; does nothing when nothing runs."""
        for name in self.nodes:
            await self.machine(name).remove()
        await self.processes.kill_all()
        shutil.rmtree(self.paths.root, ignore_errors=True)

    def start_part(self, name: str) -> None:
        """Start a part of the control plane."""
        command = {
            "etcd": parts.etcd,
            "apiserver": parts.api_server,
            "controller-manager": parts.controller_manager,
            "scheduler": parts.scheduler,
        }[name](self._plan)
        self.processes.start(name, command)

    def choose_release(self, version: KubernetesVersion) -> None:
        """Have the parts that are started from now on be of another release, over the same etcd; what runs goes on.

        Raises BuildError when its programs cannot be built.
        """
        build(version)
        self.version = version
        for name in self.nodes:
            file = self.node_paths(name).kubelet_config
            port = yaml.safe_load(file.read_text())["port"]
            file.write_text(yaml.safe_dump(documents.kubelet(version, self.node_paths(name), port)))

    async def restart_control_plane(self) -> None:
        """Stop and start API server, controllers and scheduler, in the order of an upgrade (version skew policy)."""
        for part in _CONTROL_PLANE[1:]:
            await self.processes.stop(part)
            self.start_part(part)
            if part == "apiserver":
                await self.wait_served()

    async def restart_kubelet(self, name: str) -> None:
        await self.processes.stop(f"{name}-kubelet")
        self.start_kubelet(name)

    async def configure_scheduler(self, profiles: Sequence[Document], extenders: Sequence[Document] = ()) -> None:
        """Start the scheduler again with these profiles and extenders (KubeSchedulerConfiguration)."""
        document = documents.scheduler(self.paths.kubeconfig("scheduler"), profiles, extenders)
        self.paths.scheduler_config.write_text(yaml.safe_dump(document))
        await self.processes.stop("scheduler")
        self.start_part("scheduler")

    async def wait_served(self) -> None:
        """Wait until the API server reports that it is ready."""

        async def is_ready() -> bool:
            async with Api(self.kubeconfig) as api:
                return bool(await api.request("GET", "/readyz"))

        await self._wait("apiserver", is_ready)

    async def boot_node(self, name: str) -> None:
        """Switch the node's machine on and start containerd and the kubelet."""
        await self.machine(name).switch_on()
        await self.start_containerd(name)
        self.machine(name).run(parts.import_image(self._plan, self.node_paths(name), self.paths.image))
        self.start_kubelet(name)

    async def power_off(self, name: str) -> None:
        """Switch the node's machine off."""
        await self.machine(name).switch_off()
        for part in (f"{name}-containerd", f"{name}-kubelet"):
            await self.processes.kill(part)

    async def start_containerd(self, name: str) -> None:
        paths, part = self.node_paths(name), f"{name}-containerd"
        paths.containerd_socket.unlink(missing_ok=True)
        programs = self._plan.programs.containerd
        self.machine(name).start(part, parts.containerd(self._plan, paths), path=[programs])
        listing = [str(programs / "ctr"), f"--address={paths.containerd_socket}", "version"]

        async def answers() -> bool:
            try:
                self.machine(name).run(listing)
            except subprocess.CalledProcessError:
                return False
            return True

        await self._wait(part, answers)

    def start_kubelet(self, name: str) -> None:
        self.machine(name).start(f"{name}-kubelet", parts.kubelet(self._plan, self.node_paths(name)))

    async def wait_node_ready(self, api: Api, name: str) -> None:
        async def is_ready() -> bool:
            node = await api.find("v1", "Node", name)
            conditions = (node or {}).get("status", {}).get("conditions", ())
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        await self._wait(f"{name}-kubelet", is_ready)

    def kubectl(self, *arguments: str) -> Sequence[str]:
        """Return the command line of the real kubectl as administrator."""
        folder = self.paths.root / "kubectl-cache"
        own = [f"--kubeconfig={self.kubeconfig}", f"--cache-dir={folder}"]
        return [str(self._plan.programs.kube), "kubectl", *own, *arguments]

    def write_kubeconfig(self, user: str, credentials: dict[str, str], *, server: str = "") -> Path:
        """Write a kubeconfig for ``user`` with a ``token`` or ``tokenFile``; ``server`` replaces the API server's
        address."""
        path = self.paths.kubeconfig(user)
        document = documents.kubeconfig(server or self.server, self.paths.authority, credentials)
        path.write_text(yaml.safe_dump(document))
        return path

    def _write_documents(self) -> None:
        paths = self.paths
        paths.root.parent.mkdir(mode=_PRIVATE, exist_ok=True)
        paths.root.mkdir(mode=_PRIVATE)
        paths.state.write_bytes(msgspec.json.encode(self._state))
        _write_key(paths.account_key)
        users = {name: secrets.token_hex(16) for name in documents.USERS}
        kubelets = {name: secrets.token_hex(16) for name in self.nodes}
        paths.tokens.write_text(documents.tokens(users, kubelets))
        for name, token in {**users, **kubelets}.items():
            self.write_kubeconfig(name, {"token": token})
        write_image(documents.IMAGE, paths.image)
        for number, name in enumerate(self.nodes):
            self._write_node_documents(number, self.node_paths(name))

    def _write_node_documents(self, number: int, node: NodePaths) -> None:
        for directory in (node.root, node.cdi, node.cni):
            directory.mkdir()
        kubelet = documents.kubelet(self.version, node, free_port() if number else self.ports.kubelet)
        node.kubelet_config.write_text(yaml.safe_dump(kubelet))
        node.containerd_config.write_text(documents.containerd(node, shutil.which("runc") or "runc"))
        cni = documents.cni(node, _node_network(self._state.pod_network, number))
        (node.cni / "10-ptp.conflist").write_bytes(msgspec.json.encode(cni))

    async def _wait(self, part: str, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until ``condition`` holds. Raises PartDiedError when ``part`` ends, and NotReadyError after
        ``ready_s``."""
        limit_s = ready_s()
        with anyio.move_on_after(limit_s):
            while True:
                self.processes.pid(part)
                try:
                    if await condition():
                        return
                except (aiohttp.ClientError, StatusError, OSError):
                    pass
                await anyio.sleep(_POLL_S)
        raise NotReadyError(f"{part} is not ready after {limit_s:.0f} s; its log ends:\n{self.processes.tail(part)}")


@asynccontextmanager
async def running(
    version: KubernetesVersion,
    *,
    nodes: Sequence[str] = ("node1",),
    bare_nodes: Sequence[str] = (),
) -> AsyncIterator[Cluster]:
    """Run a cluster for as long as the context lasts, and end one that an interrupted run has left."""
    ROOTS.mkdir(mode=_PRIVATE, exist_ok=True)
    with instances.free_instance(ROOTS, version.minor) as instance:
        await stop_leftover(version, instance)
        cluster = Cluster.planned(version, nodes=nodes, bare_nodes=bare_nodes, instance=instance)
        try:
            await cluster.up()
            yield cluster
        finally:
            with anyio.CancelScope(shield=True):
                await cluster.down()


async def stop_leftover(version: KubernetesVersion, instance: int = instances.BY_HAND) -> None:
    """End the cluster that an earlier run has left, if there is one."""
    paths = _paths(version, instance)
    if paths.state.exists():
        await Cluster.existing(paths).down()


def _paths(version: KubernetesVersion, instance: int) -> ClusterPaths:
    return ClusterPaths(ROOTS / instances.name_root(version.minor, instance))


def _network(prefix: str, version: KubernetesVersion, instance: int) -> str:
    """Return a network that differs between concurrent clusters: the host has a route to each address of a pod, and may
    have the API server's as a service.
    """
    return f"{prefix}.{VERSIONS.index(version) * instances.COUNT + instance}.0/24"


def _node_network(pod_network: str, number: int) -> str:
    """Return the part of the pod network that the kubelet's node ``number`` gives to its pods."""
    parts = list(ipaddress.ip_network(pod_network).subnets(new_prefix=_NODE_PREFIX))
    return str(parts[number])


async def add_bare_node(api: Api, name: str) -> None:
    """Create a Node that is ready and has no kubelet: pods that are bound to it stay Pending."""
    labels = {"kubernetes.io/hostname": name}
    await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    resources = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    ready = {"type": "Ready", "status": "True", "reason": "Pretended", "message": "this node has no kubelet"}
    status: Document = {"status": {"capacity": resources, "allocatable": resources, "conditions": [ready]}}
    await api.patch("v1", "Node", name, status, subresource="status")
    await _remove_not_ready_taint(api, name)


async def _remove_not_ready_taint(api: Api, name: str) -> None:
    """Remove the taint for nodes that are not ready, as the node lifecycle controller does."""
    await api.patch("v1", "Node", name, {"spec": {"taints": None}})


async def _has_default_account(api: Api) -> bool:
    """Return whether the service account exists without which no pod can be created."""
    return await api.find("v1", "ServiceAccount", "default", "default") is not None


def _write_key(path: Path) -> None:
    """Write an RSA key for service-account tokens."""
    subprocess.run(["openssl", "genrsa", "-out", str(path), "2048"], check=True, capture_output=True)


__all__ = ["Cluster", "NotReadyError", "add_bare_node", "load_factor", "ready_s", "running", "stop_leftover"]
