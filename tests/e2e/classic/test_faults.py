"""Failures of any part at any time: claims are allocated once, pods run, and nothing is left."""

import shutil
import signal
from collections.abc import AsyncIterator

import pytest

from tests.e2e.classic.fault_injection import FaultPoint, Write, controller_behind_proxy
from tests.e2e.classic.marks import immediate
from tests.e2e.classic.namespace import ClassicNamespace
from tests.e2e.wait import eventually
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import CONTROLLER, NAMESPACE, Kerf

MANY = 14
"""1g.10gb partitions of two H100: what the node has."""
AWAY_S = 120.0
"""The time limit where a leader changes, or clients of a part that was away try again after half a minute."""
SECOND = f"{CONTROLLER}-2"
LEASES = "coordination.k8s.io/v1"
ONE = {"resourceClaimName": "one"}


@pytest.fixture
async def second(namespace: ClassicNamespace, kerf: Kerf, cluster: Cluster) -> AsyncIterator[str]:
    """A second replica, which waits for the Lease; at the end the first one leads again."""
    await wait_leader(namespace, CONTROLLER)
    await kerf.start_controller(SECOND)
    yield SECOND
    await cluster.processes.stop(SECOND)
    await wait_leader(namespace, CONTROLLER)


async def wait_leader(namespace: ClassicNamespace, name: str) -> None:
    """Wait until the replica ``name`` holds the Lease."""

    async def probe() -> bool:
        lease = await namespace.api.get(LEASES, "Lease", CONTROLLER, NAMESPACE)
        return bool(lease["spec"]["holderIdentity"] == name)

    await eventually(f"{name} leads", probe)


@immediate
async def test_a_controller_that_is_killed_again_and_again_allocates_everything_once(
    namespace: ClassicNamespace, kerf: Kerf, cluster: Cluster
) -> None:
    # NE-01, R-5
    for number in range(MANY):
        await namespace.claim(f"c{number}", "gpu-small", immediate=True)
        if number % 5 == 2:
            await cluster.processes.kill(CONTROLLER)
            await kerf.start_controller()
    await namespace.wait_allocated_count(MANY)


async def test_another_replica_goes_on_where_the_leader_was_killed(
    namespace: ClassicNamespace, second: str, kerf: Kerf, cluster: Cluster
) -> None:
    for number in range(4):
        await namespace.claim(f"c{number}", "gpu-small")
        await namespace.pod(f"p{number}", {"gpu": {"resourceClaimName": f"c{number}"}})
    await namespace.wait_allocated("c0")
    await cluster.processes.kill(CONTROLLER)
    await wait_leader(namespace, second)
    await namespace.wait_allocated_count(4)
    await kerf.start_controller()


async def test_a_leader_that_stands_still_beyond_its_lease_gives_nothing_away_twice(
    namespace: ClassicNamespace, second: str, kerf: Kerf, cluster: Cluster
) -> None:
    """SIGSTOP with its allocation on the way: the other replica leads and gives the last card away, then it arrives."""
    await namespace.claim("first", "gpu-by-size", await namespace.parameters("both", {"cut": "Whole", "count": 2}))
    await namespace.claim("other", "gpu-h100-whole")
    answers = []

    async def stand_still() -> None:
        cluster.processes.signal(CONTROLLER, signal.SIGSTOP)
        await wait_leader(namespace, second)
        await namespace.delete_pod("first")  # else its successor allocates the same claim, which is no danger
        await namespace.pod("other", {"gpu": {"resourceClaimName": "other"}})
        answers.append(await namespace.wait_allocated("other"))

    await cluster.processes.stop(second)
    async with controller_behind_proxy(cluster, kerf) as (proxy, _):
        await wait_leader(namespace, CONTROLLER)
        await kerf.start_controller(second)
        fault = proxy.inject(Write.ALLOCATION, "first", FaultPoint.BEFORE, stand_still, breaks_connection=False)
        try:
            await namespace.pod("first", {"gpu": {"resourceClaimName": "first"}})

            async def has_arrived() -> bool:
                return fault.status != 0

            await eventually("the allocation has arrived", has_arrived, within_s=AWAY_S)
        finally:
            cluster.processes.signal(CONTROLLER, signal.SIGCONT)
        assert fault.status == 409
        assert await namespace.wait_allocated("other") == answers[0]
        await namespace.wait_allocated_count(1)


async def test_pods_run_although_the_api_server_was_away(namespace: ClassicNamespace, cluster: Cluster) -> None:
    await namespace.claim("one", "gpu-small")
    await namespace.claim("two", "gpu-small")
    await namespace.pod("before", {"gpu": ONE})
    await cluster.processes.kill("apiserver")
    cluster.start_part("apiserver")
    await cluster.wait_served()
    await namespace.pod("after", {"gpu": {"resourceClaimName": "two"}})
    await namespace.wait_running("before", within_s=AWAY_S)
    await namespace.wait_running("after", within_s=AWAY_S)


async def test_pods_run_although_the_scheduler_was_away_while_their_claims_were_allocated(
    namespace: ClassicNamespace, cluster: Cluster
) -> None:
    await namespace.template("small", "gpu-small")
    for name in ("p1", "p2", "p3", "p4"):
        await namespace.pod(name, {"gpu": {"resourceClaimTemplateName": "small"}})
        if name == "p2":
            await cluster.processes.kill("scheduler")
    cluster.start_part("scheduler")
    for name in ("p1", "p2", "p3", "p4"):
        await namespace.wait_running(name, within_s=AWAY_S)
    await namespace.wait_allocated_count(4)


async def test_a_plugin_that_is_away_makes_its_node_unsuitable_and_pods_run_when_it_is_back(
    namespace: ClassicNamespace, kerf: Kerf
) -> None:
    #
    await kerf.stop_plugin(namespace.node.name)
    try:
        await namespace.claim("one", "gpu-small")
        await namespace.pod("pod", {"gpu": ONE})
        await namespace.wait_event("pod", "its kubelet plugin of gpu.kerf.dev is not running (1)")
    finally:
        await kerf.start_plugin(namespace.node.name)
    await namespace.wait_running("pod")


async def test_a_node_that_is_lost_gives_its_claims_back_and_is_clean_when_it_returns(
    namespace: ClassicNamespace, kerf: Kerf, cluster: Cluster
) -> None:
    """Nobody has unprepared anything: the power fails, and the node's pods are deleted by force."""
    #
    node = namespace.node.name
    await namespace.claim("one", "gpu-small")
    await namespace.pod("pod", {"gpu": ONE})
    await namespace.wait_running("pod")
    await cluster.power_off(node)
    await kerf.crash_plugin(node)
    shutil.rmtree(kerf.hardware_state(node))  # partitions do not survive a boot
    await namespace.delete_pod("pod")
    await namespace.wait_released("one")
    await cluster.boot_node(node)
    await cluster.wait_node_ready(namespace.api, node)
    await kerf.start_plugin(node)
    await namespace.wait_clean()
    await namespace.claim(
        "two", "gpu-small"
    )  # a kubelet until 1.30 believes for ever that the lost pod has the first one
    await namespace.pod("again", {"gpu": {"resourceClaimName": "two"}})
    await namespace.wait_running("again")


@immediate
async def test_a_claim_that_somebody_strips_of_its_finalizer_gives_its_devices_back(
    namespace: ClassicNamespace,
) -> None:
    """The claim goes without deallocation: what is taken is what claims say, so nothing has to be cleaned up."""
    both = await namespace.parameters("whole", {"cut": "Whole", "count": 2})
    await namespace.claim("one", "gpu-by-size", both, immediate=True)
    await namespace.wait_allocated("one")
    await namespace.api.patch(
        namespace.resource, "ResourceClaim", "one", {"metadata": {"finalizers": None}}, namespace.name
    )
    await namespace.delete_claim("one")
    await namespace.claim("two", "gpu-by-size", both, immediate=True)
    await namespace.wait_allocated("two")
