"""What the controller's caches keep of objects of which a large cluster has many."""

import sys
from collections.abc import Mapping
from typing import Final

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.wire import Kind, projected_kind


def keep_labels(node: Node) -> Node:
    """Return a node with its identity and its labels, which are all that the controller reads of it."""
    metadata = node.metadata
    return Node(
        metadata=ObjectMeta(
            name=sys.intern(metadata.name),
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            labels=_intern_texts(metadata.labels),
        )
    )


def _intern_texts(texts: Mapping[str, str]) -> dict[str, str]:
    return {sys.intern(name): sys.intern(text) for name, text in texts.items()}


LABELED_NODES: Final[Kind[Node]] = projected_kind(NODES, Node, keep_labels)
"""Nodes with their labels: what else a node says takes several times as much."""
