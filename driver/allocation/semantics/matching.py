"""Matching of one device: node selectors, CEL selectors, taints and tolerations."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.claims import DeviceSelector
from kerf_dra.api.model.devices import Device, DeviceTaint, DeviceToleration
from kerf_dra.api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kerf_dra.driver.allocation.semantics.outcomes import NodeView
from kerf_dra.driver.cel.compile import (
    ExpressionCompileError,
    ExpressionRuntimeError,
    Reads,
    UnsupportedExpressionError,
    compile_selector,
)

Selectors: TypeAlias = tuple[str, ...]
"""CEL expressions, all of which must hold."""


def selector_expressions(*selectors: Iterable[DeviceSelector]) -> Selectors:
    """The CEL expressions of ``selectors``, usually those of a class and those of a request."""
    return tuple([each.cel.expression for each in chain.from_iterable(selectors) if each.cel])


class InvalidNodeSelectorError(PermanentError):
    """A published node selector breaks the rules of ``core/v1``."""

    def __init__(self, requirement: NodeSelectorRequirement) -> None:
        self.requirement = requirement
        super().__init__(
            f"node selector requirement {requirement.key} {requirement.operator} {list(requirement.values)} is invalid"
        )


def node_matches(node: NodeView, name: str | None, all_nodes: bool | None, selector: NodeSelector | None) -> bool:
    """Whether something published for the node ``name``, for all nodes or for ``selector`` can be used on ``node``.

    Raises InvalidNodeSelectorError if a requirement of ``selector`` breaks the rules of ``core/v1``.
    """
    if name:
        return name == node.name
    if all_nodes:
        return True
    matches = [_term_matches(node, term) for term in selector.node_selector_terms] if selector else []
    return any(matches)


def _term_matches(node: NodeView, term: NodeSelectorTerm) -> bool:
    """Whether all requirements of a term hold; an empty term matches nothing (``core/v1`` NodeSelectorTerm)."""
    on_labels = [_matches(requirement, node.labels) for requirement in term.match_expressions]
    on_fields = [_matches(requirement, {"metadata.name": node.name}) for requirement in term.match_fields]
    return bool(on_labels or on_fields) and all(on_labels) and all(on_fields)


def _matches(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator, requirement.values:
        case "In", (_, *_):
            return value in requirement.values
        case "NotIn", (_, *_):
            return value not in requirement.values
        case "Exists", ():
            return value is not None
        case "DoesNotExist", ():
            return value is None
        case (("Gt" | "Lt"), (bound,)) if _integer(bound) is not None:
            return _compare_integers(value, bound, requirement.operator)
        case _:
            raise InvalidNodeSelectorError(requirement)


def _compare_integers(value: str | None, bound: str, operator: str) -> bool:
    mine, limit = _integer(value), _integer(bound)
    if mine is None or limit is None:
        return False
    return mine > limit if operator == "Gt" else mine < limit


def _integer(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def is_tainted(taints: Sequence[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> bool:
    """Whether a taint with effect NoSchedule or NoExecute is not tolerated.

    Other effects inform only (KEP-5055).
    """
    return any(
        taint.effect in ("NoSchedule", "NoExecute")
        and not any(toleration.tolerates(taint) for toleration in tolerations)
        for taint in taints
    )


def evaluate_selectors(driver: str, device: Device, selectors: Selectors) -> bool | str:
    """Whether all ``selectors`` hold for a device, tried in order until one does not; a string is the error of one."""
    try:
        return all(compile_selector(selector).matches(driver, device) for selector in selectors)
    except (ExpressionCompileError, ExpressionRuntimeError, UnsupportedExpressionError) as error:
        return str(error)


def may_read(selectors: Selectors, driver: str, attribute: str) -> bool:
    """Whether the outcome of ``selectors`` may depend on an attribute of a device of ``driver``."""
    for selector in selectors:
        try:
            if compile_selector(selector).may_read(driver, attribute):
                return True
        except (ExpressionCompileError, UnsupportedExpressionError):
            return False  # it fails on every device; later selectors are not evaluated
    return False


def reads_of_selector(selector: str) -> Reads | None:
    """The attributes and capacities that a selector reads; None: it does not compile."""
    try:
        return compile_selector(selector).reads
    except (ExpressionCompileError, UnsupportedExpressionError):
        return None
