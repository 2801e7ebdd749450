"""Kerf on a real Kubernetes 1.37: pods with claims beside the same pods without, prepares beside one read of the claim.

Not part of ``make bench``: it needs root and Go (``make bench-e2e``).
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import grpc.aio

from api.dra.v1 import SERVICE
from api.model.names import ClaimRef
from driver.local.kubelet.plugins import Driver, PluginWatcher, call
from tests.bench.measuring import Row
from tests.e2e import pods
from tests.realcluster import requirements
from tests.realcluster.api import Api, Document
from tests.realcluster.cluster import Cluster, running
from tests.realcluster.kerf import Hardware, Kerf
from tests.realcluster.versions import NEWEST

CARDS: Final = 5
"""35 small partitions: enough for 32 claims at once."""
HARDWARE: Final = Hardware(
    cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": CARDS}],
    options={"pace": 0},  # the time of the hardware itself is no concern of this bench
)
BARE: Final = "bare1"
BURSTS: Final = {1: 8, 8: 4, 20: 2}
"""Pods at once, and how often: with and without claims in turns."""
LATE_S: Final = 8.0
"""The kubelet's next try after the Node authorizer has not known the claim yet; such pods are counted apart."""
IN_FLIGHT: Final = (1, 8, 32)
ROUNDS: Final = 6
"""Of 32 claims each, for every number in flight."""
SLOTS: Final = 32
CALL_S: Final = 45.0
POLL_S: Final = 0.02


async def measure() -> list[Row]:
    requirements.ensure()
    async with running(NEWEST, bare_nodes=(BARE,)) as cluster, Api(cluster.kubeconfig) as api:
        kerf = Kerf(cluster, api)
        await kerf.install()
        await kerf.start_controller()
        kerf.describe_hardware("node1", HARDWARE)
        await kerf.start_plugin("node1")
        return [*await _pods(api), *await _prepares(cluster, api, kerf)]


async def _pods(api: Api) -> list[Row]:
    await api.create(
        {
            "apiVersion": "kerf.dev/v1alpha1",
            "kind": "ResourceClass",
            "metadata": {"name": "small"},
            "spec": {"device": "gpu", "profile": "1g.10gb"},
        }
    )
    template = pods.template("small", pods.devices(pods.exactly("gpu", "small")))
    await api.create({**template, "metadata": {"name": "small", "namespace": "default"}})
    await _until(lambda: _exists(api, "DeviceClass", "small"))
    await _burst(api, 1, claims=True)  # the first of everything is slower
    rows = []
    for count, times in BURSTS.items():
        seen: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(times):
            for claims in seen:
                seen[claims] += await _burst(api, count, claims=claims)
        soon = {claims: [one for one in samples if one < LATE_S] for claims, samples in seen.items()}
        late = len(seen[True]) - len(soon[True])
        rows.append(
            Row(
                name=f"pod created to running, {count} at once" + (f" ({late} late ones apart)" if late else ""),
                unit="s",
                samples=soon[True],
                baseline_name="no claim",
                baseline=soon[False],
                goal="ratio 1",
            )
        )
    return rows


async def _burst(api: Api, count: int, *, claims: bool) -> list[float]:
    """Seconds from its creation until each pod runs; they are gone afterwards."""
    names = [f"p{secrets.token_hex(3)}" for _ in range(count)]
    created: dict[str, float] = {}
    seconds: dict[str, float] = {}

    async def create(name: str) -> None:
        asked = {"gpu": pods.by_template("small")} if claims else None
        document = pods.pod(name, asked, nodeSelector={"kubernetes.io/hostname": "node1"})
        document["metadata"]["namespace"] = "default"
        created[name] = time.perf_counter()
        await api.create(document)

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(create, name)
    while len(seconds) < count:
        for pod in await api.list("v1", "Pod", "default"):
            name = pod["metadata"]["name"]
            if name in created and name not in seconds and pod["status"].get("phase") == "Running":
                seconds[name] = time.perf_counter() - created[name]
        await anyio.sleep(POLL_S)
    for name in names:
        await api.delete("v1", "Pod", name, "default", grace_s=1)
    await _until(lambda: _none_left(api))
    return list(seconds.values())


async def _prepares(cluster: Cluster, api: Api, kerf: Kerf) -> list[Row]:
    """Calls as a kubelet makes them, on a node that has none, with claims read from the real API server."""
    await kerf.start_bare_plugin(BARE, HARDWARE)
    registry = cluster.node_places(BARE).kubelet / "plugins_registry"
    registered = anyio.Event()
    watcher = PluginWatcher(registry, (SERVICE.supported_version,), lambda *_: registered.set())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        await registered.wait()
        driver = watcher.get("kerf.dev")
        assert driver is not None
        rows = [await _prepare(api, driver, in_flight) for in_flight in IN_FLIGHT]
        tasks.cancel_scope.cancel()
    return [*rows, Row(name="plugin: memory after them", unit="MB", samples=[_rss_mb(cluster)], goal="<= 65 MB")]


async def _prepare(api: Api, driver: Driver, in_flight: int) -> Row:
    prepares: list[float] = []
    reads: list[float] = []
    for _ in range(ROUNDS):
        claims = [await _allocated(api, slot) for slot in range(SLOTS)]
        reads += [await _milliseconds(_read(api, claim)) for claim in claims]
        prepares += await _in_flight(in_flight, [partial(_prepared, driver.channel, claim) for claim in claims])
        await _in_flight(in_flight, [partial(_unprepared, driver.channel, claim) for claim in claims])
        for claim in claims:
            await api.delete(pods.RESOURCE, "ResourceClaim", claim.name, claim.namespace)
    return Row(
        name=f"prepare, {in_flight} in flight",
        unit="ms",
        samples=prepares,
        baseline_name="one read of the claim",
        baseline=reads,
        goal={1: "p50 <= 4.7", 8: "p50 <= 15", 32: "p99 <= 64"}[in_flight],
    )


async def _in_flight(count: int, calls: Sequence[Callable[[], Awaitable[None]]]) -> list[float]:
    """Milliseconds of each call, ``count`` of them at any time."""
    seconds: list[float] = []
    limiter = anyio.CapacityLimiter(count)

    async def one(work: Callable[[], Awaitable[None]]) -> None:
        async with limiter:
            seconds.append(await _milliseconds(work()))

    async with anyio.create_task_group() as group:
        for work in calls:
            group.start_soon(one, work)
    return seconds


async def _prepared(channel: grpc.aio.Channel, claim: ClaimRef) -> None:
    outcome = (await call(channel, SERVICE.prepare, [claim], CALL_S))[claim.uid]
    if outcome.error:
        raise RuntimeError(outcome.error)


async def _unprepared(channel: grpc.aio.Channel, claim: ClaimRef) -> None:
    error = (await call(channel, SERVICE.unprepare, [claim], CALL_S))[claim.uid]
    if error:
        raise RuntimeError(error)


async def _read(api: Api, claim: ClaimRef) -> None:
    await api.get(pods.RESOURCE, "ResourceClaim", claim.name, claim.namespace)


async def _allocated(api: Api, slot: int) -> ClaimRef:
    """A claim that has the small partition number ``slot`` of the node."""
    card, start = divmod(slot, 7)
    name = f"c{secrets.token_hex(4)}"
    document = pods.claim(name, pods.devices(pods.exactly("gpu", "small")))
    document["metadata"]["namespace"] = "default"
    made = await api.create(document)
    result = {
        "request": "gpu",
        "driver": "kerf.dev",
        "pool": f"{BARE}/gpu",
        "device": f"gpu-{card}-1g-10gb-at-{start}",
    }
    status: Document = {"status": {"allocation": {"devices": {"results": [result]}}}}
    await api.patch(pods.RESOURCE, "ResourceClaim", name, status, "default", subresource="status")
    return ClaimRef("default", name, made["metadata"]["uid"])


async def _milliseconds(work: Awaitable[object]) -> float:
    begin = time.perf_counter()
    await work
    return 1000 * (time.perf_counter() - begin)


def _rss_mb(cluster: Cluster) -> float:
    pid = cluster.processes.pid(f"{BARE}-kerf-kubelet-plugin")
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


async def _exists(api: Api, kind: str, name: str) -> bool:
    return await api.find(pods.RESOURCE, kind, name) is not None


async def _none_left(api: Api) -> bool:
    return not await api.list("v1", "Pod", "default") and not await api.list(pods.RESOURCE, "ResourceClaim", "default")


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(120):
        while not await condition():  # noqa: ASYNC110  (the API server is asked)
            await anyio.sleep(POLL_S)
