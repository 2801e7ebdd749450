"""What the controller's caches keep of objects of which a large cluster has many."""

import sys
from typing import Final

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.metadata import ObjectMeta, share_texts
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


LABELED_NODES: Final[Kind[Node]] = projected_kind(NODES, Node, keep_labels)
"""Nodes with their labels: what else a node says takes several times as much."""
