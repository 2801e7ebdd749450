"""The API server of a schedule."""

from random import Random

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ClaimRef
from tests.fakes.cluster import FakeCluster
from tests.runtime.virtual_time import pass_time


class SlowCluster(FakeCluster):
    """A cluster whose answers take a moment: what was read may be out of date."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance

    async def read_claim(self, claim: ClaimRef, *, not_older_than: str | None = None) -> ResourceClaim | None:
        found = await super().read_claim(claim, not_older_than=not_older_than)
        if self._chance.random() < 0.2:
            await pass_time(self._chance.choice((0.0, 0.05, 1.0)))
        return found
