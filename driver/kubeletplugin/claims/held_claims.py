"""The claims that have devices of this node in their allocation, listed while another program holds such devices."""

from collections.abc import Collection
from typing import Final

from kerf_dra.api.model.claims import AllocatedClaim
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster, claim_reference
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState

_REASON: Final = "InUseOutsideKerf"
"""The reason of events about claims that have what another program holds."""


class HeldClaims:
    """Lists the allocated devices of one node, and reports each claim that has what it cannot get."""

    def __init__(self, *, cluster: Cluster, driver: str, state: NodeState) -> None:
        self._cluster = cluster
        self._driver = driver
        self._state = state
        self._reported: set[tuple[str, DeviceId, str]] = set()

    async def list_allocated(self) -> Collection[DeviceId] | None:
        """Return the devices of this node that any claim has; None if unknown. Raises ApiError."""
        claims = await self._cluster.list_claims()
        if claims is None:
            return None
        prefix = f"{self._cluster.target.node}/"
        found: set[DeviceId] = set()
        held: set[tuple[str, DeviceId, str]] = set()
        for claim in claims:
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation else ():
                if result.driver == self._driver and result.pool.startswith(prefix):
                    found.add(result.id)
                    if reason := self._find_held(result.id):
                        held.add((claim.metadata.uid, result.id, reason))
                        self._report(claim, result.id, reason)
        self._reported = held
        return found

    def _find_held(self, device: DeviceId) -> str | None:
        offered = self._state.devices.find(device)
        return (
            None
            if offered is None or offered.is_monitor
            else self._state.restrictions.surveys.find_held(offered.partition)
        )

    def _report(self, claim: AllocatedClaim, device: DeviceId, reason: str) -> None:
        if (claim.metadata.uid, device, reason) not in self._reported:
            self._cluster.report(
                claim_reference(claim), type="Warning", reason=_REASON, message=f"{device.device}: {reason}"
            )
