"""Cards in records: they come back as they were, and are made of partitions where a record does not describe them."""

import dataclasses

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.recorded_cards import PlacementRecord, SpecRecord
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.families.gpu_intel.catalog import describe_card
from kerf_dra.driver.families.gpu_intel.geometry import intel_geometry
from kerf_dra.driver.partitions.device_attributes import is_describable
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.recorded_cards import (
    RecordedDevice,
    from_card_record,
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


def test_what_is_loaded_in_a_card_is_not_recorded() -> None:
    card = dataclasses.replace(fpga(), loaded={Placement(0, 1): "aes"}, layout="halves")
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
