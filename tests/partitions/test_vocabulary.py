"""Cards that cannot be described in the vocabulary of their family, and geometries that contradict themselves."""

from dataclasses import replace
from typing import Any

import pytest

from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.device_attributes import Vocabulary, card_attributes, mark_simulated
from kerf_dra.driver.partitions.device_names import device_name, parse_device_name
from kerf_dra.driver.partitions.geometry import (
    Card,
    Geometry,
    InvalidGeometryError,
    Partition,
    PartitionSpec,
    Placement,
)
from kerf_dra.driver.partitions.pool_compiler import CompileError, SliceLayout, build_monitor_slices, compile_pool
from kerf_dra.driver.partitions.unit_map import get_unit_map
from tests.partitions.cards import fpga, gpu
from tests.partitions.counters import devices


def half(start: int, **fields: Any) -> PartitionSpec:
    usual: dict[str, Any] = {"kind": "npu-x", "profile": "1c", "placement": Placement(start, 1), "mask": 1 << start}
    usual |= {"size": (1,), "weight": 1, "capacity": (("cores", Quantity(1)),)}
    return PartitionSpec(**usual | fields)


def whole(**fields: Any) -> PartitionSpec:
    usual: dict[str, Any] = {"kind": "npu-x", "mask": 3, "size": (2,), "weight": 2}
    return PartitionSpec(**usual | {"capacity": (("cores", Quantity(2)),)} | fields)


def geometry(*specs: PartitionSpec, **fields: Any) -> Geometry:
    usual: dict[str, Any] = {"kind": "npu-x", "model": "duo", "unit": "core", "units": 2}
    return Geometry(**usual | {"specs": specs or (half(0), half(1), whole())} | fields)


VOCABULARY = Vocabulary(
    kind="npu-x",
    attributes={"cut": Attribute.of(""), "profile": Attribute.of(""), "speed": Attribute.of(0)},
    capacities=frozenset({"cores", "threads"}),
)


def compiled(card: Card, vocabulary: Vocabulary = VOCABULARY) -> dict[str, Any]:
    pool = compile_pool("n/npu-x", "n", [card], vocabulary=vocabulary, layout=SliceLayout.SPLIT).pool
    return {device.name: device for device in devices(pool)}


def test_a_third_partys_family_has_its_own_units_names_and_words_and_no_others() -> None:
    card = Card(uuid="NPU-1", index=3, geometry=geometry(), numa_node=1, attributes={"speed": Attribute.of(7)})
    found = compiled(card)
    assert list(found) == ["npu-x-3-1c-at-0", "npu-x-3-1c-at-1", "npu-x-3"]
    first = found["npu-x-3-1c-at-0"]
    assert {name: value.value for name, value in first.attributes.items()} == {
        "cut": "partition",
        "profile": "1c",
        "speed": 7,
    }
    assert {name: str(held.value) for name, held in first.capacity.items()} == {"cores": "1", "threads": "0"}
    (taken,) = first.consumes_counters
    assert (taken.counter_set, set(taken.counters)) == ("npu-x-3", {"core-0"})


@pytest.mark.parametrize(
    ("card", "message"),
    [
        (fpga(), "card fpga-0: it is no card of the family 'npu-x'"),
        (
            Card(uuid="1", index=0, geometry=geometry(), attributes={"color": Attribute.of("red")}),
            "card npu-x-0: attribute 'color' is not in the vocabulary",
        ),
        (
            Card(uuid="1", index=0, geometry=geometry(attributes=(("speed", Attribute.of("fast")),))),
            "attribute 'speed' is of type str, but of type int in the vocabulary",
        ),
        (
            Card(uuid="1", index=0, geometry=geometry(attributes=(("profile", Attribute(version="1.0.0")),))),
            "attribute 'profile' is a version, but of type str in the vocabulary",
        ),
        (
            Card(uuid="1", index=0, geometry=geometry(whole(capacity=(("memory", Quantity(1)),)))),
            "'memory' of a partition is not in the vocabulary",
        ),
        (
            Card(uuid="1", index=0, geometry=geometry(half(0, profile=None, function="aes"), whole())),
            "'function' of a partition is not in the vocabulary",
        ),
        (
            Card(uuid="1", index=0, geometry=geometry(shareable="cores")),
            "shares need the capacity 'cores' and the attribute 'shared'",
        ),
    ],
)
def test_what_the_vocabulary_lacks_is_refused_by_name(card: Card, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compiled(card)


def test_cards_of_one_family_are_no_cards_of_another() -> None:
    with pytest.raises(CompileError, match="card gpu-0: it is no card of the family 'fpga'"):
        compile_pool("n/fpga", "n", [gpu()], vocabulary=FPGA.vocabulary, layout=SliceLayout.SPLIT)


def test_kerfs_families_have_no_words_of_each_other() -> None:
    assert not {"function", "loadedFunction", "loadSeconds", "interfaceUUID"} & GPU.vocabulary.attributes.keys()
    assert not {"profile", "cudaComputeCapability"} & FPGA.vocabulary.attributes.keys()
    assert not GPU.vocabulary.capacities & FPGA.vocabulary.capacities


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ((half(0), half(1)), "needs the whole card"),
        ((whole(), whole()), "needs the whole card"),
        ((half(1), half(0), whole()), "another order than order_specs"),
        ((half(0), half(2), whole()), "has 2 units, but a partition at"),
        ((half(0, mask=2), whole()), "another kind or mask"),
        ((half(0, kind="gpu"), whole()), "another kind or mask"),
        ((half(0, engines=(1,)), whole()), "has not the engines"),
        ((half(0), half(0), whole()), "two partitions of one profile or function and placement"),
    ],
)
def test_a_geometry_that_contradicts_itself_is_refused(specs: tuple[PartitionSpec, ...], message: str) -> None:
    with pytest.raises(InvalidGeometryError, match=f"the geometry of 'duo' .*{message}"):
        geometry(*specs)


def test_a_partition_that_takes_more_engines_than_there_are_is_refused() -> None:
    with pytest.raises(InvalidGeometryError, match="has not the engines"):
        geometry(half(0, engines=(2,)), whole(engines=(1,)), engines=(("ofa", 1),))


@pytest.mark.parametrize("card", [gpu("rtx-pro-6000", 12), fpga("quad", 3)])
def test_a_devices_name_says_family_and_number_of_its_card(card: Card) -> None:
    for spec in card.geometry.specs:
        parsed = parse_device_name(device_name(card, spec.of(card.uuid)))
        assert parsed is not None
        assert (parsed.kind, parsed.index) == (card.kind, card.index)
        assert bool(parsed.suffix) == (spec.placement is not None)
    assert parse_device_name("nic") is None


def test_an_fpgas_devices_say_what_is_loaded_and_how_long_a_load_takes() -> None:
    card = replace(fpga("quad"), loaded={Placement(2, 1): "aes-gcm"})
    compiled_pool = compile_pool("n/fpga", "n", [card], vocabulary=FPGA.vocabulary, layout=SliceLayout.SPLIT)
    found = {device.name: device.attributes for device in devices(compiled_pool.pool)}
    loaded = {name for name, attributes in found.items() if attributes["loadedFunction"].string == "aes-gcm"}
    assert loaded == {"fpga-0-slot-2", "fpga-0-aes-gcm-at-2"}
    assert {attributes["loadSeconds"].int_value for attributes in found.values()} == {1}, "0.3 s to 0.9 s, rounded up"
    assert {attributes["interfaceUUID"].string for attributes in found.values()} == {
        dict(card.geometry.attributes)["interfaceUUID"].string
    }


@pytest.mark.parametrize("product", [None, "Acme One"], ids=["of the geometry", "of the card"])
def test_every_device_of_a_simulated_card_says_so_by_name_and_by_attribute(product: str | None) -> None:
    card = gpu("h100-80gb-sxm")
    usual = dict(card.geometry.attributes)["productName"].string
    if product is not None:
        card = replace(card, attributes={"architecture": Attribute.of("acme"), "productName": Attribute.of(product)})
    marked = card_attributes(mark_simulated(card), "node-1", GPU.vocabulary)
    unmarked = card_attributes(card, "node-1", GPU.vocabulary)
    assert {name for name in marked if marked[name] != unmarked[name]} == {"productName", "simulated"}
    assert marked["productName"] == Attribute.of(f"{product or usual} (simulated)")
    assert (marked["simulated"], unmarked["simulated"]) == (Attribute.of(True), Attribute.of(False))


def test_a_partition_is_found_by_what_it_is() -> None:
    partition = Partition(kind="gpu", card_uuid="GPU-0", profile="9g.90gb", placement=Placement(0, 1))
    assert get_unit_map(gpu()).find(partition) is None


ROOT, NUMA = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"


def near_two() -> Card:
    lists = {ROOT: Attribute(strings=("pci0000:00", "pci0000:80")), NUMA: Attribute(ints=(1, 0))}
    return replace(gpu(), attributes=lists)


@pytest.mark.parametrize("make", [gpu, fpga], ids=["gpu", "fpga"])
def test_in_a_vocabulary_with_lists_root_and_numa_node_of_every_device_are_lists_and_nothing_else_changes(
    make: Any,
) -> None:
    words = (GPU if make is gpu else FPGA).vocabulary
    card = make()
    plain, listed = compiled(card, words), compiled(card, words.with_lists())
    assert plain.keys() == listed.keys()
    for name, device in listed.items():
        assert device.attributes == {
            **plain[name].attributes,
            ROOT: Attribute(strings=(plain[name].attributes[ROOT].string,)),
            NUMA: Attribute(ints=(plain[name].attributes[NUMA].int_value,)),
        }


def test_a_card_near_several_roots_has_all_of_them_in_lists_and_the_first_otherwise() -> None:
    card = near_two()
    listed, plain = compiled(card, GPU.vocabulary.with_lists()), compiled(card, GPU.vocabulary)
    assert {device.attributes[ROOT].value for device in listed.values()} == {("pci0000:00", "pci0000:80")}
    assert {device.attributes[NUMA].value for device in listed.values()} == {(1, 0)}
    assert {device.attributes[ROOT].value for device in plain.values()} == {"pci0000:00"}
    assert {device.attributes[NUMA].value for device in plain.values()} == {1}


def test_a_monitor_device_has_the_same_types_as_all_others() -> None:
    (monitor,) = next(build_monitor_slices([near_two()], "n", GPU.vocabulary.with_lists(), GPU.driver)).devices
    assert monitor.attributes[NUMA] == Attribute(ints=(1, 0))


def test_a_vocabulary_without_root_and_numa_node_has_no_lists() -> None:
    assert VOCABULARY.with_lists() == VOCABULARY


def test_a_list_of_another_type_is_refused() -> None:
    card = replace(gpu(), attributes={NUMA: Attribute(strings=("0",))})
    for words in (GPU.vocabulary, GPU.vocabulary.with_lists()):
        with pytest.raises(CompileError, match=f"attribute '{NUMA}' is .*str, but .*int in the vocabulary"):
            compiled(card, words)
