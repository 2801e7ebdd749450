"""What another program takes away under a pod that runs comes back while the plugin runs."""

from typing import Final

from kerf_dra.driver.partitions.geometry import Placement
from tests.e2e import pods
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
BACK_S: Final = 30.0
"""Three surveys: the next one finds it."""


async def test_cdi_files_that_are_removed_under_pods_come_back_without_a_restart(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    for name in ("one", "two"):
        await namespace.claim(name, pods.exactly("gpu", small))
        await namespace.apply(pods.pod(name, {"gpu": pods.by_name(name)}))
    before = [(await namespace.wait_running(name)).starts for name in ("one", "two")]
    contents = namespace.node.cdi_contents()
    assert len(contents) == 2
    namespace.node.remove_cdi_files()

    async def are_back() -> bool:
        return namespace.node.cdi_contents() == contents

    await eventually("the CDI files are written again", are_back, within_s=BACK_S)
    assert [(await namespace.wait_running(name)).starts for name in ("one", "two")] == before
    await end_pods(namespace, "one", "two")


@BOTH_BACKENDS
async def test_a_partition_that_is_destroyed_under_a_pod_is_made_again_at_its_place(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    for name in ("one", "two"):
        await namespace.claim(name, pods.exactly("gpu", small))
        await namespace.apply(pods.pod(name, {"gpu": pods.by_name(name)}))
        await namespace.wait_running(name)
    cut = namespace.node.gpu_partitions
    assert len(cut) == 2
    card, _, start = cut[0]
    namespace.node.hardware.destroy(card, Placement(start, 1))
    assert namespace.node.gpu_partitions == cut[1:]

    async def is_back() -> bool:
        return namespace.node.gpu_partitions == cut

    await eventually("the partition is made again", is_back, within_s=2 * BACK_S)
    await end_pods(namespace, "one", "two")


async def end_pods(namespace: Namespace, *names: str) -> None:
    """End the pods with their claims; nothing of them may stay."""
    for name in names:
        await namespace.delete_pod(name, grace_s=0)
        await namespace.api.delete(pods.RESOURCE, "ResourceClaim", name, namespace.name)
    await namespace.wait_clean()
