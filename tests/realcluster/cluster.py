"""A cluster: up, down, and its nodes, with and without a kubelet."""

import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Final, Self

import aiohttp
import anyio
import msgspec
import yaml

from tests.realcluster import documents, instances, parts
from tests.realcluster.api import Api, Document, StatusError
from tests.realcluster.builds import build
from tests.realcluster.image import write_image
from tests.realcluster.machine import Machine
from tests.realcluster.parts import Plan
from tests.realcluster.places import ROOTS, NodePlaces, Places, Ports, free_ports
from tests.realcluster.processes import Processes
from tests.realcluster.versions import VERSIONS, KubernetesVersion, find

READY_S: Final = 120.0
"""For the control plane or a node to be ready: 4 s and 10 s when nothing else runs on the machine."""
_POLL_S: Final = 0.1
_PRIVATE: Final = 0o700
"""Tokens and keys lie below: only root may look."""
_CONTROL_PLANE: Final = ("etcd", "apiserver", "controller-manager", "scheduler")


class NotReadyError(RuntimeError):
    """A part did not become ready in time; the message has the end of its log."""


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """What ``cluster.json`` remembers."""

    release: str
    ports: Ports
    pod_network: str
    nodes: tuple[str, ...]
    bare_nodes: tuple[str, ...]


class Cluster:
    """One cluster. Everything that it starts is remembered in its folder, so that another process can end it."""

    def __init__(self, places: Places, state: _State) -> None:
        self.places = places
        self.version = find(state.release)
        self.nodes = state.nodes
        """Those with a kubelet."""
        self.bare_nodes = state.bare_nodes
        self.processes = Processes(places.pids, places.logs)
        self.ports = state.ports
        self._state = state

    @cached_property
    def _plan(self) -> Plan:
        """Raises BuildError: only what starts a part needs its program."""
        return Plan(
            version=self.version,
            programs=build(self.version),
            places=self.places,
            ports=self.ports,
            has_bare_nodes=bool(self.bare_nodes),
        )

    @classmethod
    def planned(
        cls,
        version: KubernetesVersion,
        *,
        nodes: Sequence[str],
        bare_nodes: Sequence[str] = (),
        instance: int = instances.BY_HAND,
    ) -> Self:
        """A new cluster, not up yet. ``instance`` tells those of one release that run at the same time apart."""
        build(version)  # or fails, before anything of the cluster is there
        state = _State(
            release=version.release,
            ports=free_ports(),
            pod_network=_pod_network(version, instance),
            nodes=tuple(nodes),
            bare_nodes=tuple(bare_nodes),
        )
        return cls(_places(version, instance), state)

    @classmethod
    def existing(cls, places: Places) -> Self:
        """The cluster that was started there. Raises FileNotFoundError when there is none."""
        return cls(places, msgspec.json.decode(places.state.read_bytes(), type=_State))

    @property
    def kubeconfig(self) -> Path:
        """For an administrator."""
        return self.places.kubeconfig("admin")

    @property
    def server(self) -> str:
        return self._plan.server

    def node_places(self, name: str) -> NodePlaces:
        return self.places.node(name)

    def machine(self, node: str) -> Machine:
        return Machine(self.processes, self.node_places(node))

    async def up(self) -> None:
        """Start everything and wait until it is ready. Raises NotReadyError and PartDiedError."""
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
                if self.bare_nodes:  # nobody watches nodes: see Plan.has_bare_nodes
                    await _let_pods_in(api, name)
            await self._wait("controller-manager", lambda: _has_default_account(api))

    async def down(self) -> None:
        """End everything and remove the folder, so nobody needs to end in good order; fine when nothing runs."""
        for name in self.nodes:
            await self.machine(name).scrap()
        await self.processes.kill_all()
        shutil.rmtree(self.places.root, ignore_errors=True)

    def start_part(self, name: str) -> None:
        """Start a part of the control plane."""
        command = {
            "etcd": parts.etcd,
            "apiserver": parts.api_server,
            "controller-manager": parts.controller_manager,
            "scheduler": parts.scheduler,
        }[name](self._plan)
        self.processes.start(name, command)

    async def wait_served(self) -> None:
        """The API server answers and says that it is ready."""

        async def is_ready() -> bool:
            async with Api(self.kubeconfig) as api:
                return bool(await api.request("GET", "/readyz"))

        await self._wait("apiserver", is_ready)

    async def boot_node(self, name: str) -> None:
        """Switch the node's machine on and start what its operating system would."""
        await self.machine(name).switch_on()
        await self.start_containerd(name)
        self.machine(name).run(parts.import_image(self._plan, self.node_places(name), self.places.image))
        self.start_kubelet(name)

    async def power_off(self, name: str) -> None:
        """Switch the node's machine off."""
        await self.machine(name).switch_off()
        for part in (f"{name}-containerd", f"{name}-kubelet"):
            await self.processes.kill(part)

    async def start_containerd(self, name: str) -> None:
        places, part = self.node_places(name), f"{name}-containerd"
        places.containerd_socket.unlink(missing_ok=True)
        programs = self._plan.programs.containerd
        self.machine(name).start(part, parts.containerd(self._plan, places), path=[programs])
        listing = [str(programs / "ctr"), f"--address={places.containerd_socket}", "version"]

        async def answers() -> bool:
            try:
                self.machine(name).run(listing)
            except subprocess.CalledProcessError:
                return False
            return True

        await self._wait(part, answers)

    def start_kubelet(self, name: str) -> None:
        self.machine(name).start(f"{name}-kubelet", parts.kubelet(self._plan, self.node_places(name)))

    async def wait_node_ready(self, api: Api, name: str) -> None:
        async def is_ready() -> bool:
            node = await api.find("v1", "Node", name)
            conditions = (node or {}).get("status", {}).get("conditions", ())
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        await self._wait(f"{name}-kubelet", is_ready)

    def kubectl(self, *arguments: str) -> Sequence[str]:
        """The command line of the real kubectl, as administrator."""
        folder = self.places.root / "kubectl-cache"
        own = [f"--kubeconfig={self.kubeconfig}", f"--cache-dir={folder}"]
        return [str(self._plan.programs.kube), "kubectl", *own, *arguments]

    def write_kubeconfig(self, user: str, credentials: dict[str, str], *, server: str = "") -> Path:
        """A kubeconfig for a user of that name: ``token``, or ``tokenFile``; ``server``: instead of the API server."""
        path = self.places.kubeconfig(user)
        document = documents.kubeconfig(server or self.server, self.places.authority, credentials)
        path.write_text(yaml.safe_dump(document))
        return path

    def _write_documents(self) -> None:
        places = self.places
        places.root.parent.mkdir(mode=_PRIVATE, exist_ok=True)
        places.root.mkdir(mode=_PRIVATE)
        places.state.write_bytes(msgspec.json.encode(self._state))
        _write_key(places.account_key)
        users = {name: secrets.token_hex(16) for name in documents.USERS}
        kubelets = {name: secrets.token_hex(16) for name in self.nodes}
        places.tokens.write_text(documents.tokens(users, kubelets))
        for name, token in {**users, **kubelets}.items():
            self.write_kubeconfig(name, {"token": token})
        write_image(documents.IMAGE, places.image)
        for name in self.nodes:
            self._write_node_documents(self.node_places(name))

    def _write_node_documents(self, node: NodePlaces) -> None:
        for directory in (node.root, node.cdi, node.cni):
            directory.mkdir()
        kubelet = documents.kubelet(self.version, node, self.ports.kubelet)
        node.kubelet_config.write_text(yaml.safe_dump(kubelet))
        node.containerd_config.write_text(documents.containerd(node, shutil.which("runc") or "runc"))
        cni = documents.cni(node, self._state.pod_network)
        (node.cni / "10-ptp.conflist").write_bytes(msgspec.json.encode(cni))

    async def _wait(self, part: str, condition: Callable[[], Awaitable[bool]]) -> None:
        """Until ``condition`` holds, while ``part`` runs."""
        with anyio.move_on_after(READY_S):
            while True:
                self.processes.pid(part)
                try:
                    if await condition():
                        return
                except (aiohttp.ClientError, StatusError, OSError):
                    pass
                await anyio.sleep(_POLL_S)
        raise NotReadyError(f"{part} is not ready after {READY_S:.0f} s; its log ends:\n{self.processes.tail(part)}")


@asynccontextmanager
async def running(
    version: KubernetesVersion,
    *,
    nodes: Sequence[str] = ("node1",),
    bare_nodes: Sequence[str] = (),
) -> AsyncIterator[Cluster]:
    """A cluster for as long as the context lasts, whatever else runs; one that an interrupted run has left is ended."""
    ROOTS.mkdir(mode=_PRIVATE, exist_ok=True)
    with instances.free_instance(ROOTS, version.minor) as instance:
        await end_leftover(version, instance)
        cluster = Cluster.planned(version, nodes=nodes, bare_nodes=bare_nodes, instance=instance)
        try:
            await cluster.up()
            yield cluster
        finally:
            with anyio.CancelScope(shield=True):
                await cluster.down()


async def end_leftover(version: KubernetesVersion, instance: int = instances.BY_HAND) -> None:
    """End the cluster that somebody has left."""
    places = _places(version, instance)
    if places.state.exists():
        await Cluster.existing(places).down()


def _places(version: KubernetesVersion, instance: int) -> Places:
    return Places(ROOTS / (f"{version.minor}-{instance}" if instance else version.minor))


def _pod_network(version: KubernetesVersion, instance: int) -> str:
    """One for each cluster that may run at the same time: pods are reached by a route of the host for each address."""
    return f"10.88.{VERSIONS.index(version) * instances.COUNT + instance}.0/24"


async def add_bare_node(api: Api, name: str) -> None:
    """A Node that says it is ready; pods that go there stay Pending for ever."""
    labels = {"kubernetes.io/hostname": name}
    await api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    resources = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    ready = {"type": "Ready", "status": "True", "reason": "Pretended", "message": "this node has no kubelet"}
    status: Document = {"status": {"capacity": resources, "allocatable": resources, "conditions": [ready]}}
    await api.patch("v1", "Node", name, status, subresource="status")
    await _let_pods_in(api, name)


async def _let_pods_in(api: Api, name: str) -> None:
    """Take away the taint of a node that is not ready, as the node lifecycle controller does when it is."""
    await api.patch("v1", "Node", name, {"spec": {"taints": None}})


async def _has_default_account(api: Api) -> bool:
    """Pods can be created only when their namespace has it."""
    return await api.find("v1", "ServiceAccount", "default", "default") is not None


def _write_key(path: Path) -> None:
    """An RSA key for service-account tokens."""
    subprocess.run(["openssl", "genrsa", "-out", str(path), "2048"], check=True, capture_output=True)


__all__ = ["Cluster", "NotReadyError", "add_bare_node", "end_leftover", "running"]
