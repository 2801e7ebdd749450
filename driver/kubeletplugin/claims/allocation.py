"""From an allocated claim to the devices to prepare: which are ours, what they stand for, which configuration applies.

Rules of ``resource.k8s.io`` allocation results (KEP-4381): results and configuration of other drivers are not ours to
read; configuration of the class comes before that of the claim, and the last that applies wins as a whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from api.errors import InvalidDocumentError, PermanentError, Problem, TransientError
from api.kerf.decoder import decode_device_config
from api.kerf.v1alpha1 import DeviceConfig, FpgaConfig, GpuConfig
from api.model.allocations import AllocationResult, DeviceAllocationConfiguration, DeviceRequestAllocationResult
from api.model.base import JsonObject
from api.model.claims import ResourceClaim
from api.model.names import ClaimRef, DeviceId, ShareId
from api.model.prepared import ClaimState, DeviceDescription, PreparedClaim, PreparedDevice
from driver.kubeletplugin.inventory.devices import Inventory
from driver.partitions.geometry import DeviceKind, Partition
from driver.partitions.records import from_card_part, to_card_part

_CONFIGURED_KIND: Final = {GpuConfig: DeviceKind.GPU, FpgaConfig: DeviceKind.FPGA}


class NotAllocatedError(TransientError):
    """The claim has no devices of this driver, now."""


class UnknownDeviceError(TransientError):
    """An allocated device is not among those of this node: its card has failed or was taken out since."""

    def __init__(self, device: DeviceId) -> None:
        self.device = device
        super().__init__(
            f"device {device} is allocated, but this node does not have it (any more): see whether its card is there, "
            "or delete the pod so that it gets another device"
        )


class OnlyToLookAtError(PermanentError):
    """The claim was given a card to look at, and asks to take it."""

    def __init__(self, device: DeviceId) -> None:
        self.device = device
        super().__init__(
            f"device {device} is there to look at a card that others may use: the claim's request needs adminAccess: "
            "true, in a namespace with the label resource.kubernetes.io/admin-access: true"
        )


class DeviceInUseError(TransientError):
    """Another claim still has the hardware: two claims for one exclusive device."""

    def __init__(self, device: ShareId, other: PreparedClaim, others: ShareId) -> None:
        self.holder = other.claim
        super().__init__(
            f"two claims for one exclusive device: {device} is taken by {others} of claim {other.claim} "
            f"(UID {other.claim.uid}), which has not been unprepared yet"
        )


class _Config(NamedTuple):
    requests: tuple[str, ...]
    parameters: JsonObject
    kind: DeviceKind
    describes: bool
    path: str

    def names(self, result: DeviceRequestAllocationResult) -> bool:
        return result.request in self.requests or result.request_name.request in self.requests


def allocated(claim: ResourceClaim, driver: str) -> tuple[DeviceRequestAllocationResult, ...]:
    """The claim's devices of ``driver``, in the allocation's order. Raises NotAllocatedError when there are none."""
    allocation = claim.status.allocation
    if allocation is None:
        raise NotAllocatedError(f"claim {claim.ref} is not allocated")
    results = tuple(result for result in allocation.devices.results if result.driver == driver)
    if not results:
        others = ", ".join(sorted({result.driver for result in allocation.devices.results})) or "no driver"
        raise NotAllocatedError(f"claim {claim.ref} has devices of {others}, none of {driver}")
    return results


def resolve(claim: ResourceClaim, driver: str, inventory: Inventory) -> tuple[PreparedDevice, ...]:
    """The devices of ``claim`` to prepare.

    Raises NotAllocatedError, UnknownDeviceError, OnlyToLookAtError, and InvalidDocumentError for configuration that
    cannot be read or does not fit the device.
    """
    results = allocated(claim, driver)
    configs = _configs(claim, driver)
    return tuple(_resolve_device(result, configs, inventory) for result in results)


def _resolve_device(
    result: DeviceRequestAllocationResult, configs: Sequence[_Config], inventory: Inventory
) -> PreparedDevice:
    offered = inventory.find(result.id)
    if offered is None:
        raise UnknownDeviceError(result.id)
    if offered.is_monitor and not result.admin_access:
        raise OnlyToLookAtError(result.id)
    config = _config_for(result, offered.partition, configs)
    return PreparedDevice(
        requests=(result.request_name.request,),
        share=result.share,
        admin_access=result.admin_access or False,
        consumed_capacity=result.consumed_capacity,
        part=to_card_part(offered.partition),
        backend=offered.backend,
        config=None if config is None else config.parameters,
        description=DeviceDescription(request=result.request, attributes=offered.attributes)
        if config is not None and config.describes
        else None,
    )


def _configs(claim: ResourceClaim, driver: str) -> list[_Config]:
    """The configuration meant for ``driver``, class before claim; every entry is checked, all problems are reported."""
    configs: list[tuple[str, _Config]] = []
    problems: list[Problem] = []
    for index, entry in enumerate(_entries(claim.status.allocation)):
        if entry.opaque is None or entry.opaque.driver != driver:
            continue
        path = f"status.allocation.devices.config[{index}].opaque.parameters"
        try:
            config = decode_device_config(entry.opaque.parameters, path)
        except InvalidDocumentError as error:
            problems += error.problems
        else:
            kind = _CONFIGURED_KIND[type(config)]
            applying = _Config(entry.requests, entry.opaque.parameters, kind, config.device_metadata, path)
            configs.append((entry.source, applying))
    if problems:
        raise InvalidDocumentError(f"claim {claim.ref}", problems)
    configs.sort(key=lambda sourced: sourced[0] == "FromClaim")  # stable: the order within class and claim stays
    return [config for _, config in configs]


def _entries(allocation: AllocationResult | None) -> Iterable[DeviceAllocationConfiguration]:
    return allocation.devices.config if allocation else ()


def _config_for(
    result: DeviceRequestAllocationResult, partition: Partition, configs: Sequence[_Config]
) -> _Config | None:
    """The last entry that applies. One for all requests is meant for the devices of its kind."""
    chosen: _Config | None = None
    for config in configs:
        if config.names(result) or (not config.requests and config.kind is partition.kind):
            chosen = config
    if chosen is not None and chosen.kind is not partition.kind:
        found = f"is for {chosen.kind.value} devices, request {result.request!r} got the {partition.kind.value} device"
        raise InvalidDocumentError("device configuration", [Problem(chosen.path, f"{found} {result.device}")])
    return chosen


def config_of(device: PreparedDevice) -> DeviceConfig | None:
    """The configuration that ``device`` was resolved with."""
    return None if device.config is None else decode_device_config(device.config, "config")


def refuse_conflicts(wanted: Sequence[PreparedDevice], others: Iterable[PreparedClaim]) -> None:
    """Raises DeviceInUseError when a record of another claim holds what ``wanted`` needs.

    Admin access looks at devices without taking them (KEP-5018), and shares of one device are meant to coexist
    (KEP-5075): neither conflicts.
    """
    exclusive = [device for device in wanted if not device.admin_access]
    for other in others:
        for held in other.devices:
            for device in exclusive:
                if not held.admin_access and _conflict(device, held):
                    raise DeviceInUseError(device.share, other, held.share)


def is_shared(claim: ClaimRef, device: PreparedDevice, records: Mapping[str, PreparedClaim]) -> bool:
    """Whether another claim than ``claim`` has, or is about to get, a share of ``device``: the last one takes it back.

    ``records`` are by claim UID.
    """
    return device.share.share is not None and any(
        held.share.id == device.share.id and not held.admin_access
        for uid, record in records.items()
        if uid != claim.uid and record.state is not ClaimState.RELEASING
        for held in record.devices
    )


def _conflict(one: PreparedDevice, other: PreparedDevice) -> bool:
    if one.share.id == other.share.id and one.share.share is not None and other.share.share is not None:
        return one.share == other.share
    if one.part.card_uuid != other.part.card_uuid:
        return False  # as of nearly all that a node holds, and cheap to see
    return from_card_part(one.part).overlaps(from_card_part(other.part))
