"""The extended resources that this node offers by the kubelet's device plugin interface: one for each class. Pure.

A node offers the resource of a class that is valid, that chooses the node, and of which the controller has said for
this very spec that the name is free (condition ``DevicePlugin``): a name that the scheduler counts, too, as the
extended resource of a DeviceClass, would have two meanings.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_resource_class_object
from kerf_dra.api.kerf.v1alpha1 import (
    DEVICE_PLUGIN,
    NodeChoice,
    PreferredDevices,
    ResourceClassObject,
    config_to_parameters,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import LabelSelectorRequirement
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.class_validation import check_class
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import DeviceSelection, select_devices
from kerf_dra.driver.scheduling.label_selector import match_labels


class PluginResource(NamedTuple):
    """An extended resource that the node offers."""

    name: str
    """``vendor-domain/name``."""
    class_name: str
    per_node: int
    """How many placements of the class the node keeps for it."""
    preferred: PreferredDevices
    selection: DeviceSelection
    config: JsonObject | None
    """The class's configuration of its devices; None: it has none."""


def find_plugin_resources(
    classes: Iterable[ResourceClassObject], family: Family, node: Node
) -> tuple[PluginResource, ...]:
    """Return what ``node`` offers of the devices of ``family``, by name. An invalid class offers nothing."""
    found: dict[str, PluginResource] = {}
    for held in classes:
        offered = _find_resource(held, family, node)
        if offered is not None:
            known = found.setdefault(offered.name, offered)
            found[offered.name] = min(known, offered, key=lambda each: each.class_name)
    return tuple(found[name] for name in sorted(found))


def merge_plugin_resources(
    found: Iterable[PluginResource], known: Iterable[PluginResource]
) -> tuple[PluginResource, ...]:
    """Return ``found``, and those of ``known`` whose names are none of theirs."""
    by_name: Mapping[str, PluginResource] = {each.name: each for each in (*known, *found)}
    return tuple(by_name[name] for name in sorted(by_name))


def _find_resource(held: ResourceClassObject, family: Family, node: Node) -> PluginResource | None:
    if not _is_permitted(held):
        return None
    try:
        spec = decode_resource_class_object(held).spec
        if spec.device != family.name or spec.device_plugin is None or not _chooses(spec.nodes, node):
            return None
        checked = check_class(f'ResourceClass "{held.metadata.name}"', spec, {family.name: family})
    except InvalidDocumentError:
        return None
    return PluginResource(
        name=spec.device_plugin.resource,
        class_name=held.metadata.name,
        per_node=spec.device_plugin.per_node,
        preferred=spec.device_plugin.preferred,
        selection=select_devices(spec, checked),
        config=None if checked.config is None else config_to_parameters(checked.config),
    )


def _is_permitted(held: ResourceClassObject) -> bool:
    """Whether the controller has said of this spec that nodes may offer the resource."""
    return any(
        condition.type == DEVICE_PLUGIN
        and condition.status == "True"
        and condition.observed_generation == held.metadata.generation
        for condition in held.status.conditions
    )


def _chooses(choice: NodeChoice | None, node: Node) -> bool:
    if choice is None:
        return True
    exactly = (LabelSelectorRequirement(key=key, operator="In", values=(v,)) for key, v in choice.match_labels.items())
    is_named = not choice.names or node.metadata.name in choice.names
    return is_named and match_labels((*exactly, *choice.match_expressions), node.metadata.labels)
