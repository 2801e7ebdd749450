"""Finds the devices to prepare for an allocated claim, what they stand for, and which configuration applies. Pure.

The rules are those of ``resource.k8s.io`` allocation results (KEP-4381): results and configuration of other drivers are
ignored; configuration of the class comes before that of the claim, and the last entry that applies wins as a whole.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from kerf_dra.api.errors import InvalidDocumentError, PermanentError, Problem, TransientError
from kerf_dra.api.kerf.decoder import decode_device_config
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ClaimRef, DeviceId, ObjectRef, ShareId
from kerf_dra.api.model.prepared import DeviceDescription, PreparedClaim, PreparedDevice
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.kubeletplugin.claims.validation import ShareDemand, find_contradictions
from kerf_dra.driver.kubeletplugin.cluster.base import describe_other_claim
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PartitionDevice
from kerf_dra.driver.partitions.geometry import NOTHING
from kerf_dra.driver.partitions.records import from_card_part, to_card_part

Configurations: TypeAlias = Mapping[str, type[DeviceConfigBase]]
"""The kinds of configuration of the driver's family (``Family.configurations``)."""


class NotAllocatedError(TransientError):
    """The claim has no devices of this driver at present."""


class UnknownDeviceError(TransientError):
    """An allocated device is not among this node's: its card has failed or was removed since."""

    def __init__(self, device: DeviceId) -> None:
        super().__init__(
            f"device {device} is allocated, but this node does not have it (any more): see whether its card is there, "
            "or delete the pod so that it gets another device"
        )


class MonitorDeviceError(PermanentError):
    """A claim without admin access was allocated a monitor device."""

    def __init__(self, device: DeviceId) -> None:
        super().__init__(
            f"device {device} only monitors a card that others may use: the claim's request needs adminAccess: "
            "true, in a namespace with the label resource.kubernetes.io/admin-access: true"
        )


class HeldByOthersError(TransientError):
    """Other claims hold what a claim was allocated. ``holders`` are for the log, not for readers of the claim."""

    def __init__(self, message: str, holders: Sequence[ClaimRef]) -> None:
        self.holders = holders
        super().__init__(message)


class DeviceInUseError(HeldByOthersError):
    """Another claim still holds the hardware: two claims have one exclusive device.

    The message is for readers of ``namespace``, that of the claim that wants the device.
    """

    def __init__(self, device: ShareId, other: PreparedClaim, others: ShareId, namespace: str) -> None:
        holder = f"{describe_other_claim(other.claim, namespace)}, which has not been unprepared yet"
        if other.resource:
            holder = f"a container as {other.resource}"
        message = f"two claims for one exclusive device: {device} is taken by {others}, held by {holder}"
        super().__init__(message, (other.claim,))


class CapacityInUseError(HeldByOthersError):
    """The shares that other claims have of a device leave less of it than the claim was allocated.

    kube-scheduler never allocates so; the API server checks no claim against another one. The message is for readers of
    ``namespace``, that of the claim that is refused.
    """

    def __init__(self, problems: Iterable[Problem], holders: Sequence[ClaimRef], namespace: str) -> None:
        named = ", ".join(dict.fromkeys(describe_other_claim(holder, namespace) for holder in holders))
        listed = "; ".join(map(str, problems))
        advice = "delete the pods of one claim, so that it is allocated again"
        super().__init__(f"{listed} (held by {named}): {advice}", holders)


class ContradictoryAllocationError(InvalidDocumentError):
    """The claim's allocation says what cannot all be true: nothing of it is prepared."""

    def __init__(self, claim: ObjectRef, problems: Iterable[Problem]) -> None:
        advice = "delete its pods, so that it is deallocated and allocated again"
        super().__init__(f"the allocation of claim {claim} contradicts itself ({advice})", problems)


class _Config(NamedTuple):
    """One entry of the claim's configuration."""

    requests: tuple[str, ...]
    parameters: JsonObject
    path: str
    """The path of the parameters in the claim."""
    decoded: DeviceConfigBase

    def names_request(self, result: DeviceRequestAllocationResult) -> bool:
        return result.request in self.requests or result.request_name.request in self.requests


def select_results(claim: ResourceClaim, driver: str) -> tuple[DeviceRequestAllocationResult, ...]:
    """Return the claim's results of ``driver``, in their order. Raises NotAllocatedError when there are none."""
    allocation = claim.status.allocation
    if allocation is None:
        raise NotAllocatedError(f"claim {claim.ref} is not allocated")
    results = tuple(result for result in allocation.devices.results if result.driver == driver)
    if not results:
        others = ", ".join(sorted({result.driver for result in allocation.devices.results})) or "no driver"
        raise NotAllocatedError(f"claim {claim.ref} has devices of {others}, none of {driver}")
    return results


def resolve_devices(
    claim: ResourceClaim, driver: str, configurations: Configurations, node_devices: DeviceSet
) -> tuple[PreparedDevice, ...]:
    """Return the devices of ``claim`` to prepare.

    Raises NotAllocatedError when there are none, ContradictoryAllocationError when they cannot all be prepared,
    UnknownDeviceError and MonitorDeviceError for a device that cannot be prepared, and InvalidDocumentError for
    configuration that cannot be decoded, or that its device cannot do.
    """
    results = select_results(claim, driver)
    if contradictions := find_contradictions(claim, driver, node_devices):
        raise ContradictoryAllocationError(claim.ref, contradictions)
    configs = _decode_configs(claim, driver, configurations)
    devices = [(result, _find_device(result, node_devices), _choose_config(result, configs)) for result in results]
    problems = [problem for device in devices for problem in _unsupported(*device)]
    if problems:
        raise InvalidDocumentError(f"claim {claim.ref}", problems)
    return tuple(_build_device(*device) for device in devices)


def keep_handles(wanted: Iterable[PreparedDevice], ready: Sequence[PreparedDevice]) -> tuple[PreparedDevice, ...]:
    """Return the devices ``wanted``, with their handles where they are ``ready``, prepared as is wanted now."""

    def find_handle(device: PreparedDevice) -> JsonObject | None:
        bare = replace(device, handle=None, description=None, cdi_ids=())
        return next(
            (one.handle for one in ready if replace(one, handle=None, description=None, cdi_ids=()) == bare), None
        )

    return tuple(replace(device, handle=find_handle(device)) for device in wanted)


def _find_device(result: DeviceRequestAllocationResult, node_devices: DeviceSet) -> PartitionDevice:
    offered = node_devices.find(result.id)
    if offered is None:
        raise UnknownDeviceError(result.id)
    if offered.is_monitor and not result.admin_access:
        raise MonitorDeviceError(result.id)
    return offered


def _unsupported(
    result: DeviceRequestAllocationResult, offered: PartitionDevice, config: _Config | None
) -> Iterator[Problem]:
    """Yield a problem for each field of ``config`` that says what the device cannot do.

    A class selects devices that can do what it says, but nothing stops a claim from saying more.
    """
    if config is None:
        return
    for attribute, field in config.decoded.required_attributes.items():
        found = offered.attributes.get(attribute)
        if found is None or found.value is not True:
            message = (
                f"device {result.device} cannot do this, its attribute {attribute} is not true: omit it, or request "
                f'devices that can by the selector device.attributes["{result.driver}"].{attribute}'
            )
            yield Problem(f"{config.path}.{field}", message)
    for field, (capacity, amount) in config.decoded.share_limits.items():
        share = _find_share(result, capacity)
        most = share or offered.capacity.get(capacity, NOTHING)
        if amount > most:
            whose = "the claim's share of device" if share else "what is in device"
            message = f"{amount} is out of range: at most {most}, {whose} {result.device}"
            yield Problem(f"{config.path}.{field}", message)


def _find_share(result: DeviceRequestAllocationResult, capacity: str) -> Quantity | None:
    """Return what the claim has of a capacity of a device in shares; None: it is no share, or has no part of it."""
    names = (capacity, f"{result.driver}/{capacity}")
    return next((result.consumed_capacity[name] for name in names if result.consumed_capacity.get(name)), None)


def _build_device(
    result: DeviceRequestAllocationResult, offered: PartitionDevice, config: _Config | None
) -> PreparedDevice:
    return PreparedDevice(
        requests=(result.request_name.request,),
        share=result.share,
        admin_access=result.admin_access or False,
        consumed_capacity=result.consumed_capacity,
        part=to_card_part(offered.partition),
        backend=offered.backend,
        config=None if config is None else config.parameters,
        description=DeviceDescription(request=result.request, attributes=offered.attributes)
        if config is not None and config.decoded.device_metadata
        else None,
    )


def _decode_configs(claim: ResourceClaim, driver: str, configurations: Configurations) -> list[_Config]:
    """Decode the configuration for ``driver``, class before claim; the problems of all entries are reported."""
    configs: list[tuple[str, _Config]] = []
    problems: list[Problem] = []
    allocation = claim.status.allocation
    for index, entry in enumerate(allocation.devices.config if allocation else ()):
        if entry.opaque is None or entry.opaque.driver != driver:
            continue
        path = f"status.allocation.devices.config[{index}].opaque.parameters"
        try:
            config = decode_device_config(entry.opaque.parameters, path, configurations)
        except InvalidDocumentError as error:
            problems += error.problems
        else:
            applying = _Config(entry.requests, entry.opaque.parameters, path, config)
            configs.append((entry.source, applying))
    if problems:
        raise InvalidDocumentError(f"claim {claim.ref}", problems)
    configs.sort(key=lambda sourced: sourced[0] == "FromClaim")  # stable: the order within class and claim stays
    return [config for _, config in configs]


def _choose_config(result: DeviceRequestAllocationResult, configs: Sequence[_Config]) -> _Config | None:
    """Return the last entry that applies; one that names no request applies to all."""
    chosen: _Config | None = None
    for config in configs:
        if not config.requests or config.names_request(result):
            chosen = config
    return chosen


def decode_config(device: PreparedDevice, configurations: Configurations) -> DeviceConfigBase | None:
    """Return the configuration that ``device`` was resolved with."""
    return None if device.config is None else decode_device_config(device.config, "config", configurations)


def check_conflicts(wanted: Sequence[PreparedDevice], others: Iterable[PreparedClaim], namespace: str) -> None:
    """Raise DeviceInUseError when a record of another claim holds what ``wanted``, of a claim in ``namespace``, needs.

    Devices with admin access (KEP-5018) do not conflict, nor do different shares of one device (KEP-5075).
    """
    exclusive = [device for device in wanted if not device.admin_access]
    for other in others:
        for held in other.devices:
            for device in exclusive:
                if not held.admin_access and _conflicts(device, held):
                    raise DeviceInUseError(device.share, other, held.share, namespace)


def _conflicts(one: PreparedDevice, other: PreparedDevice) -> bool:
    if one.share.id == other.share.id and one.share.share is not None and other.share.share is not None:
        return one.share == other.share
    if one.part.card_uuid != other.part.card_uuid:
        return False  # true of nearly all pairs, and cheap to test
    return from_card_part(one.part).overlaps(from_card_part(other.part))


def check_share_totals(demands: Sequence[ShareDemand], others: Iterable[PreparedClaim], namespace: str) -> None:
    """Raise CapacityInUseError when the records of other claims leave less of a device than ``demands`` need.

    ``demands`` are those of one claim, in ``namespace``.
    """
    wanted = {(demand.share.id, demand.amount.capacity) for demand in demands}
    held, holders = dict[tuple[DeviceId, str], Quantity](), dict[ClaimRef, None]()
    for other in others if wanted else ():
        for key, amount in _list_consumed(other):
            if key in wanted:
                held[key] = held.get(key, NOTHING) + amount
                holders[other.claim] = None
    problems: list[Problem] = []
    for share, (path, capacity, amount), whole in demands:
        key = (share.id, capacity)
        taken = held.get(key, NOTHING)
        if amount > whole - taken:
            left = max(whole - taken, NOTHING)
            reason = f"other shares leave {left} of the {whole} of device {share.id.device}"
            problems.append(Problem(path, f"{amount} is out of range: {reason}"))
        held[key] = taken + amount
    if problems and holders:
        raise CapacityInUseError(problems, tuple(holders), namespace)


def _list_consumed(record: PreparedClaim) -> Iterator[tuple[tuple[DeviceId, str], Quantity]]:
    for device in record.devices:
        for name, amount in device.consumed_capacity.items() if not device.admin_access else ():
            yield (device.share.id, name.removeprefix(f"{device.share.id.driver}/")), amount
