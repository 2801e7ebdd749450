"""Prepare calls as a kubelet makes them, with claims that the plugin reads from a real API server.

The node has no kubelet: the calls are made here, by its stand-in, which watches the devices' health, too. Figures of a
Go plugin of the same kind, which the goals stand on: 3.1, 15 and 63 ms at the median for 1, 8 and 32 in flight, 6.2, 29
and 128 ms at p99.
"""

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import grpc.aio

from kerf_dra.api.dra.v1 import SERVICE
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.local.kubelet.plugins import PluginWatcher
from tests.bench.kubelet_calls import MEMORY, cpu_ms, health_watched, in_flight, prepare, unprepare
from tests.bench.measurement import Row, say
from tests.bench.node import memory
from tests.e2e import pods
from tools.realcluster import requirements
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster, running
from tools.realcluster.kerf import PLUGIN, Hardware, Kerf
from tools.realcluster.versions import NEWEST

NODE: Final = "bare1"
CARDS: Final = [{"kind": "gpu", "model": "h100-80gb-sxm", "count": 5}]
SLOTS: Final = 32
"""Devices that are prepared: of 35 small partitions."""
ROUNDS: Final = 16
"""512 claims for every number in flight."""
GOALS: Final = {1: "p50 <= 4.7", 8: "p50 <= 15", 32: "p99 <= 64"}
"""By calls in flight; ms."""
HELD: Final = 500
LOOKING: Final = "looking"
"""Namespace of claims that only look at a card: any number of them can be held."""


async def measure() -> list[Row]:
    requirements.ensure()
    with TemporaryDirectory(prefix="kerf-bench-", dir=MEMORY) as state:
        # The time of the hardware itself is no concern of this bench.
        return await _measure(Hardware(cards=CARDS, options={"pace": 0, "state": state}))


async def _measure(hardware: Hardware) -> list[Row]:
    async with running(NEWEST, nodes=(), bare_nodes=(NODE,)) as cluster, Api(cluster.kubeconfig) as api:
        kerf = Kerf(cluster, api)
        await kerf.install()
        labels = {"resource.kubernetes.io/admin-access": "true"}
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LOOKING, "labels": labels}})
        await kerf.start_bare_plugin(NODE, hardware, ["--family=gpu"])
        async with _called(cluster) as channel, health_watched(channel):
            rows = [memory(cluster, NODE, "idle")]
            pid = cluster.processes.pid(f"{NODE}-{PLUGIN}")
            for calls in GOALS:
                rows += await _prepares(api, channel, calls, pid)
            rows.append(memory(cluster, NODE, "after them"))
            rows.append(await _beside_held(api, channel))
            rows.append(memory(cluster, NODE, f"with {HELD} held"))
    return rows


@asynccontextmanager
async def _called(cluster: Cluster) -> AsyncIterator[grpc.aio.Channel]:
    """The plugin's service, once it has registered."""
    registered = anyio.Event()
    registry = cluster.node_paths(NODE).kubelet / "plugins_registry"
    watcher = PluginWatcher(registry, (SERVICE.supported_version,), lambda *_: registered.set())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        await registered.wait()
        driver = watcher.get("gpu.kerf.dev")
        assert driver is not None
        yield driver.channel
        tasks.cancel_scope.cancel()


async def _prepares(api: Api, channel: grpc.aio.Channel, calls: int, pid: int) -> list[Row]:
    """``pid``: the plugin's."""
    prepares: list[float] = []
    reads: list[float] = []
    processor: list[float] = []
    for number in range(ROUNDS):
        say(f"prepares, {calls} in flight, {number + 1} of {ROUNDS}")
        claims = [await _allocated(api, slot) for slot in range(SLOTS)]
        reads += await in_flight(calls, [partial(_read, api, claim) for claim in claims])
        before = cpu_ms(pid)
        prepares += await _prepared(channel, claims, calls)
        processor.append((cpu_ms(pid) - before) / SLOTS)
        await _released(api, channel, claims)
    return [
        Row(
            name=f"prepare, {calls} in flight",
            unit="ms",
            samples=prepares,
            baseline_name="reads of the claim",
            baseline=reads,
            goal=GOALS[calls],
        ),
        Row(name="  processor time of the plugin for each", unit="ms", samples=processor),
    ]


async def _beside_held(api: Api, channel: grpc.aio.Channel) -> Row:
    """Measure one call at a time, before and while the node has ``HELD`` other claims."""
    before = await _one_by_one(api, channel)
    say(f"{HELD} claims are prepared")
    held = [await _allocated(api, 0, looking=True) for _ in range(HELD)]
    await _prepared(channel, held, SLOTS)
    say(f"prepares beside {HELD} held")
    return Row(
        name=f"prepare with {HELD} held",
        unit="ms",
        samples=await _one_by_one(api, channel),
        baseline_name="none held",
        baseline=before,
        goal="ratio 1",
    )


async def _one_by_one(api: Api, channel: grpc.aio.Channel) -> list[float]:
    took: list[float] = []
    for _ in range(ROUNDS // 4):
        claims = [await _allocated(api, slot) for slot in range(SLOTS)]
        took += await _prepared(channel, claims, 1)
        await _released(api, channel, claims)
    return took


async def _prepared(channel: grpc.aio.Channel, claims: Sequence[ClaimRef], calls: int) -> list[float]:
    return await in_flight(calls, [partial(prepare, channel, claim) for claim in claims])


async def _released(api: Api, channel: grpc.aio.Channel, claims: Sequence[ClaimRef]) -> None:
    await in_flight(SLOTS, [partial(unprepare, channel, claim) for claim in claims])
    for claim in claims:
        await api.delete(pods.RESOURCE, "ResourceClaim", claim.name, claim.namespace)


async def _read(api: Api, claim: ClaimRef) -> None:
    await api.get(pods.RESOURCE, "ResourceClaim", claim.name, claim.namespace)


async def _allocated(api: Api, slot: int, *, looking: bool = False) -> ClaimRef:
    """A claim that has the small partition number ``slot`` of the node, or monitors its card."""
    card, start = divmod(slot, 7)
    name, space = f"c{secrets.token_hex(4)}", LOOKING if looking else "default"
    access = {"adminAccess": True} if looking else {}
    document = pods.claim(name, pods.devices(pods.exactly("gpu", "any", **access)))
    document["metadata"]["namespace"] = space
    made = await api.create(document)
    device = f"gpu-{card}-1g-10gb-at-{start}"
    result = {"request": "gpu", "driver": "gpu.kerf.dev", "pool": f"{NODE}/gpu", "device": device, **access}
    status: Document = {"status": {"allocation": {"devices": {"results": [result]}}}}
    await api.patch(pods.RESOURCE, "ResourceClaim", name, status, space, subresource="status")
    return ClaimRef(space, name, made["metadata"]["uid"])
