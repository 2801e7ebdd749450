"""Two hundred nodes and as many pods: the lists of nodes stay within their limit, and how long it takes is printed."""

import time

import anyio

from tests.e2e.classic.scene import KERF, RESOURCE, Scene
from tests.e2e.eventually import eventually
from tests.realcluster.cluster import add_bare_node

NODES = 200
PODS = 50


async def add_node(scene: Scene, name: str, spec: dict[str, object]) -> None:
    """A node without a kubelet whose plugin seems to be there."""
    await add_bare_node(scene.api, name)
    await scene.api.apply(
        {"apiVersion": KERF, "kind": "NodeInventory", "metadata": {"name": name}, "spec": {**spec, "ready": True}}
    )


async def test_fifty_pods_on_two_hundred_nodes(scene: Scene) -> None:
    # S-12, S-17: potentialNodes of more than 128 candidates
    spec = (await scene.api.get(KERF, "NodeInventory", scene.node.name))["spec"]
    names = [f"many{number:03}" for number in range(NODES)]
    try:
        for start in range(0, NODES, 20):
            async with anyio.create_task_group() as tasks:
                for name in names[start : start + 20]:
                    tasks.start_soon(add_node, scene, name, spec)
        await scene.template("whole", "gpu-h100-whole")
        began = time.monotonic()
        source = {"gpu": {"resourceClaimTemplateName": "whole"}}
        async with anyio.create_task_group() as tasks:
            for number in range(PODS):
                tasks.start_soon(scene.pod, f"p{number}", source)

        async def all_allocated() -> bool:
            claims = await scene.api.list(RESOURCE, "ResourceClaim", scene.namespace)
            return len([one for one in claims if "allocation" in one.get("status", {})]) == PODS

        await eventually(f"{PODS} claims are allocated", all_allocated, within_s=120)
        print(f"\n{PODS} pods on {NODES} nodes: {time.monotonic() - began:.1f} s until all claims were allocated")
    finally:
        for pod in await scene.api.list("v1", "Pod", scene.namespace):
            await scene.api.delete("v1", "Pod", pod["metadata"]["name"], scene.namespace, grace_s=0)
        for name in names:
            await scene.api.delete("v1", "Node", name)
