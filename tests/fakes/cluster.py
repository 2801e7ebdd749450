"""The cluster, as the kubelet plugin sees it, in memory."""

from collections.abc import Callable, Sequence

import anyio

from api.model.claims import ResourceClaim
from api.model.devices import Pool
from api.model.names import ClaimRef, DriverName
from driver.kube.errors import UnreachableError
from driver.kubeletplugin.inventory import Place
from driver.partitions.limits import SliceLayout
from tests.fakes.claims import DRIVER, NODE


class FakeCluster:
    """Implements ``driver.kubeletplugin.cluster.Cluster``."""

    def __init__(self, layout: SliceLayout = SliceLayout.SPLIT) -> None:
        self.place = Place(driver=DriverName(DRIVER), node=NODE, layout=layout)
        self.claims: dict[tuple[str, str], ResourceClaim] = {}
        self.is_down = False
        self.errors: dict[str, Exception] = {}
        """By claim name: what reading it raises."""
        self.reads = 0
        self.published: list[tuple[Pool, ...]] = []
        self.on_place: Callable[[], None] = lambda: None

    def add(self, claim: ResourceClaim) -> ClaimRef:
        self.claims[claim.metadata.namespace, claim.metadata.name] = claim
        return ClaimRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)

    def remove(self, claim: ClaimRef) -> None:
        del self.claims[claim.namespace, claim.name]

    async def read_claim(self, claim: ClaimRef) -> ResourceClaim | None:
        self.reads += 1
        await anyio.lowlevel.checkpoint()
        if self.is_down:
            raise UnreachableError(f"GET claim {claim}", "connection refused")
        if error := self.errors.get(claim.name):
            raise error
        return self.claims.get((claim.namespace, claim.name))

    def publish(self, pools: Sequence[Pool]) -> None:
        self.published.append(tuple(pools))

    async def run(self, on_place: Callable[[], None]) -> None:
        self.on_place = on_place
        await anyio.sleep_forever()
