"""Devices that are made ready before their pod is bound (KEP-5007): which, and what claims are told. Pure.

A function that loads slowly is published with a condition that the scheduler waits for, and one that sends the pod
elsewhere (docs/early-loading.md).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from api.model.allocations import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaimStatus
from api.model.devices import Device, Pool
from api.model.metadata import Condition
from api.model.names import DriverName
from driver.partitions.geometry import Card, FpgaCard, Partition

_LONGEST: Final = 32768
"""Characters of a condition's message (``metav1.Condition``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The condition types of one driver."""

    loaded: str
    """The scheduler waits until it is true …"""
    failed: str
    """… or this one is: then it tries elsewhere."""

    @classmethod
    def of(cls, driver: DriverName) -> "Conditions":
        return cls(loaded=f"{driver}/Loaded", failed=f"{driver}/LoadFailed")


def loads_slowly(card: Card, partition: Partition, at_least_s: float) -> bool:
    """Whether making ``partition`` of ``card`` ready may take so long.

    Which function goes into bare slots is known only with the claim: the slowest counts.
    """
    if not isinstance(card, FpgaCard):
        return False
    functions = [each for each in card.shell.functions if partition.function in (None, each.name)]
    return any(function.load_s >= at_least_s for function in functions)


def with_conditions(pool: Pool, devices: Collection[str], conditions: Conditions) -> Pool:
    """``pool`` with the conditions on these of its devices."""

    def conditional(device: Device) -> Device:
        if device.name not in devices:
            return device
        return replace(device, binding_conditions=(conditions.loaded,), binding_failure_conditions=(conditions.failed,))

    slices = (replace(content, devices=tuple(map(conditional, content.devices))) for content in pool.slices)
    return replace(pool, slices=tuple(slices))


def awaited(
    status: ResourceClaimStatus, driver: str, pools: Collection[str], conditions: Conditions
) -> tuple[DeviceRequestAllocationResult, ...]:
    """The devices of a claim that the scheduler waits for this node to make ready; empty: none, or all is told."""
    if status.allocation is None:
        return ()
    ours = tuple(
        result
        for result in status.allocation.devices.results
        if result.driver == driver and result.pool in pools and conditions.loaded in result.binding_conditions
    )
    told = {device_key(device) for device in status.devices if _is_told(device, conditions)}
    return () if all(device_key(result) in told for result in ours) else ours


def device_key(device: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> tuple[str, str, str, str | None]:
    """What ``status.devices`` is keyed by."""
    return (device.driver, device.pool, device.device, device.share_id)


def told(
    results: Iterable[DeviceRequestAllocationResult], conditions: Conditions, *, failure: str | None, now: float
) -> tuple[AllocatedDeviceStatus, ...]:
    """What the claim is told of its devices: all are ready, or why they are not. ``now``: Unix time in seconds."""
    since = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    loaded = Condition(
        type=conditions.loaded,
        status="True" if failure is None else "False",
        reason="Loaded" if failure is None else "LoadFailed",
        message=("the devices of the claim are ready" if failure is None else failure)[:_LONGEST],
        last_transition_time=since,
    )
    failed = replace(loaded, type=conditions.failed, status="False" if failure is None else "True")
    return tuple(
        AllocatedDeviceStatus(
            driver=result.driver,
            pool=result.pool,
            device=result.device,
            share_id=result.share_id,
            conditions=(loaded, failed),
        )
        for result in results
    )


def _is_told(device: AllocatedDeviceStatus, conditions: Conditions) -> bool:
    true = {condition.type for condition in device.conditions if condition.status == "True"}
    return bool(true & {conditions.loaded, conditions.failed})
