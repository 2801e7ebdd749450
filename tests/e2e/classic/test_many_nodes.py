"""Two hundred nodes and fifty pods: everybody gets a card, and lists of nodes stay within their limit."""

import time
from collections.abc import AsyncIterator, Sequence

import anyio
import pytest

from tests.e2e.classic.nodes import with_cards
from tests.e2e.classic.scene import CONTEXT, Scene
from tests.e2e.wait import eventually
from tests.realcluster.api import Document
from tests.realcluster.cluster import add_bare_node

NODES = 200
PODS = 50
LIMIT = 128
"""Of ``potentialNodes`` and ``unsuitableNodes`` (PodSchedulingNodeListMaxSize)."""


@pytest.fixture
async def many_nodes(scene: Scene) -> AsyncIterator[Sequence[str]]:
    names = [f"many{number:03}" for number in range(NODES)]
    limiter = anyio.CapacityLimiter(20)

    async def add(name: str) -> None:
        async with limiter:
            await add_bare_node(scene.api, name)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(add, name)
    async with with_cards(scene.api, names, like=scene.node.name):
        yield names
        for pod in await scene.api.list("v1", "Pod", scene.namespace):
            await scene.delete_pod(pod["metadata"]["name"])
        for name in names:
            await scene.api.delete("v1", "Node", name)


async def test_fifty_pods_on_two_hundred_nodes(scene: Scene, many_nodes: Sequence[str]) -> None:
    # S-12, S-17
    await scene.claim("three", "gpu-by-size", await scene.parameters("three", {"cut": "Whole", "count": 3}))
    await scene.pod("never", {"gpu": {"resourceClaimName": "three"}})
    await scene.template("whole", "gpu-h100-whole")
    began = time.monotonic()
    async with anyio.create_task_group() as group:
        for number in range(PODS):
            group.start_soon(scene.pod, f"p{number}", {"gpu": {"resourceClaimTemplateName": "whole"}})
    await scene.all_bound(PODS)
    print(f"\n{PODS} pods on {len(many_nodes)} nodes: {time.monotonic() - began:.1f} s until all had a node")

    async def unsuitable() -> Document | None:
        context = await scene.api.get(scene.resource, CONTEXT, "never", scene.namespace)
        entries = context.get("status", {}).get("resourceClaims", ())
        return entries[0] if entries and len(entries[0].get("unsuitableNodes", ())) == LIMIT else None

    reported = (await eventually(f"{LIMIT} nodes are reported", unsuitable))["unsuitableNodes"]
    assert reported == sorted(reported)
