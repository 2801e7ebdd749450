"""The API server of a schedule."""

from random import Random

from kerf_dra.api.model.claims import ResourceClaim
from tests.fakes.cluster import FakeCluster
from tests.runtime.virtual_time import pass_time


class SlowCluster(FakeCluster):
    """A cluster whose answers take a moment: what was read may be out of date."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance

    async def read_claim(self, claim: object) -> ResourceClaim | None:
        found = await super().read_claim(claim)  # type: ignore[arg-type]
        if self._chance.random() < 0.2:
            await pass_time(self._chance.choice((0.0, 0.05, 1.0)))
        return found
