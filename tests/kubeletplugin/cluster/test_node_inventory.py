"""A NodeInventory describes every card as it is cut, also where cards of one model are cut differently."""

from dataclasses import replace

from kerf_dra.api.model.device_attributes import ATTRIBUTE_MODEL
from kerf_dra.driver.controller.classic.node_model import build_node_model
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.kubeletplugin.cluster.node_inventory import build_inventory_spec
from kerf_dra.driver.partitions.device_attributes import card_attributes
from tests.fakes.cards import GPU_MODEL, gpu


def test_cards_of_one_model_that_are_cut_differently_have_a_geometry_each() -> None:
    """Two cards that no table has are both of the model "unknown": the controller took one for the other."""
    small = replace(GPU_MODEL, id="unknown")
    large = replace(small, memory_bytes=2 * small.memory_bytes, profiles=small.profiles[:1])
    cards = [
        replace(gpu(index), geometry=gpu_geometry(model)) for index, model in enumerate((small, large, small, large))
    ]
    spec = build_inventory_spec("gpu.kerf.dev", "node-1", cards, {}, ready=True, renewed_at="")
    assert [geometry.model for geometry in spec.geometries] == ["unknown", "unknown#2"]
    node_cards = build_node_model(spec).cards
    read = [node_card.card for node_card in node_cards]
    assert [card.geometry for card in read] == [card.geometry for card in cards]
    assert {node_card.model for node_card in node_cards} == {"unknown"}
    models = {card_attributes(card, "node-1", GPU.vocabulary)[ATTRIBUTE_MODEL].value for card in read}
    assert models == {"unknown"}
