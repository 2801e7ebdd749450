"""Whatever is deleted, and in whatever order: nothing is left."""

import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.namespace import Space
from tests.e2e.wait import eventually
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import Hardware, Kerf

HARDWARE = Hardware(
    cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}],
    options={"delays": {"nvmlDeviceCreateGpuInstanceWithPlacement": 2.0}},
)


async def small(space: Space) -> str:
    return await space.resource_class("small", device="gpu", profile="1g.10gb")


async def test_a_claim_deleted_while_its_pod_waits_for_it_is_never_prepared(space: Space) -> None:
    whole = await space.resource_class("whole", device="gpu", cut="Whole")
    await space.template("whole", pods.exactly("gpu", whole))
    await space.pods_of("whole", "first")
    await space.running("first")
    await space.claim("second", pods.exactly("gpu", whole))
    await space.apply(pods.pod("second", {"gpu": pods.by_name("second")}))
    await space.waits("second", "FailedScheduling")
    await space.api.delete("resource.k8s.io/v1", "ResourceClaim", "second", space.name)
    await space.gone("resource.k8s.io/v1", "ResourceClaim", "second")
    await space.delete_pod("first")
    await space.nothing_left()
    assert (await space.pod("second"))["status"]["phase"] == "Pending"


async def test_a_claim_deleted_while_a_pod_uses_it_stays_until_the_pod_is_gone(space: Space) -> None:
    await space.claim("gpu", pods.exactly("gpu", await small(space)))
    await space.apply(pods.pod("p", {"gpu": pods.by_name("gpu")}))
    before = await space.running("p")
    await space.api.delete("resource.k8s.io/v1", "ResourceClaim", "gpu", space.name)
    assert (await space.running("p")).starts == before.starts
    assert len(space.node.cut) == 1
    await space.delete_pod("p")
    await space.gone("resource.k8s.io/v1", "ResourceClaim", "gpu")
    await space.nothing_left()


async def test_a_pod_deleted_by_force_leaves_nothing(space: Space) -> None:
    await space.template("small", pods.exactly("gpu", await small(space)))
    await space.pods_of("small", "p")
    await space.running("p")
    await space.delete_pod("p", grace_s=0)
    await space.nothing_left()


async def test_a_pod_deleted_by_force_while_its_partition_is_cut_leaves_nothing(space: Space) -> None:
    await space.template("small", pods.exactly("gpu", await small(space)))
    await space.pods_of("small", "p")

    async def is_cutting() -> bool:
        return await space.node.claim_records() == 1

    await eventually("the claim is being prepared", is_cutting)
    await space.delete_pod("p", grace_s=0)
    await space.nothing_left()


@pytest.mark.parametrize("count", [1, 5])
async def test_a_namespace_deleted_with_everything_in_it_leaves_nothing(space: Space, count: int) -> None:
    await space.template("small", pods.exactly("gpu", await small(space)))
    names = [f"p{number}" for number in range(count)]
    await space.pods_of("small", *names)
    for name in names:
        await space.running(name)
    await space.api.delete("v1", "Namespace", space.name)
    await space.gone("v1", "Namespace", space.name)
    await space.nothing_left()


async def test_a_node_that_is_lost_and_deleted_takes_its_slices_pods_and_claims_along(
    space: Space, cluster: Cluster, kerf: Kerf
) -> None:
    await space.template("small", pods.exactly("gpu", await small(space)))
    await space.pods_of("small", "p")
    await space.running("p")
    await cluster.processes.kill(f"{NODE}-kubelet")
    await kerf.crash_plugin(NODE)
    await space.api.delete("v1", "Node", NODE)

    async def nothing_in_the_api() -> bool:
        slices = await space.api.list("resource.k8s.io/v1", "ResourceSlice")
        return not slices and not await space.claims() and await space.api.find("v1", "Pod", "p", space.name) is None

    await eventually("slices, pod and claim are gone", nothing_in_the_api, within_s=180)
    assert len(space.node.cut) == 1, "on the lost node nobody has changed anything"

    cluster.start_kubelet(NODE)
    await cluster.wait_node_ready(space.api, NODE)
    await kerf.start_plugin(NODE)
    await space.nothing_left()
