"""What a node has made of claims: the kubelet plugin's records, and what the kubelet learns of them."""

from enum import StrEnum

from api.model.base import JsonObject, Value
from api.model.devices import Attribute
from api.model.names import ClaimRef, ShareId
from api.model.quantity import Quantity


class ClaimState(StrEnum):
    """What is known of a claim's hardware."""

    STARTED = "Started"
    """Work on the hardware has begun: all, some or none of it may be done."""
    PREPARED = "Prepared"
    """The hardware is as the record says."""
    RELEASING = "Releasing"
    """Its end has begun: all, some or none of the hardware may be gone, and the claim has no more say in what stays."""


class CardPart(Value):
    """Which part of which card a device stands for: the partition of ``driver.partitions.geometry`` as plain data.

    ``start`` and ``size`` are both None for a whole card.
    """

    kind: str
    card_uuid: str
    profile: str | None = None
    start: int | None = None
    size: int | None = None
    function: str | None = None
    shared: bool = False


class DeviceDescription(Value):
    """What containers are told of a device (KEP-5304)."""

    request: str
    """As allocated: ``request`` or ``request/subrequest``."""
    attributes: dict[str, Attribute] = {}
    """As they were published when the device was prepared."""


class PreparedDevice(Value):
    """One device of a claim: what was to be made, and what became of it."""

    requests: tuple[str, ...]
    """The claim's requests that the device serves, without sub-request."""
    share: ShareId
    admin_access: bool = False
    consumed_capacity: dict[str, Quantity] = {}
    part: CardPart
    backend: str
    """Name of the backend that prepares it, also after the configuration has changed."""
    config: JsonObject | None = None
    """The device configuration that applies, as its author wrote it."""
    handle: JsonObject | None = None
    """What the backend made; None: not known (yet)."""
    description: DeviceDescription | None = None
    """None: neither class nor claim asks for device metadata."""
    cdi_ids: tuple[str, ...] = ()
    """Fully qualified CDI names; empty where the container needs nothing."""


class PreparedClaim(Value):
    """The record of one claim. Its devices are in the order of the allocation."""

    claim: ClaimRef
    state: ClaimState
    boot_id: str
    """Boot of the node during which the record was written: hardware state does not survive it."""
    pod_claim_name: str = ""
    """The pod's name for the claim, when it was made from a template for that pod."""
    awaits_pod: bool = False
    """Made before its pod was bound (KEP-5007), and the kubelet has not asked for it yet: nothing runs on it."""
    devices: tuple[PreparedDevice, ...]


class ReportedDevice(Value):
    """A prepared device as the kubelet sees it."""

    requests: tuple[str, ...] = ()
    """Requests of the claim that the device serves; empty: all of them."""
    pool: str
    device: str
    share: str | None = None
    cdi_ids: tuple[str, ...] = ()


class PrepareOutcome(Value):
    """The answer for one claim: its devices, or why there are none. A non-empty ``error`` fails this claim only."""

    devices: tuple[ReportedDevice, ...] = ()
    error: str = ""


def to_reported_devices(record: PreparedClaim) -> tuple[ReportedDevice, ...]:
    """The devices of a prepared claim, for the kubelet."""
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
