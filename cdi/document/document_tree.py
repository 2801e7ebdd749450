"""The tree of values that a document is, before anybody asks whether it is a spec."""

from dataclasses import dataclass
from typing import TypeAlias

from cdi.document.yaml_scalars import Value
from cdi.errors import Finding


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """One value; ``text`` is how it is written. What is in quotes is always text."""

    value: Value
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list."""

    items: "tuple[Node, ...]"
    line: int


@dataclass(frozen=True, slots=True)
class MappingNode:
    """An object. Keys that are no text are made text, as readers do."""

    entries: "dict[str, Node]"
    line: int


Node: TypeAlias = ScalarNode | SequenceNode | MappingNode

MAX_BYTES = 4 * 1024 * 1024
"""A larger file is refused: five thousand devices of an ordinary size fit."""

MAX_DEPTH = 32
"""Deeper than any field of a spec lies, so that what is refused here would be refused later anyway."""

MAX_VALUES = 1_000_000
"""A document that comes to more values, once its aliases are followed, is refused: no honest one does."""


class UnparsableError(Exception):
    """Nothing can be read. Stays within this package: ``cdi.read`` makes it a finding."""

    def __init__(self, code: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.finding = Finding(code=code, path="", message=message, line=line)


def is_null(node: Node) -> bool:
    """Whether ``node`` says that there is no value."""
    return isinstance(node, ScalarNode) and node.value is None


def describe_node(node: Node) -> str:
    """What ``node`` is, for messages."""
    match node:
        case SequenceNode():
            return "a list"
        case MappingNode():
            return "an object"
        case _:
            return {str: "a text", bool: "true or false"}.get(type(node.value), "a number")
