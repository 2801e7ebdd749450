"""A pod is bound when its devices are ready, and rescheduled when one fails (KEP-5007)."""

from datetime import UTC, datetime, timedelta

import pytest

from kerf_dra.api.model.allocations import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.driver.scheduling.binding_conditions import (
    TIMEOUT_S,
    BindingFailed,
    BindingPending,
    BindingReady,
    check_binding,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def device(*conditions: str, share: str | None = None) -> AllocatedDeviceStatus:
    """Return the status of the device with conditions that are true, or false if written with a minus."""
    said = tuple(
        Condition(type=each.lstrip("-"), status="False" if each.startswith("-") else "True", message="why")
        for each in conditions
    )
    return AllocatedDeviceStatus(driver="d.example", pool="p", device="d", share_id=share, conditions=said)


def claim(*devices: AllocatedDeviceStatus, share: str | None = None, waits: bool = True) -> ResourceClaim:
    result = DeviceRequestAllocationResult(
        request="r",
        driver="d.example",
        pool="p",
        device="d",
        share_id=share,
        binding_conditions=("ready",) if waits else (),
        binding_failure_conditions=("failed",) if waits else (),
    )
    allocation = AllocationResult(
        devices=DeviceAllocationResult(results=(result,)), allocation_timestamp="2026-01-01T00:00:00Z"
    )
    return ResourceClaim(
        metadata=ObjectMeta(name="c"), status=ResourceClaimStatus(allocation=allocation, devices=devices)
    )


@pytest.mark.parametrize(
    ("held", "after_s", "expected"),
    [
        (claim(waits=False), 0, BindingReady()),
        (claim(), 10, BindingPending(TIMEOUT_S - 10)),
        (claim(device("-ready")), 10, BindingPending(TIMEOUT_S - 10)),
        (claim(device("ready")), TIMEOUT_S, BindingReady()),
        (claim(device("ready", "-failed")), 0, BindingReady()),
        (claim(device("ready", share="a"), share="b"), 0, BindingPending(TIMEOUT_S)),
        (claim(device("ready", share="b"), share="b"), 0, BindingReady()),
    ],
)
def test_when_a_pod_may_be_bound(held: ResourceClaim, after_s: float, expected: object) -> None:
    assert check_binding([held], START + timedelta(seconds=after_s)) == expected


@pytest.mark.parametrize(
    ("held", "after_s", "message"),
    [
        (claim(device("failed")), 0, "device d.example/p/d: why"),
        (claim(device("failed", "ready")), 0, "device d.example/p/d: why"),
        (claim(), TIMEOUT_S, "device d.example/p/d is not ready after 600 s"),
    ],
)
def test_when_a_claim_is_allocated_anew(held: ResourceClaim, after_s: float, message: str) -> None:
    assert check_binding([claim(waits=False), held], START + timedelta(seconds=after_s)) == BindingFailed(held, message)
