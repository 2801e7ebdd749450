"""Composes YAML within limits.

PyYAML's composers recurse for each level, libyaml's in C, where the end of the stack ends the process. This one takes
libyaml's events one by one, which need no stack, and stops at the first level, value or number too many. Aliases count
with all that they stand for, as in Go's ``yaml``, so that no few lines become a billion values when they are walked
over or merged.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml
from yaml.composer import ComposerError

from kerf_dra.api.model.json_limits import MAX_LEVELS

MAX_VALUES: Final = 500_000
"""The most values, keys included, of all documents of a file: those of the largest that is read in ten seconds."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE: Final = "tag:yaml.org,2002:merge"
_MAX_NUMBER: Final = 100
"""The most characters of a number or a time: PyYAML's effort for ``1:1:1 ...`` grows with the square of its length."""
_NUMBERS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp"))
_MAX_DIRECTIVES: Final = 1000
"""The most directives: libyaml compares each ``%TAG`` with all before it."""
_DIRECTIVE: Final = re.compile(r"(?:\A|[\n\r\x85\u2028\u2029])%")


class NotYamlError(ValueError):
    """A text is not YAML, or more than is read of it; the message says where."""


class RepeatedKeyError(NotYamlError):
    """A key occurs twice in one object.

    ``first`` and ``second`` are its lines, from 1; a ``key`` that is None is not for the reader's eyes.
    """

    def __init__(self, key: str | None, first: int, second: int) -> None:
        self.key, self.first, self.second = key, first, second
        what = "a key" if key is None else f"key {key!r}"
        super().__init__(f"has {what} twice in one object, in line {first} and line {second}: remove one")


def load_documents(text: str | bytes, *, max_values: int = MAX_VALUES, last_key_counts: bool = False) -> Iterator[Any]:
    """Yield the value of each document in ``text``, of at most ``max_values`` values together.

    Raises NotYamlError beyond a limit, RepeatedKeyError for a key twice unless ``last_key_counts``, and the errors of
    PyYAML.
    """
    if len(_DIRECTIVE.findall(text if isinstance(text, str) else text.decode("utf-8", "replace"))) > _MAX_DIRECTIVES:
        raise NotYamlError(f"has more than {_MAX_DIRECTIVES} lines that begin with %")
    loader = _LOADER(text)
    composer = _Composer(loader, max_values, last_key_counts=last_key_counts)
    try:
        loader.get_event()  # the stream's start
        while not loader.check_event(yaml.StreamEndEvent):
            yield loader.construct_document(composer.compose_document())
    finally:
        loader.dispose()


class _Extent(NamedTuple):
    """What an anchor's value has, aliases in it included."""

    values: int
    levels: int


class _Composer:
    """Makes PyYAML's nodes of the events of ``loader``."""

    def __init__(self, loader: Any, max_values: int, *, last_key_counts: bool) -> None:  # noqa: ANN401  (PyYAML has two, without a type)
        self._loader = loader
        self._max_values = max_values
        self._last_key_counts = last_key_counts
        self._values = 0
        self._deepest = 0
        self._nodes: dict[str, yaml.Node] = {}
        self._extents: dict[str, _Extent] = {}
        self._open: set[str] = set()
        """The anchors whose values are not complete."""

    def compose_document(self) -> yaml.Node:
        self._loader.get_event()  # its start
        node = self._compose(self._loader.get_event(), 0)
        self._loader.get_event()  # its end
        self._nodes.clear()
        self._extents.clear()
        return node

    def _compose(self, event: yaml.Event, level: int) -> yaml.Node:
        """Compose the node that begins with ``event`` in ``level`` collections."""
        if isinstance(event, yaml.AliasEvent):
            return self._find_anchor(event, level)
        self._count(1, level, event)
        anchor = event.anchor  # type: ignore[attr-defined]  # every other event here begins a node
        if anchor is None:
            return self._compose_content(event, level)
        before, deepest, self._deepest = self._values, self._deepest, level
        self._open.add(anchor)
        node = self._compose_content(event, level)
        self._open.discard(anchor)
        self._nodes[anchor] = node
        self._extents[anchor] = _Extent(self._values - before + 1, self._deepest - level)
        self._deepest = max(deepest, self._deepest)
        return node

    def _compose_content(self, event: Any, level: int) -> yaml.Node:  # noqa: ANN401  (an event that begins a node)
        if isinstance(event, yaml.ScalarEvent):
            return self._compose_scalar(event)
        is_list = isinstance(event, yaml.SequenceStartEvent)
        kind = yaml.SequenceNode if is_list else yaml.MappingNode
        tag = self._resolve(kind, event, None)
        self._count(0, level + 1, event)
        value = list(self._compose_items(level + 1) if is_list else self._compose_pairs(level + 1))
        node = kind(tag, value, event.start_mark, event.end_mark, flow_style=event.flow_style)
        if not is_list and not self._last_key_counts:
            _check_keys(node)
        return node

    def _compose_items(self, level: int) -> Iterator[yaml.Node]:
        while not isinstance(event := self._loader.get_event(), yaml.SequenceEndEvent):
            yield self._compose(event, level)

    def _compose_pairs(self, level: int) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        while not isinstance(event := self._loader.get_event(), yaml.MappingEndEvent):
            key = self._compose(event, level)
            yield key, self._compose(self._loader.get_event(), level)

    def _compose_scalar(self, event: Any) -> yaml.Node:  # noqa: ANN401  (as above)
        tag = self._resolve(yaml.ScalarNode, event, event.value)
        if tag in _NUMBERS and len(event.value) > _MAX_NUMBER:
            raise NotYamlError(f"has a number of more than {_MAX_NUMBER} characters, in line {_line(event)}")
        return yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark, style=event.style)

    def _resolve(self, kind: type[yaml.Node], event: Any, value: str | None) -> str:  # noqa: ANN401  (as above)
        is_open = event.tag is None or event.tag == "!"
        tag: str = self._loader.resolve(kind, value, event.implicit) if is_open else event.tag
        return tag

    def _find_anchor(self, event: Any, level: int) -> yaml.Node:  # noqa: ANN401  (an event of an alias)
        name = event.anchor or ""
        if name in self._open:
            raise NotYamlError(f"has a value that is nested in itself by an alias, in line {_line(event)}")
        if name not in self._nodes:
            raise ComposerError(None, None, f"found undefined alias {name!r}", event.start_mark)
        extent = self._extents[name]
        self._count(extent.values, level + extent.levels, event)
        return self._nodes[name]

    def _count(self, values: int, level: int, event: yaml.Event) -> None:
        """Count ``values`` in ``level`` collections. Raises NotYamlError beyond a limit."""
        self._values += values
        self._deepest = max(self._deepest, level)
        if level > MAX_LEVELS:
            raise NotYamlError(f"is nested more than {MAX_LEVELS} levels deep, in line {_line(event)}")
        if self._values > self._max_values:
            raise NotYamlError(f"has more than {self._max_values} values, aliases expanded, in line {_line(event)}")


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None, "PyYAML marks every event"
    return event.start_mark.line + 1


def _check_keys(node: yaml.Node) -> None:
    """Raise RepeatedKeyError when an object has a key twice; merged ones may be overridden."""
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):  # others are refused when the object is made
            line = key.start_mark.line + 1
            if key.value in lines and key.tag != _MERGE:
                raise RepeatedKeyError(key.value, lines[key.value], line)
            lines[key.value] = line
