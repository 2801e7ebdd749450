"""The inventory: what is published for which cards, in which order, with which taints."""

from dataclasses import replace

import pytest

from kerf_dra.api.kerf.card_repairs import CardRepair, RepairAct
from kerf_dra.api.model.names import DeviceId, DriverName
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.families.shared.family import CAPACITY_USERS, SHARED
from kerf_dra.driver.kubeletplugin.backends.base import HealthChange, HealthState
from kerf_dra.driver.kubeletplugin.inventory.devices import (
    AmbiguousCardError,
    DeviceSet,
    PublishTarget,
    UnknownFamilyError,
    build_device_set,
)
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.geometry import Card, Geometry, Partition, PartitionSpec, Placement
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import DRIVER, NODE, VOCABULARIES

TARGET = PublishTarget(driver=DriverName(DRIVER), node=NODE, layout=SliceLayout.SPLIT, vocabularies=VOCABULARIES)
HEALTHY = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)


def names(inventory: DeviceSet, pool: int = 0) -> list[str]:
    return [device.name for content in inventory.pools[pool].slices for device in content.devices]


def slice_of(start: int, card: str = "GPU-0") -> Partition:
    return Partition(kind="gpu", card_uuid=card, profile="1g.1gb", placement=Placement(start, 1))


def test_each_kind_of_device_has_a_pool_and_every_device_its_backend() -> None:
    inventory = build_device_set(TARGET, {"one": [gpu(0)], "two": [gpu(1), fpga(0)]}, (), HEALTHY, DeviceSet())
    assert [pool.name for pool in inventory.pools] == ["node-1/gpu", "node-1/fpga"]
    published = inventory.published.values()
    backends = {device.device: offered.backend for stock in published for device, offered in stock.devices.items()}
    assert (backends["gpu-0"], backends["gpu-1"], backends["fpga-0"]) == ("one", "two", "two")
    assert set(backends) == {*names(inventory, 0), *names(inventory, 1)}
    whole = inventory.find(DeviceId(DRIVER, "node-1/gpu", "gpu-0"))
    assert whole is not None
    assert whole.partition.is_whole
    assert inventory.find(DeviceId(DRIVER, "node-1/gpu", "fpga-0")) is None


@pytest.mark.parametrize("name", ["camera", "camera-shared", "camera-monitor"])
def test_a_device_of_the_network_is_found_by_its_whole_name_whatever_that_is(name: str) -> None:
    """Discovery handlers name them: no ending means anything."""
    whole = PartitionSpec(kind=SHARED.name, mask=1, size=(1,), weight=1, capacity=((CAPACITY_USERS, Quantity(2)),))
    geometry = Geometry(kind=SHARED.name, model="cameras", unit="device", units=1, specs=(whole,))
    cards = [Card(uuid=each, index=0, geometry=geometry) for each in (name, "printer")]
    target = replace(TARGET, is_network_attached=True, vocabularies={SHARED.name: SHARED.vocabulary})
    inventory = build_device_set(target, {"one": cards}, (), HEALTHY, DeviceSet())
    found = inventory.find(DeviceId(DRIVER, name, name))
    assert found is not None
    assert found.partition.card_uuid == name
    assert inventory.find(DeviceId(DRIVER, name, f"{name}-shared")) is None


def test_a_node_without_cards_of_a_kind_has_no_pool_for_it() -> None:
    assert build_device_set(TARGET, {"one": []}, (), HEALTHY, DeviceSet()).pools == ()


@pytest.mark.parametrize(
    ("at_least_s", "are_slow"),
    [(None, False), (0.1, True), (0.2, True), (0.3, False)],
    ids=["any", "less", "just", "more"],
)
def test_a_card_of_which_a_part_takes_long_enough_to_load_is_slow(at_least_s: float | None, are_slow: bool) -> None:
    inventory = build_device_set(TARGET, {"one": [gpu(0), fpga(0)]}, (), HEALTHY, DeviceSet())
    assert inventory.has_slow_loads(at_least_s) is are_slow


def test_two_backends_must_not_offer_one_card() -> None:
    with pytest.raises(AmbiguousCardError, match="card GPU-0 is reported by two backends, one and two"):
        build_device_set(TARGET, {"one": [gpu(0)], "two": [gpu(0)]}, (), HEALTHY, DeviceSet())


def test_a_card_of_a_family_that_the_driver_does_not_publish_is_refused() -> None:
    target = replace(TARGET, vocabularies={"gpu": VOCABULARIES["gpu"]})
    reason = "backend two reports card FPGA-0 of the family 'fpga', which this driver does not publish"
    with pytest.raises(UnknownFamilyError, match=reason):
        build_device_set(target, {"one": [gpu(0)], "two": [fpga(0)]}, (), HEALTHY, DeviceSet())


def test_the_order_follows_what_is_taken_and_stays_when_a_new_one_means_nothing() -> None:
    cards = {"one": [gpu(0), gpu(1)]}
    empty = build_device_set(TARGET, cards, (), HEALTHY, DeviceSet())
    again = build_device_set(TARGET, cards, (), HEALTHY, empty)
    assert again.published["gpu"] is empty.published["gpu"], "not even compiled again"
    taken = build_device_set(TARGET, cards, [slice_of(0, "GPU-1")], HEALTHY, empty)
    assert names(taken)[0] == "gpu-1-1g-1gb-at-1", "beside what is taken, so that the other card stays whole"
    full = [slice_of(start, card) for card in ("GPU-0", "GPU-1") for start in range(4)]
    assert build_device_set(TARGET, cards, full, HEALTHY, taken).pools == taken.pools


def test_new_cards_get_a_new_order_even_when_nothing_is_free() -> None:
    before = build_device_set(TARGET, {"one": [gpu(0)]}, [slice_of(start) for start in range(4)], HEALTHY, DeviceSet())
    after = build_device_set(
        TARGET, {"one": [gpu(1)]}, [slice_of(start, "GPU-1") for start in range(4)], HEALTHY, before
    )
    assert {name[:5] for name in names(after)} == {"gpu-1"}


@pytest.mark.parametrize(
    ("state", "value", "effect"),
    [(HealthState.UNHEALTHY, "degraded", "NoSchedule"), (HealthState.LOST, "lost", "NoExecute")],
)
def test_devices_that_are_not_healthy_are_tainted_and_no_others(state: HealthState, value: str, effect: str) -> None:
    health_tracker = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
    health_tracker.update(HealthChange(card_uuid="GPU-0", partition=slice_of(0), state=state, reason="Xid 79"))
    inventory = build_device_set(TARGET, {"one": [gpu(0), gpu(1)]}, (), health_tracker, DeviceSet())
    devices = [device for content in inventory.pools[0].slices for device in content.devices]
    assert {device.name for device in devices if device.taints} == {
        "gpu-0",
        "gpu-0-1g-1gb-at-0",
        "gpu-0-2g-2gb-at-0",
        "gpu-0-4g-4gb-at-0",
    }
    assert {(taint.value, taint.effect) for device in devices for taint in device.taints} == {(value, effect)}


def test_what_repairs_a_card_is_a_second_taint_of_what_is_unhealthy_of_it() -> None:
    health_tracker = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
    for partition, repair in ((None, RepairAct.RESET_WHEN_FREE), (slice_of(0), RepairAct.RESET)):
        health_tracker.update(
            HealthChange(
                card_uuid="GPU-0",
                partition=partition,
                state=HealthState.UNHEALTHY,
                reason="Xid",
                repair=CardRepair(repair, "xid-1"),
            )
        )
    inventory = build_device_set(TARGET, {"one": [gpu(0), gpu(1)]}, (), health_tracker, DeviceSet())
    taints = {device.name: device.taints for one in inventory.pools[0].slices for device in one.devices}
    assert [one.value for one in taints["gpu-0-1g-1gb-at-0"]] == ["degraded", "reset.xid-1"]
    assert [one.value for one in taints["gpu-0-1g-1gb-at-1"]] == ["degraded", "reset-when-free.xid-1"]
    assert taints["gpu-1"] == ()


@pytest.mark.parametrize("layout", SliceLayout)
def test_without_counters_only_whole_cards_are_offered_because_partitions_would_overlap(layout: SliceLayout) -> None:
    place = replace(TARGET, layout=layout, keeps_counters=False)
    inventory = build_device_set(place, {"one": [gpu(0), gpu(1), fpga(0)]}, (), HEALTHY, DeviceSet())
    assert (names(inventory, 0), names(inventory, 1)) == (["gpu-0", "gpu-1"], ["fpga-0"])
    contents = [content for pool in inventory.pools for content in pool.slices]
    assert not any(content.shared_counters for content in contents)
    assert not any(device.consumes_counters for content in contents for device in content.devices)
    partition = DeviceId(DRIVER, "node-1/gpu", "gpu-0-1g-1gb-at-0")
    assert inventory.find(partition), "claims that were allocated before can still be prepared"


def test_what_the_controller_publishes_is_known_to_the_node_and_not_published_by_it() -> None:
    """Each device is a pool of its own with the name of its card's UUID, which claims share."""
    target = replace(TARGET, is_network_attached=True)
    inventory = build_device_set(target, {"one": [gpu(0)], "two": [gpu(1)]}, (), HEALTHY, DeviceSet())
    assert inventory.pools == ()
    found = {uuid: inventory.find(DeviceId(DRIVER, uuid, uuid)) for uuid in ("GPU-0", "GPU-1", "GPU-2")}
    assert {uuid: one.backend for uuid, one in found.items() if one is not None} == {"GPU-0": "one", "GPU-1": "two"}
    one = found["GPU-0"]
    assert one is not None
    assert (one.partition.card_uuid, one.partition.is_whole, one.partition.shared) == ("GPU-0", True, True)
    assert one.attributes["model"].value == gpu(0).geometry.model
    assert one.capacity == dict(gpu(0).geometry.whole.capacity)
