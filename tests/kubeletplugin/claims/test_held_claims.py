"""While somebody else holds devices, claims are listed for those that have such a device, and each is told once."""

from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, FoundPartition
from kerf_dra.driver.kubeletplugin.claims.held_claims import HeldClaims
from kerf_dra.driver.partitions.geometry import Placement
from tests.fakes.cards import gpu
from tests.fakes.claims import DRIVER, claim, result
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import NODE_DEVICES
from tests.kubeletplugin.observed_state import ObservedState
from tests.kubeletplugin.records import BOOT, LATER

HAND_CUT = FoundPartition(id="gi-1", profile="2g.2gb", placement=Placement(0, 2))


async def test_allocated_devices_of_this_node_are_found_and_claims_that_cannot_get_theirs_are_told_once() -> None:
    cluster, state = FakeCluster(), ObservedState(devices=NODE_DEVICES)
    surveys = state.restrictions.surveys
    surveys.update(gpu(0), CardSurvey(card_uuid="GPU-0", partitions=(HAND_CUT,)), (), BOOT, LATER)
    held_claims = HeldClaims(cluster=cluster, driver=DRIVER, state=state)
    cluster.add(claim("held", "gpu-0-1g-1gb-at-0"))
    cluster.add(claim("free", "gpu-1"))
    cluster.add(claim("watching", result("gpu-0-monitor", admin=True)))  # which may watch what others hold
    cluster.add(claim("pending"))
    cluster.add(claim("of-others", result("gpu-0", driver="other.example")))
    for _ in range(2):
        found = await held_claims.list_allocated()
        assert found is not None
        assert {device.device for device in found} == {"gpu-0-1g-1gb-at-0", "gpu-1", "gpu-0-monitor"}
    assert cluster.reported == [
        ("ResourceClaim", "held", "InUseOutsideKerf", "gpu-0-1g-1gb-at-0: in use outside of Kerf: 2g.2gb at 0")
    ]
    surveys.update(gpu(0), CardSurvey(card_uuid="GPU-0"), (), BOOT, LATER)
    await held_claims.list_allocated()
    surveys.update(gpu(0), CardSurvey(card_uuid="GPU-0", partitions=(HAND_CUT,)), (), BOOT, LATER)
    await held_claims.list_allocated()
    assert len(cluster.reported) == 2, "told again once it has changed"
