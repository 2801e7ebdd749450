"""Cards to pools: names, properties, counters, both slice layouts, and what is refused."""

import dataclasses
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.devices import DeviceTaint, SliceContent
from kerf_dra.api.model.names import DriverName, is_dns_label
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_model, gpu_models
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell, shells
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.partitions.pool_compiler import (
    CompiledPool,
    CompileError,
    SliceLayout,
    build_monitor_slices,
    compile_pool,
)
from kerf_dra.driver.partitions.publish_order import publish_order
from tests.partitions.cards import fpga, gpu, gpu_partition, gpus, vocabulary_of
from tests.partitions.counters import devices

LAYOUTS = list(SliceLayout)


def compiled_of(cards: list[Card], layout: SliceLayout = SliceLayout.SPLIT) -> CompiledPool:
    return compile_pool(f"node-1/{cards[0].kind}", "node-1", cards, vocabulary=vocabulary_of(cards[0]), layout=layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [1, 8, 16])
@pytest.mark.parametrize("model", gpu_models(), ids=lambda model: model.id)
def test_nodes_with_1_8_and_16_gpus_stay_within_the_limits(model: GpuModel, count: int, layout: SliceLayout) -> None:
    compiled = compiled_of(list(gpus(count, model)), layout)
    placements = sum(len(profile.placements) for profile in model.profiles)
    assert len(compiled.partitions) == count * (placements + 1)
    assert len(devices(compiled.pool)) == len(compiled.partitions)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [1, 8, 16])
@pytest.mark.parametrize("of", shells(), ids=lambda of: of.name)
def test_nodes_with_1_8_and_16_fpgas_stay_within_the_limits(of: Shell, count: int, layout: SliceLayout) -> None:
    compiled = compiled_of([fpga(of, index) for index in range(count)], layout)
    slots = len(of.slots)
    images = sum(len(function.placements) for function in of.functions)
    assert len(compiled.partitions) == count * (slots * (slots + 1) // 2 + images + 1)


@pytest.mark.parametrize("card", [*map(gpu, gpu_models()), *map(fpga, shells())])
def test_device_names_are_dns_labels_and_differ(card: Card) -> None:
    names = [device.name for device in devices(compiled_of([card]).pool)]
    assert len(names) == len(set(names))
    assert all(is_dns_label(name) for name in names)


def test_gpu_names_say_card_profile_and_place() -> None:
    assert set(compiled_of([gpu("a30-24gb", 3)]).partitions) == {
        "gpu-3",
        *(f"gpu-3-1g-6gb-at-{start}" for start in range(4)),
        *(f"gpu-3-1g-6gb-me-at-{start}" for start in range(4)),
        *(f"gpu-3-2g-12gb-at-{start}" for start in (0, 2)),
        *(f"gpu-3-2g-12gb-me-at-{start}" for start in (0, 2)),
        "gpu-3-4g-24gb-at-0",
    }


def test_a_profile_with_and_one_without_media_engines_have_different_names() -> None:
    names = compiled_of([gpu("rtx-pro-6000")]).partitions
    assert {"gpu-0-1g-24gb-me-at-3", "gpu-0-1g-24gb-no-me-at-3", "gpu-0-1g-24gb-me-all-at-3"} <= names.keys()


def test_fpga_names_say_slots_or_function() -> None:
    assert set(compiled_of([fpga("edge-3")]).partitions) == {
        "fpga-0",
        *("fpga-0-slot-0", "fpga-0-slot-1", "fpga-0-slot-2"),
        *("fpga-0-slots-0-1", "fpga-0-slots-1-2", "fpga-0-slots-0-2"),
        *("fpga-0-aes-gcm-at-0", "fpga-0-aes-gcm-at-1", "fpga-0-aes-gcm-at-2"),
        *("fpga-0-fir-at-1", "fpga-0-fir-at-2", "fpga-0-dpu-at-0-2"),
    }


def test_a_device_stands_for_its_partition() -> None:
    card = fpga("quad")
    partitions = compiled_of([card]).partitions
    assert partitions["fpga-0-slots-1-3"] == Partition(kind="fpga", card_uuid=card.uuid, placement=Placement(1, 3))
    assert partitions["fpga-0-aes-gcm-at-2"].function == "aes-gcm"
    assert partitions["fpga-0"].is_whole


def test_a_gpu_partition_as_it_is_published() -> None:
    card = gpu("h100-80gb-sxm")
    device = next(one for one in devices(compiled_of([card]).pool) if one.name == "gpu-0-1g-10gb-me-at-3")
    assert to_builtins(device) == {
        "name": "gpu-0-1g-10gb-me-at-3",
        "attributes": {
            "architecture": {"string": "hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "cudaDriverVersion": {"version": "0.0.0"},
            "cut": {"string": "partition"},
            "driverVersion": {"version": "570.86.15"},
            "lossRank": {"int": 8},
            "model": {"string": "h100-80gb-sxm"},
            "mps": {"bool": False},
            "node": {"string": "node-1"},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "simulated": {"bool": False},
            "profile": {"string": "1g.10gb+me"},
            "shared": {"bool": False},
            "timeSlicing": {"bool": False},
            "resource.kubernetes.io/numaNode": {"int": 0},
            "resource.kubernetes.io/pciBusID": {"string": "0000:00:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
            "uuid": {"string": "GPU-0"},
        },
        "capacity": {
            "clients": {"value": "48"},
            "computePercent": {"value": "100"},
            "computeSlices": {"value": "1"},
            "decoders": {"value": "1"},
            "encoders": {"value": "0"},
            "memory": {"value": "9984Mi"},
            "multiprocessors": {"value": "16"},
        },
        "consumesCounters": [
            {
                "counterSet": "gpu-0",
                "counters": {
                    "memory-slice-3": {"value": "1"},
                    "ofa": {"value": "1"},
                    "memory": {"value": "9984Mi"},
                    "multiprocessors": {"value": "16"},
                },
            }
        ],
    }


@pytest.mark.parametrize("card", [gpu("h100-80gb-sxm"), gpu("thor-igpu"), fpga("quad")])
def test_every_device_has_exactly_the_attributes_and_capacities_of_its_family(card: Card) -> None:
    """A selector that meets a missing attribute aborts the pod's whole scheduling attempt."""
    vocabulary = vocabulary_of(card)
    slices = build_monitor_slices([card], "node-1", vocabulary, DriverName("driver.example.com"))
    monitors = [device for content in slices for device in content.devices]
    for device in (*devices(compiled_of([card]).pool), *monitors):
        assert device.attributes.keys() == vocabulary.attributes.keys()
        assert device.capacity.keys() == vocabulary.capacities
        assert all(attribute.value is not None for attribute in device.attributes.values())


@pytest.mark.parametrize(
    ("version", "published"),
    [("535.104.05", "535.104.5"), ("550.54", "550.54.0"), ("6.8.0-45-generic", "6.8.0"), ("", "0.0.0")],
)
def test_driver_versions_are_published_as_semantic_versions(version: str, published: str) -> None:
    card = dataclasses.replace(gpu(), driver_version=version)
    assert {d.attributes["driverVersion"].version for d in devices(compiled_of([card]).pool)} == {published}


@pytest.mark.parametrize("card", [gpu("h100-80gb-sxm"), gpu("rtx-pro-6000"), fpga("big-little")])
def test_a_whole_card_takes_all_units_and_engines_its_counter_set_has(card: Card) -> None:
    pool = compiled_of([card]).pool
    (counters,) = (one for content in pool.slices for one in content.shared_counters)
    whole = next(device for device in devices(pool) if device.attributes["cut"].string == "whole")
    quota = {"memory", "multiprocessors"}
    exclusive = {name: counter for name, counter in counters.counters.items() if name not in quota}
    taken = {name: counter for name, counter in whole.consumes_counters[0].counters.items() if name not in quota}
    assert taken == exclusive


def test_from_1_35_counters_stand_in_slices_of_their_own_eight_cards_to_a_slice() -> None:
    pool = compiled_of(list(gpus(9))).pool
    shapes = [(len(content.shared_counters), len(content.devices)) for content in pool.slices]
    assert shapes == [(8, 0), (1, 0), (0, 64), (0, 64), (0, 64), (0, 42)]


def test_before_1_35_each_card_has_a_slice_with_its_counters() -> None:
    pool = compiled_of(list(gpus(3)), SliceLayout.COMBINED).pool
    assert [(content.shared_counters[0].name, len(content.devices)) for content in pool.slices] == [
        ("gpu-0", 26),
        ("gpu-1", 26),
        ("gpu-2", 26),
    ]


def test_before_1_35_the_order_holds_inside_a_card_and_the_fullest_card_comes_first() -> None:
    cards = list(gpus(2))
    order = publish_order(cards, [gpu_partition(cards[1], "3g.40gb", 4)])
    pool = compile_pool("n/gpu", "n", cards, vocabulary=GPU.vocabulary, layout=SliceLayout.COMBINED, order=order).pool
    assert [content.shared_counters[0].name for content in pool.slices] == ["gpu-1", "gpu-0"]
    published = [device.name for device in pool.slices[0].devices]
    compiled = compile_pool("n/gpu", "n", cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, order=order)
    assert published == [device.name for device in devices(compiled.pool) if device.name.startswith("gpu-1")]


def test_devices_are_published_in_the_given_order() -> None:
    cards = list(gpus(2))
    order = publish_order(cards, [gpu_partition(cards[1], "3g.40gb", 4)])
    compiled = compile_pool("n/gpu", "n", cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, order=order)
    assert [compiled.partitions[device.name] for device in devices(compiled.pool)] == list(order.partitions)


def test_a_node_without_cards_has_one_empty_slice() -> None:
    assert compile_pool("n/gpu", "n", [], vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT).pool.slices == (
        SliceContent(),
    )


def test_taints_are_put_on_the_devices_they_name() -> None:
    taint = DeviceTaint(key="kerf.dev/ill", value="xid-79", effect="NoSchedule")
    pool = compile_pool(
        "n/gpu", "n", [gpu()], vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, taints={"gpu-0": (taint,)}
    ).pool
    assert {device.name for device in devices(pool) if device.taints} == {"gpu-0"}


def test_a_taint_for_no_device_is_refused() -> None:
    taint = DeviceTaint(key="kerf.dev/ill", effect="NoSchedule")
    with pytest.raises(CompileError, match="device gpu-7: it is to be tainted but there is no such device"):
        compile_pool(
            "n/gpu", "n", [gpu()], vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, taints={"gpu-7": (taint,)}
        )


def test_two_cards_with_one_index_are_refused_with_the_name_they_share() -> None:
    cards = [gpu(), dataclasses.replace(gpu(), uuid="GPU-other")]
    with pytest.raises(CompileError, match=r"device gpu-0.*twice"):
        compile_pool("n/gpu", "n", cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT)


@pytest.mark.parametrize("others", [0, 1, 3])
def test_an_order_for_other_cards_is_refused(others: int) -> None:
    order = publish_order(gpus(4)[4 - others :], ())
    with pytest.raises(CompileError, match="order was made for other cards"):
        compile_pool("n/gpu", "n", [gpu()], vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, order=order)


def test_a_function_name_that_is_no_dns_label_is_refused_with_card_and_device() -> None:
    named = dataclasses.replace(shell("edge-3").functions[0], name="AES_GCM")
    odd = fpga(dataclasses.replace(shell("edge-3"), functions=(named,)))
    with pytest.raises(CompileError, match="card fpga-0, device fpga-0-AES_GCM-at-0: the name is no DNS label"):
        compiled_of([odd])


def many_slots(count: int) -> Card:
    return fpga(dataclasses.replace(shell("quad"), slots=shell("quad").slots[:1] * count, functions=()))


def test_a_card_with_more_devices_than_a_slice_takes_is_refused_only_before_1_35() -> None:
    card = many_slots(11)
    assert len(compiled_of([card]).partitions) == 67
    with pytest.raises(CompileError, match="card fpga-0: 67 devices in a slice, at most 64"):
        compiled_of([card], SliceLayout.COMBINED)


def test_a_card_with_more_units_than_counters_is_refused() -> None:
    with pytest.raises(CompileError, match="card fpga-0: 33 counters in its set, at most 32"):
        compiled_of([many_slots(33)])


def test_a_live_cards_figures_replace_the_tables() -> None:
    model = dataclasses.replace(gpu_model("h100-80gb-sxm"), memory_bytes=85_899_345_920)
    pool = compiled_of([gpu(model)]).pool
    whole = next(device for device in devices(pool) if device.name == "gpu-0")
    assert str(whole.capacity["memory"].value) == "80Gi"


NODE_CARDS = (*gpus(2), dataclasses.replace(gpu("a30-24gb", 2), uuid="GPU-a30"))
STATES = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["node-1", "node-2"]),
        "cards": st.lists(st.sampled_from(NODE_CARDS), unique_by=lambda card: card.uuid, min_size=1),
        "driver_version": st.sampled_from(["570.86.15", "580.1"]),
        "taken": st.sets(st.integers(0, 60), max_size=3),
        "tainted": st.integers(-1, 60),
        "has_ranks": st.booleans(),
        "has_lists": st.booleans(),
        "is_shared": st.booleans(),
    }
)


def compile_state(state: dict[str, Any], previous: CompiledPool | None) -> CompiledPool:
    cards = [dataclasses.replace(card, driver_version=state["driver_version"]) for card in state["cards"]]
    every = publish_order(cards, ()).partitions
    taken = [every[number % len(every)] for number in sorted(state["taken"])]
    order = publish_order(cards, taken)
    tainted = order.partitions[state["tainted"] % len(every)]
    by_uuid = {card.uuid: card for card in cards}
    taint = DeviceTaint(key="kerf.dev/ill", effect="NoSchedule")
    is_tainted = state["tainted"] >= 0
    return compile_pool(
        "n/gpu",
        state["node"],
        cards,
        vocabulary=GPU.vocabulary.with_lists() if state["has_lists"] else GPU.vocabulary,
        layout=SliceLayout.SPLIT,
        order=order,
        shared=[dataclasses.replace(every[-1], shared=True)] if state["is_shared"] else [],
        taints={device_name(by_uuid[tainted.card_uuid], tainted): (taint,)} if is_tainted else {},
        has_ranks=state["has_ranks"],
        previous=previous,
    )


@given(states=st.lists(STATES, min_size=2, max_size=5))
def test_what_is_taken_from_an_earlier_compilation_is_what_would_be_compiled(states: list[dict[str, Any]]) -> None:
    previous = None
    for state in states:
        previous = compile_state(state, previous)
        assert previous == compile_state(state, None)


def test_devices_that_no_change_concerns_are_the_same_objects() -> None:
    """A claim changes the order of a few devices: to build and compare all of a node took a sixth of its time."""
    cards = gpus(2)
    order = publish_order(cards, [gpu_partition(cards[1], "3g.40gb", 4)])
    compile_for = partial(
        compile_pool, "n", "n", cards, vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT, has_ranks=False
    )
    first = compile_for()
    second = compile_for(order=order, previous=first)
    before = {device.name: device for device in devices(first.pool)}
    assert [device.name for device in devices(second.pool)] != [*before]
    assert all(before[device.name] is device for device in devices(second.pool))
