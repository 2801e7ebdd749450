"""An update in which nodes stop publishing attributes: the controller first, or the nodes first, no class is disturbed.

``brand``, ``jpegEngines`` and ``ofaEngines`` of GPUs went, so that six of Kubernetes' 32 attributes and capacities stay
free. A class that reads a missing attribute ends the scheduling of every pod that names it.
"""

import dataclasses
from collections.abc import Iterator
from typing import Final

import pytest

from kerf_dra.api.kerf.decoder import decode_resource_class
from kerf_dra.api.model.devices import Attribute, Device
from kerf_dra.driver.cel.attribute_references import analyze_expression
from kerf_dra.driver.cel.compile import ExpressionRuntimeError, compile_selector
from kerf_dra.driver.controller.device_types import known_device_types
from kerf_dra.driver.controller.structured.class_compiler import compile_class
from kerf_dra.driver.families.base import MAX_PROPERTIES, AttributeDefinition, Family
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.partitions.pool_compiler import SliceLayout, compile_pool
from tests.controller.structured.test_examples import FILES, documents, of_kind
from tests.fakes.published_slices import gpus

RETIRED: Final = frozenset({"brand", "jpegEngines", "ofaEngines"})
_BRAND: Final = AttributeDefinition(description="The brand.", neutral=Attribute.of("Nvidia"))
EARLIER: Final = dataclasses.replace(
    GPU,
    retired=frozenset(),
    attributes={**GPU.attributes, "brand": _BRAND},
    capacities={**GPU.capacities, "jpegEngines": "JPEG engines.", "ofaEngines": "Optical flow accelerators."},
)
"""The family as an earlier release had it."""
CLASSES: Final = {
    f"{path.stem}/{name}": document
    for path in FILES
    for name, document in of_kind("ResourceClass", documents(path)).items()
    if document["spec"]["device"] == GPU.name
}
"""Every class of GPUs in the examples."""


def compile_expression(document: dict[str, object], family: Family) -> str:
    """The CEL that a controller with ``family`` writes."""
    decoded = decode_resource_class(document)
    families = {each.name: each for each in BUILT_IN} | {family.name: family}
    return compile_class(decoded, families=families, nodes=(), device_types=known_device_types()).expression


def publish(family: Family) -> Iterator[Device]:
    """The devices that a node with ``family`` publishes of two models, whose cards state the brand."""
    for model in ("h100-80gb-sxm", "rtx-pro-6000-blackwell-96gb"):
        cards = [dataclasses.replace(card, attributes={"brand": Attribute.of("Nvidia")}) for card in gpus(model, 2)]
        pool = compile_pool("n/gpu", "n", cards, vocabulary=family.vocabulary, layout=SliceLayout.SPLIT).pool
        yield from (device for slice_ in pool.slices for device in slice_.devices)


def test_six_attributes_of_gpus_are_free_and_what_went_is_retired() -> None:
    assert GPU.retired == RETIRED
    assert MAX_PROPERTIES - len(GPU.attributes) - len(GPU.capacities) >= 6


def test_a_card_of_an_earlier_record_may_state_what_is_retired_and_it_is_not_published() -> None:
    published = list(publish(GPU))
    assert len(published) > 50
    assert not RETIRED & {name for device in published for name in (*device.attributes, *device.capacity)}
    assert all(device.attributes["brand"].string == "Nvidia" for device in publish(EARLIER))


@pytest.mark.parametrize("controller", [EARLIER, GPU], ids=["nodes first", "controller first"])
@pytest.mark.parametrize("name", CLASSES)
def test_a_class_matches_the_same_devices_of_nodes_before_and_after_in_either_order(
    name: str, controller: Family
) -> None:
    expression = compile_expression(CLASSES[name], controller)
    selector = compile_selector(expression)
    found = [{each.name for each in publish(node) if selector.matches(GPU.driver, each)} for node in (EARLIER, GPU)]
    assert found[0] == found[1]
    assert not RETIRED & {read.id for read in analyze_expression(expression).reads}


def test_a_class_written_by_hand_that_reads_what_is_retired_fails_on_the_first_node_that_is_updated() -> None:
    """So ``kerf check cluster`` names it before the update (``retired-attributes``)."""
    selector = compile_selector(f'device.attributes["{GPU.driver}"].brand == "Nvidia"')
    assert all(selector.matches(GPU.driver, each) for each in publish(EARLIER))
    with pytest.raises(ExpressionRuntimeError, match="brand"):
        selector.matches(GPU.driver, next(publish(GPU)))
