"""Which extended resources a node offers: those of valid classes that choose it, as far as the controller allows."""

from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kubeletplugin.inventory.plugin_resources import find_plugin_resources, merge_plugin_resources
from tests.fakes.claims import FAMILY
from tests.kubeletplugin.deviceplugin.node import resource, resource_class

NAME = "kerf.dev/small"
NODE = Node(metadata=ObjectMeta(name="node-1", labels={"rack": "a"}))


def offers(*classes: ResourceClassObject) -> list[tuple[str, str, int]]:
    return [(each.name, each.class_name, each.per_node) for each in find_plugin_resources(classes, FAMILY, NODE)]


def changed(**spec: Any) -> ResourceClassObject:
    held = resource_class("1g.1gb", NAME, 2)
    return replace(held, spec={**held.spec, **spec})


def test_a_class_that_the_controller_allows_is_offered() -> None:
    assert offers(resource_class("1g.1gb", NAME, 2)) == [(NAME, "class-1g.1gb", 2)]


@pytest.mark.parametrize(
    "held",
    [
        resource_class("1g.1gb", NAME, 2, status="False"),
        resource_class("1g.1gb", NAME, 2, generation=0),
        replace(resource_class("1g.1gb", NAME, 2), status=type(resource_class("1g.1gb", NAME, 2).status)()),
        changed(device="fpga"),
        changed(profle="typing error"),
        changed(minimum={"slots": 1}),
        changed(nodes={"names": ["node-2"]}),
        changed(nodes={"matchLabels": {"rack": "b"}}),
        changed(nodes={"names": ["node-1"], "matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}),
    ],
    ids=[
        "name taken",
        "verdict on an earlier spec",
        "no verdict",
        "another family",
        "invalid",
        "not of the family",
        "other names",
        "other labels",
        "other expressions",
    ],
)
def test_no_other_class_is(held: ResourceClassObject) -> None:
    assert offers(held) == []


def test_a_class_that_names_the_node_or_its_labels_is() -> None:
    assert offers(changed(nodes={"names": ["node-1"], "matchLabels": {"rack": "a"}})) == [(NAME, "class-1g.1gb", 2)]


def test_of_two_classes_with_one_name_one_is_whatever_their_order() -> None:
    classes = [resource_class("2g.2gb", NAME, 1), resource_class("1g.1gb", NAME, 2)]
    assert offers(*classes) == offers(*reversed(classes)) == [(NAME, "class-1g.1gb", 2)]


def test_what_is_found_comes_before_what_was_known() -> None:
    small, more, large = resource("1g.1gb", 1), resource("1g.1gb", 3), resource("2g.2gb", 1)
    assert merge_plugin_resources([more], [small, large]) == (more, large)
