"""The API server no longer has the claim of a pod that runs, as after a restore from an old backup."""

import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.kerf import Hardware, Kerf
from tools.realcluster.versions import KubernetesVersion

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
TOLD_S = 150.0
"""A minute for which the claim must be gone, and a quarter of one between two looks, on a loaded machine."""
_LISTS_CLAIMS_SINCE = (1, 34)


async def test_a_pod_keeps_its_devices_when_the_api_server_has_lost_its_claim(
    namespace: Namespace, kerf: Kerf, version: KubernetesVersion
) -> None:
    if tuple(map(int, version.minor.split("."))) < _LISTS_CLAIMS_SINCE:
        pytest.skip("this kubelet does not list the claims of its pods")
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.claim("lost", pods.exactly("gpu", small))
    await namespace.apply(pods.pod("p", {"gpu": pods.by_name("lost")}))
    before, cut, files = await namespace.wait_running("p"), namespace.node.gpu_partitions, namespace.node.cdi_files
    await namespace.api.delete(pods.RESOURCE, "ResourceClaim", "lost", namespace.name)
    await namespace.api.patch(
        pods.RESOURCE, "ResourceClaim", "lost", {"metadata": {"finalizers": None}}, namespace=namespace.name
    )
    await namespace.wait_gone(pods.RESOURCE, "ResourceClaim", "lost")
    await kerf.restart_plugin(NODE)  # it looks for all claims when it starts

    async def told() -> str | None:
        events = await namespace.api.list("v1", "Event", "default", fieldSelector=f"involvedObject.name={NODE}")
        return next((event["message"] for event in events if event["reason"] == "ClaimOrphaned"), None)

    message = await eventually("the node tells it", told, within_s=TOLD_S)
    assert f"the kubelet runs pod {namespace.name}/p with it" in message
    assert (namespace.node.gpu_partitions, namespace.node.cdi_files) == (cut, files)
    assert (await namespace.wait_running("p")).starts == before.starts
    await namespace.delete_pod("p", grace_s=0)
    await namespace.wait_clean()
