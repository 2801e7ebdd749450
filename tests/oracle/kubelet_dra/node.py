"""A node with Kerf's plugin, simulated cards and the DRA manager of Kubernetes' kubelet, each of them a process."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from kerf_dra import cdi
from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.wire import Kind
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kubeletplugin.backends.simulated import open_backend
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.sanity.allocated_claims import REQUEST, AllocatedClaims
from kerf_dra.driver.sanity.driver_process import DriverProcess
from kerf_dra.driver.sanity.driver_under_test import are_complete
from tests.kubeletplugin.harness import short_directory
from tools.realcluster.cluster import load_factor

NODE: Final = "node-1"
DRIVERS: Final[tuple[str, ...]] = (GPU.driver, FPGA.driver)
CARDS: Final = ({"kind": "gpu", "model": "h100-80gb-sxm", "count": 2}, {"kind": "fpga", "shell": "quad", "count": 2})
STATE: Final = "manager/dra_manager_state"
"""The manager's checkpoint of claims."""
PATIENCE_S: Final = 120.0
"""The limit, on an idle machine, until a kubelet that calls again succeeds: a start of Kerf's plugin takes 2 s, and the
kubelet looks for sockets once a second."""
RETRY_S: Final = 0.05
"""Seconds between two tries. The kubelet's own are further apart, which only takes longer."""
_MOST_BYTES: Final = 1 << 20
"""The longest answer: the names of one pod's devices."""
GRACE_S: Final = 30.0
"""The time that a process has to end: the grace period of a pod."""


class EndedError(Exception):
    """The manager's process has ended instead of answering."""


@dataclass(frozen=True)
class Pod:
    """A pod with one claim, as the kubelet knows it."""

    claim: ClaimRef
    uid: str

    def document(self) -> Mapping[str, Any]:
        container = {"name": "main", "resources": {"claims": [{"name": REQUEST}]}}
        return {
            "metadata": {"name": self.claim.name, "namespace": self.claim.namespace, "uid": self.uid},
            "spec": {
                "containers": [container],
                "resourceClaims": [{"name": REQUEST, "resourceClaimName": self.claim.name}],
            },
        }


class KubeletManager:
    """The kubelet's DRA manager and plugin manager (``main.go``), which may end and start again."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._command = [str(part) for part in command]
        self._process: Process | None = None
        self._answers: BufferedByteReceiveStream | None = None
        self._lock = anyio.Lock()

    @property
    def pid(self) -> int:
        assert self._process is not None, "it is started first"
        return self._process.pid

    async def start(self, active: Sequence[Pod]) -> None:
        """Start it on a node that runs these pods."""
        self._process = await anyio.open_process(self._command, stdin=subprocess.PIPE, stderr=None)
        assert self._process.stdout is not None
        self._answers = BufferedByteReceiveStream(self._process.stdout)
        await self.ask(op="start", pods=[pod.document() for pod in active])

    async def ask(self, **request: Any) -> Any:
        """Return its answer. Raises EndedError."""
        async with self._lock:
            if self._process is None:
                raise EndedError
            assert self._process.stdin is not None
            assert self._answers is not None
            try:
                await self._process.stdin.send(json.dumps(request).encode() + b"\n")
                return json.loads(await self._answers.receive_until(b"\n", _MOST_BYTES))
            except (anyio.BrokenResourceError, anyio.IncompleteRead, anyio.ClosedResourceError) as error:
                raise EndedError from error

    async def end(self, *, kill: bool) -> None:
        """End it after what it does, as a kubelet that is updated ends, or kill it in the middle of that."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        if kill:
            process.kill()
        else:
            await process.stdin.aclose()
        with anyio.fail_after(GRACE_S * load_factor()):
            await process.wait()
        await process.aclose()


class EarlyAllocatedClaims(AllocatedClaims):
    """Claims of the devices that the driver has published at first.

    A kubelet that starts deletes the slices of its node, and Kerf pauses before it writes the same for a fourth time in
    a row, while this manager starts a hundred times in some minutes.
    """

    published: Sequence[ResourceSlice] = ()

    async def list_slices(self) -> Sequence[ResourceSlice]:
        return self.published or await super().list_slices()


@dataclass
class ManagedNode:
    """The node, and what outlives its processes."""

    root: Path
    client: Client
    plugin: DriverProcess
    manager: KubeletManager
    kind: Kind[ResourceClaim]
    claims: Mapping[str, EarlyAllocatedClaims]
    """By driver."""
    active: list[Pod] = field(default_factory=list)
    """The pods that run."""
    _is_restarting: bool = False

    @property
    def registry(self) -> Path:
        return self.root / "kubelet/plugins_registry"

    @asynccontextmanager
    async def pod_of(self, driver: str) -> AsyncIterator[Pod]:
        """A pod with a device of ``driver`` exists inside."""
        async with self.claims[driver].allocated() as [claim]:
            found = await self.client.get(self.kind, claim.name, claim.namespace)
            pod = Pod(claim, found.status.reserved_for[0].uid)
            self.active.append(pod)
            yield pod
            self.active.remove(pod)

    async def wait_published(self) -> None:
        """Wait until both drivers have published their devices."""
        with anyio.fail_after(PATIENCE_S * load_factor()):
            for claims in self.claims.values():
                while not are_complete(slices := await claims.list_slices()):  # noqa: ASYNC110  (the API server is asked)
                    await anyio.sleep(RETRY_S)
                claims.published = slices

    async def restart_plugin(self, number: signal.Signals) -> None:
        """End the plugin by a signal, and start it again."""
        self._is_restarting = True
        await self.plugin.end(number, GRACE_S * load_factor())
        self.plugin.start()
        self._is_restarting = False

    async def start_manager(self) -> None:
        await self.manager.start(self.active)

    async def succeed(self, op: str, pod: Pod) -> Sequence[str]:
        """Have the manager do something for a pod until that succeeds, as a kubelet does; return the pod's devices.

        A plugin that has ended by itself is started again, as its container is.
        """
        error = "the manager does not run"
        with anyio.move_on_after(PATIENCE_S * load_factor()):
            while True:
                with suppress(EndedError):  # it is started again
                    answer = await self.manager.ask(op=op, pod=pod.document())
                    error = answer["error"]
                    if not error:
                        return answer["devices"] or ()
                if self.plugin.exit_code is not None and not self._is_restarting:
                    self.plugin.start()
                await anyio.sleep(RETRY_S)
        raise AssertionError(f"{op} of {pod.claim} does not succeed: {error}")

    def find_undefined(self, devices: Sequence[str]) -> Sequence[str]:
        """Return the CDI names that no file of the node defines."""
        catalog = cdi.Cache([self.root / "cdi"]).catalog
        return [name for name in devices if name not in catalog.devices]

    def count_descriptors(self) -> tuple[int, int]:
        """Return how many files the plugin and the manager have open."""
        return self.plugin.count_descriptors(), sum(1 for _ in Path(f"/proc/{self.manager.pid}/fd").iterdir())

    def list_files(self) -> Mapping[str, int]:
        """Return the files with their sizes in bytes that Kerf and the manager have for claims.

        The manager has another one for the health of devices, which comes with their first change.
        """
        files = [path for name in ("cdi", "kubelet") for path in (self.root / name).rglob("*") if path.is_file()]
        files.append(self.root / STATE)
        return {str(path.relative_to(self.root)): path.stat().st_size for path in sorted(files)}

    def list_partitions(self) -> Sequence[Any]:
        """Return the partitions of the cards."""
        return open_backend(self.root / "cards.yaml").partitions()


@asynccontextmanager
async def managed_node(program: Path) -> AsyncIterator[ManagedNode]:
    """A node on a cluster of its own, with ``program`` for the kubelet; both processes run."""
    with short_directory() as root:
        for name in ("cdi", "kubelet/device-plugins", "kubelet/plugins", "kubelet/plugins_registry", "manager"):
            (root / name).mkdir(parents=True)
        (root / "cards.yaml").write_text(json.dumps({"state": "hardware", "pace": 0, "cards": CARDS}))
        server = ApiServer()
        async with anyio.create_task_group() as group:
            await group.start(server.serve)
            (root / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
            async with Client(await load_access(root / "kubeconfig"), user_agent="kerf-oracle/1") as client:
                await client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
                api = await discover(client)
                claims = {
                    driver: EarlyAllocatedClaims(client, api, driver=driver, node=NODE, namespace="default")
                    for driver in DRIVERS
                }
                for each in claims.values():
                    await each.create_class()
                registry = root / "kubelet/plugins_registry"
                manager = KubeletManager([program, root / "kubeconfig", NODE, root / "manager", registry])
                plugin, kind = DriverProcess(plugin_command(root)), api.resource.resource_claims
                node = ManagedNode(root, client, plugin, manager, kind, claims)
                try:
                    node.plugin.start()
                    await node.start_manager()
                    await node.wait_published()
                    yield node
                finally:
                    with anyio.CancelScope(shield=True):
                        await node.plugin.kill()
                        await node.manager.end(kill=True)
            group.cancel_scope.cancel()


def plugin_command(root: Path) -> Sequence[str]:
    """Return the command of Kerf's plugin on a node below ``root``."""
    options = {
        "node-name": NODE,
        "backend": f"simulated={root / 'cards.yaml'}",
        "kubeconfig": root / "kubeconfig",
        "kubelet-root": root / "kubelet",
        "device-plugins-dir": root / "kubelet/device-plugins",
        "cdi-dir": root / "cdi",
        "probes-address": "127.0.0.1:0",
        "publish-min-interval": 0.01,
        "log-format": "text",
        "log-level": "error",
    }
    return [
        *(sys.executable, "-m", "kerf_dra.driver.cli", "kubelet-plugin"),
        *(f"--{option}={value}" for option, value in options.items()),
    ]
