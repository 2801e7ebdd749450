"""Two hundred nodes and fifty pods: each pod gets a card, and lists of nodes stay within their limit."""

import time
from collections.abc import AsyncIterator, Sequence

import anyio
import pytest

from tests.e2e.classic.namespace import CONTEXT, ClassicNamespace
from tests.e2e.classic.nodes import with_cards
from tests.e2e.wait import eventually
from tools.realcluster.api import Document
from tools.realcluster.cluster import add_bare_node

NODES = 200
PODS = 50
LIMIT = 128
"""Of ``potentialNodes`` and ``unsuitableNodes`` (PodSchedulingNodeListMaxSize)."""


@pytest.fixture
async def many_nodes(namespace: ClassicNamespace) -> AsyncIterator[Sequence[str]]:
    names = [f"many{number:03}" for number in range(NODES)]
    limiter = anyio.CapacityLimiter(20)

    async def add(name: str) -> None:
        async with limiter:
            await add_bare_node(namespace.api, name)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(add, name)
    async with with_cards(namespace.api, names, like=namespace.node.name):
        yield names
        for pod in await namespace.api.list("v1", "Pod", namespace.name):
            await namespace.delete_pod(pod["metadata"]["name"])
        for name in names:
            await namespace.api.delete("v1", "Node", name)


async def test_fifty_pods_on_two_hundred_nodes(namespace: ClassicNamespace, many_nodes: Sequence[str]) -> None:
    # S-12, S-17
    await namespace.claim("three", "gpu-by-size", await namespace.parameters("three", {"cut": "Whole", "count": 3}))
    await namespace.pod("never", {"gpu": {"resourceClaimName": "three"}})
    await namespace.template("whole", "gpu-h100-whole")
    began = time.monotonic()
    async with anyio.create_task_group() as group:
        for number in range(PODS):
            group.start_soon(namespace.pod, f"p{number}", {"gpu": {"resourceClaimTemplateName": "whole"}})
    await namespace.wait_bound_count(PODS)
    print(f"\n{PODS} pods on {len(many_nodes)} nodes: {time.monotonic() - began:.1f} s until all had a node")

    async def unsuitable() -> Document | None:
        context = await namespace.api.get(namespace.resource, CONTEXT, "never", namespace.name)
        entries = context.get("status", {}).get("resourceClaims", ())
        return entries[0] if entries and len(entries[0].get("unsuitableNodes", ())) == LIMIT else None

    reported = (await eventually(f"{LIMIT} nodes are reported", unsuitable))["unsuitableNodes"]
    assert reported == sorted(reported)
