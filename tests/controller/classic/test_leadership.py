"""What the process does when it begins to lead, on the embedded cluster."""

from api.core.v1 import LEASES
from driver.controller.classic.reconciler import FENCE
from driver.kube.http.client import PatchType
from tests.controller.classic.cluster import World, eventually
from tests.controller.classic.scene import FINALIZER


async def test_who_leads_again_first_makes_sure_that_nothing_begun_before_can_be_finished(world: World) -> None:
    """The Lease was somebody else's meanwhile: a claim that is marked and not allocated gets another version."""
    await world.claim("first")
    await world.has("first")
    await world.claim("begun", allocationMode="WaitForFirstConsumer")
    await world.edit("begun", {"metadata": {"finalizers": [FINALIZER]}})
    stolen = {"spec": {"holderIdentity": "somebody-else"}}
    await world.admin.patch(LEASES, "lease", stolen, type=PatchType.MERGE, namespace="default")

    async def fenced() -> bool:
        return FENCE in (await world.read("begun")).metadata.annotations

    await eventually(fenced)
    assert (await world.read("begun")).status.allocation is None
    await world.claim("second")
    await world.has("second")
