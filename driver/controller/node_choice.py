"""Evaluates the node choice of a class (``spec.nodes``). Pure."""

from collections.abc import Iterable

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.kerf.v1alpha1 import NodeChoice
from kerf_dra.api.model.metadata import LabelSelectorRequirement
from kerf_dra.driver.scheduling.label_selector import match_labels


def choose_nodes(choice: NodeChoice, nodes: Iterable[Node]) -> list[str]:
    """Return the sorted names of the nodes that ``choice`` selects.

    A choice by names alone selects these names, whether the nodes exist yet or not.
    """
    exactly = (LabelSelectorRequirement(key=key, operator="In", values=(v,)) for key, v in choice.match_labels.items())
    requirements = (*exactly, *choice.match_expressions)
    if not requirements:
        return sorted(set(choice.names))
    return sorted(
        node.metadata.name
        for node in nodes
        if (not choice.names or node.metadata.name in choice.names) and match_labels(requirements, node.metadata.labels)
    )
