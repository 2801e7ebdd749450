"""Whoever fails, whenever: claims are allocated once, pods run, nothing is left."""

import signal
from collections.abc import AsyncIterator

import pytest

from tests.e2e.classic.fault_injection import When, Write, controller_behind_proxy
from tests.e2e.classic.marks import immediate
from tests.e2e.classic.scene import Scene
from tests.e2e.wait import eventually
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import CONTROLLER, NAMESPACE, Kerf

MANY = 14
"""1g.10gb partitions of two H100: what the node has."""
SECOND = f"{CONTROLLER}-2"
LEASES = "coordination.k8s.io/v1"
ONE = {"resourceClaimName": "one"}


@pytest.fixture
async def second(scene: Scene, kerf: Kerf, cluster: Cluster) -> AsyncIterator[str]:
    """Another replica, which waits for the Lease; the first one leads again at the end."""
    await leads(scene, CONTROLLER)
    await kerf.start_controller(SECOND)
    yield SECOND
    await cluster.processes.stop(SECOND)
    await leads(scene, CONTROLLER)


async def leads(scene: Scene, name: str) -> None:
    """Wait until the Lease is that replica's."""

    async def probe() -> bool:
        lease = await scene.api.get(LEASES, "Lease", CONTROLLER, NAMESPACE)
        return bool(lease["spec"]["holderIdentity"] == name)

    await eventually(f"{name} leads", probe)


@immediate
async def test_a_controller_that_is_killed_again_and_again_allocates_everything_once(
    scene: Scene, kerf: Kerf, cluster: Cluster
) -> None:
    # NE-01, R-5
    for number in range(MANY):
        await scene.claim(f"c{number}", "gpu-small", immediate=True)
        if number % 5 == 2:
            await cluster.processes.kill(CONTROLLER)
            await kerf.start_controller()
    await scene.all_allocated(MANY)


async def test_another_replica_goes_on_where_the_leader_was_killed(
    scene: Scene, second: str, kerf: Kerf, cluster: Cluster
) -> None:
    for number in range(4):
        await scene.claim(f"c{number}", "gpu-small")
        await scene.pod(f"p{number}", {"gpu": {"resourceClaimName": f"c{number}"}})
    await scene.allocated("c0")
    await cluster.processes.kill(CONTROLLER)
    await leads(scene, second)
    await scene.all_allocated(4)
    await kerf.start_controller()


async def test_a_leader_that_stands_still_beyond_its_lease_gives_nothing_away_twice(
    scene: Scene, second: str, kerf: Kerf, cluster: Cluster
) -> None:
    """SIGSTOP with its allocation on the way: the other replica leads and gives the last card away, then it arrives."""
    await scene.claim("first", "gpu-by-size", await scene.parameters("both", {"cut": "Whole", "count": 2}))
    await scene.claim("other", "gpu-h100-whole")
    answers = []

    async def stand_still() -> None:
        cluster.processes.signal(CONTROLLER, signal.SIGSTOP)
        await leads(scene, second)
        await scene.delete_pod("first")  # else its successor allocates the same claim, which is no danger
        await scene.pod("other", {"gpu": {"resourceClaimName": "other"}})
        answers.append(await scene.allocated("other"))

    await cluster.processes.stop(second)
    async with controller_behind_proxy(cluster, kerf) as (proxy, _):
        await leads(scene, CONTROLLER)
        await kerf.start_controller(second)
        strike = proxy.strike(Write.ALLOCATION, "first", When.BEFORE, stand_still, loses=False)
        try:
            await scene.pod("first", {"gpu": {"resourceClaimName": "first"}})

            async def has_arrived() -> bool:
                return strike.status != 0

            await eventually("the allocation has arrived", has_arrived)
        finally:
            cluster.processes.signal(CONTROLLER, signal.SIGCONT)
        assert strike.status == 409
        assert await scene.allocated("other") == answers[0]
        await scene.all_allocated(1)


async def test_pods_run_although_the_api_server_was_away(scene: Scene, cluster: Cluster) -> None:
    await scene.claim("one", "gpu-small")
    await scene.claim("two", "gpu-small")
    await scene.pod("before", {"gpu": ONE})
    await cluster.processes.kill("apiserver")
    cluster.start_part("apiserver")
    await cluster.wait_served()
    await scene.pod("after", {"gpu": {"resourceClaimName": "two"}})
    await scene.runs("before")
    await scene.runs("after")


async def test_pods_run_although_the_scheduler_was_away_while_their_claims_were_allocated(
    scene: Scene, cluster: Cluster
) -> None:
    await scene.template("small", "gpu-small")
    for name in ("p1", "p2", "p3", "p4"):
        await scene.pod(name, {"gpu": {"resourceClaimTemplateName": "small"}})
        if name == "p2":
            await cluster.processes.kill("scheduler")
    cluster.start_part("scheduler")
    for name in ("p1", "p2", "p3", "p4"):
        await scene.runs(name)
    await scene.all_allocated(4)


async def test_a_plugin_that_is_away_makes_its_node_unsuitable_and_pods_run_when_it_is_back(
    scene: Scene, kerf: Kerf
) -> None:
    #
    await kerf.stop_plugin(scene.node.name)
    try:
        await scene.claim("one", "gpu-small")
        await scene.pod("pod", {"gpu": ONE})
        await scene.says("pod", "its kubelet plugin is not running (1)")
    finally:
        await kerf.start_plugin(scene.node.name)
    await scene.runs("pod")


async def test_a_node_that_is_lost_gives_its_claims_back_and_is_clean_when_it_returns(
    scene: Scene, kerf: Kerf, cluster: Cluster
) -> None:
    """Nobody has unprepared anything: the power fails, and the node's pods are deleted by force."""
    #
    node = scene.node.name
    await scene.claim("one", "gpu-small")
    await scene.pod("pod", {"gpu": ONE})
    await scene.runs("pod")
    await cluster.power_off(node)
    await kerf.crash_plugin(node)
    await scene.delete_pod("pod")
    await scene.released("one")
    await cluster.boot_node(node)
    await cluster.wait_node_ready(scene.api, node)
    await kerf.start_plugin(node)
    await scene.nothing_left()
    await scene.claim("two", "gpu-small")  # a kubelet until 1.30 believes for ever that the lost pod has the first one
    await scene.pod("again", {"gpu": {"resourceClaimName": "two"}})
    await scene.runs("again")


@immediate
async def test_a_claim_that_somebody_strips_of_its_finalizer_gives_its_devices_back(scene: Scene) -> None:
    """The claim goes without deallocation: what is taken is what claims say, so nothing has to be cleaned up."""
    both = await scene.parameters("whole", {"cut": "Whole", "count": 2})
    await scene.claim("one", "gpu-by-size", both, immediate=True)
    await scene.allocated("one")
    await scene.api.patch(scene.resource, "ResourceClaim", "one", {"metadata": {"finalizers": None}}, scene.namespace)
    await scene.delete_claim("one")
    await scene.claim("two", "gpu-by-size", both, immediate=True)
    await scene.allocated("two")
