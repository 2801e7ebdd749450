"""Binding conditions of devices (KEP-5007): whether a pod may be bound, as kube-scheduler's PreBind decides."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from kerf_dra.api.model.allocations import AllocatedDeviceStatus, DeviceRequestAllocationResult
from kerf_dra.api.model.claims import ResourceClaim

TIMEOUT_S: Final = 600.0
"""The time that devices have to become ready: the scheduler's default (DynamicResourcesArgs.bindingTimeout)."""


@dataclass(frozen=True, slots=True)
class BindingReady:
    """All devices are ready, and the pod may be bound."""


@dataclass(frozen=True, slots=True)
class BindingPending:
    """A device is not ready yet."""

    left_s: float
    """Seconds until the first device times out."""


@dataclass(frozen=True, slots=True)
class BindingFailed:
    """A device has failed or timed out: its claim should be deallocated."""

    claim: ResourceClaim
    message: str


BindingState: TypeAlias = BindingReady | BindingPending | BindingFailed


def check_binding(claims: Iterable[ResourceClaim], now: datetime) -> BindingState:
    """Return whether all devices of a pod's allocated ``claims`` are ready for binding."""
    left_s: float | None = None
    for claim in claims:
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation else ():
            if not result.binding_conditions:
                continue
            true = _true_conditions(claim.status.devices, result)
            if failure := true.keys() & set(result.binding_failure_conditions):
                message = f"device {result.id}: {'; '.join(true[type_] for type_ in sorted(failure))}"
                return BindingFailed(claim, message)
            if true.keys() >= set(result.binding_conditions):
                continue
            since = allocation.allocation_timestamp if allocation else None
            waited_s = (now - datetime.fromisoformat(since)).total_seconds() if since else 0.0
            if waited_s >= TIMEOUT_S:
                return BindingFailed(claim, f"device {result.id} is not ready after {TIMEOUT_S:g} s")
            left_s = min(TIMEOUT_S - waited_s, left_s if left_s is not None else TIMEOUT_S)
    return BindingReady() if left_s is None else BindingPending(left_s)


def _true_conditions(devices: Iterable[AllocatedDeviceStatus], result: DeviceRequestAllocationResult) -> dict[str, str]:
    """Return the messages of an allocated device's true conditions, by type."""
    return {
        condition.type: condition.message
        for device in devices
        if (device.driver, device.pool, device.device, device.share_id)
        == (result.driver, result.pool, result.device, result.share_id)
        for condition in device.conditions
        if condition.status == "True"
    }
