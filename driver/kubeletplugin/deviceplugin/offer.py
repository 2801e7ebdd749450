"""What a node offers by the device plugin interface: the devices of its extended resources, wherever they come from.

There are two: ``placements`` of this node's cards, which are kept apart from what claims get, and devices that nodes
find by discovery (``discovered_device_offer``), where no scheduler counts their users.
"""

import hashlib
from collections.abc import Collection, Sequence
from typing import Protocol

from kerf_dra.api.deviceplugin.v1beta1 import ListedDevice, PreferenceRequest
from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.prepared import PreparedClaim, PreparedDevice


class UnknownIdError(PermanentError):
    """The kubelet names device IDs that are not listed for the resource; nothing was changed."""

    def __init__(self, resource: str, ids: Collection[str]) -> None:
        super().__init__(f"{', '.join(sorted(ids))}: not among the devices of {resource} on this node")


def record_uid(resource: str, device_id: str) -> str:
    """Return the key of a device's record, of which CDI names and files are made; no claim has such a UID."""
    return f"resource-{hashlib.sha256(resource.encode()).hexdigest()[:16]}-{device_id}"


class DeviceOffer(Protocol):
    """The devices of one node's extended resources, by ID."""

    @property
    def resources(self) -> Sequence[str]:
        """The resources that are to be served: some of their devices are listed, or containers have some."""
        ...

    def list_devices(self, resource: str) -> tuple[ListedDevice, ...]:
        """Return the complete list of a resource's devices, by ID.

        What a container has must not be left out: a kubelet whose list lacks a device when its Allocate is answered
        ends with a nil pointer (Kubernetes 1.37.0, ``allocateContainerResources`` in ``cm/devicemanager/manager.go``).
        """
        ...

    def prefer(self, resource: str, requests: Sequence[PreferenceRequest]) -> Sequence[Sequence[str]]:
        """Return the IDs that containers should get, for each of ``requests``."""
        ...

    def check(self, resource: str, ids: Collection[str]) -> None:
        """Raise UnknownIdError for IDs that are not listed, and another KerfError when a container cannot have them
        together.
        """
        ...

    def resolve(self, resource: str, device_id: str, record: PreparedClaim | None) -> PreparedDevice:
        """Return the device to prepare. Raises UnknownIdError when it is neither listed nor recorded any more."""
        ...

    async def enter(self, resource: str, device_id: str, device: PreparedDevice) -> None:
        """Enter a container as a user of ``device``, before it is prepared; one that is entered stays so.

        Raises KerfError when it cannot be. Does not wait where nothing has to be asked.
        """
        ...

    async def leave(self, resource: str, device_id: str, device: PreparedDevice) -> None:
        """Remove a container as a user of ``device``, before it is released. Raises KerfError to be called again."""
        ...


def device_id_of(record: PreparedClaim) -> str:
    """Return the device ID of a record."""
    return record.claim.name.removeprefix(f"{record.resource}/")
