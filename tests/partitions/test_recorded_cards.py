"""Cards in records: they come back as they were, and are made of partitions where a record does not describe them."""

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.device_attributes import CAPACITY_COMPUTE_UNIT_PERCENT, CAPACITY_MEMORY
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.recorded_cards import PlacementRecord, SpecRecord
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.families.gpu_intel.catalog import describe_card
from kerf_dra.driver.families.gpu_intel.geometry import intel_geometry
from kerf_dra.driver.partitions.device_attributes import is_describable
from kerf_dra.driver.partitions.device_names import device_name, monitor_name
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.recorded_cards import (
    RecordedDevice,
    from_card_record,
    has_devices,
    keep_partitions,
    rebuild_card,
    to_card_record,
    without_load,
)
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from kerf_dra.driver.partitions.unit_map import get_unit_map
from tests.partitions.cards import fpga, gpu, vocabulary_of
from tests.partitions.layouts import divided, function, scattered

INTEL = Card(uuid="0000:4d:00.0", index=2, geometry=intel_geometry(describe_card(0x0BD5, 2**36, 2)))
LAYOUTS = fpga(
    divided(2, 3, functions=[function("fft", scattered(0, 2, layout="halves"), Placement(1, 1), load_s=0.5)]), index=4
)
DESCRIBED = dataclasses.replace(
    gpu(index=9),
    pcie_root="pci0000:3a",
    numa_node=1,
    attributes={"productName": Attribute.of("H100"), "driverVersion": Attribute(version="580.95.5")},
    whole_attributes={"timeSlicing": Attribute.of(True)},
)
CARDS = [DESCRIBED, INTEL, LAYOUTS, fpga(index=1), *(gpu(model) for model in gpu_models())]


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.geometry.model)
def test_a_card_comes_back_from_its_record_as_it_was(card: Card) -> None:
    assert from_card_record(to_card_record(card)) == card


@pytest.mark.parametrize(
    "load",
    [
        {"loaded": {Placement(0, 1): "aes"}, "layout": "halves"},
        {"loaded": {Placement(0, 1): "aes"}},
        {"layout": "halves"},
    ],
)
def test_what_is_loaded_in_a_card_is_not_recorded(load: dict[str, Any]) -> None:
    card = dataclasses.replace(fpga(), **load)
    assert from_card_record(to_card_record(card)) == without_load(card) == fpga()


@pytest.mark.parametrize(
    "change",
    [
        {"specs": ()},
        {"units": 1},
        {"specs": (SpecRecord(size=(1,), weight=1, placement=PlacementRecord(start=0, size=1, layout="other")),)},
    ],
)
def test_a_record_that_contradicts_itself_is_none(change: dict[str, object]) -> None:
    assert from_card_record(replace(to_card_record(gpu()), **change)) is None


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.geometry.model)
def test_a_card_is_made_of_each_of_its_partitions_under_the_same_name(card: Card) -> None:
    for spec in get_unit_map(card).specs:
        partition = spec.of(card.uuid)
        name = device_name(card, partition)
        made = rebuild_card([RecordedDevice(name=name, partition=partition)])
        assert made is not None
        assert is_describable(made, {card.kind: vocabulary_of(card)})
        pool = compile_pool("pool", "node", [made], vocabulary=vocabulary_of(card), layout=SliceLayout.SPLIT)
        assert pool.partitions[name] == partition
        assert set(pool.partitions) == {name, f"{card.kind}-{card.index}"}


def test_a_card_is_made_of_all_partitions_of_several_claims_and_keeps_overlapping_ones_apart() -> None:
    card = gpu()
    partitions = [spec.of(card.uuid) for spec in card.geometry.specs]
    made = rebuild_card([RecordedDevice(name=device_name(card, one), partition=one) for one in partitions])
    assert made is not None
    assert {spec.of(made.uuid) for spec in made.geometry.specs} == {*partitions}
    assert {spec.placement: spec.mask for spec in made.geometry.specs} == {
        spec.placement: spec.mask for spec in card.geometry.specs
    }


@pytest.mark.parametrize(
    ("card", "capacity"),
    [
        (gpu(), CAPACITY_MEMORY),
        (fpga(divided(2, 3, functions=[function("fft", Placement(0, 2))])), CAPACITY_COMPUTE_UNIT_PERCENT),
    ],
    ids=["memory", "compute units"],
)
def test_a_card_is_made_of_a_shared_device_and_of_the_exclusive_one_of_the_same_partition(
    card: Card, capacity: str
) -> None:
    spec = next(spec for spec in card.geometry.specs if (spec.profile or spec.function) and spec.placement is not None)
    exclusive = spec.of(card.uuid)
    shared = dataclasses.replace(exclusive, shared=True)
    devices = [RecordedDevice(name=device_name(card, one), partition=one) for one in (exclusive, shared)]
    made = rebuild_card(devices)
    assert made is not None
    assert made == rebuild_card(devices[::-1])
    assert rebuild_card(devices[1:]) == made, "the partition is the exclusive one's"
    assert made.geometry.shareable == capacity
    assert [one.of(made.uuid) for one in made.geometry.specs] == [exclusive, card.geometry.whole.of(card.uuid)]
    assert has_devices(made, devices)


def test_a_card_that_a_claim_has_as_a_whole_or_only_looks_at_has_one_unit() -> None:
    card = gpu(index=3)
    whole = card.geometry.whole.of(card.uuid)
    for name in ("gpu-3", monitor_name("gpu-3")):
        made = rebuild_card([RecordedDevice(name=name, partition=whole)])
        assert made is not None
        assert (made.geometry.units, made.geometry.layouts, made.index) == (1, (), 3)
        assert has_devices(made, [RecordedDevice(name=name, partition=whole)])


def test_a_card_has_a_device_only_under_its_own_name() -> None:
    card = gpu()
    partition = next(spec for spec in card.geometry.specs if spec.profile).of(card.uuid)
    assert not has_devices(card, [RecordedDevice(name="gpu-1-1g-10gb-at-0", partition=partition)])


def test_the_unit_of_a_card_is_that_of_its_bare_units_and_no_profile_or_function() -> None:
    card = fpga(divided(2, 3, functions=[function("fft", Placement(0, 2))]), index=1)
    for partition in (spec.of(card.uuid) for spec in card.geometry.specs if spec.placement is not None):
        made = rebuild_card([RecordedDevice(name=device_name(card, partition), partition=partition)])
        assert made is not None
        assert made.geometry.unit == ("unit" if partition.function else card.geometry.unit)


@pytest.mark.parametrize(
    "names",
    [["a network attached device"], ["gpu-0-1g-10gb-at-0", "gpu-1-1g-10gb-at-1"], ["gpu-0-1g-10gb-at-0", "camera"]],
)
def test_nothing_is_made_of_names_that_are_not_those_of_one_card(names: list[str]) -> None:
    partitions = [
        Partition(kind="gpu", card_uuid="GPU-0", profile="1g.10gb", placement=Placement(at, 1)) for at in range(2)
    ]
    devices = [RecordedDevice(name=name, partition=one) for name, one in zip(names, partitions, strict=False)]
    assert rebuild_card(devices) is None
    assert rebuild_card([]) is None


def test_a_card_of_which_only_some_partitions_are_kept_has_the_same_units() -> None:
    card = fpga()
    kept = [spec.of(card.uuid) for spec in card.geometry.specs[:2]]
    narrowed = keep_partitions(card, kept)
    assert [spec.of(card.uuid) for spec in narrowed.geometry.specs] == [*kept, card.geometry.whole.of(card.uuid)]
    assert (narrowed.geometry.units, narrowed.index) == (card.geometry.units, card.index)
