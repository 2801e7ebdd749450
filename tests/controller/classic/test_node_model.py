"""A node's cards, as the controller reads them from the inventory that the plugin writes."""

import json
from dataclasses import replace

import msgspec
import pytest

from kerf_dra.api.kerf.node_inventory import NODE_INVENTORIES
from kerf_dra.api.model.devices import Attribute, DeviceTaint
from kerf_dra.driver.controller.classic.node_model import (
    InventoryError,
    NodeInventoryModel,
    build_node_model,
    join_node_models,
)
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells
from kerf_dra.driver.partitions.geometry import Card, Geometry, Placement
from tests.controller.classic.hardware import fpga, gpu, inventories, inventory
from tests.partitions.layouts import scattered
from tests.partitions.test_layouts import EVERY_WAY

GEOMETRIES = [
    *(geometry for family in BUILT_IN for geometry in family.geometries()),
    *map(fpga_geometry, (*shells(), EVERY_WAY)),
]


def written_by_plugin(*cards: Card) -> bytes:
    return msgspec.json.encode(NODE_INVENTORIES.encode(inventory("n1", *cards)))


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda geometry: geometry.model)
def test_plugin_and_controller_have_the_same_geometry(geometry: Geometry) -> None:
    written = written_by_plugin(Card(uuid="card-1", index=0, geometry=geometry))
    (found,) = build_node_model(NODE_INVENTORIES.decode(written).spec).cards
    assert found.card.geometry == geometry
    assert found.unit_map.specs == geometry.specs


def test_everything_that_is_known_of_a_card_comes_back() -> None:
    card = replace(
        fpga("n1", 3, "quad", {Placement(1, 1): "aes-gcm"}),
        pci_bus_id="0001:00:03.0",
        pcie_root="pci0000:80",
        numa_node=1,
        attributes={"interfaceUUID": Attribute.of("another")},
    )
    written = written_by_plugin(card)
    (found,) = build_node_model(NODE_INVENTORIES.decode(written).spec).cards
    assert found.card == card


def test_layouts_and_slots_that_are_no_neighbours_come_back() -> None:
    """The classic controller allocates by the geometry alone: a layout that is lost here is two claims on one card."""
    card = replace(
        fpga("n1", 0, "quad"),
        geometry=fpga_geometry(EVERY_WAY),
        loaded={scattered(0, 2): "fft", scattered(1, layout="halves"): "aes"},
        layout="halves",
    )
    spec = NODE_INVENTORIES.decode(written_by_plugin(card)).spec
    [back] = build_node_model(spec).cards
    assert back.card == card
    halves = {"fpga-0-aes-at-1-of-halves", "fpga-0-slot-1-of-halves"}
    assert all(back.find(name) for name in (*halves, "fpga-0-fft-at-0-and-2", "fpga-0-dpu-at-0-of-whole"))


def test_an_inventory_with_a_layout_that_it_does_not_describe_is_refused() -> None:
    document = json.loads(written_by_plugin(replace(fpga("n1", 0, "quad"), geometry=fpga_geometry(EVERY_WAY))))
    [geometry] = document["spec"]["geometries"]
    geometry["layouts"][1]["name"] = "thirds"
    with pytest.raises(InventoryError, match="has no layout 'halves'"):
        build_node_model(NODE_INVENTORIES.decode(json.dumps(document).encode()).spec)


def test_cards_of_one_model_share_one_geometry() -> None:
    first, second = build_node_model(inventory("n1", gpu("n1", 0), gpu("n1", 1)).spec).cards
    assert first.unit_map is second.unit_map
    assert len(inventory("n1", gpu("n1", 0), gpu("n1", 1)).spec.geometries) == 1


def test_nodes_of_two_drivers_are_alike_only_if_all_their_cards_are() -> None:
    def join(*models: str) -> NodeInventoryModel:
        cards = [gpu("n1", index, model) for index, model in enumerate(models)]
        of_drivers = inventories("n1", *cards, fpga("n1", 0, "quad"), fpga("n1", 1, "quad"))
        return join_node_models([build_node_model(each.spec) for each in of_drivers])

    pair = join("h100-80gb-sxm", "a30-24gb")
    assert [card.name for card in pair.cards] == ["gpu-0", "gpu-1", "fpga-0", "fpga-1"]
    assert pair.hardware is join("h100-80gb-sxm", "a30-24gb").hardware
    for other in (join("h100-80gb-sxm", "h100-80gb-sxm"), join("a30-24gb", "a30-24gb"), join("h100-80gb-sxm")):
        assert other.hardware is not pair.hardware


def test_an_inventory_with_a_geometry_that_contradicts_itself_is_refused() -> None:
    spec = inventory("n1", gpu("n1", 0)).spec
    (geometry,) = spec.geometries
    broken = geometry.__class__(
        kind=geometry.kind, model=geometry.model, unit=geometry.unit, units=8, partitions=geometry.partitions
    )
    with pytest.raises(InventoryError, match="the geometry of 'h100-80gb-sxm' has not the engines"):
        build_node_model(spec.__class__(driver=spec.driver, node=spec.node, geometries=(broken,), cards=spec.cards))


def test_an_inventory_with_a_card_that_it_does_not_describe_is_refused() -> None:
    spec = inventory("n1", gpu("n1", 0)).spec
    with pytest.raises(InventoryError, match=r"h100-80gb-sxm.*which the inventory does not describe"):
        build_node_model(spec.__class__(driver=spec.driver, node=spec.node, cards=spec.cards))


def test_one_taint_that_forbids_is_enough_and_others_are_no_matter() -> None:
    taints = {
        effect: DeviceTaint(key="gpu.kerf.dev/x", effect=effect) for effect in ("None", "NoSchedule", "NoExecute")
    }
    told = inventory(
        "n1",
        gpu("n1", 0),
        gpu("n1", 1),
        gpu("n1", 2),
        taints={
            "gpu-0": (taints["None"],),
            "gpu-1": (taints["None"], taints["NoSchedule"]),
            "gpu-2": (taints["NoExecute"], taints["None"]),
        },
    )
    assert build_node_model(told.spec).tainted == {"gpu-1", "gpu-2"}


def test_what_a_card_is_said_not_to_do_is_no_ability() -> None:
    card = replace(gpu("n1", 0), attributes={"mps": Attribute.of(False), "timeSlicing": Attribute.of(True)})
    (found,) = build_node_model(inventory("n1", card).spec).cards
    assert "mps" not in found.abilities
    assert "timeSlicing" in found.abilities
