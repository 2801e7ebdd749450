"""Cards that administrators look at while pods use them (KEP-5018; docs/admin-access.md)."""

import pytest

from tests.e2e import pods
from tests.e2e.namespace import Space
from tests.e2e.wait import eventually
from tests.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
ADMIN_LABEL = "resource.kubernetes.io/admin-access"


@pytest.fixture
async def admin_space(space: Space) -> Space:
    """The test's namespace, allowed to ask for admin access."""
    await space.api.patch("v1", "Namespace", space.name, {"metadata": {"labels": {ADMIN_LABEL: "true"}}})
    return space


async def monitors(space: Space) -> str:
    offer = await space.resource_class("monitor", device="gpu", cut="Monitor")

    async def are_published() -> bool:
        return any(name.endswith("-monitor") for name in await space.published())

    await eventually("monitors are published", are_published)
    return offer


async def test_a_card_in_use_is_looked_at_and_its_user_notices_nothing(admin_space: Space) -> None:
    space = admin_space
    small = await space.resource_class("small", device="gpu", profile="1g.10gb")
    await space.template("small", pods.exactly("gpu", small))
    await space.pods_of("small", "user")
    before = await space.running("user")
    cut = space.node.cut
    await space.template("monitor", pods.exactly("gpu", await monitors(space), adminAccess=True))
    await space.pods_of("monitor", "one", "two")
    for name in ("one", "two"):
        told = (await space.running(name)).main
        (uuid,) = told.kerf_devices.values()
        assert uuid.startswith("GPU-")
        assert "/dev/nvidia0" in told.card_nodes
        assert not [node for node in told.card_nodes if "nvidia-cap" in node]
    assert space.node.cut == cut
    for name in ("one", "two"):
        await space.delete_pod(name)
    assert space.node.cut == cut, "nothing was taken back"
    assert (await space.running("user")).starts == before.starts


async def test_who_does_not_ask_for_admin_access_is_told_so(space: Space) -> None:
    await space.template("nosy", pods.exactly("gpu", await monitors(space)))
    await space.pods_of("nosy", "p")
    assert "needs adminAccess: true" in await space.waits("p", "FailedPrepareDynamicResources")
