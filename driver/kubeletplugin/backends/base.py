"""What one vendor supplies: the Backend protocol and the values that pass through it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from api.errors import PermanentError, TransientError
from api.kerf.v1alpha1 import DeviceConfig
from api.model.base import JsonObject
from api.model.names import ClaimRef, ShareId
from api.model.quantity import Quantity
from cdi import ContainerEdits
from driver.partitions.geometry import Card, Partition

Handle: TypeAlias = JsonObject
"""What ``prepare`` made, as plain JSON: kept in the checkpoint, enough for ``unprepare`` and ``edits`` ever after."""


class HardwareBusyError(TransientError):
    """The hardware is in use by somebody else, or is not ready yet: the kubelet's next try may succeed."""


class HardwareRefusedError(PermanentError):
    """The hardware will not do it: an illegal placement, an image that does not fit, a failed card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """One device of a claim, ready to be prepared."""

    claim: ClaimRef
    share: ShareId
    """The published device and, for a device with several allocations, which share of it."""
    partition: Partition
    admin_access: bool
    """The device may be in use by others, whom preparing must not disturb (KEP-5018)."""
    consumed_capacity: Mapping[str, Quantity]
    """What the share has of each capacity (KEP-5075); names with or without the driver's domain."""


class Condition(StrEnum):
    """How hardware is, and what follows for claims."""

    WELL = "well"
    ILL = "ill"
    """It works, but nothing new should be put on it: errors that are corrected, repairs that are due."""
    LOST = "lost"
    """What runs on it cannot go on: it fell off the bus, it is too hot, its memory is corrupt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChange:
    """A card, or one partition of it, is in another condition than before, or in the same for another reason."""

    card_uuid: str
    partition: Partition | None
    """None: the whole card."""
    condition: Condition
    reason: str
    """For people; at most 1024 bytes (KEP-4680)."""


class Backend(Protocol):
    """Knows hardware and CDI data; never the API server, the kubelet or files of ours.

    Every method may be called again with the same arguments, also by a new process after a crash. Calls for one card
    never overlap; calls for different cards may. Errors: HardwareBusyError and HardwareRefusedError.
    """

    name: str

    async def discover(self) -> Sequence[Card]:
        """The cards that are there now, in a stable order."""
        ...

    async def prepare(self, device: AllocatedDevice, config: DeviceConfig | None) -> Handle:
        """Cut the partition or load the function.

        Either all of it is done on return, or the error says why and nothing is left (except after a crash, when the
        next call with the same arguments finishes or redoes the work).

        Of a device that several claims share (``partition.shared``, KEP-5075) each share is prepared: the first makes
        the partition, the others find it. It is taken back with the last share alone, by whichever handle.
        """
        ...

    async def unprepare(self, handle: Handle) -> None:
        """Take back what ``prepare`` made. Unknown or already gone is success; what others made is left alone."""
        ...

    async def abandon(self, device: AllocatedDevice) -> None:
        """Take back what a ``prepare`` of ``device`` that never returned may have left. Nothing there is success."""
        ...

    def edits(self, handle: Handle) -> ContainerEdits:
        """What the container gets. Pure: a restart rebuilds the CDI file from the checkpoint."""
        ...

    def health(self) -> AsyncIterator[HealthChange]:
        """Changes as they are seen, first one for everything that is not well now; never ends by itself."""
        ...
