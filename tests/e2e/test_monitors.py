"""Monitor devices: administrators monitor cards while pods use them (KEP-5018; docs/admin-access.md)."""

import pytest

from tests.e2e import pods
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
ADMIN_LABEL = "resource.kubernetes.io/admin-access"
TOLERATIONS = [{"key": "gpu.kerf.dev/monitor", "operator": "Exists"}]


@pytest.fixture
async def admin_namespace(namespace: Namespace) -> Namespace:
    """The test's namespace, in which claims may request admin access."""
    await namespace.api.patch("v1", "Namespace", namespace.name, {"metadata": {"labels": {ADMIN_LABEL: "true"}}})
    return namespace


async def monitors(namespace: Namespace) -> str:
    offer = await namespace.resource_class("monitor", device="gpu", cut="Monitor")

    async def are_published() -> bool:
        return any(name.endswith("-monitor") for name in await namespace.published_devices())

    await eventually("monitors are published", are_published)
    return offer


@BOTH_BACKENDS
async def test_a_card_in_use_is_looked_at_and_its_user_notices_nothing(admin_namespace: Namespace) -> None:
    namespace = admin_namespace
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "user")
    before = await namespace.wait_running("user")
    cut = namespace.node.gpu_partitions
    await namespace.template(
        "monitor", pods.exactly("gpu", await monitors(namespace), adminAccess=True, tolerations=TOLERATIONS)
    )
    await namespace.create_pods("monitor", "one", "two")
    for name in ("one", "two"):
        told = (await namespace.wait_running(name)).main
        (uuid,) = told.kerf_devices.values()
        assert uuid.startswith("GPU-")
        assert "/dev/nvidia0" in told.card_nodes
        assert not [node for node in told.card_nodes if "nvidia-cap" in node]
    assert namespace.node.gpu_partitions == cut
    for name in ("one", "two"):
        await namespace.delete_pod(name)
    assert namespace.node.gpu_partitions == cut, "nothing was taken back"
    assert (await namespace.wait_running("user")).starts == before.starts


async def test_no_claim_gets_a_monitor_device_without_tolerating_its_taint(admin_namespace: Namespace) -> None:
    namespace = admin_namespace
    await namespace.template("careless", pods.exactly("gpu", await monitors(namespace), adminAccess=True))
    await namespace.create_pods("careless", "p")
    await namespace.wait_event("p", "FailedScheduling", "cannot allocate all claims")


async def test_who_tolerates_it_without_asking_for_admin_access_is_told_so(namespace: Namespace) -> None:
    await namespace.template("nosy", pods.exactly("gpu", await monitors(namespace), tolerations=TOLERATIONS))
    await namespace.create_pods("nosy", "p")
    await namespace.wait_event("p", "FailedPrepareDynamicResources", "needs adminAccess: true")
