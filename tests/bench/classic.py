"""Allocation by Kerf's controller on Kubernetes 1.30, compared with a bare loop that makes the same writes.

200 nodes with 8 GPUs each have no kubelet, so only the API server, the scheduler and the controller work. The
controller is stopped (SIGSTOP) while claims are created or deleted, so that it begins with all of them at once.
"""

import itertools
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial
from typing import Final, TypeAlias

import anyio
import yaml
from anyio.abc import TaskStatus

from kerf_dra.api.kerf.node_inventory import NODE_INVENTORIES, NodeInventory, inventory_name
from kerf_dra.api.model.allocations import DeviceAllocationResult, DeviceRequestAllocationResult
from kerf_dra.api.model.classic import ONLY_REQUEST, ClassicAllocation
from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.controller.classic import node_model, placement
from kerf_dra.driver.controller.classic import requirements as claim_requirements
from kerf_dra.driver.controller.classic.allocator import only_node
from kerf_dra.driver.controller.classic.scheduling_contexts import plan_context
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kubeletplugin.cluster.classic import RENEW_S
from tests.bench.cluster_wait import PATIENCE_S, until
from tests.bench.kubelet_calls import in_flight
from tests.bench.measurement import Row, say
from tests.bench.node import resident_mb
from tests.controller.classic.cluster_builder import ClusterBuilder, context, pod
from tests.controller.classic.hardware import gpu, inventory
from tools.realcluster import requirements
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster, running
from tools.realcluster.documents import IMAGE
from tools.realcluster.kerf import CONTROLLER, DEPLOY, Kerf, manifests
from tools.realcluster.versions import find

RESOURCE: Final = "resource.k8s.io/v1alpha2"
CLAIM: Final = "ResourceClaim"
SPACE: Final = "default"
NODES: Final = 200
CARDS: Final = 8
CLAIMS: Final = 500
"""Allocated and deallocated at once: a few seconds, shorter than the lease of a controller that stands still."""
ROUNDS: Final = 3
"""Of each measurement and of its baseline, in turns."""
DECISIONS: Final = 20
AT_A_TIME: Final = 8
"""Claims in the bare loop: as many as the controller works on."""
CALLS: Final = 16
"""At once, of the administrator."""
PENDING: Final = {1: 10, 50: 2, 200: 1}
"""Pods created at once, and how often."""
MANY_CLAIMS: Final = 10_000
OTHER: Final = "bare.test"
"""The driver for which the bare loop allocates."""

_CACHED: Final = (
    placement.can_place,
    placement.matching_specs,
    claim_requirements._satisfiable,
    claim_requirements._spec,
    node_model._availability,
)
"""The functions of the controller whose results are cached in the process."""

Work: TypeAlias = Callable[[], Awaitable[object]]
Named: TypeAlias = Callable[[Document], str]
"""The name that an event tells of; empty: it is not what is waited for."""


class _Worker(Enum):
    """The writer of the measured requests."""

    LOOP = "the same writes"
    FOLLOWING_LOOP = "the same writes and a watch"
    CONTROLLER = "the controller"


async def measure() -> list[Row]:
    requirements.ensure()
    names = tuple(f"node{number:03}" for number in range(NODES))
    decisions = _decisions(names)
    say(f"{NODES} nodes are made")
    async with (
        running(find("1.30"), nodes=(), bare_nodes=names) as cluster,
        Api(cluster.kubeconfig) as api,
        Client(await load_access(cluster.kubeconfig), user_agent="bench/1") as client,
    ):
        await _install(cluster, api, client, names)
        async with anyio.create_task_group() as plugins:
            plugins.start_soon(_renew, client, names)
            measured = [*await _claims(cluster, api, client), *await _pods(api), *await _many(cluster, api)]
            plugins.cancel_scope.cancel()
        return [*decisions, *measured]


def _decisions(names: tuple[str, ...]) -> list[Row]:
    """Measure how long the controller computes ``unsuitableNodes`` for a waiting pod."""
    rows = []
    for what, taken in (("all empty", False), ("each taken otherwise", True)):
        builder = _build_cluster(names, taken=taken)
        first = []
        for _ in range(ROUNDS):
            for function in _CACHED:
                function.cache_clear()
            first.append(_time_decision(_build_cluster(names, taken=taken), names))
        later = [_time_decision(builder, names) for _ in range(DECISIONS)]
        name = f"UnsuitableNodes, {NODES} nodes x {CARDS} GPU, {what}"
        rows.append(Row(name=name, unit="ms", samples=later, goal="<= 5"))
        rows.append(Row(name=f"{name}: asked for the first time", unit="ms", samples=first, goal="<= 5"))
    return rows


def _build_cluster(names: Sequence[str], *, taken: bool) -> ClusterBuilder:
    """Build the controller's state of these nodes; ``taken``: on each, something else is allocated."""
    builder = ClusterBuilder()
    builder.resource_class("gpu", {"profile": "1g.10gb"})
    builder.claim("claim")
    for number, name in enumerate(names):
        builder.node(name, *(gpu(name, index) for index in range(CARDS)))
        held = [f"gpu-{index}-1g-10gb-at-0" for index in range(CARDS) if taken and number >> index & 1]
        if held:
            builder.claim(f"claim-on-{name}", allocation=_allocation(name, held))
    return builder


def _time_decision(builder: ClusterBuilder, names: tuple[str, ...]) -> float:
    """Return the milliseconds of one decision."""
    asked = context(potential=names)
    begin = time.perf_counter()
    plan = plan_context(asked, pod(), builder.view)
    took = 1000 * (time.perf_counter() - begin)
    assert plan.resource_claims is not None, "an entry is reported although it is empty"
    return took


def _allocation(node: str, devices: Sequence[str], driver: str = GPU.driver) -> ClassicAllocation:
    results = tuple(
        DeviceRequestAllocationResult(request=ONLY_REQUEST, driver=driver, pool=pool_name(node, "gpu"), device=device)
        for device in devices
    )
    return ClassicAllocation(
        devices=DeviceAllocationResult(results=results), node_selector=only_node(node), drivers=(driver,)
    )


async def _install(cluster: Cluster, api: Api, client: Client, names: Sequence[str]) -> None:
    kerf = Kerf(cluster, api)
    await kerf.install()
    examples = yaml.safe_load_all((DEPLOY / "examples" / "classic" / "classes.yaml").read_text())
    for document in (*manifests(DEPLOY / "classic"), *examples):
        await api.apply(document)
    other = {"apiVersion": RESOURCE, "kind": "ResourceClass", "metadata": {"name": OTHER}, "driverName": OTHER}
    await api.create(other)
    metadata, spec = {"name": "small", "namespace": SPACE}, {"spec": {"resourceClassName": "gpu-small"}}
    template = {"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}
    await api.create(template)
    told = [inventory(name, *(gpu(name, index) for index in range(CARDS))) for name in names]
    await in_flight(CALLS, [partial(_apply_inventory, client, one) for one in told])
    await kerf.start_controller()


async def _apply_inventory(client: Client, value: NodeInventory) -> None:
    document = {"metadata": {"name": value.metadata.name}, "spec": to_builtins(value.spec)}
    await client.apply(NODE_INVENTORIES, document, field_manager="bench")


async def _renew(client: Client, names: Sequence[str]) -> None:
    """Renew the inventories as plugins do: a node whose plugin is silent gets no claims."""
    for turn in itertools.count(1):
        await anyio.sleep(RENEW_S)
        for name in (inventory_name(node, GPU.driver) for node in names):
            await client.patch(NODE_INVENTORIES, name, {"spec": {"renewedAt": str(turn)}}, type=PatchType.MERGE)


async def _claims(cluster: Cluster, api: Api, client: Client) -> list[Row]:
    """Measure claims that the controller allocates and releases, and a bare loop that makes the same writes.

    The loop knows what to write, and watches nothing. A second one follows the claims besides, as every controller
    has to: what is lost beyond that, deciding costs.
    """
    rates: dict[str, dict[_Worker, list[float]]] = {what: {one: [] for one in _Worker} for what in _WRITES}
    for number, worker in itertools.product(range(ROUNDS), _Worker):
        say(f"{CLAIMS} claims: {worker.value}, {number + 1} of {ROUNDS}")
        names = [f"c{secrets.token_hex(4)}" for _ in range(CLAIMS)]
        loops = [
            partial(in_flight, AT_A_TIME, [partial(do, client, name) for name in names]) for do in _WRITES.values()
        ]
        ours = worker is _Worker.CONTROLLER
        async with _paused_controller(cluster) as go_on, _watch_claims(client, worker):
            await in_flight(CALLS, [partial(_create, api, name, ours=ours) for name in names])
            seconds = await _time_until_all(api, names, _allocated, go_on if ours else loops[0])
        rates["allocated"][worker].append(CLAIMS / seconds)
        async with _paused_controller(cluster) as go_on, _watch_claims(client, worker):
            await api.request("DELETE", await api.path(RESOURCE, CLAIM, SPACE))
            seconds = await _time_until_all(api, names, _gone, go_on if ours else loops[1])
        rates["deallocated"][worker].append(CLAIMS / seconds)
    return [
        Row(
            name=f"claims {what}, {CLAIMS} at once",
            unit="claims/s",
            samples=found[_Worker.CONTROLLER],
            baseline_name=f"{loop.value}, {AT_A_TIME} at a time",
            baseline=found[loop],
            goal=goal,
        )
        for what, found in rates.items()
        for loop, goal in ((_Worker.LOOP, "ratio >= 0.8"), (_Worker.FOLLOWING_LOOP, ""))
    ]


@asynccontextmanager
async def _watch_claims(client: Client, worker: _Worker) -> AsyncIterator[None]:
    """List and watch claims in this process if ``worker`` does so."""
    async with anyio.create_task_group() as group:
        if worker is _Worker.FOLLOWING_LOOP:
            informer = Informer(client, KINDS.claims)
            group.start_soon(informer.run)
            await informer.wait_synced()
        yield
        group.cancel_scope.cancel()


async def _create(api: Api, name: str, *, ours: bool = True) -> None:
    """A claim that is to be allocated without a pod."""
    spec = {"resourceClassName": "gpu-small" if ours else OTHER, "allocationMode": "Immediate"}
    metadata = {"name": name, "namespace": SPACE}
    await api.create({"apiVersion": RESOURCE, "kind": CLAIM, "metadata": metadata, "spec": spec})


async def _allocate(client: Client, name: str) -> None:
    status = KINDS.allocated(_allocation("node000", ["gpu-0-1g-10gb-at-0"], OTHER), OTHER)
    await _patch(client, name, {"metadata": {"finalizers": [f"{OTHER}/deletion-protection"]}})
    await _patch(client, name, {"status": status}, "status")


async def _release(client: Client, name: str) -> None:
    await _patch(client, name, {"status": KINDS.released}, "status")
    await _patch(client, name, {"metadata": {"finalizers": None}})


_WRITES: Final = {"allocated": _allocate, "deallocated": _release}


async def _patch(client: Client, name: str, patch: Document, subresource: str = "") -> None:
    await client.patch(KINDS.claims, name, patch, type=PatchType.MERGE, namespace=SPACE, subresource=subresource)


@asynccontextmanager
async def _paused_controller(cluster: Cluster) -> AsyncIterator[Work]:
    """Stop the controller until the context ends or the function that is yielded is called."""

    async def go_on() -> None:
        cluster.processes.signal(CONTROLLER, signal.SIGCONT)

    cluster.processes.signal(CONTROLLER, signal.SIGSTOP)
    try:
        yield go_on
    finally:
        await go_on()


async def _time_until_all(
    api: Api, names: Sequence[str], name_in: Named, work: Work, *, within_s: float = PATIENCE_S
) -> float:
    """Seconds from the beginning of ``work`` until ``name_in`` has found all these names in events of claims."""
    times: dict[str, float] = {}
    async with _record_times(api, names, name_in, times, within_s=within_s):
        begin = time.perf_counter()
        await work()
    return max(times.values()) - begin


@asynccontextmanager
async def _record_times(
    api: Api, names: Sequence[str], name_in: Named, times: dict[str, float], *, within_s: float = PATIENCE_S
) -> AsyncIterator[None]:
    """Record in ``times`` when ``name_in`` first returns each name; the context ends once all are recorded."""
    listed = await api.request("GET", await api.path(RESOURCE, CLAIM), query={"limit": "1"})

    async def follow(*, task_status: TaskStatus[None]) -> None:
        waiting = set(names)
        async with api.watch(RESOURCE, CLAIM, resourceVersion=listed["metadata"]["resourceVersion"]) as events:
            task_status.started()
            async for event in events:
                name = name_in(event)
                if name in waiting:
                    waiting.discard(name)
                    times[name] = time.perf_counter()
                if not waiting:
                    return

    with anyio.fail_after(within_s):
        async with anyio.create_task_group() as group:
            await group.start(follow)
            yield


def _allocated(event: Document) -> str:
    return str(event["object"]["metadata"]["name"]) if _has_allocation(event) else ""


def _gone(event: Document) -> str:
    return str(event["object"]["metadata"]["name"]) if event["type"] == "DELETED" else ""


def _allocated_for(event: Document) -> str:
    """The pod for which the claim was made."""
    owners = event["object"]["metadata"].get("ownerReferences", ())
    return str(owners[0]["name"]) if owners and _has_allocation(event) else ""


def _has_allocation(event: Document) -> bool:
    return "allocation" in event["object"].get("status", {})


async def _pods(api: Api) -> list[Row]:
    """Measure pods with a generated claim, created at the same time."""
    rows = []
    for count, times in PENDING.items():
        seconds: list[float] = []
        for number in range(times):
            say(f"{count} pods wait, {number + 1} of {times}")
            seconds += await _burst(api, count)
        rows.append(Row(name=f"pod created to claim allocated, {count} at once", unit="s", samples=seconds))
    return rows


async def _burst(api: Api, count: int) -> list[float]:
    """Return the seconds of each pod; afterwards all are deleted."""
    names = [f"p{secrets.token_hex(4)}" for _ in range(count)]
    created: dict[str, float] = {}
    allocated: dict[str, float] = {}

    async def create(name: str) -> None:
        created[name] = time.perf_counter()
        await api.create(_pod(name))

    async with _record_times(api, names, _allocated_for, allocated):
        await in_flight(CALLS, [partial(create, name) for name in names])
    await in_flight(CALLS, [partial(api.delete, "v1", "Pod", name, SPACE, grace_s=0) for name in names])

    async def no_claims() -> bool:
        return not await api.list(RESOURCE, CLAIM, SPACE)

    await until(no_claims)
    return [allocated[name] - created[name] for name in names]


def _pod(name: str) -> Document:
    claims = [{"name": "gpu", "source": {"resourceClaimTemplateName": "small"}}]
    container = {"name": "main", "image": IMAGE, "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"containers": [container], "resourceClaims": claims, "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


async def _many(cluster: Cluster, api: Api) -> list[Row]:
    """Measure the controller's memory during and after the allocation of more claims than most clusters have."""
    before = resident_mb(cluster.processes.pid(CONTROLLER))
    names = [f"c{secrets.token_hex(4)}" for _ in range(MANY_CLAIMS)]
    say(f"{MANY_CLAIMS} claims are made and allocated")
    calls = [partial(_create, api, name) for name in names]
    making = partial(in_flight, CALLS, calls)
    seconds = await _time_until_all(api, names, _allocated, making, within_s=3 * PATIENCE_S)
    memory = resident_mb(cluster.processes.pid(CONTROLLER))
    return [
        Row(
            name=f"{MANY_CLAIMS} claims made and allocated on {NODES} nodes",
            unit="claims/s",
            samples=[MANY_CLAIMS / seconds],
        ),
        Row(
            name=f"controller: memory with {MANY_CLAIMS} claims",
            unit="MB",
            samples=[memory],
            baseline_name="before them",
            baseline=[before],
        ),
    ]
