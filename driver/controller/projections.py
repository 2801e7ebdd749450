"""What the controller's caches keep of objects of which a large cluster has many, or large ones.

Fields that the controller never reads are left out. Node names, labels and geometries, which many objects have in
common, are stored once (interning).
"""

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.kerf.discovery_objects import DISCOVERED_DEVICES, DiscoveredDeviceObject
from kerf_dra.api.kerf.node_inventory import NODE_INVENTORIES, InventoryGeometry, NodeInventory
from kerf_dra.api.model.classic import ClassicClaim, PodSchedulingContext, UnsuitableNodes
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    share_texts,
)
from kerf_dra.api.wire import Kind, projected_kind


def keep_labels(node: Node) -> Node:
    """Return a node with its identity and its labels, which are all that the controller reads of it."""
    metadata = node.metadata
    return Node(
        metadata=ObjectMeta(
            name=sys.intern(metadata.name),
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            labels=share_texts(metadata.labels),
        )
    )


def drop_annotations(claim: ClassicClaim) -> ClassicClaim:
    """Return a claim without labels and annotations, such as its manifest as it was last applied."""
    return replace(claim, metadata=replace(claim.metadata, labels={}, annotations={}))


def share_context_nodes(context: PodSchedulingContext) -> PodSchedulingContext:
    """Return a context, of up to 128 nodes for each claim of its pod, whose node names are stored once."""
    return replace(
        context,
        spec=replace(context.spec, potential_nodes=_share_names(context.spec.potential_nodes)),
        status=replace(
            context.status,
            resource_claims=tuple(
                UnsuitableNodes(name=each.name, unsuitable_nodes=_share_names(each.unsuitable_nodes))
                for each in context.status.resource_claims
            ),
        ),
    )


def share_geometries(inventory: NodeInventory) -> NodeInventory:
    """Return an inventory whose geometries, which all nodes with cards of a model have, are stored once."""
    geometries = tuple(map(_share_geometry, inventory.spec.geometries))
    return replace(inventory, spec=replace(inventory.spec, geometries=geometries))


def share_selected_nodes(slice_: ResourceSlice) -> ResourceSlice:
    """Return the slice of a discovered device, which may be for 512 nodes, whose node names are stored once."""
    selector = slice_.spec.node_selector
    if selector is None:
        return slice_
    terms = tuple(
        NodeSelectorTerm(
            match_expressions=tuple(map(_share_values, term.match_expressions)),
            match_fields=tuple(map(_share_values, term.match_fields)),
        )
        for term in selector.node_selector_terms
    )
    return replace(slice_, spec=replace(slice_.spec, node_selector=NodeSelector(node_selector_terms=terms)))


def _share_values(requirement: NodeSelectorRequirement) -> NodeSelectorRequirement:
    return replace(requirement, values=_share_names(requirement.values))


def share_device_nodes(device: DiscoveredDeviceObject) -> DiscoveredDeviceObject:
    """Return a discovered device, which up to 512 nodes see, whose node names are stored once."""
    nodes = device.spec.get("nodes")
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        return device  # as another program wrote it; its spec is decoded later
    return replace(device, spec={**device.spec, "nodes": list(_share_names(nodes))})


def _share_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(sys.intern, names))


@lru_cache(maxsize=256)  # models of cards in a cluster, several times over
def _share_geometry(geometry: InventoryGeometry) -> InventoryGeometry:
    return geometry


LABELED_NODES: Final[Kind[Node]] = projected_kind(NODES, Node, keep_labels)
COMPACT_INVENTORIES: Final[Kind[NodeInventory]] = projected_kind(NODE_INVENTORIES, NodeInventory, share_geometries)
COMPACT_DEVICES: Final[Kind[DiscoveredDeviceObject]] = projected_kind(
    DISCOVERED_DEVICES, DiscoveredDeviceObject, share_device_nodes
)
