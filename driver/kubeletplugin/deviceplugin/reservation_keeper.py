"""Sees to it that what is kept for extended resources is counted nowhere else before the kubelet counts it.

The order of the steps is what keeps a placement from being given twice:

1. Claims are listed, so that placements are chosen that no claim has. While they cannot be, none is chosen.
2. The publisher leaves out what was chosen, and all that excludes it.
3. The slices of this node are listed from the API server, until they are complete and without it.
4. Claims are listed again: the scheduler may have allocated by the slices before. What a claim has is given up.
5. What is left is confirmed, and may be listed to the kubelet.

A process that ends or fails between two steps leaves a placement out of both counts at worst; a new process begins with
step 1. The scheduler may still allocate by slices that it has not seen change; such a claim is found when it is
prepared, and gets the placement if no container has it (``Reservations.note_records``).
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import anyio

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster, NotPublishedYetError
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.inventory.state.reservations import fits, list_excluded
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.device_names import device_name, exclusive_name
from kerf_dra.driver.partitions.geometry import Card, Partition

_REASON: Final = "ResourceNotOffered"
"""The reason of events about extended resources that the node does not offer, or not in full."""

_log = logging.getLogger(__name__)


class ReservationKeeper:
    """Confirms what one node keeps for extended resources."""

    def __init__(
        self,
        *,
        settings: Settings,
        cluster: Cluster,
        state: NodeState,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._state = state
        self._reservations = state.restrictions.reservations
        self._reported = ""

    async def run(self) -> None:
        """Confirm what is kept, as often as it changes, until cancelled."""
        delays = self._settings.retry.delays()
        while True:
            change = self._reservations.changed.next_event
            problem = ""
            try:
                problem = await self._step()
            except NotPublishedYetError:
                problem = self._reported
            except KerfError as error:
                problem = f"cannot list the devices that are published, or those that claims have: {error}"
            is_waiting = bool(self._reservations.unconfirmed)
            if not is_waiting:
                delays = self._settings.retry.delays()
            self._report(problem)
            with anyio.move_on_after(next(delays) if is_waiting else self._settings.reservation_retry_s):
                await change.wait()

    async def _step(self) -> str:
        """Do what can be done now; returns what keeps resources from being offered in full. Raises KerfError."""
        reservations = self._reservations
        if not reservations.resources:
            return ""
        if not await anyio.Path(self._settings.device_plugins_dir).is_dir():
            self._set_claimed(None)
            return f"the plugin has no access to the kubelet's folder {self._settings.device_plugins_dir}"
        before = reservations.claimed
        if reservations.missing and not await self._list_claims():
            return "the plugin may not list ResourceClaims, so that it cannot know which placements claims have"
        if reservations.unconfirmed:
            clear = self._find_unpublished(await self._cluster.list_published())
            if clear and await self._list_claims():
                reservations.confirm(each for each in clear if self._is_unclaimed(each))
        if reservations.missing and reservations.claimed == before:  # else placements are about to be chosen
            return f"{reservations.missing} placements are missing: claims or others have them, or there are too few"
        return ""

    async def _list_claims(self) -> bool:
        """List what claims of this node have; returns whether that is permitted. Raises ApiError."""
        claims = await self._cluster.list_claims()
        if claims is None:
            self._set_claimed(None)
            return False
        target = self._cluster.target
        found: set[Partition] = set()
        for claim in claims:
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation else ():
                if result.driver == target.driver and result.pool.startswith(f"{target.node}/"):
                    offered = self._state.devices.find(result.id)
                    if offered is not None and not offered.is_monitor and not result.admin_access:
                        found.add(offered.partition)
        self._set_claimed(found)
        return True

    def _set_claimed(self, claimed: Collection[Partition] | None) -> None:
        if self._reservations.set_claimed(claimed):
            self._state.request_publication()

    def _is_unclaimed(self, partition: Partition) -> bool:
        card = self._state.cards_by_uuid.get(partition.card_uuid)
        claimed = self._reservations.claimed
        return card is not None and claimed is not None and fits(card, partition, claimed)

    def _find_unpublished(self, slices: Sequence[ResourceSlice]) -> list[Partition]:
        """Return what is unconfirmed and not in ``slices``, nor anything that excludes it."""
        names = {exclusive_name(device.name) or device.name for each in slices for device in each.spec.devices}
        if not are_complete(slices):
            return []
        cards = self._state.cards_by_uuid
        return [
            partition
            for partition in self._reservations.unconfirmed
            if (card := cards.get(partition.card_uuid)) is not None
            and names.isdisjoint(_excluded_names(card, partition))
        ]

    def _report(self, problem: str) -> None:
        """Log and report what keeps resources from being offered, once."""
        if problem and problem != self._reported:
            message = f"extended resources of {self._settings.driver_name} are not offered in full: {problem}"
            _log.warning("%s", message)
            self._cluster.report(None, type="Warning", reason=_REASON, message=message)
        self._reported = problem


def are_complete(slices: Sequence[ResourceSlice]) -> bool:
    """Whether each pool of ``slices`` has all slices of one generation, and no others."""
    pools: dict[str, list[ResourceSlice]] = {}
    for each in slices:
        pools.setdefault(each.spec.pool.name, []).append(each)
    return all(
        len({each.spec.pool.generation for each in members}) == 1
        and len(members) == members[0].spec.pool.resource_slice_count
        for members in pools.values()
    )


def _excluded_names(card: Card, partition: Partition) -> Iterator[str]:
    return (device_name(card, each) for each in list_excluded(card, (partition,)))
