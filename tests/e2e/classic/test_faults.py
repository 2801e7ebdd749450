"""Whoever fails, whenever: claims are allocated once, pods run, nothing is left (real 1.30)."""

import json
import signal
from collections import Counter

import anyio

from tests.e2e.classic.scene import RESOURCE, Scene
from tests.e2e.eventually import eventually
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import CONTROLLER, Kerf

MANY = 14
"""1g.10gb partitions of two H100: what the node has."""


async def devices_of(scene: Scene) -> list[str]:
    """Every device that a claim of the namespace has."""
    found = []
    for claim in await scene.api.list(RESOURCE, "ResourceClaim", scene.namespace):
        for handle in claim.get("status", {}).get("allocation", {}).get("resourceHandles", ()):
            found += [result["device"] for result in json.loads(handle["data"])["results"]]
    return found


async def all_allocated(scene: Scene, count: int) -> None:
    async def probe() -> bool:
        return len(await devices_of(scene)) == count

    await eventually(f"{count} claims are allocated", probe, but=lambda: devices_of(scene))
    twice = [device for device, times in Counter(await devices_of(scene)).items() if times > 1]
    assert twice == []


async def test_a_controller_that_is_killed_again_and_again_allocates_everything_once(
    scene: Scene, kerf: Kerf, cluster: Cluster
) -> None:
    # NE-01, R-5
    for number in range(MANY):
        await scene.claim(f"c{number}", "gpu-small", allocationMode="Immediate")
        if number % 5 == 2:
            await cluster.processes.kill(CONTROLLER)
            await kerf.start_controller()
    await all_allocated(scene, MANY)


async def test_a_leader_that_stands_still_beyond_its_lease_gives_nothing_away_twice(
    scene: Scene, kerf: Kerf, cluster: Cluster
) -> None:
    """SIGSTOP, the Lease goes to another, SIGCONT: what it had begun must not count any more."""
    for number in range(MANY // 2):
        await scene.claim(f"a{number}", "gpu-small", allocationMode="Immediate")
    await all_allocated(scene, MANY // 2)  # what it has begun, and confirmed before, it may end
    cluster.processes.signal(CONTROLLER, signal.SIGSTOP)
    try:
        lease = await scene.api.get("coordination.k8s.io/v1", "Lease", "kerf-controller", "kerf-system")
        taken = {"spec": {"holderIdentity": "somebody-else", "renewTime": lease["spec"]["renewTime"]}}
        await scene.api.patch("coordination.k8s.io/v1", "Lease", "kerf-controller", taken, "kerf-system")
        for number in range(MANY // 2, MANY):
            await scene.claim(f"a{number}", "gpu-small", allocationMode="Immediate")
    finally:
        cluster.processes.signal(CONTROLLER, signal.SIGCONT)
    await anyio.sleep(3)
    assert len(await devices_of(scene)) == MANY // 2, "it does not lead, so it allocates nothing"
    await scene.api.patch(
        "coordination.k8s.io/v1", "Lease", "kerf-controller", {"spec": {"holderIdentity": ""}}, "kerf-system"
    )
    await all_allocated(scene, MANY)


async def test_pods_run_although_the_api_server_was_away(scene: Scene, cluster: Cluster) -> None:
    await scene.claim("one", "gpu-small")
    await cluster.processes.kill("apiserver")
    cluster.start_part("apiserver")
    await cluster.wait_served()
    await scene.pod("pod", {"gpu": {"resourceClaimName": "one"}})
    await scene.runs("pod")


async def test_a_plugin_that_is_away_makes_its_node_unsuitable_and_pods_run_when_it_is_back(
    scene: Scene, kerf: Kerf
) -> None:
    #
    await kerf.stop_plugin(scene.node.name)
    try:
        await scene.claim("one", "gpu-small")
        await scene.pod("pod", {"gpu": {"resourceClaimName": "one"}})
        await scene.says("pod", "its kubelet plugin is not running (1)")
    finally:
        await kerf.start_plugin(scene.node.name)
    await scene.runs("pod")


async def test_a_claim_that_somebody_strips_of_its_finalizer_gives_its_devices_back(scene: Scene) -> None:
    """The claim goes without deallocation: what is taken is what claims say, so nothing has to be cleaned up."""
    reference = await scene.parameters("whole", {"cut": "Whole", "count": 2})
    await scene.claim("one", "gpu-by-size", allocationMode="Immediate", parametersRef=reference)
    await scene.allocated("one")
    await scene.api.patch(RESOURCE, "ResourceClaim", "one", {"metadata": {"finalizers": None}}, scene.namespace)
    await scene.api.delete(RESOURCE, "ResourceClaim", "one", scene.namespace)
    await scene.claim("two", "gpu-by-size", allocationMode="Immediate", parametersRef=reference)
    await scene.allocated("two")
