"""Each limit of the API, broken once: the error names card, device and limit."""

import msgspec
import pytest

from kerf_dra.api.model.devices import (
    Attribute,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    Pool,
    SliceContent,
)
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.partitions.slice_limits import CompileError, SliceLayout, check_device, check_pool

ONE = Counter(value=Quantity(1))
SPLIT, COMBINED = SliceLayout.SPLIT, SliceLayout.COMBINED


def counter_set(card: str, count: int = 1) -> CounterSet:
    return CounterSet(name=card, counters={f"unit-{number}": ONE for number in range(count)})


def device(name: str = "gpu-0-a", card: str = "gpu-0", consumes: int = 1) -> Device:
    taken = DeviceCounterConsumption(counter_set=card, counters={f"unit-{n}": ONE for n in range(consumes)})
    return Device(name=name, consumes_counters=(taken,))


def split(*devices: Device, sets: tuple[CounterSet, ...] = (counter_set("gpu-0"),), name: str = "n/gpu") -> Pool:
    return Pool(name=name, slices=(SliceContent(shared_counters=sets), SliceContent(devices=devices)))


def combined(*devices: Device, sets: tuple[CounterSet, ...] = (counter_set("gpu-0"),)) -> Pool:
    return Pool(name="n/gpu", slices=(SliceContent(devices=devices, shared_counters=sets),))


def many(count: int, consumes: int = 1) -> tuple[Device, ...]:
    return tuple(device(f"gpu-0-{number}", consumes=consumes) for number in range(count))


def with_attribute(name: str, attribute: Attribute) -> Device:
    return msgspec.structs.replace(device(), attributes={name: attribute})


TAINTS = tuple(DeviceTaint(key=f"k{number}", effect="NoSchedule") for number in range(17))

WITHIN = {
    "64 devices in a slice": (split(*many(64)), SPLIT),
    "8 sets in a slice": (split(device(), sets=tuple(counter_set(f"gpu-{n}") for n in range(8))), SPLIT),
    "32 counters in a set": (split(device(), sets=(counter_set("gpu-0", 32),)), SPLIT),
    "16 taints": (split(msgspec.structs.replace(device(), taints=TAINTS[:16])), SPLIT),
    "4 taints before 1.35": (combined(msgspec.structs.replace(device(), taints=TAINTS[:4])), COMBINED),
    "64 bytes": (split(with_attribute("a", Attribute(string="x" * 64))), SPLIT),
    "32 characters and a domain": (split(with_attribute("kerf.dev/" + "a" * 32, Attribute(string=""))), SPLIT),
    "1024 consumed counters": (combined(*many(32, consumes=32), sets=(counter_set("gpu-0", 32),)), COMBINED),
}

BEYOND = {
    "devices in a slice": (split(*many(65)), SPLIT, "card gpu-0: 65 devices in a slice, at most 64"),
    "sets in a slice": (
        split(device(), sets=tuple(counter_set(f"gpu-{n}") for n in range(9))),
        SPLIT,
        "card gpu-0: 9 counter sets in a slice, at most 8",
    ),
    "counters in a set": (
        split(device(), sets=(counter_set("gpu-0", 33),)),
        SPLIT,
        "card gpu-0: 33 counters in its set, at most 32",
    ),
    "counters of all sets before 1.35": (
        combined(device(), sets=(counter_set("gpu-0", 17), counter_set("gpu-1", 16))),
        COMBINED,
        "card gpu-0: 33 counters in a slice, at most 32 before Kubernetes 1.35",
    ),
    "consumed counters before 1.35": (
        combined(*many(33, consumes=32), sets=(counter_set("gpu-0", 32),)),
        COMBINED,
        "card gpu-0: 1056 consumed counters in a slice, at most 1024",
    ),
    "devices with counters in one slice": (combined(device()), SPLIT, "card gpu-0: devices and counters in one slice"),
    "counters of another slice before 1.35": (
        split(device()),
        COMBINED,
        "card gpu-0, device gpu-0-a: consumes from counter set 'gpu-0', which is not there",
    ),
    "a counter set that is missing": (
        split(device(card="gpu-1")),
        SPLIT,
        "card gpu-1, device gpu-0-a: consumes from counter set 'gpu-1', which is not there",
    ),
    "two devices of one name": (split(device(), device()), SPLIT, "device gpu-0-a: the name appears twice"),
    "two sets of one name": (
        split(device(), sets=(counter_set("gpu-0"), counter_set("gpu-0"))),
        SPLIT,
        "gpu-0: the name appears twice",
    ),
    "a device name that is no label": (split(device("GPU.0")), SPLIT, "device GPU.0: the name is no DNS label"),
    "a long device name": (split(device("a" * 64)), SPLIT, "the name is no DNS label"),
    "a counter name that is no label": (
        split(device(), sets=(CounterSet(name="gpu-0", counters={"unit_0": ONE}),)),
        SPLIT,
        "card gpu-0: 'unit_0' is no DNS label",
    ),
    "attributes": (
        split(msgspec.structs.replace(device(), attributes={f"a{n}": Attribute.of(n) for n in range(33)})),
        SPLIT,
        "card gpu-0, device gpu-0-a: 33 attributes and capacities together, at most 32",
    ),
    "an attribute name": (
        split(with_attribute("a" * 33, Attribute.of(1))),
        SPLIT,
        "device gpu-0-a: 'a{33}' is no attribute name",
    ),
    "an attribute's domain": (
        split(with_attribute("Kerf.dev/a", Attribute.of(1))),
        SPLIT,
        "'Kerf.dev/a' is no attribute name",
    ),
    "a long text": (
        split(with_attribute("a", Attribute(string="ü" * 33))),
        SPLIT,
        "device gpu-0-a: attribute a: .* has more than 64 bytes",
    ),
    "a version with a leading zero": (
        split(with_attribute("driverVersion", Attribute(version="535.104.05"))),
        SPLIT,
        "attribute driverVersion: '535.104.05' is no semantic version",
    ),
    "a long text in a list": (
        split(with_attribute("a", Attribute(strings=("a", "ü" * 33)))),
        SPLIT,
        "device gpu-0-a: attribute a: .* has more than 64 bytes",
    ),
    "a version in a list": (
        split(with_attribute("a", Attribute(versions=("1.0.0", "1.0")))),
        SPLIT,
        "attribute a: '1.0' is no semantic version",
    ),
    "an empty list": (split(with_attribute("a", Attribute(ints=()))), SPLIT, "attribute a: an empty list"),
    "values in lists": (
        split(with_attribute("a", Attribute(ints=tuple(range(49))))),
        SPLIT,
        "device gpu-0-a: 49 values of attributes together, at most 48",
    ),
    "an attribute without a value": (split(with_attribute("a", Attribute())), SPLIT, "attribute a: no value"),
    "taints": (split(msgspec.structs.replace(device(), taints=TAINTS)), SPLIT, "17 taints, at most 16"),
    "taints before 1.35": (
        combined(msgspec.structs.replace(device(), taints=TAINTS[:5])),
        COMBINED,
        "5 taints, at most 4",
    ),
    "a pool name": (split(device(), name="Node_1/gpu"), SPLIT, "pool name 'Node_1/gpu'"),
    "a long pool name": (split(device(), name="n" * 250 + "/gpu"), SPLIT, "pool name"),
}


def check(pool: Pool, layout: SliceLayout) -> None:
    for content in pool.slices:
        for each in content.devices:
            check_device(each)
    check_pool(pool, layout)


@pytest.mark.parametrize(("pool", "layout"), WITHIN.values(), ids=WITHIN.keys())
def test_what_is_exactly_at_a_limit_passes(pool: Pool, layout: SliceLayout) -> None:
    check(pool, layout)


@pytest.mark.parametrize(("pool", "layout", "message"), BEYOND.values(), ids=BEYOND.keys())
def test_what_is_beyond_a_limit_is_refused_with_its_place_and_the_limit(
    pool: Pool, layout: SliceLayout, message: str
) -> None:
    with pytest.raises(CompileError, match=message):
        check(pool, layout)
