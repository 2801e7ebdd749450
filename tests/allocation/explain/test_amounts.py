"""Amounts that a device lacks are those that the scheduler computes: with defaults, rounding, and what is taken."""

from typing import Any

import msgspec
import pytest

from kerf_dra.api.model.devices import Capacity, CapacityRange, CapacityRequestPolicy
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import DoesNotFit, Obstacle
from tests.allocation.builders import claim, device, distinct, request, slice_
from tests.allocation.explain.test_diagnosis import Case, only
from tests.allocation.explain.test_holders import holder

set_fields = msgspec.structs.replace
GI80, GI8 = Quantity("80Gi"), Quantity("8Gi")


def shareable(name: str, **policies: CapacityRequestPolicy | None) -> Any:
    """Return a device of 100 cores and 80Gi of memory, which several claims may share."""
    made = device(name, capacity={"cores": "100", "memory": "80Gi"}, allow_multiple_allocations=True)
    capacity = {
        key: Capacity(value=each.value, request_policy=policies.get(key)) for key, each in made.capacity.items()
    }
    return set_fields(made, capacity=capacity)


def sharing(name: str, on: str, **taken: str) -> Any:
    """Return a claim that has a share of the device ``on``."""
    amounts = {key: Quantity(amount) for key, amount in taken.items()}
    return holder(name, on, share_id=f"share-{name}", consumed_capacity=amounts)


DEFAULT = CapacityRequestPolicy(default=GI80, valid_range=CapacityRange(min=Quantity("1Mi"), max=GI80))
SMALL_DEFAULT = CapacityRequestPolicy(default=GI8, valid_range=CapacityRange(min=GI8, step=GI8))
VALUES = CapacityRequestPolicy(default=GI8, valid_values=(GI8, Quantity("40Gi")))
UP_TO_HALF = CapacityRequestPolicy(valid_range=CapacityRange(min=Quantity("1Gi"), max=Quantity("40Gi")))

CASES: dict[str, tuple[CapacityRequestPolicy | None, dict[str, str], str, str, str]] = {
    # policy of memory, the request, what of memory is taken; the condition, what is free
    "no amount, no policy": (None, {}, "4Gi", "memory >= 80Gi (no amount is requested: all of it)", "76Gi"),
    "no amount, a default of all": (
        DEFAULT,
        {},
        "4Gi",
        "memory >= 80Gi (no amount is requested: the default, all of it)",
        "76Gi",
    ),
    "no amount, a small default": (
        SMALL_DEFAULT,
        {},
        "76Gi",
        "memory >= 8Gi (no amount is requested: the default)",
        "4Gi",
    ),
    "an amount": (None, {"memory": "6Gi"}, "76Gi", "memory >= 6Gi (as requested)", "4Gi"),
    "an amount that is rounded up to a step": (
        SMALL_DEFAULT,
        {"memory": "9Gi"},
        "68Gi",
        "memory >= 16Gi (rounded up from 9Gi)",
        "12Gi",
    ),
    "an amount that is rounded up to a value": (
        VALUES,
        {"memory": "9Gi"},
        "42Gi",
        "memory >= 40Gi (rounded up from 9Gi)",
        "38Gi",
    ),
    "an amount above all values": (
        VALUES,
        {"memory": "41Gi"},
        "1Gi",
        "memory = 41Gi (as requested), which the device does not allow: one of 8Gi, 40Gi",
        "79Gi",
    ),
    "an amount above the range": (
        UP_TO_HALF,
        {"memory": "41Gi"},
        "1Gi",
        "memory = 41Gi (as requested), which the device does not allow: from 1Gi to 40Gi",
        "79Gi",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_failing_amount_says_what_is_needed_and_why_what_is_free_and_what_there_is(
    case: tuple[CapacityRequestPolicy | None, dict[str, str], str, str, str],
) -> None:
    """A device with 90 % free was "in use", and had "no capacity left" for a request without amounts."""
    policy, requests, taken, condition, free = case
    cores = CapacityRequestPolicy(default=Quantity(1))
    slices = [slice_(shareable("a", memory=policy, cores=cores))]
    wanted = claim(request("gpu", capacity=requests or None))
    diagnosis = only(Case(slices, wanted, (sharing("x", "a", memory=taken),)))
    assert diagnosis.obstacle is Obstacle.CAPACITY
    assert diagnosis.message == "1 device matches, but has too little free: memory"
    [miss] = diagnosis.misses
    assert [(one.condition, dict(one.has)) for one in miss.unmet] == [(condition, {"free": free, "total": "80Gi"})]


def test_a_capacity_that_a_device_lacks_is_absent() -> None:
    slices = [slice_(device("a", capacity={"memory": "80Gi"}))]
    [miss] = only(Case(slices, claim(request("gpu", capacity={"bandwidth": "1G"})))).misses
    assert [(one.condition, one.has) for one in miss.unmet] == [("bandwidth >= 1G", (("bandwidth", "(absent)"),))]


def test_devices_that_lack_the_least_are_the_nearest() -> None:
    slices = [slice_(shareable("a"), shareable("b"), shareable("c"))]
    held = (
        sharing("x", "a", memory="70Gi"),
        sharing("y", "b", memory="60Gi"),
        sharing("z", "c", cores="1", memory="41Gi"),
    )
    diagnosis = only(Case(slices, claim(request("gpu", capacity={"memory": "40Gi"})), held))
    assert [miss.device.device for miss in diagnosis.misses] == ["b", "a", "c"]
    assert [one.condition.split()[0] for one in diagnosis.misses[2].unmet] == ["cores", "memory"]


def test_a_device_with_shares_is_partly_taken_and_not_in_use() -> None:
    slices = [slice_(shareable("a"), shareable("b"))]
    held = sharing("x", "a", memory="70Gi", cores="0"), sharing("y", "b", memory="60Gi"), sharing("z", "b", cores="2")
    diagnosis = only(Case(slices, claim(request("gpu", capacity={"memory": "40Gi"})), held))
    assert [(each.card, each.counters, [ref.name for ref in each.claims]) for each in diagnosis.blockers] == [
        ("a", ("memory",), ["x"]),
        ("b", ("cores", "memory"), ["y", "z"]),
    ]


def test_a_shareable_device_with_room_is_in_nobodys_way_where_a_constraint_fails() -> None:
    made = set_fields(shareable("a"), attributes=device("x", attributes={"minor": 0}).attributes)
    wanted = [request(name, capacity={"memory": "4Gi", "cores": "10"}) for name in ("one", "two")]
    rule = distinct("gpu.example.com/minor")
    case = Case([slice_(made)], claim(*wanted, constraints=[rule]), (sharing("x", "a", memory="4Gi", cores="10"),))
    assert isinstance(case.outcome(), DoesNotFit)
    [diagnosis] = case.diagnoses()
    assert diagnosis.obstacle is Obstacle.CONSTRAINT
    assert diagnosis.message.endswith("2 devices are to differ in it, and those that match have 1 different value")
    assert diagnosis.blockers == ()
