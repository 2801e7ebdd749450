"""Constraints, checked as devices are assigned."""

from collections.abc import Sequence
from typing import Any

import pytest

from kerf_dra.api.model.claims import DerivedAttribute, DeviceConstraint
from kerf_dra.api.model.devices import Attribute
from kerf_dra.driver.allocation import DoesNotFit, Failed, Features, Fits
from tests.allocation.builders import (
    ALL_FEATURES,
    DRIVER,
    alternative,
    claim,
    decide,
    device,
    distinct,
    first_of,
    request,
    same,
    slice_,
)

SCALARS = Features()
VALUE = f"{DRIVER}/value"
A, B, AB, BC = (Attribute(strings=tuple(letters)) for letters in ("a", "b", "ab", "bc"))


def fits(values: Sequence[object], constraint: DeviceConstraint, features: Features = ALL_FEATURES) -> bool:
    """Whether all devices with these values can be had together; None: one without the attribute."""
    devices = [
        device(f"d{index}", attributes={} if value is None else {"value": value}) for index, value in enumerate(values)
    ]
    outcome = decide(
        [slice_(*devices)], claim(request("r", count=len(values)), constraints=[constraint]), features=features
    )
    return isinstance(outcome, Fits)


@pytest.mark.parametrize("features", [SCALARS, ALL_FEATURES])
@pytest.mark.parametrize(
    ("values", "match", "differ"),
    [
        (["a"], True, True),
        (["a", "a"], True, False),
        (["a", "b"], False, True),
        (["a", "b", "a"], False, False),
        ([1, 1], True, False),
        ([1, "1"], False, True),
        ([1, True], False, True),
        ([0, False], False, True),
        ([True, True], True, False),
        ([Attribute(version="1.0.0"), Attribute(version="1.0.0")], True, False),
        ([Attribute(version="1.0.0"), "1.0.0"], False, True),
        (["a", None], False, False),
        ([None], False, False),
    ],
)
def test_scalars_match_by_type_and_value(
    values: Sequence[object], match: bool, differ: bool, features: Features
) -> None:
    assert fits(values, same(VALUE), features) is match
    assert fits(values, distinct(VALUE), features) is differ


@pytest.mark.parametrize(
    ("values", "match", "differ"),
    [
        ([AB, BC], True, False),
        ([A, B], False, True),
        ([AB, BC, A], False, False),
        ([AB, "a"], True, False),
        (["c", AB], False, True),
        ([Attribute(ints=(1, 2)), Attribute(ints=(2, 3))], True, False),
        ([Attribute(ints=(1,)), A], False, True),
        ([Attribute(versions=("1.0.0",)), Attribute(version="1.0.0")], True, False),
        ([Attribute(strings=())], False, False),
    ],
)
def test_lists_match_by_a_common_element(values: Sequence[object], match: bool, differ: bool) -> None:
    assert fits(values, same(VALUE)) is match
    assert fits(values, distinct(VALUE)) is differ


def test_a_list_is_comparable_with_nothing_while_lists_are_off() -> None:
    assert fits([A], same(VALUE), SCALARS)
    assert not fits([A, A], same(VALUE), SCALARS)
    assert not fits([A, B], distinct(VALUE), SCALARS)


def test_a_narrowed_match_is_widened_again_on_the_way_back() -> None:
    """kubernetes#140300: the intersection stayed narrow after a device had been given up."""
    listed = [device(f"d{index}", attributes={"value": value}) for index, value in enumerate([AB, A, B, B])]
    asked = claim(request("first"), request("second"), request("third"), constraints=[same(VALUE)])
    outcome = decide([slice_(*listed)], asked)
    assert isinstance(outcome, Fits)
    assert [each.device for each in outcome.results[0].devices.results] == ["d0", "d2", "d3"]


def test_a_constraint_is_over_the_requests_and_alternatives_that_it_names() -> None:
    slices = [slice_(device("a", attributes={"value": 1}), device("b", attributes={"value": 2}))]
    both = [request("r0"), first_of("r1", alternative("s0"))]
    for names, is_held in [
        ((), False),
        (("r0", "r1"), False),
        (("r0", "r1/s0"), False),
        (("r0",), True),
        (("r1/s1",), True),
    ]:
        outcome = decide(slices, claim(*both, constraints=[same(VALUE, *names)]))
        assert isinstance(outcome, Fits) is is_held, names


def test_the_drivers_own_attribute_may_be_published_with_or_without_its_domain() -> None:
    slices = [slice_(device("a", attributes={"value": 1}), device("b", attributes={VALUE: 1}))]
    assert isinstance(decide(slices, claim(request("r", count=2), constraints=[same(VALUE)])), Fits)
    foreign = claim(request("r"), constraints=[same("far.example.com/value")])
    assert isinstance(decide(slices, foreign), DoesNotFit)


def test_a_qualified_name_wins_over_the_same_name_without_domain() -> None:
    listed = [device("a", attributes={VALUE: 1, "value": 2}), device("b", attributes={"value": 1})]
    assert isinstance(decide([slice_(*listed)], claim(request("r", count=2), constraints=[same(VALUE)])), Fits)


def derive(name: str, expression: str) -> dict[str, Any]:
    return {"derived_attributes": (DerivedAttribute(name=name, expression=expression),)}


def test_a_derived_attribute_stands_for_different_ones_of_two_drivers() -> None:
    slices = [
        slice_(device("g0", attributes={"numa": 0}), device("g1", attributes={"numa": 1}), pool="gpus"),
        slice_(device("n1", attributes={"node": "numa-1"}), driver="nic.example.com", pool="nics"),
    ]
    gpu = derive("near", f'"numa-" + string(device.attributes["{DRIVER}"].numa)')
    nic = derive("near", 'device.attributes["nic.example.com"].node')
    asked = claim(
        request("gpu", f'device.driver == "{DRIVER}"', **gpu),
        request("nic", 'device.driver == "nic.example.com"', **nic),
        constraints=[same("near")],
    )
    outcome = decide(slices, asked)
    assert isinstance(outcome, Fits)
    assert [each.device for each in outcome.results[0].devices.results] == ["g1", "n1"]


def test_a_derived_attribute_comes_before_a_published_one() -> None:
    slices = [slice_(device("a", attributes={"value": 1}), device("b", attributes={"value": 2}))]
    asked = claim(request("r", **derive(VALUE, "2")), request("s"), constraints=[same(VALUE)])
    outcome = decide(slices, asked)
    assert isinstance(outcome, Fits)
    assert [each.device for each in outcome.results[0].devices.results] == ["a", "b"]


def test_a_derived_attribute_that_cannot_be_had_fails_the_pod() -> None:
    broken = claim(request("r", **derive("near", "device.attributes['x'].y")), constraints=[same("near")])
    outcome = decide([slice_(device("a"))], broken)
    assert isinstance(outcome, Failed)
    assert outcome.kind == "fatal"
    unused = claim(request("r", **derive("near", "device.attributes['x'].y")))
    assert isinstance(decide([slice_(device("a"))], unused), Fits)
