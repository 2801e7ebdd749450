"""The amount of a capacity that a request consumes (KEP-5075)."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.devices import Capacity, CapacityRange, CapacityRequestPolicy
from kerf_dra.api.model.quantity import NANO, Quantity
from kerf_dra.driver.allocation.semantics.capacity import CapacityRequestError, compute_demand

DRIVER = "gpu.example.com"


def capacity(value: str, **policy: Any) -> dict[str, Capacity]:
    return {
        "memory": Capacity(value=Quantity(value), request_policy=CapacityRequestPolicy(**policy) if policy else None)
    }


def range_(low: str, high: str | None = None, step: str | None = None) -> CapacityRange:
    return CapacityRange(min=Quantity(low), max=Quantity(high) if high else None, step=Quantity(step) if step else None)


def values(*texts: str) -> tuple[Quantity, ...]:
    return tuple(map(Quantity, texts))


def taken(of: dict[str, Capacity], wanted: str | None, *, fractional: bool = True) -> str | None:
    """The amount that a request takes, None when the device cannot serve it."""
    requests = {} if wanted is None else {"memory": Quantity(wanted)}
    found = compute_demand(DRIVER, of, requests, fractional=fractional)
    return None if found is None or not found.fits(of) else str(found.amounts["memory"])


@pytest.mark.parametrize(
    ("of", "wanted", "amount"),
    [
        (capacity("8Gi"), None, "8Gi"),
        (capacity("8Gi"), "3Gi", "3Gi"),
        (capacity("8Gi"), "9Gi", None),
        (capacity("8Gi", default=Quantity("1Gi")), None, "1Gi"),
        (capacity("8Gi", default=Quantity("1Gi")), "3Gi", "3Gi"),
        (capacity("8Gi", valid_values=values("1Gi", "4Gi")), "500Mi", "1Gi"),
        (capacity("8Gi", valid_values=values("1Gi", "4Gi")), "1Gi", "1Gi"),
        (capacity("8Gi", valid_values=values("1Gi", "4Gi")), "2Gi", "4Gi"),
        (capacity("8Gi", valid_values=values("1Gi", "4Gi")), "5Gi", None),
        (capacity("8Gi", default=Quantity("5Gi"), valid_values=values("1Gi")), "5Gi", "5Gi"),
        (capacity("8Gi", default=Quantity("5"), valid_values=values("1")), "5000m", "5"),
        (capacity("8", valid_range=range_("2")), "1", "2"),
        (capacity("8", valid_range=range_("2")), "3", "3"),
        (capacity("8", valid_range=range_("2", high="4")), "5", None),
        (capacity("8", valid_range=range_("2", high="4")), None, None),
        (capacity("8", valid_range=range_("1", step="3")), "2", "4"),
        (capacity("8", valid_range=range_("1", step="3")), "4", "4"),
        (capacity("8", valid_range=range_("1", step="3")), "7500m", None),
        (capacity("8", valid_range=range_("200m", step="100m")), "250m", "300m"),
        (capacity("8", valid_range=range_("0", step="500m")), "1100m", "1500m"),
        (capacity("8Gi", valid_range=range_("1Gi", step="1Gi")), "1500Mi", "2Gi"),
        # thousandths of 10P do not fit into 64 bits, so that the whole range is of whole units
        (capacity("20P", valid_range=range_("0", high="10P", step="500m")), "1100m", "2"),
    ],
)
def test_a_request_is_rounded_up_as_the_policy_says(of: dict[str, Capacity], wanted: str | None, amount: str) -> None:
    assert taken(of, wanted) == amount


def test_without_the_fractional_gate_ranges_are_of_whole_units() -> None:
    of = capacity("8", valid_range=range_("0", step="500m"))
    assert taken(of, "1100m", fractional=False) == "2"


@pytest.mark.parametrize(
    ("wanted", "fractional"),
    [("9223372036854775807", False), ("18446744073709551616", False), ("9223372036854775807", True), ("1500u", True)],
)
def test_what_64_bits_cannot_hold_fails_the_pod(wanted: str, fractional: bool) -> None:
    of = capacity("4", valid_range=range_("2", high="4", step="2"))
    with pytest.raises(CapacityRequestError, match="memory"):
        taken(of, wanted if wanted != "1500u" else "2.0015", fractional=fractional)


def test_a_negative_request_fails_the_pod() -> None:
    with pytest.raises(CapacityRequestError, match="negative"):
        taken(capacity("4"), "-1")


@pytest.mark.parametrize(
    ("published", "asked"),
    [("memory", "memory"), ("memory", f"{DRIVER}/memory"), (f"{DRIVER}/memory", "memory"), ("far.example.com/m",) * 2],
)
def test_the_drivers_own_domain_may_be_left_out(published: str, asked: str) -> None:
    found = compute_demand(DRIVER, {published: Capacity(value=Quantity(4))}, {asked: Quantity(3)}, fractional=True)
    assert found is not None
    assert found.amounts == {published: Quantity(3)}


def test_a_capacity_that_the_device_lacks_cannot_be_served() -> None:
    assert compute_demand(DRIVER, capacity("4"), {"slots": Quantity(1)}, fractional=True) is None
    assert compute_demand(DRIVER, capacity("4"), {"far.example.com/memory": Quantity(1)}, fractional=True) is None


def test_one_capacity_requested_under_two_names_fails_the_pod() -> None:
    with pytest.raises(CapacityRequestError, match="with and without"):
        compute_demand(DRIVER, capacity("4"), {"memory": Quantity(1), f"{DRIVER}/memory": Quantity(2)}, fractional=True)


thousandths = st.integers(0, 20_000).map(lambda count: Quantity.of_nano(count * NANO // 1000))


@given(thousandths, thousandths, thousandths.filter(bool))
def test_the_amount_is_the_smallest_step_that_is_enough(wanted: Quantity, low: Quantity, step: Quantity) -> None:
    of = {
        "memory": Capacity(
            value=Quantity(10**6), request_policy=CapacityRequestPolicy(valid_range=CapacityRange(min=low, step=step))
        )
    }
    found = compute_demand(DRIVER, of, {"memory": wanted}, fractional=True)
    assert found is not None
    amount = found.amounts["memory"]
    steps = Fraction(amount.nano - low.nano, step.nano)
    assert steps.denominator == 1
    assert steps >= 0
    assert amount >= wanted
    assert steps == 0 or amount - step < wanted


def test_what_is_taken_already_is_no_longer_there() -> None:
    of = capacity("4")
    found = compute_demand(DRIVER, of, {"memory": Quantity(2)}, fractional=True)
    assert found is not None
    assert found.fits(of, {"memory": 2 * NANO})
    assert not found.fits(of, {"memory": NANO}, {"memory": 2 * NANO})
