"""The syntax tree of a document, before it is decoded to a spec, and the limits on its size."""

from dataclasses import dataclass
from typing import TypeAlias

from kerf_dra.cdi.document.yaml_scalars import Value
from kerf_dra.cdi.errors import Finding


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A scalar; ``text`` is its spelling. A quoted scalar is always a string."""

    value: Value
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list of nodes."""

    items: "tuple[Node, ...]"
    line: int


@dataclass(frozen=True, slots=True)
class MappingNode:
    """An object. Keys of other types have been converted to strings, as readers do."""

    entries: "dict[str, Node]"
    line: int


Node: TypeAlias = ScalarNode | SequenceNode | MappingNode

MAX_BYTES = 4 * 1024 * 1024
"""The largest accepted file, in bytes: five thousand devices of an ordinary size fit."""

MAX_DEPTH = 32
"""The deepest accepted nesting: deeper than any field of a spec, so no valid document is rejected."""

MAX_VALUES = 1_000_000
"""The most values, with aliases expanded, of an accepted document: a bound against exponential expansion."""


class UnparsableError(Exception):
    """A document cannot be parsed; the error stays within this package, where ``cdi.read`` converts it to a finding."""

    def __init__(self, code: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.finding = Finding(code=code, path="", message=message, line=line)


def is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


def describe_node(node: Node) -> str:
    """Return the type of ``node`` in words, for messages."""
    match node:
        case SequenceNode():
            return "a list"
        case MappingNode():
            return "an object"
        case _:
            return {str: "a text", bool: "true or false"}.get(type(node.value), "a number")
