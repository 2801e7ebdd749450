"""Those who look at devices without taking them: administrators, and monitoring agents of the node."""

import pytest

from tests.e2e import pods
from tests.e2e.namespace import Space
from tests.e2e.pod_resources import devices_of
from tests.realcluster.api import StatusError
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})

ADMIN_LABEL = "resource.kubernetes.io/admin-access"


@pytest.fixture
async def admin_space(space: Space) -> Space:
    """The test's namespace, allowed to ask for admin access (KEP-5018)."""
    await space.api.patch("v1", "Namespace", space.name, {"metadata": {"labels": {ADMIN_LABEL: "true"}}})
    return space


async def test_admin_access_to_a_free_card_sees_it_and_takes_nothing(admin_space: Space) -> None:
    space = admin_space
    whole = await space.resource_class("whole", device="gpu", cut="Whole")
    await space.template("monitor", pods.exactly("gpu", whole, adminAccess=True))
    await space.pods_of("monitor", "monitor")
    told = (await space.running("monitor")).main
    (uuid,) = told.kerf_devices.values()
    assert uuid.startswith("GPU-")
    assert "/dev/nvidia0" in told.card_nodes
    assert space.node.cut == [], "the monitor has taken nothing"


async def test_admin_access_to_a_cut_card_itself_waits_since_the_scheduler_charges_its_counters(
    admin_space: Space,
) -> None:
    """Not as KEP-5018 has it: kube-scheduler 1.37 asks counters also of requests with admin access, so a card of which
    a part is taken cannot be had a second time: that is why there are monitors (docs/admin-access.md). When this test
    fails the scheduler has learned it.
    """
    space = admin_space
    small = await space.resource_class("small", device="gpu", profile="1g.10gb")
    whole = await space.resource_class("whole", device="gpu", cut="Whole")
    await space.template("small", pods.exactly("gpu", small))
    await space.template("monitor", pods.exactly("gpu", whole, adminAccess=True))
    await space.pods_of("small", "user")
    await space.running("user")
    await space.pods_of("monitor", "monitor")
    assert "cannot allocate all claims" in await space.waits("monitor", "FailedScheduling")


async def test_admin_access_is_refused_in_other_namespaces(space: Space) -> None:
    whole = await space.resource_class("whole", device="gpu", cut="Whole")
    with pytest.raises(StatusError, match="admin"):
        await space.template("monitor", pods.exactly("gpu", whole, adminAccess=True))


async def test_the_pod_resources_api_shows_each_containers_devices(space: Space, cluster: Cluster) -> None:
    small = await space.resource_class("small", device="gpu", profile="1g.10gb")
    await space.template("small", pods.exactly("gpu", small))
    await space.pods_of("small", "p", containers=("first", "second"))
    await space.running("p")
    (result,) = await space.allocated("p")
    shown = devices_of(cluster.node_places(space.node.name).pod_resources, space.name, "p")
    assert {one.container for one in shown} == {"first", "second"}
    assert {(one.driver, one.pool, one.device) for one in shown} == {("kerf.dev", result["pool"], result["device"])}
    assert [list(one.cdi_devices) for one in shown] == [space.node.cdi_devices()] * 2
