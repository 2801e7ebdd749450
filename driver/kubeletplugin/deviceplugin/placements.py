"""Offers placements of this node's cards by the device plugin interface: those that are kept for it.

A device ID is the name of the placement's device in slices, which have it no more.
"""

from collections.abc import Collection, Sequence

from kerf_dra.api.deviceplugin.v1beta1 import ListedDevice, PreferenceRequest
from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.api.model.names import DeviceId, ShareId
from kerf_dra.api.model.prepared import PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.deviceplugin.offer import UnknownIdError, record_uid
from kerf_dra.driver.kubeletplugin.deviceplugin.preference import DevicePlace, choose_devices
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.inventory.publisher import TargetSource
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.records import to_card_part


class PlacementOffer:
    """A DeviceOffer of placements."""

    def __init__(
        self,
        *,
        checkpoint: Checkpoint,
        state: NodeState,
        cluster: TargetSource,
    ) -> None:
        self._checkpoint = checkpoint
        self._reservations = state.restrictions.reservations
        self._state = state
        self._cluster = cluster

    @property
    def resources(self) -> Sequence[str]:
        """The resources for which something has been confirmed, or of which containers have some."""
        return tuple(
            name
            for name in self._reservations.names
            if self._reservations.list_placements(name) or self._reservations.in_use.get(name)
        )

    def list_devices(self, resource: str) -> tuple[ListedDevice, ...]:
        """Return the list; what containers have beyond what the class wants is unhealthy: no other claim gets it."""
        cards, own = self._state.cards_by_uuid, self._list_placements(resource)
        wanted = {partition for partition, _ in own}
        surplus = [each for each in self._reservations.in_use.get(resource, ()) if each not in wanted]
        listed = [
            ListedDevice(
                id=device_name(card, partition),
                health="Unhealthy" if partition not in wanted or self._state.find_problem(partition) else "Healthy",
                numa_nodes=(card.numa_node,) if card.numa_node or card.pcie_root else (),
            )
            for partition, card in [
                *own,
                *((each, cards[each.card_uuid]) for each in surplus if each.card_uuid in cards),
            ]
        ]
        return tuple(sorted(listed, key=lambda device: device.id))

    def prefer(self, resource: str, requests: Sequence[PreferenceRequest]) -> Sequence[Sequence[str]]:
        offered = self._reservations.find_resource(resource)
        places = {
            device_name(card, partition): DevicePlace(
                card=card.uuid,
                pcie_root=card.pcie_root,
                numa_node=card.numa_node,
                is_prepared=self._checkpoint.get(record_uid(resource, device_name(card, partition))) is not None,
            )
            for partition, card in self._list_placements(resource)
        }
        preferred = "Packed" if offered is None else offered.preferred
        return [choose_devices(request, places, preferred) for request in requests]

    def check(self, resource: str, ids: Collection[str]) -> None:
        known = {device_name(card, partition) for partition, card in self._list_placements(resource)}
        if unknown := set(ids) - known:
            raise UnknownIdError(resource, unknown)

    def resolve(self, resource: str, device_id: str, record: PreparedClaim | None) -> PreparedDevice:
        target = self._cluster.target
        if record is None:
            self.check(resource, [device_id])
        kinds = [kind for kind in target.vocabularies if device_id.startswith(f"{kind}-")]
        ids = (DeviceId(target.driver, pool_name(target.node, kind), device_id) for kind in kinds)
        found = next(((each, device) for each in ids if (device := self._state.devices.find(each)) is not None), None)
        if found is None:
            raise UnknownIdError(resource, [device_id])
        id_, offered = found
        resource_offer = self._reservations.find_resource(resource)
        config = resource_offer.config if resource_offer is not None else record.devices[0].config if record else None
        return PreparedDevice(
            requests=(),
            share=ShareId(id_, None),
            part=to_card_part(offered.partition),
            backend=offered.backend,
            config=config,
        )

    async def enter(self, resource: str, device_id: str, device: PreparedDevice) -> None:
        """Do nothing: what is kept here, no other program counts."""

    async def leave(self, resource: str, device_id: str, device: PreparedDevice) -> None:
        """Do nothing, as above."""

    def _list_placements(self, resource: str) -> list[tuple[Partition, Card]]:
        cards = self._state.cards_by_uuid
        placements = self._reservations.list_placements(resource)
        return [(each, cards[each.card_uuid]) for each in placements if each.card_uuid in cards]
