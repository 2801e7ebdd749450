"""Binding conditions (KEP-5007): which devices are made ready before their pod is bound, and what claims report. Pure.

A function that loads slowly is published with one condition for which the scheduler waits, and one that makes it try
another node (docs/early-loading.md).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.model.allocations import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaimStatus
from kerf_dra.api.model.devices import Device, Pool
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.model.times import format_unix_time
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.unit_map import get_unit_map

_MAX_MESSAGE: Final = 32768
"""Characters of a condition's message (``metav1.Condition``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingConditions:
    """The condition types of one driver."""

    loaded: str
    """The scheduler binds the pod when this condition is true."""
    failed: str
    """The scheduler tries again elsewhere when this condition is true."""

    @classmethod
    def of_driver(cls, driver: DriverName) -> "BindingConditions":
        return cls(loaded=f"{driver}/Loaded", failed=f"{driver}/LoadFailed")

    @property
    def types(self) -> tuple[str, str]:
        """Both types."""
        return self.loaded, self.failed


def loads_slowly(card: Card, partition: Partition, at_least_s: float) -> bool:
    """Whether making ``partition`` of ``card`` ready may take at least ``at_least_s`` seconds.

    Which function goes into slots without one is known only with the claim: the slowest counts.
    """
    spec = get_unit_map(card).find(partition)
    return spec is not None and spec.load_s > 0 and spec.load_s >= at_least_s


def add_binding_conditions(pool: Pool, devices: Collection[str], conditions: BindingConditions) -> Pool:
    """Return ``pool`` with the conditions on those of its devices that are named in ``devices``."""

    def conditional(device: Device) -> Device:
        if device.name not in devices:
            return device
        return replace(device, binding_conditions=(conditions.loaded,), binding_failure_conditions=(conditions.failed,))

    slices = (replace(content, devices=tuple(map(conditional, content.devices))) for content in pool.slices)
    return replace(pool, slices=tuple(slices))


def find_awaited_devices(
    status: ResourceClaimStatus, driver: str, pools: Collection[str], conditions: BindingConditions
) -> tuple[DeviceRequestAllocationResult, ...]:
    """Return the claim's devices in ``pools`` for whose conditions the scheduler waits; empty: none, or all are set."""
    if status.allocation is None:
        return ()
    ours = tuple(
        result
        for result in status.allocation.devices.results
        if result.driver == driver and result.pool in pools and conditions.loaded in result.binding_conditions
    )
    reported = {device_key(device) for device in status.devices if _is_reported(device, conditions)}
    return () if all(device_key(result) in reported for result in ours) else ours


def device_key(device: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> tuple[str, str, str, str | None]:
    """Return the key of ``device`` in the list ``status.devices``."""
    return (device.driver, device.pool, device.device, device.share_id)


def build_device_statuses(
    results: Iterable[DeviceRequestAllocationResult], conditions: BindingConditions, *, failure: str | None, now: float
) -> tuple[AllocatedDeviceStatus, ...]:
    """Build the entries of ``status.devices`` for ``results``: all are ready, or not because of ``failure``.

    ``now`` is Unix time in seconds.
    """
    since = format_unix_time(now)
    loaded = Condition(
        type=conditions.loaded,
        status="True" if failure is None else "False",
        reason="Loaded" if failure is None else "LoadFailed",
        message=("the devices of the claim are ready" if failure is None else failure)[:_MAX_MESSAGE],
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


def _is_reported(device: AllocatedDeviceStatus, conditions: BindingConditions) -> bool:
    true = {condition.type for condition in device.conditions if condition.status == "True"}
    return bool(true & {conditions.loaded, conditions.failed})
