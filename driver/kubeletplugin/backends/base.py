"""The Backend protocol, which one vendor implements, and the values that pass through it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias

from api.errors import PermanentError, TransientError
from api.kerf.v1alpha1 import DeviceConfig
from api.model.base import JsonObject
from api.model.names import ClaimRef, ShareId
from api.model.quantity import Quantity
from cdi import ContainerEdits
from driver.partitions.geometry import Card, Partition

Handle: TypeAlias = JsonObject
"""The result of ``prepare`` as plain JSON. The checkpoint keeps it; ``unprepare`` and ``edits`` need nothing else."""


class HardwareBusyError(TransientError):
    """The hardware is in use by another process, or is not ready yet: the kubelet's next try may succeed."""


class HardwareRefusedError(PermanentError):
    """The hardware can never do this: an illegal placement, an image that does not fit, a failed card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """One device of a claim, to be prepared."""

    claim: ClaimRef
    share: ShareId
    """The published device and, where several claims share it, the id of this claim's share."""
    partition: Partition
    admin_access: bool
    """The claim has admin access (KEP-5018): other claims may use the device, and preparing must not disturb them."""
    consumed_capacity: Mapping[str, Quantity]
    """The share's part of each capacity (KEP-5075), by name with or without the driver's domain."""


class HealthState(StrEnum):
    """The health of hardware, with what follows for claims."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    """The hardware works, but gets no new claims: errors that are corrected, repairs that are due."""
    LOST = "lost"
    """Workloads on the hardware cannot continue: it fell off the bus, is too hot, or its memory is corrupt."""


class UnhealthyState(NamedTuple):
    """The problem of a card or a partition."""

    state: HealthState
    """UNHEALTHY or LOST."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChange:
    """A new health state of a card or of one partition, or a new reason for the same state."""

    card_uuid: str
    partition: Partition | None
    """None: the whole card."""
    state: HealthState
    reason: str
    """The reason, for people; at most 1024 bytes (KEP-4680)."""


class Backend(Protocol):
    """One vendor's hardware.

    Every method may be called again with the same arguments, also by a new process after a crash. Calls for one card
    never overlap; calls for different cards may. A method raises HardwareBusyError when a later try may succeed, and
    HardwareRefusedError when none can.
    """

    name: str

    async def discover(self) -> Sequence[Card]:
        """Return the cards that are there now, in a stable order."""
        ...

    async def prepare(self, device: AllocatedDevice, config: DeviceConfig | None) -> Handle:
        """Make the device ready: create the partition or load the function.

        On return all of it is done. On an error nothing is left, except after a crash: then the next call with the same
        arguments finishes or redoes the work.

        A device that several claims share (``partition.shared``, KEP-5075) is prepared once for each share: the first
        call makes the partition, the others find it. Only the last share is unprepared, by whichever handle it has.
        """
        ...

    async def unprepare(self, handle: Handle) -> None:
        """Remove what ``prepare`` made. An unknown handle is success; what others made is left alone."""
        ...

    async def abandon(self, device: AllocatedDevice) -> None:
        """Remove what a ``prepare`` of ``device`` that never returned may have left. Nothing left is success."""
        ...

    def edits(self, handle: Handle) -> ContainerEdits:
        """Return the edits of the container. Pure: a restart rebuilds the CDI file from the checkpoint."""
        ...

    def health(self) -> AsyncIterator[HealthChange]:
        """Yield changes as they are seen, first one for everything that is not healthy now; never ends by itself."""
        ...
