"""The nearest misses: which device, which attribute, which value instead."""

from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.allocation.explain.near_misses import FailedCondition, NearMissGroup, SourcedSelector, near_misses
from tests.allocation.builders import DRIVER, device

MODEL = f'device.attributes["{DRIVER}"].model'
MEMORY = f'device.capacity["{DRIVER}"].memory'


def cards(**memory_of: str) -> list[tuple[DeviceId, object]]:
    return [
        (
            DeviceId(DRIVER, "pool", name),
            device(name, attributes={"model": name.rpartition("_")[0], "index": 7}, capacity={"memory": memory}),
        )
        for name, memory in memory_of.items()
    ]


def misses(expression: str, devices: list[tuple[DeviceId, object]]) -> tuple[NearMissGroup, ...]:
    return near_misses([SourcedSelector("selector 0", expression)], devices)  # type: ignore[arg-type]


def test_the_attribute_that_differs_is_named_with_its_value() -> None:
    expression = f'{MODEL} == "h100" && {MEMORY}.compareTo(quantity("40Gi")) >= 0'
    [miss] = misses(expression, cards(a100_1="80Gi"))
    assert miss.unmet == (FailedCondition("selector 0", f'{MODEL} == "h100"', (("model", '"a100"'),)),)


def test_who_fails_fewer_conditions_is_nearer() -> None:
    expression = f'{MODEL} == "h100" && {MEMORY}.compareTo(quantity("40Gi")) >= 0'
    found = misses(expression, cards(a30_1="24Gi", a100_1="80Gi", h100_1="10Gi"))
    assert [(miss.device.device, len(miss.unmet)) for miss in found] == [("a100_1", 1), ("h100_1", 1), ("a30_1", 2)]


def test_of_amounts_the_closest_is_nearest() -> None:
    found = misses(f'{MEMORY}.compareTo(quantity("100Gi")) >= 0', cards(x_1="10Gi", x_2="80Gi", x_3="40Gi", x_4="20Gi"))
    assert [miss.unmet[0].has[0][1] for miss in found] == ["80Gi", "40Gi", "20Gi"]


def test_of_texts_the_one_that_is_spelled_most_alike_is_nearest() -> None:
    found = misses(f'{MODEL} in ["h100-80gb", "b200"]', cards(**{"a30-24gb_1": "1", "h100-80gb-sxm_1": "1"}))
    assert found[0].unmet[0].has == (("model", '"h100-80gb-sxm"'),)


def test_of_numbers_the_closest_is_nearest() -> None:
    near = device("near", attributes={"index": 3})
    far = device("far", attributes={"index": 900})
    devices: list[tuple[DeviceId, object]] = [(DeviceId(DRIVER, "pool", each.name), each) for each in (far, near)]
    assert misses(f'device.attributes["{DRIVER}"].index == 4', devices)[0].device.device == "near"


def test_devices_that_lack_the_same_are_told_once_with_their_number() -> None:
    [miss] = misses(f'{MODEL} == "h100"', cards(a_1="1", a_2="1", a_3="1"))
    assert (miss.device.device, miss.devices) == ("a_1", 3)


def test_an_absent_attribute_is_a_condition_that_is_not_met() -> None:
    [miss] = misses(f'device.attributes["{DRIVER}"].nvlink', cards(a_1="1"))
    assert miss.unmet[0].has == (("nvlink", "(absent)"),)


def test_devices_that_meet_everything_are_no_misses() -> None:
    assert misses(f'{MODEL} == "a"', cards(a_1="1")) == ()
