"""The way of a claim, by the times of the API's objects."""

from typing import Final

import pytest

from kerf_dra.api.core.v1 import Pod, PodStatus
from kerf_dra.api.model.allocations import AllocatedDeviceStatus, ResourceClaimStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import Condition
from kerf_dra.driver.view.timeline import build_timeline
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, pod, replace

DAY: Final = "2026-11-21T07:00:"


def condition(type_: str, second: int, status: str = "True") -> Condition:
    return Condition(type=type_, status=status, last_transition_time=f"{DAY}{second:02}Z")


def allocated(second: int, ready: int | None, created: int = 1) -> ResourceClaim:
    """A claim of two devices, of which both are ready, or only the first."""
    found = allocate_claims(gpu_cluster(), claim("a", "1g-10gb", "1g-10gb")).claims[0]
    allocation = found.status.allocation
    assert allocation is not None
    results = allocation.devices.results
    devices = tuple(
        AllocatedDeviceStatus(
            driver=each.driver,
            pool=each.pool,
            device=each.device,
            conditions=(condition("Ready", (ready or 0) - number, "False" if ready is None and number else "True"),),
        )
        for number, each in enumerate(results)
    )
    allocation = replace(allocation, allocation_timestamp=f"{DAY}{second:02}Z")
    return replace(
        found,
        metadata=replace(found.metadata, creation_timestamp=f"{DAY}{created:02}Z"),
        status=ResourceClaimStatus(allocation=allocation, devices=devices),
    )


def user(created: int, *conditions: Condition) -> Pod:
    made = pod("a", "a")
    return replace(
        made,
        metadata=replace(made.metadata, creation_timestamp=f"{DAY}{created:02}Z"),
        status=PodStatus(conditions=conditions),
    )


def phases(found: ResourceClaim, used_by: Pod | None) -> dict[str, float | None]:
    return {each.name: each.seconds for each in build_timeline(found, used_by).moments}


def test_each_phase_has_its_seconds_and_the_last_device_counts() -> None:
    conditions = condition("PodScheduled", 5), condition("PodReadyToStartContainers", 20), condition("Ready", 31)
    timeline = build_timeline(allocated(4, ready=18), user(0, *conditions))
    assert [(each.name, each.seconds) for each in timeline.moments] == [
        ("pod created", None),
        ("claim created", 1.0),
        ("devices allocated", 3.0),
        ("pod bound to its node", 1.0),
        ("devices prepared", 13.0),
        ("ready to start containers", 2.0),
        ("running", 11.0),
    ]
    assert timeline.total_s == 31.0


def test_a_claim_that_was_there_before_its_pod_comes_first() -> None:
    assert [*phases(allocated(8, ready=9, created=1), user(7))][:2] == ["claim created", "pod created"]


def test_a_moment_that_has_not_come_has_no_seconds_and_does_not_end_the_count() -> None:
    found = phases(allocated(4, ready=None), user(0, condition("PodScheduled", 5, "False"), condition("Ready", 9)))
    assert found["devices prepared"] is None, "one device is not ready"
    assert found["pod bound to its node"] is None
    assert found["running"] == 5.0, "since the latest moment that is known"


def test_a_claim_without_a_pod_and_without_devices_has_its_creation_only() -> None:
    found = claim("a", "1g-10gb")
    assert phases(found, None) == dict.fromkeys(("claim created", "devices allocated", "devices prepared"))
    assert build_timeline(found, None).total_s is None


@pytest.mark.parametrize("time", ["", "yesterday", "2026-11-21T07:00:99Z"])
def test_a_time_that_is_none_is_no_error(time: str) -> None:
    found = claim("a", "1g-10gb")
    found = replace(found, metadata=replace(found.metadata, creation_timestamp=time))
    assert phases(found, user(3))["claim created"] is None


def test_a_clock_that_is_behind_is_shown() -> None:
    assert phases(allocated(4, ready=2), user(0))["devices prepared"] == -2.0
