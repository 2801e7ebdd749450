"""Prepared claims: the records of the kubelet plugin, and its answers to the kubelet."""

from enum import StrEnum

from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import ClaimRef, ShareId
from kerf_dra.api.model.quantity import Quantity


class ClaimState(StrEnum):
    """The state of a claim's hardware."""

    STARTED = "Started"
    """Preparation has begun: the hardware may have been changed in full, in part or not at all. Devices that have a
    handle all the same were ready before: the others are prepared again."""
    PREPARED = "Prepared"
    """The hardware is in the state that the record describes."""
    RELEASING = "Releasing"
    """Release has begun: the hardware may be released in full, in part or not at all; the claim holds it no longer."""


class CardPart(Value):
    """The partition of a card that a device represents, as ``kerf_dra.driver.partitions.geometry`` defines it, as plain
    data.

    ``start`` and ``size`` are both None for a whole card.
    """

    kind: str
    card_uuid: str
    profile: str | None = None
    start: int | None = None
    size: int | None = None
    gaps: int = 0
    layout: str = ""
    function: str | None = None
    shared: bool = False


class DeviceDescription(Value):
    """The description of a device for its containers (KEP-5304)."""

    request: str
    """The request of the allocation result: ``request`` or ``request/subrequest``."""
    attributes: dict[str, Attribute] = {}
    """The attributes that were published when the device was prepared."""


class PreparedDevice(Value):
    """One device of a claim: the input of its preparation, and the result."""

    requests: tuple[str, ...]
    """The claim's requests that the device serves, without sub-requests."""
    share: ShareId
    admin_access: bool = False
    consumed_capacity: dict[str, Quantity] = {}
    part: CardPart
    backend: str
    """The name of the backend that prepares and unprepares the device, even if the configuration changes in between."""
    config: JsonObject | None = None
    """The device configuration that applies, as its author wrote it; None: no configuration applies."""
    handle: JsonObject | None = None
    """The backend's handle of what it created; None: not known yet."""
    description: DeviceDescription | None = None
    """The device metadata; None: neither class nor claim requests it."""
    cdi_ids: tuple[str, ...] = ()
    """The fully qualified CDI names; empty: the container needs no changes."""


class PreparedClaim(Value):
    """The record of one claim, or of one device of an extended resource, with the devices in order of allocation."""

    claim: ClaimRef
    state: ClaimState
    boot_id: str
    """The ID of the boot during which the record was written: hardware state does not survive a boot."""
    pod_claim_name: str = ""
    """The pod's name for a claim that was created from a template; else empty."""
    awaits_pod: bool = False
    """Whether the claim was prepared before its pod was bound (KEP-5007) and the kubelet has not requested it yet."""
    resource: str = ""
    """The extended resource for which the kubelet's device plugin interface has the devices: then there is no claim of
    this name; empty: a claim has them."""
    devices: tuple[PreparedDevice, ...]

    @property
    def ready_devices(self) -> tuple[PreparedDevice, ...]:
        """The devices that a container may use, in the record's boot."""
        match self.state:
            case ClaimState.PREPARED:
                return self.devices
            case ClaimState.STARTED:
                return tuple(device for device in self.devices if device.handle is not None)
            case ClaimState.RELEASING:
                return ()


class DeviceNotes(Value):
    """What was noted during the prepare of one share of a device: what a successor needs to know of half-done work."""

    share: ShareId
    boot_id: str
    """The ID of the boot during which the notes were written: in another one they are void."""
    notes: JsonObject


class ReportedDevice(Value):
    """A prepared device in an answer to the kubelet."""

    requests: tuple[str, ...] = ()
    """The claim's requests that the device serves; empty: all."""
    pool: str
    device: str
    share: str | None = None
    cdi_ids: tuple[str, ...] = ()


class PrepareOutcome(Value):
    """The answer for one claim: its devices, or the ``error`` that fails this claim."""

    devices: tuple[ReportedDevice, ...] = ()
    error: str = ""


def to_reported_devices(record: PreparedClaim) -> tuple[ReportedDevice, ...]:
    """Return a prepared claim's devices in the form in which they are reported to the kubelet."""
    return tuple(
        ReportedDevice(
            requests=device.requests,
            pool=device.share.id.pool,
            device=device.share.id.device,
            share=device.share.share,
            cdi_ids=device.cdi_ids,
        )
        for device in record.devices
    )
