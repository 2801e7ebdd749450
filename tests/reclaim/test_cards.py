"""The cards of a node, found in what it publishes."""

from collections.abc import Sequence
from dataclasses import replace as replace_fields

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.devices import Attribute, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.device_names import monitor_name
from kerf_dra.driver.reclaim.cards import find_card, find_cards
from tests.fakes.cluster_states import slices
from tests.reclaim.cases import CARD, tainted_slices

PUBLISHED = [*slices("node-1", 2), *slices("node-2", 2)]


def test_each_card_of_the_node_is_found_and_none_of_another_node() -> None:
    found = find_cards(PUBLISHED, "node-1")
    assert [(card.name, card.uuid, card.pci_bus_id) for card in found] == [
        ("gpu-0", "GPU-node-1-0", "0000:00:00.0"),
        ("gpu-1", "GPU-node-1-1", "0000:01:00.0"),
    ]
    assert {(card.driver, card.pool, card.node) for card in found} == {(GPU.driver, "node-1/gpu", "node-1")}


@pytest.mark.parametrize("name", ["GPU-node-1-1", "gpu-NODE-1-1", "0000:01:00.0"])
def test_a_card_is_found_by_its_uuid_or_its_pci_address(name: str) -> None:
    found = find_card(find_cards(PUBLISHED, "node-1"), name)
    assert found is not None
    assert found.name == "gpu-1"


@pytest.mark.parametrize("name", ["gpu-1", "1", "GPU-node-2-1", "0000:09:00.0", "GPU-node-1"])
def test_nothing_else_names_a_card(name: str) -> None:
    assert find_card(find_cards(PUBLISHED, "node-1"), name) is None


@pytest.mark.parametrize("value", ["idle", "in-use"])
def test_a_card_is_withheld_when_each_of_its_devices_is_tainted(value: str) -> None:
    tainted = tainted_slices("node-1", "gpu-1", value=value)
    first, second = find_cards(tainted, "node-1")
    assert (first.is_withheld, first.is_in_use) == (False, False)
    assert (second.is_withheld, second.is_in_use) == (True, value == "in-use")
    half = [
        replace(one, spec=replace(one.spec, devices=tuple(map(_untaint_whole, one.spec.devices)))) for one in tainted
    ]
    assert not find_cards(half, "node-1")[1].is_withheld, "its whole-card device has no taint"


def _untaint_whole(device: Device) -> Device:
    return replace(device, taints=()) if device.name == "gpu-1" else device


def test_a_monitor_device_need_not_be_tainted() -> None:
    tainted = tainted_slices("node-1", "gpu-1", value="idle")
    attributes = {"uuid": Attribute.of("GPU-node-1-1"), "cut": Attribute.of("monitor")}
    monitor = Device(name=monitor_name("gpu-1"), attributes=attributes)
    spec = tainted[0].spec
    with_monitor = replace(tainted[0], spec=replace(spec, devices=(*spec.devices, monitor)))
    assert find_cards([with_monitor, *tainted[1:]], "node-1")[1].is_withheld


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old = tainted_slices("node-1", "gpu-1", value="in-use")
    new = [
        replace(one, spec=replace(one.spec, pool=replace(one.spec.pool, generation=2))) for one in slices("node-1", 2)
    ]
    assert [card.is_withheld for card in find_cards([*old, *new], "node-1")] == [False, False]


def test_devices_of_other_drivers_belong_to_no_card() -> None:
    """NVIDIA's driver names its devices like Kerf's, and does not withhold them."""
    pool = ResourcePool(name="node-1", generation=1, resource_slice_count=1)
    devices = (Device(name="nic"), Device(name="gpu-0"), Device(name="gpu-1", attributes={"uuid": Attribute.of("E-1")}))
    other = ResourceSlice(
        metadata=ObjectMeta(name="other"),
        spec=ResourceSliceSpec(driver="net.example.com", pool=pool, node_name="node-1", devices=devices),
    )
    assert find_cards([other], "node-1") == []


@pytest.mark.parametrize(
    ("driver", "pool", "device", "is_owned"),
    [
        (GPU.driver, "node-1/gpu", "gpu-1", True),
        (GPU.driver, "node-1/gpu", "gpu-1-1g-10gb-at-0", True),
        (GPU.driver, "node-1/gpu", "gpu-1-1g-10gb-at-0-shared", True),
        (GPU.driver, "node-1/gpu", "gpu-1-monitor", True),
        (GPU.driver, "node-1/gpu", "gpu-11", False),
        (GPU.driver, "node-1/gpu", "gpu-0-1g-10gb-at-1", False),
        (GPU.driver, "node-2/gpu", "gpu-1", False),
        ("gpu.nvidia.com", "node-1/gpu", "gpu-1", False),
    ],
)
def test_a_card_owns_its_devices_by_driver_pool_and_name(driver: str, pool: str, device: str, is_owned: bool) -> None:
    assert CARD.owns(DeviceId(driver, pool, device)) is is_owned
    assert not replace_fields(CARD, name="gpu-7").owns(DeviceId(driver, pool, device))


@pytest.mark.parametrize(
    ("before", "expected"), [("in-use", (True, True)), ("", (False, False))], ids=["in-use", "not-withheld"]
)
def test_until_all_slices_of_a_new_generation_are_there_those_of_before_count(
    before: str, expected: tuple[bool, bool]
) -> None:
    """On a busy machine a card was free though half of its devices were still reported in use."""
    old = _spread(tainted_slices("node-1", "gpu-1", value=before) if before else slices("node-1", 2), generation=1)
    new = _spread(tainted_slices("node-1", "gpu-1", value="idle"), generation=2)
    for written in range(1, len(new)):
        card = find_cards([*new[:written], *old[written:]], "node-1")[1]
        assert (card.is_withheld, card.is_in_use) == expected, f"{written} of {len(new)} slices are written"
    assert not find_cards(new, "node-1")[1].is_in_use


def _spread(published: Sequence[ResourceSlice], generation: int) -> list[ResourceSlice]:
    """Return the devices of a pool in slices of ten, as of this generation."""
    devices = [device for one in published for device in one.spec.devices]
    parts = [tuple(devices[first : first + 10]) for first in range(0, len(devices), 10)]
    pool = replace(published[0].spec.pool, generation=generation, resource_slice_count=len(parts))
    return [replace(published[0], spec=replace(published[0].spec, pool=pool, devices=part)) for part in parts]
