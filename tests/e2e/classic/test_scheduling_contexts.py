"""Scheduler and controllers agree on a node: contexts that nobody expects, other drivers, classes, and limits."""

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from tests.e2e.classic.nodes import with_cards
from tests.e2e.classic.scene import CONTEXT, Scene
from tests.e2e.wait import eventually
from tests.realcluster.api import Document
from tests.realcluster.cluster import Cluster

ONE = {"resourceClaimName": "one"}
BARE = ("bare1", "bare2")
WITHOUT_PLUGIN = "bare3"
OTHER = "other.test"
"""A driver whose controller is the test itself."""
SHARERS = 32
"""Pods that may use a claim at a time (``ResourceClaimReservedForMaxSize``)."""


@pytest.fixture
async def bare(scene: Scene) -> AsyncIterator[None]:
    """Two nodes without kubelets on which claims can be allocated; no pod is left on them."""
    async with with_cards(scene.api, BARE, like=scene.node.name):
        yield
        for pod in await scene.api.list("v1", "Pod", scene.namespace):
            await scene.delete_pod(pod["metadata"]["name"])


def only_on(*nodes: str) -> Document:
    """A pod's affinity."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": named(*nodes)}}


def named(*nodes: str) -> Document:
    """A node selector."""
    chosen = [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}]
    return {"nodeSelectorTerms": [{"matchExpressions": chosen}]}


def node_of(allocation: Document) -> str:
    """The one that an allocation of Kerf's is bound to."""
    selector = allocation.get("availableOnNodes") or allocation["nodeSelector"]
    (name,) = selector["nodeSelectorTerms"][0]["matchFields"][0]["values"]
    return str(name)


async def test_a_selected_node_that_cannot_serve_the_claim_is_reported_and_nothing_allocated(
    scene: Scene, cluster: Cluster
) -> None:
    # S-14, Q-1: also where it is not among the potential nodes
    await cluster.processes.kill("scheduler")
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE})
    pod = await scene.api.get("v1", "Pod", "pod", scene.namespace)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": pod["metadata"]["uid"], "controller": True}
    metadata = {"name": "pod", "namespace": scene.namespace, "ownerReferences": [owner]}
    spec = {"selectedNode": WITHOUT_PLUGIN, "potentialNodes": [scene.node.name]}
    await scene.api.create({"apiVersion": scene.resource, "kind": CONTEXT, "metadata": metadata, "spec": spec})

    async def reported() -> bool:
        context = await scene.api.get(scene.resource, CONTEXT, "pod", scene.namespace)
        return bool(context.get("status") == {"resourceClaims": [{"name": "gpu", "unsuitableNodes": [WITHOUT_PLUGIN]}]})

    await eventually("the node is reported", reported)
    await scene.says("pod", f"node {WITHOUT_PLUGIN}: its kubelet plugin of kerf.dev has not reported yet")
    assert await scene.devices() == []
    cluster.start_part("scheduler")
    await scene.runs("pod")


async def test_where_another_driver_refuses_the_node_kerfs_claim_moves_with_the_pod(scene: Scene, bare: None) -> None:
    """It is deallocated once, allocated again on the other node, and both claims are there for the pod."""
    await scene.class_("other", driver=OTHER)
    await scene.claim("ours", "gpu-small")
    await scene.claim("theirs", "other", driver=OTHER)
    claims = {"ours": {"resourceClaimName": "ours"}, "theirs": {"resourceClaimName": "theirs"}}
    async with allocations_of(scene, "ours") as seen:
        await scene.pod("pod", claims, affinity=only_on(*BARE))
        await refuse(scene, "pod", "theirs", [])
        first = node_of(await scene.allocated("ours"))
        await refuse(scene, "pod", "theirs", [first])
        (second,) = set(BARE) - {first}

        async def has_moved() -> bool:
            return seen == [first, second]

        await eventually("our claim is allocated on the other node", has_moved, but=lambda: scene.told("pod"))
        allocated = scene.dialect.allocation(OTHER, named(second))
        await scene.api.patch(
            scene.resource, "ResourceClaim", "theirs", {"status": allocated}, scene.namespace, subresource="status"
        )
        assert await scene.is_bound("pod") == second
    assert seen == [first, second]
    await scene.delete_pod("pod")
    released = {"status": dict.fromkeys((*allocated, "deallocationRequested"))}

    async def is_unused() -> bool:
        return not (await scene.read_claim("theirs"))["status"].get("reservedFor")

    await eventually("the other driver's claim is unused", is_unused)
    await scene.api.patch(scene.resource, "ResourceClaim", "theirs", released, scene.namespace, subresource="status")
    await scene.delete_class("other")


async def refuse(scene: Scene, pod: str, entry: str, nodes: Sequence[str]) -> None:
    """Say for the other driver which nodes it cannot serve."""
    path = await scene.api.path(scene.resource, CONTEXT, scene.namespace, pod, "status")
    entries = [{"name": entry, "unsuitableNodes": list(nodes)}]
    metadata = {"name": pod, "namespace": scene.namespace}
    document = {"apiVersion": scene.resource, "kind": CONTEXT, "metadata": metadata}

    async def is_there() -> Document | None:
        return await scene.api.find(scene.resource, CONTEXT, pod, scene.namespace)

    await eventually(f"there is a context of {pod}", is_there)
    await scene.api.request(
        "PATCH",
        path,
        {**document, "status": {"resourceClaims": entries}},
        query={"fieldManager": OTHER, "force": "true"},
        content_type="application/apply-patch+yaml",
    )


@asynccontextmanager
async def allocations_of(scene: Scene, name: str) -> AsyncIterator[list[str]]:
    """The nodes on which the claim has been allocated so far, one after the other."""
    made, seen = await scene.read_claim(name), list[str]()
    is_allocated = False
    version = made["metadata"]["resourceVersion"]

    async def follow() -> None:
        nonlocal is_allocated
        async with scene.api.watch(scene.resource, "ResourceClaim", resourceVersion=version) as events:
            async for event in events:
                if event["object"]["metadata"].get("uid") != made["metadata"]["uid"]:
                    continue
                allocation = event["object"].get("status", {}).get("allocation")
                if allocation and not is_allocated:
                    seen.append(node_of(allocation))
                is_allocated = bool(allocation)

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        yield seen
        group.cancel_scope.cancel()


async def test_a_pod_waits_for_a_node_that_its_class_lets_it_use(scene: Scene) -> None:
    await scene.class_(scene.namespace, suitable_nodes=named(WITHOUT_PLUGIN))
    await scene.claim("one", scene.namespace, await scene.parameters("size", {"profile": "1g.10gb"}))
    await scene.pod("pod", {"gpu": ONE})
    await scene.says("pod", "0/4 nodes are available")
    nodes = {"suitableNodes": named(scene.node.name)}
    changed = nodes if scene.dialect.refers else {"spec": nodes}
    await scene.api.patch(scene.resource, scene.dialect.class_kind, scene.namespace, changed)
    await scene.runs("pod")
    await scene.delete_class(scene.namespace)


async def test_an_entry_that_needs_no_claim_does_not_keep_the_pod_waiting(scene: Scene, cluster: Cluster) -> None:
    """Whoever makes claims may say that none is needed; here it stands still, and the test says it (KEP-3063).

    The entry is the last one: kube-scheduler 1.30 takes the names of entries by their position among the claims.
    """
    # S-8
    await scene.claim("one", "gpu-small")
    await scene.template("small", "gpu-small")
    cluster.processes.signal("controller-manager", signal.SIGSTOP)
    try:
        await scene.pod("pod", {"gpu": ONE, "none": {"resourceClaimTemplateName": "small"}})
        none = {"status": {"resourceClaimStatuses": [{"name": "none"}]}}
        await scene.api.patch("v1", "Pod", "pod", none, scene.namespace, subresource="status")
        await scene.runs("pod")
    finally:
        cluster.processes.signal("controller-manager", signal.SIGCONT)
    assert len(await scene.claims()) == len(scene.node.cut) == 1


async def test_more_pods_than_may_share_a_claim_use_it_one_after_the_other(scene: Scene, bare: None) -> None:
    #
    await scene.claim("one", "gpu-shared")
    names = [f"p{number}" for number in range(SHARERS + 2)]
    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(partial(scene.pod, name, {"gpu": ONE}, affinity=only_on(BARE[0])))
    await scene.all_bound(SHARERS)
    assert len((await scene.read_claim("one"))["status"]["reservedFor"]) == SHARERS
    for name in [name for name in names if name not in await scene.waiting()][:2]:
        await scene.delete_pod(name)
    await scene.all_bound(SHARERS)
    assert await scene.waiting() == []
