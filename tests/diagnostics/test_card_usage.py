"""Cards are reconstructed from published devices."""

import dataclasses

import pytest

from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation.explain.holders import HolderIndex
from kerf_dra.driver.diagnostics.card_usage import build_usage, find_published_cards
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell
from kerf_dra.driver.partitions.fragmentation import fragmentation
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.pool_compiler import compile_pool
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.fakes.cluster_states import allocate_claims, card, claim, gpu_cluster, replace, slices


@pytest.mark.parametrize("model", [model.id for model in gpu_models()])
def test_every_gpu_model_comes_back_with_all_its_partitions(model: str) -> None:
    [found] = find_published_cards(slices("node-1", model=model)).known
    expected = compile_pool(
        "node-1/gpu", "node-1", [card(0, model=model)], vocabulary=GPU.vocabulary, layout=SliceLayout.SPLIT
    )
    assert found.card == card(0, model=model)
    assert found.partitions == expected.partitions
    assert (found.node, found.name, found.model) == ("node-1", "gpu-0", model)


def test_an_fpga_comes_back_with_functions_and_slots() -> None:
    fpga = Card(
        uuid="FPGA-1",
        index=0,
        geometry=fpga_geometry(shell("quad")),
        pci_bus_id="0",
        numa_node=0,
        driver_version="1.0.0",
        loaded={},
    )
    compiled = compile_pool("node-1/fpga", "node-1", [fpga], vocabulary=FPGA.vocabulary, layout=SliceLayout.SPLIT)
    template = slices("node-1")
    published = [
        replace(
            template[0],
            spec=replace(
                template[0].spec,
                pool=replace(template[0].spec.pool, name="node-1/fpga"),
                devices=content.devices,
            ),
        )
        for content in compiled.pool.slices
    ]
    [found] = find_published_cards(published).known
    assert (found.card.uuid, found.card.pci_bus_id, found.model) == ("FPGA-1", "0", "quad")
    assert found.partitions == compiled.partitions
    for taken in compiled.partitions.values():
        assert fragmentation(found.card, [taken]) == fragmentation(fpga, [taken])


def test_a_card_whose_numa_node_is_published_as_a_list_comes_back() -> None:
    words, near = GPU.vocabulary.with_lists(), dataclasses.replace(card(0), numa_node=1, pcie_root="pci0000:80")
    compiled = compile_pool("node-1/gpu", "node-1", [near], vocabulary=words, layout=SliceLayout.SPLIT)
    spec = slices("node-1")[0].spec
    published = [
        replace(slices("node-1")[0], spec=replace(spec, devices=content.devices)) for content in compiled.pool.slices
    ]
    [found] = find_published_cards(published).known
    assert found.card == near


def test_cards_come_in_the_order_of_nodes_and_numbers() -> None:
    published = [*slices("node-2"), *slices("node-1", cards=2)]
    assert [(found.node, found.name) for found in find_published_cards(published).known] == [
        ("node-1", "gpu-0"),
        ("node-1", "gpu-1"),
        ("node-2", "gpu-0"),
    ]


def test_who_holds_what_is_known() -> None:
    now = allocate_claims(gpu_cluster(), claim("a", "7g-80gb"))
    [found] = find_published_cards(now.slices).known
    used = build_usage(found, HolderIndex((), now.claims).holders)
    assert used.holders == {"gpu-0-7g-80gb-at-0": (ObjectRef("default", "a"),)}
    assert {name: partition.profile for name, partition in used.partitions.items()} == {"gpu-0-7g-80gb-at-0": "7g.80gb"}


def test_a_model_that_is_in_no_table_is_told() -> None:
    published = slices("node-1")
    strange = Attribute(string="x100")
    changed = [
        replace(
            each,
            spec=replace(
                each.spec,
                devices=tuple(
                    replace(device, attributes={**device.attributes, "model": strange}) for device in each.spec.devices
                ),
            ),
        )
        for each in published
    ]
    found = find_published_cards(changed)
    assert (found.known, found.unknown) == ((), ("node-1/gpu-0: x100",))


def test_old_generations_and_other_drivers_are_passed_over() -> None:
    published = slices("node-1")
    newer = [
        replace(each, spec=replace(each.spec, pool=replace(each.spec.pool, generation=2))) for each in published[:-1]
    ]
    other = [replace(each, spec=replace(each.spec, driver="gpu.nvidia.com", node_name="n2")) for each in published]
    assert len(find_published_cards([*published, *newer, *other]).known) == 0
