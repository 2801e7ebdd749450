"""The kubelet plugin as a process: start, memory, and prepare calls over its socket, with instantaneous hardware.

Baselines: a bare Python process with the same libraries that opens a gRPC socket, and a bare grpc.aio server that
answers every claim at once. The API server is the embedded one, in a process of its own. What the hardware remembers is
on a tmpfs, the plugin's records and CDI files are on the disk. While claims are prepared a client watches the devices'
health, as the kubelet does.
"""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import anyio
import grpc.aio
import yaml

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, Namespace, Node
from kerf_dra.api.dra.v1 import SERVICE
from kerf_dra.api.model.allocations import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from kerf_dra.api.model.claims import DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.demo.environment import find_packaged_folder
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.local.kubelet.plugins import Driver, PluginWatcher
from tests.bench.kubelet_calls import MEMORY, health_watched, in_flight, milliseconds, prepare, unprepare
from tests.bench.measurement import Row

STARTS = 5
CLAIMS = 200
CARDS = 5
"""35 small partitions: enough for 32 claims at once."""
NVIDIA_CARDS = 8
NVIDIA_GOAL = "<= 85 MB"
"""The bindings of NVML alone cost 17 MB."""
IN_FLIGHT = {8: "p50 <= 15 ms", 32: "p99 <= 64 ms"}
ROUNDS = 6
"""Of 32 claims each, for every number in flight."""
SLOTS = 32
HELD = 500
LOOKING = "looking"
ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}
"""On the namespace of claims that only look at a card: any number of them can be held."""
CLASSES = yaml.safe_load((find_packaged_folder("crds") / "kerf.dev_resourceclasses.yaml").read_text())
"""The plugin follows ResourceClasses, as in a cluster that Kerf is installed in."""
BARE = "bare gRPC answer"
INSTANTANEOUS = MappingProxyType({"pace": 0})
"""Options of the simulated hardware."""
_NUMBERS = count()
"""Of claims."""
_BARE = """
import sys, asyncio, grpc, grpc.aio, aiohttp, anyio, msgspec, prometheus_client, sqlite3, yaml
async def main():
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{sys.argv[1]}")
    await server.start()
    await asyncio.sleep(3600)
asyncio.run(main())
"""
_API_SERVER = """
import sys, anyio, yaml
from pathlib import Path
from kerf_dra.driver.local.apiserver import ApiServer
async def main():
    server = ApiServer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        unfinished = Path(sys.argv[1]).with_suffix(".tmp")
        unfinished.write_text(yaml.safe_dump(server.kubeconfig()))
        unfinished.rename(sys.argv[1])
        await anyio.sleep_forever()
anyio.run(main)
"""
_ECHO = """
import sys, anyio
from pathlib import Path
from kerf_dra.api.dra import v1
from kerf_dra.api.model.prepared import PrepareOutcome, ReportedDevice
from kerf_dra.driver.kubeletplugin.grpc.server import serving_at, unary
async def prepare(claims):
    devices = (ReportedDevice(requests=("gpu",), pool="p", device="d", cdi_ids=("k8s.gpu.kerf.dev/claim=d",)),)
    return {claim.uid: PrepareOutcome(devices=devices) for claim in claims}
async def unprepare(claims):
    return {claim.uid: "" for claim in claims}
async def main():
    handlers = dict([unary(v1.SERVICE.prepare, prepare), unary(v1.SERVICE.unprepare, unprepare)])
    async with serving_at(Path(sys.argv[1]), handlers, grace_s=0):
        await anyio.sleep_forever()
anyio.run(main)
"""


async def measure() -> list[Row]:
    async with cluster() as (root, client):
        await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name=LOOKING, labels=ADMIN_ACCESS)))
        return [
            *await _starting(root),
            *await _preparing(root, client),
            *await _with_nvidia_cards(root, client),
        ]


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[Path, Client]]:
    """An embedded cluster with a node, a folder for its plugins, and its client."""
    with TemporaryDirectory(prefix="kb", dir="/tmp") as folder:
        root = Path(folder)
        with api_server(root / "kubeconfig"):
            await appears(root / "kubeconfig")
            async with Client(await load_access(root / "kubeconfig"), user_agent="bench/1") as client:
                await client.apply(CUSTOM_RESOURCE_DEFINITIONS, CLASSES, field_manager="bench")
                await client.create(NODES, Node(metadata=ObjectMeta(name="node-1")))
                yield root, client


async def _starting(root: Path) -> list[Row]:
    seconds, bare_seconds, memory, bare_memory = [], [], [], []
    async with running(root, root / "compiling"):
        pass
    for number in range(STARTS):
        place = root / f"s{number}"
        begin = time.perf_counter()
        async with running(root, place) as (process, _):
            seconds.append(time.perf_counter() - begin)
            memory.append(_rss_mb(process))
        begin = time.perf_counter()
        with _child(_BARE, str(place / "bare.sock")) as bare:
            await appears(place / "bare.sock")
            bare_seconds.append(time.perf_counter() - begin)
            bare_memory.append(_rss_mb(bare))
    return [
        Row(
            name="plugin: start to registered",
            unit="s",
            samples=seconds,
            baseline_name="same libraries, a socket",
            baseline=bare_seconds,
            goal="<= 1 s",
        ),
        Row(
            name="plugin: memory when registered",
            unit="MB",
            samples=memory,
            baseline_name="same libraries, a socket",
            baseline=bare_memory,
            goal="<= 65 MB",
        ),
    ]


async def _preparing(root: Path, client: Client) -> list[Row]:
    place = root / "p"
    async with running(root, place, cards=CARDS) as (process, driver), health_watched(driver.channel):
        with _child(_ECHO, str(root / "echo.sock")):
            await appears(root / "echo.sock")
            async with grpc.aio.insecure_channel(f"unix:{root / 'echo.sock'}") as bare:
                rows = await _one_by_one(client, driver.channel, bare)
                rows += [
                    Row(
                        name=f"plugin: memory after {CLAIMS} claims",
                        unit="MB",
                        samples=[_rss_mb(process)],
                        goal="<= 65 MB",
                    )
                ]
                rows += [await _at_once(client, driver.channel, bare, calls) for calls in IN_FLIGHT]
                rows += [Row(name="plugin: memory after them", unit="MB", samples=[_rss_mb(process)], goal="<= 65 MB")]
                rows += [await _beside_held(client, driver.channel, bare)]
                rows += [Row(name=f"plugin: memory with {HELD} held", unit="MB", samples=[_rss_mb(process)])]
    return rows


async def _with_nvidia_cards(root: Path, client: Client) -> list[Row]:
    """Measure the memory of the backend ``nvidia`` on stand-ins, whose own library and controls are in it."""
    place = root / "n"
    place.mkdir()
    cards = [{"model": "h100-80gb-sxm", "count": NVIDIA_CARDS}]
    (place / "cards.yaml").write_text(yaml.safe_dump({"cards": cards}))
    async with (
        started(root, place, f"nvidia-fake={place / 'cards.yaml'}") as (process, driver),
        health_watched(driver.channel),
    ):
        rows = [
            Row(
                name=f"plugin, {NVIDIA_CARDS} NVIDIA cards: memory when registered",
                unit="MB",
                samples=[_rss_mb(process)],
                goal=NVIDIA_GOAL,
            )
        ]
        for _ in range(ROUNDS):
            claims = [await allocated_claim(client, slot=slot) for slot in range(SLOTS)]
            await in_flight(SLOTS, [partial(prepare, driver.channel, claim) for claim in claims])
            await in_flight(SLOTS, [partial(unprepare, driver.channel, claim) for claim in claims])
        name = f"plugin, {NVIDIA_CARDS} NVIDIA cards: memory after {ROUNDS * SLOTS} claims"
        return [*rows, Row(name=name, unit="MB", samples=[_rss_mb(process)], goal=NVIDIA_GOAL)]


async def _one_by_one(client: Client, plugin: grpc.aio.Channel, bare: grpc.aio.Channel) -> list[Row]:
    prepares, unprepares, answers = [], [], []
    for claim in [await allocated_claim(client) for _ in range(CLAIMS)]:
        prepares.append(await milliseconds(prepare(plugin, claim)))
        unprepares.append(await milliseconds(unprepare(plugin, claim)))
        answers.append(await milliseconds(prepare(bare, claim)))
    return [
        Row(name="plugin: prepare", unit="ms", samples=prepares, baseline_name=BARE, baseline=answers, goal="<= 5 ms"),
        Row(name="plugin: unprepare", unit="ms", samples=unprepares, baseline_name=BARE, baseline=answers),
    ]


async def _at_once(client: Client, plugin: grpc.aio.Channel, bare: grpc.aio.Channel, calls: int) -> Row:
    """Prepares with ``calls`` calls in flight at any time."""
    prepares, answers = [], []
    for _ in range(ROUNDS):
        claims = [await allocated_claim(client, slot=slot) for slot in range(SLOTS)]
        prepares += await in_flight(calls, [partial(prepare, plugin, claim) for claim in claims])
        answers += await in_flight(calls, [partial(prepare, bare, claim) for claim in claims])
        await in_flight(calls, [partial(unprepare, plugin, claim) for claim in claims])
    return Row(
        name=f"plugin: prepare, {calls} in flight",
        unit="ms",
        samples=prepares,
        baseline_name=BARE,
        baseline=answers,
        goal=IN_FLIGHT[calls],
    )


async def _beside_held(client: Client, plugin: grpc.aio.Channel, bare: grpc.aio.Channel) -> Row:
    """Measure one prepare at a time while the node has ``HELD`` claims, which monitor cards."""
    held = [await allocated_claim(client, admin_access=True) for _ in range(HELD)]
    await in_flight(SLOTS, [partial(prepare, plugin, claim) for claim in held])
    [prepares, _] = await _one_by_one(client, plugin, bare)
    return dataclasses.replace(prepares, name=f"plugin: prepare with {HELD} held", goal="as without")


@asynccontextmanager
async def running(
    root: Path,
    place: Path,
    cards: int = 1,
    options: Mapping[str, object] = INSTANTANEOUS,
    probes_port: int = 0,
    checkout: Path | None = None,
) -> AsyncIterator[tuple[subprocess.Popen[bytes], Driver]]:
    """The process, once a kubelet has registered it and its devices are published.

    Its metrics are at ``probes_port``; 0: at one that the system chooses. Its code is that of ``checkout``; None: this.
    """
    place.mkdir()
    gpus = {"kind": "gpu", "model": "h100-80gb-sxm", "count": cards}
    with TemporaryDirectory(prefix="kerf-bench-", dir=MEMORY) as hardware:
        (place / "cards.yaml").write_text(yaml.safe_dump({"state": hardware, "cards": [gpus], **options}))
        async with started(root, place, f"simulated={place / 'cards.yaml'}", probes_port, checkout) as process:
            yield process


@asynccontextmanager
async def started(
    root: Path, place: Path, backend: str, probes_port: int = 0, checkout: Path | None = None
) -> AsyncIterator[tuple[subprocess.Popen[bytes], Driver]]:
    """The process over a backend, whose file is in the folder ``place``, which is there."""
    arguments = {
        "--node-name": "node-1",
        "--family": "gpu",
        "--kubeconfig": root / "kubeconfig",
        "--backend": backend,
        "--kubelet-root": place,
        "--cdi-dir": place / "cdi",
        "--probes-address": f"127.0.0.1:{probes_port}",
        "--log-level": "warning",
    }
    command = [sys.executable, "-m", "kerf_dra.driver.cli", "kubelet-plugin"]
    registered = anyio.Event()
    watcher = PluginWatcher(place / "plugins_registry", (SERVICE.supported_version,), lambda *_: registered.set())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        command += (str(part) for pair in arguments.items() for part in pair)
        with _process(command, checkout) as process:
            await registered.wait()
            driver = watcher.get("gpu.kerf.dev")
            assert driver is not None
            yield process, driver
        tasks.cancel_scope.cancel()


async def allocated_claim(client: Client, slot: int = 0, *, admin_access: bool | None = None) -> ClaimRef:
    """A claim that has the small partition number ``slot`` of the node."""
    namespace = LOOKING if admin_access else "default"
    exactly = ExactDeviceRequest(device_class_name="any", admin_access=admin_access)
    request = DeviceRequest(name="gpu", exactly=exactly)
    claim = ResourceClaim(
        metadata=ObjectMeta(name=f"claim-{next(_NUMBERS)}", namespace=namespace),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))),
    )
    made = await client.create(KINDS.resource_claims, claim)
    card, start = divmod(slot, 7)
    result = DeviceRequestAllocationResult(
        request="gpu",
        driver="gpu.kerf.dev",
        pool="node-1/gpu",
        device=f"gpu-{card}-1g-10gb-at-{start}",
        admin_access=admin_access,
    )
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    status = {"status": {"allocation": to_builtins(allocation)}}
    name = made.metadata.name
    await client.patch(
        KINDS.resource_claims, name, status, type=PatchType.MERGE, namespace=namespace, subresource="status"
    )
    return ClaimRef(namespace, name, made.metadata.uid)


async def appears(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110  (a directory sets no event)
        await anyio.sleep(0.001)


def api_server(kubeconfig: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """The embedded API server as a process, which is ready once ``kubeconfig`` appears."""
    return _child(_API_SERVER, str(kubeconfig))


def _child(code: str, *arguments: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return _process([sys.executable, "-c", code, *arguments])


def environment_of(checkout: Path) -> dict[str, str]:
    """The environment in which a process in ``checkout`` has the code that is there."""
    return {**os.environ, "PYTHONPATH": str(checkout)}


@contextmanager
def _process(command: Sequence[str], checkout: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    environment = None if checkout is None else environment_of(checkout)
    with subprocess.Popen(command, cwd=checkout, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()


def _rss_mb(process: subprocess.Popen[bytes]) -> float:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kilobytes) / 1024
