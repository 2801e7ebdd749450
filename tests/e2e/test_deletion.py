"""Deletion of pods, claims and classes in any order leaves nothing behind."""

import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware, Kerf

HARDWARE = Hardware(
    cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}],
    options={"delays": {"nvmlDeviceCreateGpuInstanceWithPlacement": 2.0}},
)


async def small(namespace: Namespace) -> str:
    return await namespace.resource_class("small", device="gpu", profile="1g.10gb")


async def test_a_claim_deleted_while_its_pod_waits_for_it_is_never_prepared(namespace: Namespace) -> None:
    whole = await namespace.resource_class("whole", device="gpu", cut="Whole")
    await namespace.template("whole", pods.exactly("gpu", whole))
    await namespace.create_pods("whole", "first")
    await namespace.wait_running("first")
    await namespace.claim("second", pods.exactly("gpu", whole))
    await namespace.apply(pods.pod("second", {"gpu": pods.by_name("second")}))
    await namespace.wait_event("second", "FailedScheduling")
    await namespace.api.delete("resource.k8s.io/v1", "ResourceClaim", "second", namespace.name)
    await namespace.wait_gone("resource.k8s.io/v1", "ResourceClaim", "second")
    await namespace.delete_pod("first")
    await namespace.wait_clean()
    assert (await namespace.pod("second"))["status"]["phase"] == "Pending"


async def test_a_claim_deleted_while_a_pod_uses_it_stays_until_the_pod_is_gone(namespace: Namespace) -> None:
    await namespace.claim("gpu", pods.exactly("gpu", await small(namespace)))
    await namespace.apply(pods.pod("p", {"gpu": pods.by_name("gpu")}))
    before = await namespace.wait_running("p")
    await namespace.api.delete("resource.k8s.io/v1", "ResourceClaim", "gpu", namespace.name)
    assert (await namespace.wait_running("p")).starts == before.starts
    assert len(namespace.node.gpu_partitions) == 1
    await namespace.delete_pod("p")
    await namespace.wait_gone("resource.k8s.io/v1", "ResourceClaim", "gpu")
    await namespace.wait_clean()


async def test_a_pod_deleted_by_force_leaves_nothing(namespace: Namespace) -> None:
    await namespace.template("small", pods.exactly("gpu", await small(namespace)))
    await namespace.create_pods("small", "p")
    await namespace.wait_running("p")
    await namespace.delete_pod("p", grace_s=0)
    await namespace.wait_clean()


async def test_a_pod_deleted_by_force_while_its_partition_is_cut_leaves_nothing(namespace: Namespace) -> None:
    await namespace.template("small", pods.exactly("gpu", await small(namespace)))
    await namespace.create_pods("small", "p")

    async def is_cutting() -> bool:
        return await namespace.node.claim_records() == 1

    await eventually("the claim is being prepared", is_cutting)
    await namespace.delete_pod("p", grace_s=0)
    await namespace.wait_clean()


@pytest.mark.parametrize("count", [1, 5])
async def test_a_namespace_deleted_with_everything_in_it_leaves_nothing(namespace: Namespace, count: int) -> None:
    await namespace.template("small", pods.exactly("gpu", await small(namespace)))
    names = [f"p{number}" for number in range(count)]
    await namespace.create_pods("small", *names)
    for name in names:
        await namespace.wait_running(name)
    await namespace.api.delete("v1", "Namespace", namespace.name)
    await namespace.wait_gone("v1", "Namespace", namespace.name)
    await namespace.wait_clean()


async def test_a_node_that_is_lost_and_deleted_takes_its_slices_pods_and_claims_along(
    namespace: Namespace, cluster: Cluster, kerf: Kerf
) -> None:
    await namespace.template("small", pods.exactly("gpu", await small(namespace)))
    await namespace.create_pods("small", "p")
    await namespace.wait_running("p")
    await cluster.processes.kill(f"{NODE}-kubelet")
    await kerf.crash_plugin(NODE)
    await namespace.api.delete("v1", "Node", NODE)

    async def nothing_in_the_api() -> bool:
        slices = await namespace.api.list("resource.k8s.io/v1", "ResourceSlice")
        return (
            not slices
            and not await namespace.claims()
            and await namespace.api.find("v1", "Pod", "p", namespace.name) is None
        )

    await eventually("slices, pod and claim are gone", nothing_in_the_api, within_s=180)
    assert len(namespace.node.gpu_partitions) == 1, "on the lost node nobody has changed anything"

    cluster.start_kubelet(NODE)
    await cluster.wait_node_ready(namespace.api, NODE)
    await kerf.start_plugin(NODE)
    await namespace.wait_clean()
