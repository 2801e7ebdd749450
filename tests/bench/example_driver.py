"""Kerf's plugin beside Kubernetes' example of a driver in Go, on one real API server, in turns.

The example is `kubernetes-sigs/dra-example-driver`, built from its Go module into the cache of ``tools.realcluster``.
It runs twice: as shipped, with a client that sends 5 requests a second after the first 10, and with that limit lifted
(``--kube-api-qps``, ``--kube-api-burst``). Its devices are made up; Kerf's are simulated and take no time. Kerf writes
what a claim got into the claim's status before it answers, which the example, as shipped, does not. Processor time is
that of a prepare with its unprepare.

The node has no kubelet: the calls are made here, by its stand-in, one claim each, for the three plugins in turns.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import grpc.aio

from kerf_dra.api.dra.v1 import SERVICE
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.local.kubelet.plugins import PluginWatcher
from tests.bench.kubelet_calls import MEMORY, cpu_ms, health_watched, in_flight, prepare, unprepare
from tests.bench.measurement import Row, say
from tests.e2e import pods
from tools.realcluster import requirements
from tools.realcluster.api import Api, Document
from tools.realcluster.builds import build_example_driver
from tools.realcluster.cluster import Cluster, running
from tools.realcluster.kerf import PLUGIN, Hardware, Kerf
from tools.realcluster.versions import NEWEST

NODE: Final = "bare1"
CARDS: Final = [{"kind": "gpu", "model": "h100-80gb-sxm", "count": 5}]
SLOTS: Final = 32
ROUNDS: Final = 5
"""160 claims of each plugin for every number in flight."""
IN_FLIGHT: Final = (1, 8, 32)
EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "Go": ("--kube-api-qps=100000", "--kube-api-burst=100000"),
    "Go, 5/s": (),
}
"""The options of the example driver by its name in the table: with the limit lifted, and as shipped."""


@dataclass(kw_only=True)
class Subject:
    """One plugin, and what was measured of it for one number of calls in flight."""

    name: str
    driver: str
    pool: str
    device: Callable[[int], str]
    channel: grpc.aio.Channel
    pid: int
    took: list[float] = field(default_factory=list)
    """Milliseconds of each prepare."""
    processor: list[float] = field(default_factory=list)
    """Milliseconds for a prepare with its unprepare, of each round."""

    @property
    def memory_mb(self) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


async def measure() -> list[Row]:
    requirements.ensure()
    program = build_example_driver()
    with TemporaryDirectory(prefix="kerf-bench-", dir=MEMORY) as state:
        hardware = Hardware(cards=CARDS, options={"pace": 0, "state": state})
        async with (
            running(NEWEST, nodes=(), bare_nodes=(NODE,)) as cluster,
            Api(cluster.kubeconfig) as api,
            AsyncExitStack() as stack,
        ):
            subjects = [await stack.enter_async_context(_kerf(cluster, api, hardware))]
            for number, name in enumerate(EXAMPLES):
                started = _example(cluster, api, program, name, f"example{number}.example.com")
                subjects.append(await stack.enter_async_context(started))
            rows = [row for calls in IN_FLIGHT for row in await _compare(api, subjects, calls)]
            return [*rows, *_memory(subjects)]


@asynccontextmanager
async def _kerf(cluster: Cluster, api: Api, hardware: Hardware) -> AsyncIterator[Subject]:
    kerf = Kerf(cluster, api)
    await kerf.install()
    await kerf.start_bare_plugin(NODE, hardware, ["--family=gpu"])
    driver = "gpu.kerf.dev"
    registry = cluster.node_paths(NODE).kubelet / "plugins_registry"
    async with _registered(registry, driver) as channel, health_watched(channel):
        yield Subject(
            name="Kerf",
            driver=driver,
            pool=f"{NODE}/gpu",
            device=lambda slot: f"gpu-{slot // 7}-1g-10gb-at-{slot % 7}",
            channel=channel,
            pid=cluster.processes.pid(f"{NODE}-{PLUGIN}"),
        )


@asynccontextmanager
async def _example(cluster: Cluster, api: Api, program: Path, name: str, driver: str) -> AsyncIterator[Subject]:
    """An example driver named ``driver``, in a folder of its own, once it has registered and published its devices."""
    root = cluster.node_paths(NODE).root / driver
    registry, plugins = root / "plugins_registry", root / "plugins"
    for folder in (registry, plugins):
        folder.mkdir(parents=True)
    options = {
        "--node-name": NODE,
        "--driver-name": driver,
        "--kubeconfig": cluster.kubeconfig,
        "--cdi-root": root / "cdi",
        "--num-devices": SLOTS,
        "--kubelet-registrar-directory-path": registry,
        "--kubelet-plugins-directory-path": plugins,
    }
    command = [str(program), *(f"{option}={value}" for option, value in options.items()), *EXAMPLES[name]]
    cluster.processes.start(driver, command)
    async with _registered(registry, driver) as channel:
        yield Subject(
            name=name,
            driver=driver,
            pool=await _published_pool(api, driver),
            device=lambda slot: f"gpu-{slot}",
            channel=channel,
            pid=cluster.processes.pid(driver),
        )


@asynccontextmanager
async def _registered(registry: Path, name: str) -> AsyncIterator[grpc.aio.Channel]:
    registered = anyio.Event()
    watcher = PluginWatcher(registry, (SERVICE.supported_version,), lambda *_: registered.set())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        await registered.wait()
        driver = watcher.get(name)
        assert driver is not None
        yield driver.channel
        tasks.cancel_scope.cancel()


async def _published_pool(api: Api, driver: str) -> str:
    while True:
        for each in await api.list(pods.RESOURCE, "ResourceSlice"):
            if each["spec"]["driver"] == driver:
                return str(each["spec"]["pool"]["name"])
        await anyio.sleep(0.1)


async def _compare(api: Api, subjects: list[Subject], calls: int) -> list[Row]:
    for subject in subjects:
        subject.took, subject.processor = [], []
    for number in range(ROUNDS):
        for subject in subjects:
            say(f"{subject.name}, {calls} in flight, {number + 1} of {ROUNDS}")
            claims = [await _allocated(api, subject, slot) for slot in range(SLOTS)]
            before = cpu_ms(subject.pid)
            subject.took += await in_flight(calls, [partial(prepare, subject.channel, claim) for claim in claims])
            await in_flight(calls, [partial(unprepare, subject.channel, claim) for claim in claims])
            subject.processor.append((cpu_ms(subject.pid) - before) / SLOTS)
            for claim in claims:
                await api.delete(pods.RESOURCE, "ResourceClaim", claim.name, claim.namespace)
    kerf, *examples = subjects
    rows: list[Row] = []
    for example in examples:
        rows += [
            Row(
                name=f"prepare, {calls} in flight",
                unit="ms",
                samples=kerf.took,
                baseline_name=example.name,
                baseline=example.took,
                goal="<= 1.0",
            ),
            Row(
                name="  processor time",
                unit="ms",
                samples=kerf.processor,
                baseline_name=example.name,
                baseline=example.processor,
            ),
        ]
    return rows


def _memory(subjects: list[Subject]) -> list[Row]:
    kerf, *examples = subjects
    return [
        Row(
            name="memory after them",
            unit="MB",
            samples=[kerf.memory_mb],
            baseline_name=example.name,
            baseline=[example.memory_mb],
        )
        for example in examples
    ]


async def _allocated(api: Api, subject: Subject, slot: int) -> ClaimRef:
    """A claim that has the device number ``slot``."""
    name, space = f"c{secrets.token_hex(4)}", "default"
    document = pods.claim(name, pods.devices(pods.exactly("gpu", "any")))
    document["metadata"]["namespace"] = space
    made = await api.create(document)
    result = {"request": "gpu", "driver": subject.driver, "pool": subject.pool, "device": subject.device(slot)}
    status: Document = {"status": {"allocation": {"devices": {"results": [result]}}}}
    await api.patch(pods.RESOURCE, "ResourceClaim", name, status, space, subresource="status")
    return ClaimRef(space, name, made["metadata"]["uid"])
