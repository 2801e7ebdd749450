"""Invalid slices and requests get an answer that says what is wrong and where, never an exception."""

import time
from collections.abc import Mapping, Sequence

import pytest

from kerf_dra.api.model.claims import DeviceConstraint, ResourceClaim
from kerf_dra.api.model.devices import Attribute, Capacity, CapacityRange, CapacityRequestPolicy, Device, ResourceSlice
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import DoesNotFit, Failed, Fits
from tests.allocation.builders import claim, decide, device, partitioned, request, slice_

ONE = claim(request("r"))
MEMORY = claim(request("r", capacity={"memory": "3"}))
CARD = {"card": {"memory": 4}}


def stepped(minimum: str, step: str) -> Device:
    range_ = CapacityRange(min=Quantity(minimum), step=Quantity(step))
    policy = CapacityRequestPolicy(default=Quantity("1"), valid_range=range_)
    return device("d", capacity={"memory": Capacity(value=Quantity("8"), request_policy=policy)})


REFUSED: Mapping[str, tuple[Sequence[ResourceSlice], ResourceClaim, str, str]] = {
    "two devices of one name": ([slice_(device("d"), device("d"))], ONE, "node", "device d is published twice"),
    "two counter sets of one name": (
        [slice_(device("d"), slices=2, sets=CARD), slice_(name="other", slices=2, sets=CARD)],
        ONE,
        "node",
        "counter set card is published twice",
    ),
    "a counter set that nobody publishes": (
        partitioned(device("d", uses={"nope": {"memory": 1}}), sets=CARD),
        ONE,
        "node",
        "device d takes from the counter set nope, which does not exist",
    ),
    "a counter that nobody publishes": (
        partitioned(device("d", uses={"card": {"nope": 1}}), sets=CARD),
        ONE,
        "node",
        "device d takes from card/nope, which does not exist",
    ),
    "a negative counter": (
        partitioned(device("d"), sets={"card": {"memory": -4}}),
        ONE,
        "node",
        "counter memory of card is negative: -4",
    ),
    "a negative amount of a counter": (
        partitioned(device("d", uses={"card": {"memory": -1}}), sets=CARD),
        ONE,
        "node",
        "device d takes a negative amount of card/memory: -1",
    ),
    "a negative capacity": (
        [slice_(device("d", capacity={"memory": "-8"}))],
        ONE,
        "fatal",
        "device gpu.example.com/pool/d: capacity memory: -8 is negative",
    ),
    "steps of nothing": ([slice_(stepped("1", "0"))], MEMORY, "fatal", "from 1 by steps of 0"),
    "steps backwards": ([slice_(stepped("1", "-1"))], MEMORY, "fatal", "from 1 by steps of -1"),
    "a negative minimum": ([slice_(stepped("-1", "500m"))], MEMORY, "fatal", "from -1 by steps of 500m"),
    "a request beyond all numbers": (
        [slice_(stepped("1", "1"))],
        claim(request("r", capacity={"memory": "10000E"})),
        "fatal",
        "capacity memory: a request of 10000E cannot be represented",
    ),
    "a negative count": ([slice_(device("d"))], claim(request("r", count=-1)), "fatal", "a count of -1 devices"),
    "a constraint without a kind": (
        [slice_(device("d"))],
        claim(request("r"), constraints=[DeviceConstraint()]),
        "fatal",
        "constraint #0: empty, or of a kind that is not known",
    ),
    "a selector that is no CEL": ([slice_(device("d"))], claim(request("r", "device.")), "fatal", "does not compile"),
    "a selector that fails": (
        [slice_(device("d"))],
        claim(request("r", 'device.attributes["x"].y == 1')),
        "fatal",
        "device gpu.example.com/pool/d: CEL expression",
    ),
    "an attribute without a value": (
        [slice_(device("d", attributes={"a": Attribute()}))],
        claim(request("r", "true")),
        "fatal",
        "attribute a: unsupported attribute value",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_makes_no_sense_is_refused_with_its_place(
    case: tuple[Sequence[ResourceSlice], ResourceClaim, str, str],
) -> None:
    slices, asked, kind, message = case
    outcome = decide(slices, asked)
    assert isinstance(outcome, Failed), outcome
    assert outcome.kind == kind
    assert message in outcome.message


def test_a_constraint_on_requests_that_there_are_not_binds_nothing() -> None:
    constraint = DeviceConstraint(match_attribute="gpu.example.com/a", requests=("nope", "r/nope"))
    assert isinstance(decide([slice_(device("d"))], claim(request("r"), constraints=[constraint])), Fits)


def test_a_slice_of_ten_megabytes_is_judged_in_seconds() -> None:
    """Far beyond the 128 devices that the API allows."""
    devices = (device(f"d{number}", attributes={"text": "x" * 400 + str(number)}) for number in range(20_000))
    slices = [slice_(*devices)]
    begin = time.process_time()
    last = claim(request("r", 'device.attributes["gpu.example.com"].text.endsWith("x19999")'))
    assert isinstance(decide(slices, last), Fits)
    assert isinstance(decide(slices, claim(request("r", "false"))), DoesNotFit)
    assert time.process_time() - begin < 10
