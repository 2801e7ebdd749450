"""Which nodes a class chooses."""

from collections.abc import Iterable, Mapping

from api.core.v1 import Node
from api.kerf.v1alpha1 import NodeChoice
from api.model.metadata import LabelSelectorRequirement


def chosen(choice: NodeChoice, nodes: Iterable[Node]) -> list[str]:
    """The names of the nodes that ``choice`` means, sorted.

    A choice by names alone means these names, whether the nodes are there yet or not.
    """
    if not chooses_by_label(choice):
        return sorted(set(choice.names))
    return sorted(
        node.metadata.name
        for node in nodes
        if (not choice.names or node.metadata.name in choice.names) and _labels_match(choice, node.metadata.labels)
    )


def chooses_by_label(choice: NodeChoice | None) -> bool:
    """Whether the nodes' labels decide, so that the class must be compiled again when they change."""
    return choice is not None and bool(choice.match_labels or choice.match_expressions)


def _labels_match(choice: NodeChoice, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in choice.match_labels.items()) and all(
        _meets(labels, requirement) for requirement in choice.match_expressions
    )


def _meets(labels: Mapping[str, str], requirement: LabelSelectorRequirement) -> bool:
    """As ``metav1.LabelSelector``: NotIn holds where the label is absent."""
    present = requirement.key in labels
    is_listed = labels.get(requirement.key) in requirement.values
    return {
        "Exists": present,
        "DoesNotExist": not present,
        "In": present and is_listed,
        "NotIn": not (present and is_listed),
    }[requirement.operator]
