"""Who uses a claim, by the kubelet's words: it names claims without their UIDs."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.driver.kubeletplugin.claims.claim_users import ClaimUsers
from kerf_dra.driver.kubeletplugin.inventory.surveys import SurveyTracker
from tests.fakes.claims import DRIVER, NAMESPACE
from tests.kubeletplugin.records import record

POD = ObjectRef(NAMESPACE, "trainer")


def made_anew(first: PreparedClaim, **changes: ClaimState) -> PreparedClaim:
    """A later claim with the name of ``first``."""
    return replace(first, claim=first.claim._replace(uid="uid-of-the-next"), **changes)


@pytest.mark.parametrize(
    ("later", "is_used"),
    [
        ([], True),
        ([record("other")], True),
        ([made_anew(record())], False),
        ([made_anew(record(), state=ClaimState.STARTED)], True),
    ],
    ids=["alone", "another name", "the same name", "the same name, not prepared yet"],
)
async def test_a_pod_uses_the_latest_prepared_claim_of_the_name(later: Sequence[PreparedClaim], is_used: bool) -> None:
    first = record()

    async def list_uses() -> Sequence[ClaimUse]:
        return [ClaimUse(claim=ObjectRef(NAMESPACE, "training"), pod=POD)]

    users = ClaimUsers(
        records={each.claim.uid: each for each in (first, *later)},
        surveys=SurveyTracker(driver=DRIVER),
        list_uses=list_uses,
    )
    assert await users.find_user(first) == (f"the kubelet runs pod {POD} with it" if is_used else None)
