"""The start of leadership, on the embedded cluster."""

from kerf_dra.api.core.v1 import LEASES
from kerf_dra.driver.controller.classic.reconciler import FENCE
from kerf_dra.driver.kube.http.client import PatchType
from tests.controller.classic.cluster import ClassicCluster, eventually
from tests.controller.classic.cluster_builder import FINALIZER


async def test_who_leads_again_first_makes_sure_that_nothing_begun_before_can_be_finished(
    cluster: ClassicCluster,
) -> None:
    """The Lease was somebody else's meanwhile: a claim that is marked and not allocated gets another version."""
    await cluster.claim("first")
    await cluster.has("first")
    await cluster.claim("begun", allocationMode="WaitForFirstConsumer")
    await cluster.edit("begun", {"metadata": {"finalizers": [FINALIZER]}})
    stolen = {"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 1}}
    await cluster.admin.patch(LEASES, "lease", stolen, type=PatchType.MERGE, namespace="default")

    async def fenced() -> bool:
        return FENCE in (await cluster.read("begun")).metadata.annotations

    await eventually(fenced)
    assert (await cluster.read("begun")).status.allocation is None
    await cluster.claim("second")
    await cluster.has("second")
