"""Whether a pod may be bound, as far as its devices have a say (KEP-5007): pure, after kube-scheduler's PreBind."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from api.model.allocations import AllocatedDeviceStatus, DeviceRequestAllocationResult
from api.model.claims import ResourceClaim

TIMEOUT_S: Final = 600.0
"""How long devices may take: the scheduler's default (DynamicResourcesArgs.bindingTimeout)."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The pod may be bound."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """A device is still being made ready; its time is over in ``left_s`` seconds."""

    left_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """``claim`` should be allocated anew."""

    claim: ResourceClaim
    message: str


Verdict: TypeAlias = Ready | NotYet | Failed


def check_binding(claims: Iterable[ResourceClaim], now: datetime) -> Verdict:
    """What the devices of a pod's allocated claims say."""
    left_s: float | None = None
    for claim in claims:
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation else ():
            if not result.binding_conditions:
                continue
            true = _true_conditions(claim.status.devices, result)
            if failure := true.keys() & set(result.binding_failure_conditions):
                message = f"device {result.id}: {'; '.join(true[type_] for type_ in sorted(failure))}"
                return Failed(claim, message)
            if true.keys() >= set(result.binding_conditions):
                continue
            since = allocation.allocation_timestamp if allocation else None
            waited_s = (now - datetime.fromisoformat(since)).total_seconds() if since else 0.0
            if waited_s >= TIMEOUT_S:
                return Failed(claim, f"device {result.id} is not ready after {TIMEOUT_S:g} s")
            left_s = min(TIMEOUT_S - waited_s, left_s if left_s is not None else TIMEOUT_S)
    return Ready() if left_s is None else NotYet(left_s)


def _true_conditions(devices: Iterable[AllocatedDeviceStatus], result: DeviceRequestAllocationResult) -> dict[str, str]:
    """Types and messages of the conditions that are true of an allocated device."""
    return {
        condition.type: condition.message
        for device in devices
        if (device.driver, device.pool, device.device, device.share_id)
        == (result.driver, result.pool, result.device, result.share_id)
        for condition in device.conditions
        if condition.status == "True"
    }
