"""Admin access: administrators and monitoring agents use devices without allocating them (KEP-5018)."""

import pytest

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tests.e2e.pod_resources import devices_of
from tools.realcluster.api import StatusError
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})

ADMIN_LABEL = "resource.kubernetes.io/admin-access"


@pytest.fixture
async def admin_namespace(namespace: Namespace) -> Namespace:
    """The test's namespace, in which claims may request admin access (KEP-5018)."""
    await namespace.api.patch("v1", "Namespace", namespace.name, {"metadata": {"labels": {ADMIN_LABEL: "true"}}})
    return namespace


async def test_admin_access_to_a_free_card_sees_it_and_takes_nothing(admin_namespace: Namespace) -> None:
    namespace = admin_namespace
    whole = await namespace.resource_class("whole", device="gpu", cut="Whole")
    await namespace.template("monitor", pods.exactly("gpu", whole, adminAccess=True))
    await namespace.create_pods("monitor", "monitor")
    told = (await namespace.wait_running("monitor")).main
    (uuid,) = told.kerf_devices.values()
    assert uuid.startswith("GPU-")
    assert "/dev/nvidia0" in told.card_nodes
    assert namespace.node.gpu_partitions == [], "the monitor has taken nothing"


async def test_admin_access_to_a_cut_card_itself_waits_since_the_scheduler_charges_its_counters(
    admin_namespace: Namespace,
) -> None:
    """Not as KEP-5018 has it: kube-scheduler 1.37 asks counters also of requests with admin access, so a card of which
    a part is taken cannot be had a second time: that is why there are monitors (docs/admin-access.md). When this test
    fails the scheduler has learned it.
    """
    namespace = admin_namespace
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    whole = await namespace.resource_class("whole", device="gpu", cut="Whole")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.template("monitor", pods.exactly("gpu", whole, adminAccess=True))
    await namespace.create_pods("small", "user")
    await namespace.wait_running("user")
    await namespace.create_pods("monitor", "monitor")
    await namespace.wait_event("monitor", "FailedScheduling", "cannot allocate all claims")


async def test_admin_access_is_refused_in_other_namespaces(namespace: Namespace) -> None:
    whole = await namespace.resource_class("whole", device="gpu", cut="Whole")
    with pytest.raises(StatusError, match="admin"):
        await namespace.template("monitor", pods.exactly("gpu", whole, adminAccess=True))


async def test_the_pod_resources_api_shows_each_containers_devices(namespace: Namespace, cluster: Cluster) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "p", containers=("first", "second"))
    await namespace.wait_running("p")
    (result,) = await namespace.allocation_results("p")
    shown = devices_of(cluster.node_paths(namespace.node.name).pod_resources, namespace.name, "p")
    assert {one.container for one in shown} == {"first", "second"}
    assert {(one.driver, one.pool, one.device) for one in shown} == {("gpu.kerf.dev", result["pool"], result["device"])}
    assert [list(one.cdi_devices) for one in shown] == [namespace.node.cdi_devices()] * 2
