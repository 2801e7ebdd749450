"""200 nodes with 8 GPUs each on Kubernetes 1.37: their slices published, and pods scheduled to them.

Nothing is throttled: each node's publisher writes as fast as the API server answers, and so do the scheduler and
the controllers (``tools.realcluster.parts``). What client-go says of its own waiting is counted all the same.
"""

import json
import re
import secrets
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import anyio

from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.api.model.devices import Pool
from kerf_dra.api.model.metadata import OwnerReference
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.slice_plan import CreateSlice, SliceContext, plan_pool
from kerf_dra.driver.kube.slice_publisher import PublishSettings
from kerf_dra.driver.kubeletplugin.settings import NAME
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.bench.cluster_wait import PATIENCE_S, pods_from_now, until
from tests.bench.kubelet_calls import in_flight, milliseconds
from tests.bench.measurement import Row, say
from tests.bench.node import SPACE, create_class, pods_are_gone, resident_mb
from tests.e2e import pods
from tests.fakes.cluster_states import card
from tests.kube.awaited_publisher import AwaitedPublisher
from tools.realcluster import requirements
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster, running
from tools.realcluster.kerf import CONTROLLER, PLUGIN, Kerf
from tools.realcluster.versions import NEWEST

NODES: Final = 200
CARDS: Final = 8
PODS: Final = 200
ROUNDS: Final = 2
"""With claims and without, in turns."""
CALLS: Final = 16
"""At once, of the administrator."""
HELD_BACK: Final = "client-side throttling"
"""What client-go logs when its rate limit has held a request back for a second."""
REQUESTS: Final = "apiserver_request_total"
BYTES: Final = "apiserver_request_body_size_bytes_sum"
METRIC: Final = re.compile(rf'^({REQUESTS}|{BYTES}){{(.*resource="resourceslices".*)}} (\S+)$', re.MULTILINE)
VERB: Final = re.compile(r'verb="(\w+)"')


async def measure() -> list[Row]:
    requirements.ensure()
    names = [f"node{number:03}" for number in range(NODES)]
    say(f"{NODES} nodes are made")
    async with running(NEWEST, nodes=(), bare_nodes=names) as cluster, Api(cluster.kubeconfig) as api:
        kerf = Kerf(cluster, api)
        await kerf.install()
        published = await _publishing(cluster, api, kerf)
        await kerf.start_controller()
        scheduled = await _scheduling(cluster, api)
        return [*published, *scheduled, _memory(cluster), _held_back(cluster)]


async def _publishing(cluster: Cluster, api: Api, kerf: Kerf) -> list[Row]:
    """Measure Kerf's publishers, each with its plugin's token, and a bare loop that writes the same slices."""
    nodes = [{**node, "apiVersion": "v1", "kind": "Node"} for node in await api.list("v1", "Node")]
    slices = dict(_slices(nodes))
    clients = {node["metadata"]["name"]: await _client(cluster, kerf, node) for node in nodes}
    say(f"slices of {NODES} nodes, written in a bare loop")
    bare = await _written(api, slices.values())
    await _withdrawn(api, slices)
    say(f"slices of {NODES} nodes, published by Kerf")
    before = await _counted(api)
    ours = await _published(clients, nodes)
    counted = await _counted(api) - before
    requests = {verb: count for (name, verb), count in counted.items() if name == REQUESTS}
    told = ", ".join(f"{count:.0f} {verb}" for verb, count in requests.items())
    return [
        Row(
            name=f"{NODES} nodes x {CARDS} GPU published",
            unit="s",
            samples=[ours],
            baseline_name="bare writes",
            baseline=[bare],
            goal="ratio 1",
        ),
        Row(name=f"  requests: {told}", unit="", samples=[sum(requests.values())]),
        Row(
            name="  bytes sent",
            unit="MB",
            samples=[sum(count for (name, _), count in counted.items() if name == BYTES) / 1e6],
            baseline_name="the slices",
            baseline=[sum(map(len, slices.values())) / 1e6],
        ),
    ]


def _slices(nodes: Sequence[Document]) -> Iterator[tuple[str, bytes]]:
    """Names and content of all slices, as publishers make them."""
    for node in nodes:
        context = SliceContext(
            driver=GPU.driver, node_name=node["metadata"]["name"], owner=node_owner(node), generations={}, accepted={}
        )
        for write in plan_pool(_pool(context.node_name), (), context):
            assert isinstance(write, CreateSlice)
            content = KINDS.resource_slices.encode(write.value)
            yield write.value.metadata.name, json.dumps(content, separators=(",", ":")).encode()


def _pool(node: str) -> Pool:
    cards = [card(index, node) for index in range(CARDS)]
    return compile_pool(pool_name(node, "gpu"), node, cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT).pool


def node_owner(node: Document) -> OwnerReference:
    metadata = node["metadata"]
    return OwnerReference(api_version="v1", kind="Node", name=metadata["name"], uid=metadata["uid"], controller=True)


async def _client(cluster: Cluster, kerf: Kerf, node: Document) -> Client:
    """Return a client with the permissions of the plugin of ``node``."""
    user = f"{node['metadata']['name']}-{PLUGIN}"
    kubeconfig = cluster.write_kubeconfig(user, {"token": await kerf.token(PLUGIN, node)})
    return Client(await load_access(kubeconfig), user_agent=NAME)


async def _withdrawn(api: Api, names: Iterable[str]) -> None:
    """Delete those of these slices that there are."""
    await in_flight(CALLS, [partial(api.delete, pods.RESOURCE, "ResourceSlice", name) for name in names])


async def _written(api: Api, contents: Iterable[bytes]) -> float:
    """Seconds for an administrator to create slices."""
    path = await api.path(pods.RESOURCE, "ResourceSlice")

    async def create(content: bytes) -> None:
        await api.request("POST", path, content)

    return await milliseconds(in_flight(CALLS, [partial(create, content) for content in contents])) / 1000


async def _published(clients: Mapping[str, Client], nodes: Sequence[Document]) -> float:
    """Seconds from the start of all nodes' publishers until all have published."""
    async with AsyncExitStack() as stack, anyio.create_task_group() as group:
        publishers = []
        for node in nodes:
            name = node["metadata"]["name"]
            publisher = AwaitedPublisher(
                await stack.enter_async_context(clients[name]),
                KINDS,
                driver=GPU.driver,
                node_name=name,
                owner=node_owner(node),
                settings=PublishSettings(),
                on_problem=_fail,
            )
            publisher.publish([_pool(name)])
            publishers.append(publisher)
        begin = time.perf_counter()
        for publisher in publishers:
            group.start_soon(publisher.run)
        for publisher in publishers:
            await publisher.wait_published()
        seconds = time.perf_counter() - begin
        group.cancel_scope.cancel()
    return seconds


def _fail(problem: str) -> None:
    raise RuntimeError(problem)


async def _counted(api: Api) -> Counter[tuple[str, str]]:
    """What the API server has counted of slices: by metric and verb."""
    counted = Counter[tuple[str, str]]()
    for metric, labels, value in METRIC.findall((await api.request("GET", "/metrics"))["message"]):
        (verb,) = VERB.findall(labels)
        counted[metric, verb] += round(float(value))
    return counted


async def _scheduling(cluster: Cluster, api: Api) -> list[Row]:
    await create_class(api)
    bound: dict[bool, list[float]] = {True: [], False: []}
    for number in range(ROUNDS):
        for claims, rates in bound.items():
            say(f"{PODS} pods with{'' if claims else 'out'} claims, {number + 1} of {ROUNDS}")
            rates.append(PODS / await _scheduled(cluster, api, claims=claims))
    return [
        Row(
            name=f"pods scheduled on {NODES} nodes, each with a partition",
            unit="pods/s",
            samples=bound[True],
            baseline_name="no claim",
            baseline=bound[False],
        )
    ]


async def _scheduled(cluster: Cluster, api: Api, *, claims: bool) -> float:
    """Return the seconds in which the scheduler binds ``PODS`` pending pods, which are then deleted."""
    names = {f"p{secrets.token_hex(3)}" for _ in range(PODS)}
    cluster.processes.signal("scheduler", signal.SIGSTOP)
    await in_flight(CALLS, [partial(_create, api, name, claims=claims) for name in names])

    async def all_made() -> bool:
        return len(await api.list(pods.RESOURCE, "ResourceClaim", SPACE)) == (PODS if claims else 0)

    await until(all_made)
    with anyio.fail_after(PATIENCE_S):
        async with pods_from_now(api) as changed:
            begin = time.perf_counter()
            cluster.processes.signal("scheduler", signal.SIGCONT)
            waiting = set(names)
            while waiting:
                pod = await anext(changed)
                if pod["spec"].get("nodeName"):
                    waiting.discard(pod["metadata"]["name"])
            seconds = time.perf_counter() - begin
    await in_flight(CALLS, [partial(api.delete, "v1", "Pod", name, SPACE, grace_s=0) for name in names])
    await until(lambda: pods_are_gone(api))
    return seconds


async def _create(api: Api, name: str, *, claims: bool) -> None:
    document = pods.pod(name, {"gpu": pods.by_template("small")} if claims else None)
    document["metadata"]["namespace"] = SPACE
    await api.create(document)


def _memory(cluster: Cluster) -> Row:
    megabytes = resident_mb(cluster.processes.pid(CONTROLLER))
    return Row(name=f"controller: memory with {NODES} nodes", unit="MB", samples=[megabytes])


def _held_back(cluster: Cluster) -> Row:
    logs = [cluster.paths.log(part).read_text() for part in ("scheduler", "controller-manager")]
    times = sum(log.count(HELD_BACK) for log in logs)
    return Row(name="rate limits that showed", unit="", samples=[times], goal="0")
