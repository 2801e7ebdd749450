"""The Backend protocol over the DiscoveredDevices of the cluster.

They are devices of the network as much as of this node, and they are asked nothing: prepare writes down what the
container gets, unprepare has nothing to undo. A claim keeps what its device was when it was prepared.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDeviceObject,
    DiscoveryConfigurationObject,
)
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, Strict
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.families.shared.family import ATTRIBUTE_MULTI_NODE, CAPACITY_USERS
from kerf_dra.driver.families.shared.objects import Discovery, FoundDevice, join_objects
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardAbsentError,
    CardSurvey,
    FoundPartition,
    Handle,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.discovered.handles import HANDLES, build_edits, build_handle
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.backends.eventless import EventlessBackend
from kerf_dra.driver.partitions.geometry import Card, Geometry, PartitionSpec

_GEOMETRIES: Final = 256
"""The most geometries kept: more than there are configurations with different capacities."""


class DiscoveredBackend(EventlessBackend):
    """A DescribedBackend of discovered devices: each is a card, whose UUID is the name of its object."""

    name = "discovered"

    def __init__(self) -> None:
        super().__init__()
        self._discovery = Discovery()

    def describe(self, documents: Sequence[JsonObject]) -> None:
        """Take the objects; those that are invalid, which the controller reports, are left out."""
        self._discovery = join_objects(
            [
                DiscoveryConfigurationObject(metadata=_metadata(each), spec=each.get("spec") or {})
                for each in documents
                if each.get("kind") == DISCOVERY_CONFIGURATIONS.kind
            ],
            [
                DiscoveredDeviceObject(metadata=_metadata(each), spec=each.get("spec") or {})
                for each in documents
                if each.get("kind") == DISCOVERED_DEVICES.kind
            ],
        )

    def discover(self) -> Sequence[Card]:
        return [_build_card(index, one) for index, one in enumerate(self._discovery.devices.values())]

    def survey(self, card_uuid: str) -> CardSurvey:
        """Return that nothing is on the device, also of one that is gone: what claims had of it is to be released."""
        return CardSurvey(card_uuid=card_uuid)

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        del config, journal, found
        return HANDLES.encode(build_handle(self._find(device.partition.card_uuid)))

    def unprepare(self, handle: Handle) -> None:
        """Undo nothing; the device may be gone."""
        HANDLES.decode(handle)

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        """Undo nothing."""

    def edits(self, handle: Handle) -> ContainerEdits:
        return build_edits(HANDLES.decode(handle))

    def _find(self, name: str) -> FoundDevice:
        found = self._discovery.devices.get(name)
        if found is None:
            raise CardAbsentError(f"there is no DiscoveredDevice {name!r}, or it is invalid: kubectl describe it")
        return found


class DiscoveredConfig(Strict):
    """The configuration document, which has no fields: everything is in objects of the cluster."""


def open_backend(config: Path | None) -> DiscoveredBackend:
    """Make the backend. Raises InvalidDocumentError when its configuration has a field."""
    read_config(config, DiscoveredConfig)
    return DiscoveredBackend()


def _metadata(document: JsonObject) -> ObjectMeta:
    return ObjectMeta(name=document["metadata"]["name"])


def _build_card(index: int, one: FoundDevice) -> Card:
    return Card(
        uuid=one.name,
        index=index,
        geometry=_build_geometry(one.configuration.metadata.name, one.capacity),
        attributes={ATTRIBUTE_MULTI_NODE: Attribute.of(one.device.spec.shared)},
        whole_attributes={v.ATTRIBUTE_CUT: Attribute.of(v.CUT_WHOLE)},
    )


@lru_cache(maxsize=_GEOMETRIES)
def _build_geometry(configuration: str, capacity: int) -> Geometry:
    whole = PartitionSpec(
        kind=SHARED.name, mask=1, size=(1,), weight=1, capacity=((CAPACITY_USERS, Quantity(capacity)),)
    )
    return Geometry(kind=SHARED.name, model=configuration, unit="device", units=1, specs=(whole,))
