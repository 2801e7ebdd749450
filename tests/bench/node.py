"""A real node of Kubernetes 1.37: pods with claims compared with pods without, and the start of the plugin."""

import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import aiohttp
import anyio

from tests.bench.cluster_wait import PATIENCE_S, pods_from_now, until
from tests.bench.measurement import Row, say
from tests.e2e import pods
from tools.realcluster import requirements
from tools.realcluster.api import Api
from tools.realcluster.cluster import Cluster, running
from tools.realcluster.kerf import PLUGIN, Hardware, Kerf
from tools.realcluster.versions import NEWEST

NODE: Final = "node1"
SPACE: Final = "default"
HARDWARE: Final = Hardware(
    cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": 3}],
    options={"pace": 0},  # the time of the hardware itself is no concern of this bench
)
"""21 small partitions."""
BURSTS: Final = {1: 10, 8: 5, 20: 3}
"""Pods at once, and how often: with and without claims in turns."""
UNSEEN: Final = "no relationship found between node"
"""What the Node authorizer says of a claim whose pod it has not seen yet. The kubelet tries again 10 to 15 s later,
which says nothing of who prepares: such pods are counted apart."""
STARTS: Final = 5
IMPORTS: Final = "import asyncio, grpc.aio, aiohttp, anyio, msgspec, prometheus_client, sqlite3, yaml"
"""What any such plugin has to import."""


async def measure() -> list[Row]:
    requirements.ensure()
    async with running(NEWEST, nodes=(NODE,)) as cluster, Api(cluster.kubeconfig) as api:
        kerf = Kerf(cluster, api)
        await kerf.install()
        await kerf.start_controller()
        kerf.describe_hardware(NODE, HARDWARE)
        await kerf.start_plugin(NODE)
        await create_class(api)
        starts = await _starts(cluster, api, kerf)
        return [*starts, *await _pods(api), memory(cluster, NODE, "after these pods")]


async def create_class(api: Api) -> None:
    """A class, and a template for claims of it."""
    spec = {"device": "gpu", "profile": "1g.10gb"}
    document = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": {"name": "small"}, "spec": spec}
    await api.create(document)
    template = pods.template("small", pods.devices(pods.exactly("gpu", "small")))
    await api.create({**template, "metadata": {"name": "small", "namespace": SPACE}})

    async def is_compiled() -> bool:
        return await api.find(pods.RESOURCE, "DeviceClass", "small") is not None

    await until(is_compiled)


async def _starts(cluster: Cluster, api: Api, kerf: Kerf) -> list[Row]:
    """From the start of the process until its socket and all its slices are there, and until the kubelet has come.

    The kubelet scans for new sockets once a second (``pkg/kubelet/pluginmanager/reconciler``): that is its own time.
    """
    published, own, registered, imports = await _complete(api), [], [], []
    for number in range(STARTS):
        say(f"start of the plugin, {number + 1} of {STARTS}")
        await kerf.stop_plugin(NODE)
        await api.request("DELETE", await api.path(pods.RESOURCE, "ResourceSlice"))
        start = await _start(cluster, api, kerf, published)
        own.append(start["offered and published"])
        registered.append(start["registered"])
        begin = time.perf_counter()
        await anyio.run_process([sys.executable, "-c", IMPORTS])
        imports.append(time.perf_counter() - begin)
    row = Row(
        name="plugin: start to offered and published",
        unit="s",
        samples=own,
        baseline_name="Python and its libraries",
        baseline=imports,
        goal="<= 0.6 s",
    )
    waiting = Row(name="  until the kubelet has registered it", unit="s", samples=registered)
    return [row, waiting, memory(cluster, NODE, "idle")]


async def _start(cluster: Cluster, api: Api, kerf: Kerf, published: int) -> Mapping[str, float]:
    """Seconds."""
    ends: dict[str, float] = {}

    async def is_offered_and_published() -> bool:
        return _is_offered(cluster.node_paths(NODE).kubelet) and await _slices(api) == published

    async def is_registered() -> bool:
        try:
            async with session.get(f"http://{kerf.plugin_probes(NODE)}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def note(what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        await until(condition)
        ends[what] = time.clock_gettime(time.CLOCK_BOOTTIME)

    async with aiohttp.ClientSession() as session, anyio.create_task_group() as group:
        group.start_soon(kerf.start_plugin, NODE)
        group.start_soon(note, "registered", is_registered)
        group.start_soon(note, "offered and published", is_offered_and_published)
    begin = _begin(cluster.processes.pid(f"{NODE}-{PLUGIN}"))
    return {what: end - begin for what, end in ends.items()}


async def _complete(api: Api) -> int:
    """How many slices there are, once they are all there."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            slices = await api.list(pods.RESOURCE, "ResourceSlice")
            counts = {one["spec"]["pool"]["name"]: one["spec"]["pool"]["resourceSliceCount"] for one in slices}
            if slices and len(slices) == sum(counts.values()):
                return len(slices)


async def _slices(api: Api) -> int:
    """Return the number of slices, without reading their content."""
    answer = await api.request("GET", await api.path(pods.RESOURCE, "ResourceSlice"), query={"limit": "1"})
    return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount", 0))


def _is_offered(kubelet: Path) -> bool:
    return any((kubelet / "plugins_registry").glob("gpu.kerf.dev*"))


def _begin(pid: int) -> float:
    """When the process was started, in seconds since boot (proc_pid_stat(5), field 22)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def memory(cluster: Cluster, node: str, when: str) -> Row:
    """Measure the memory of the node's plugin."""
    megabytes = resident_mb(cluster.processes.pid(f"{node}-{PLUGIN}"))
    return Row(name=f"plugin: memory, {when}", unit="MB", samples=[megabytes], goal="<= 65 MB")


def resident_mb(pid: int) -> float:
    """What of a process is in memory, libraries that others use included (proc_pid_status(5), VmRSS)."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


async def _pods(api: Api) -> list[Row]:
    await _burst(api, 1, claims=True)  # the first of everything is slower
    rows = []
    for count, times in BURSTS.items():
        seen: dict[bool, list[float]] = {True: [], False: []}
        late: list[float] = []
        for number in range(times):
            say(f"{count} pods at once, {number + 1} of {times}")
            for claims in seen:
                seconds = await _burst(api, count, claims=claims)
                unseen = await _count_unreadable(api)
                seen[claims] += [value for name, value in seconds.items() if name not in unseen]
                late += [value for name, value in seconds.items() if name in unseen]
        rows.append(
            Row(
                name=f"pod created to running, {count} at once",
                unit="s",
                samples=seen[True],
                baseline_name="no claim",
                baseline=seen[False],
                goal="ratio 1",
            )
        )
        if late:
            share = f"{len(late)} of {count * times} pods"
            rows.append(Row(name=f"  late, claim unknown to the Node authorizer: {share}", unit="s", samples=late))
    return rows


async def _burst(api: Api, count: int, *, claims: bool) -> Mapping[str, float]:
    """Return the seconds from each pod's creation until it runs; afterwards all are deleted."""
    names = [f"p{secrets.token_hex(3)}" for _ in range(count)]
    created: dict[str, float] = {}
    seconds: dict[str, float] = {}

    async def create(name: str) -> None:
        asked = {"gpu": pods.by_template("small")} if claims else None
        document = pods.pod(name, asked, nodeSelector={"kubernetes.io/hostname": NODE})
        document["metadata"]["namespace"] = SPACE
        created[name] = time.perf_counter()
        await api.create(document)

    with anyio.fail_after(PATIENCE_S):
        async with pods_from_now(api) as changed, anyio.create_task_group() as group:
            for name in names:
                group.start_soon(create, name)
            async for pod in changed:
                if pod["metadata"]["name"] in names and pod["status"].get("phase") == "Running":
                    seconds.setdefault(pod["metadata"]["name"], time.perf_counter())
                if len(seconds) == count:
                    break
    for name in names:
        await api.delete("v1", "Pod", name, SPACE)
    await until(lambda: pods_are_gone(api))
    return {name: end - created[name] for name, end in seconds.items()}


async def pods_are_gone(api: Api) -> bool:
    """Return whether all pods and their claims are gone."""
    return not await api.list("v1", "Pod", SPACE) and not await api.list(pods.RESOURCE, "ResourceClaim", SPACE)


async def _count_unreadable(api: Api) -> frozenset[str]:
    """Return the pods whose claims the kubelet was not allowed to read at first."""
    events = await api.list("v1", "Event", SPACE, fieldSelector="reason=FailedPrepareDynamicResources")
    return frozenset(one["involvedObject"]["name"] for one in events if UNSEEN in one["message"])
