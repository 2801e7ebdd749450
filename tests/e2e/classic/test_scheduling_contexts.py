"""Scheduling contexts: scheduler and controllers agree on a node, with unexpected contexts, other drivers and
limits."""

import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from tests.e2e.classic.namespace import CONTEXT, ClassicNamespace
from tests.e2e.classic.nodes import with_cards
from tests.e2e.wait import eventually
from tools.realcluster.api import Document
from tools.realcluster.cluster import Cluster

ONE = {"resourceClaimName": "one"}
BARE = ("bare1", "bare2")
WITHOUT_PLUGIN = "bare3"
OTHER = "other.test"
"""A driver whose controller is the test itself."""
SHARERS = 32
"""Pods that may use a claim at a time (``ResourceClaimReservedForMaxSize``)."""


@pytest.fixture
async def bare(namespace: ClassicNamespace) -> AsyncIterator[None]:
    """Two nodes without kubelets on which claims can be allocated; no pod is left on them."""
    async with with_cards(namespace.api, BARE, like=namespace.node.name):
        yield
        for pod in await namespace.api.list("v1", "Pod", namespace.name):
            await namespace.delete_pod(pod["metadata"]["name"])


def only_on(*nodes: str) -> Document:
    """Return the affinity that restricts a pod to these nodes."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": named(*nodes)}}


def named(*nodes: str) -> Document:
    """Return the node selector for these nodes."""
    chosen = [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}]
    return {"nodeSelectorTerms": [{"matchExpressions": chosen}]}


def node_of(allocation: Document) -> str:
    """Return the node of one of Kerf's allocations."""
    selector = allocation.get("availableOnNodes") or allocation["nodeSelector"]
    (name,) = selector["nodeSelectorTerms"][0]["matchFields"][0]["values"]
    return str(name)


async def test_a_selected_node_that_cannot_serve_the_claim_is_reported_and_nothing_allocated(
    namespace: ClassicNamespace, cluster: Cluster
) -> None:
    # S-14, Q-1: also where it is not among the potential nodes
    await cluster.processes.kill("scheduler")
    await namespace.claim("one", "gpu-small")
    await namespace.pod("pod", {"gpu": ONE})
    pod = await namespace.api.get("v1", "Pod", "pod", namespace.name)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": pod["metadata"]["uid"], "controller": True}
    metadata = {"name": "pod", "namespace": namespace.name, "ownerReferences": [owner]}
    spec = {"selectedNode": WITHOUT_PLUGIN, "potentialNodes": [namespace.node.name]}
    await namespace.api.create({"apiVersion": namespace.resource, "kind": CONTEXT, "metadata": metadata, "spec": spec})

    async def reported() -> bool:
        context = await namespace.api.get(namespace.resource, CONTEXT, "pod", namespace.name)
        return bool(context.get("status") == {"resourceClaims": [{"name": "gpu", "unsuitableNodes": [WITHOUT_PLUGIN]}]})

    await eventually("the node is reported", reported)
    await namespace.wait_event("pod", f"node {WITHOUT_PLUGIN}: its kubelet plugin of gpu.kerf.dev has not reported yet")
    assert await namespace.devices() == []
    cluster.start_part("scheduler")
    await namespace.wait_running("pod")


async def test_where_another_driver_refuses_the_node_kerfs_claim_moves_with_the_pod(
    namespace: ClassicNamespace, bare: None
) -> None:
    """It is deallocated once, allocated again on the other node, and both claims are there for the pod."""
    await namespace.class_("other", driver=OTHER)
    await namespace.claim("ours", "gpu-small")
    await namespace.claim("theirs", "other", driver=OTHER)
    claims = {"ours": {"resourceClaimName": "ours"}, "theirs": {"resourceClaimName": "theirs"}}
    async with allocations_of(namespace, "ours") as seen:
        await namespace.pod("pod", claims, affinity=only_on(*BARE))
        await refuse(namespace, "pod", "theirs", [])
        first = node_of(await namespace.wait_allocated("ours"))
        await refuse(namespace, "pod", "theirs", [first])
        (second,) = set(BARE) - {first}

        async def has_moved() -> bool:
            return seen == [first, second]

        await eventually(
            "our claim is allocated on the other node", has_moved, but=lambda: namespace.event_messages("pod")
        )
        allocated = namespace.dialect.allocation(OTHER, named(second))
        await namespace.api.patch(
            namespace.resource, "ResourceClaim", "theirs", {"status": allocated}, namespace.name, subresource="status"
        )
        assert await namespace.wait_bound("pod") == second
    assert seen == [first, second]
    await namespace.delete_pod("pod")
    released = {"status": dict.fromkeys((*allocated, "deallocationRequested"))}

    async def is_unused() -> bool:
        return not (await namespace.read_claim("theirs"))["status"].get("reservedFor")

    await eventually("the other driver's claim is unused", is_unused)
    await namespace.api.patch(
        namespace.resource, "ResourceClaim", "theirs", released, namespace.name, subresource="status"
    )
    await namespace.delete_class("other")


async def refuse(namespace: ClassicNamespace, pod: str, entry: str, nodes: Sequence[str]) -> None:
    """Report the nodes that the other driver cannot serve."""
    path = await namespace.api.path(namespace.resource, CONTEXT, namespace.name, pod, "status")
    entries = [{"name": entry, "unsuitableNodes": list(nodes)}]
    metadata = {"name": pod, "namespace": namespace.name}
    document = {"apiVersion": namespace.resource, "kind": CONTEXT, "metadata": metadata}

    async def is_there() -> Document | None:
        return await namespace.api.find(namespace.resource, CONTEXT, pod, namespace.name)

    await eventually(f"there is a context of {pod}", is_there)
    await namespace.api.request(
        "PATCH",
        path,
        {**document, "status": {"resourceClaims": entries}},
        query={"fieldManager": OTHER, "force": "true"},
        content_type="application/apply-patch+yaml",
    )


@asynccontextmanager
async def allocations_of(namespace: ClassicNamespace, name: str) -> AsyncIterator[list[str]]:
    """Return the nodes of all allocations of the claim so far, in order."""
    made, seen = await namespace.read_claim(name), list[str]()
    is_allocated = False
    version = made["metadata"]["resourceVersion"]

    async def follow() -> None:
        nonlocal is_allocated
        async with namespace.api.watch(namespace.resource, "ResourceClaim", resourceVersion=version) as events:
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


async def test_a_pod_waits_for_a_node_that_its_class_lets_it_use(namespace: ClassicNamespace) -> None:
    await namespace.class_(namespace.name, suitable_nodes=named(WITHOUT_PLUGIN))
    await namespace.claim("one", namespace.name, await namespace.parameters("size", {"profile": "1g.10gb"}))
    await namespace.pod("pod", {"gpu": ONE})
    await namespace.wait_event("pod", "0/4 nodes are available")
    nodes = {"suitableNodes": named(namespace.node.name)}
    changed = nodes if namespace.dialect.refers else {"spec": nodes}
    await namespace.api.patch(namespace.resource, namespace.dialect.class_kind, namespace.name, changed)
    await namespace.wait_running("pod")
    await namespace.delete_class(namespace.name)


async def test_an_entry_that_needs_no_claim_does_not_keep_the_pod_waiting(
    namespace: ClassicNamespace, cluster: Cluster
) -> None:
    """Whoever makes claims may say that none is needed; here it stands still, and the test says it (KEP-3063).

    The entry is the last one: kube-scheduler 1.30 takes the names of entries by their position among the claims.
    """
    # S-8
    await namespace.claim("one", "gpu-small")
    await namespace.template("small", "gpu-small")
    cluster.processes.signal("controller-manager", signal.SIGSTOP)
    try:
        await namespace.pod("pod", {"gpu": ONE, "none": {"resourceClaimTemplateName": "small"}})
        none = {"status": {"resourceClaimStatuses": [{"name": "none"}]}}
        await namespace.api.patch("v1", "Pod", "pod", none, namespace.name, subresource="status")
        await namespace.wait_running("pod")
        # Before it goes on: it may have seen the pod without its status, and make the claim after all.
        assert len(await namespace.claims()) == len(namespace.node.gpu_partitions) == 1
    finally:
        cluster.processes.signal("controller-manager", signal.SIGCONT)


async def test_more_pods_than_may_share_a_claim_use_it_one_after_the_other(
    namespace: ClassicNamespace, bare: None
) -> None:
    #
    await namespace.claim("one", "gpu-shared")
    names = [f"p{number}" for number in range(SHARERS + 2)]
    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(partial(namespace.pod, name, {"gpu": ONE}, affinity=only_on(BARE[0])))
    await namespace.wait_bound_count(SHARERS)
    assert len((await namespace.read_claim("one"))["status"]["reservedFor"]) == SHARERS
    for name in [name for name in names if name not in await namespace.unbound_pods()][:2]:
        await namespace.delete_pod(name)
    await namespace.wait_bound_count(SHARERS)
    assert await namespace.unbound_pods() == []
