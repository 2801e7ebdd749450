"""Parses the bytes of a ``.json`` or ``.yaml`` file to a syntax tree as readers in Go do: always as YAML.

Only the first document counts; the rest is not parsed. Aliases and merge keys are resolved. No tag constructs an
object. PyYAML provides the events, from libyaml where PyYAML was built with it. Go's parser is an old translation of
libyaml: where the two differ, the text is rewritten and parsed again. Without libyaml, documents indented with tabs are
rejected.

This module alone imports PyYAML, and only ``kerf_dra.cdi.document.decoder.read_fully`` imports this module, so that a
driver that writes specs, or reads plain ones, does not load it.
"""

import codecs
import re
from collections.abc import Iterator

import yaml

from kerf_dra.cdi.document.document_tree import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_VALUES,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    UnparsableError,
)
from kerf_dra.cdi.document.rules import severity
from kerf_dra.cdi.document.yaml_scalars import STANDARD_TAG, as_key, is_key, resolve, resolve_tagged
from kerf_dra.cdi.errors import Finding

_MAX_OPEN = 250
"""The most open collections: libyaml's time for a token grows with them. Go's limit is 10,000."""

_MAX_REWRITES = 50
"""The most rewrites of one text (see _RewrittenTextError); each parses it again."""

_ESCAPED_SLASH = re.compile(r"(?<!\\)(?:\\\\)*\\/")
"""An escape of JSON that YAML 1.1 does not have: libyaml accepts it, Go's older translation does not."""

_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(data: bytes) -> tuple[Node | None, list[Finding]]:
    """Parse the first document in ``data`` (None: there is no document) and find its ambiguous spellings.

    Raises UnparsableError when readers cannot parse it, or when it exceeds a limit of this package.
    """
    text = _decoded(data)
    for _ in range(_MAX_REWRITES):
        composer = _Composer(text)
        try:
            return composer.document(), composer.findings
        except _RewrittenTextError as rewritten:
            text = rewritten.text
        except yaml.YAMLError as error:
            text = _with_quotes(text, error)
    raise UnparsableError("syntax", "too many bare texts that end with a colon, or tags with a comma")


class _RewrittenTextError(Exception):
    """The document has to be parsed again: ``text`` means to libyaml what the original means to Go's parser."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def _with_quotes(text: str, error: yaml.YAMLError) -> str:
    """Quote the scalar that libyaml rejects and Go accepts: in ``[a:, b]``, Go reads ``a:`` as a string.

    Raises UnparsableError when ``error`` is about anything else.
    """
    start, end = getattr(error, "context_mark", None), getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "no YAML"
    if problem != "found unexpected ':'" or start is None or end is None:
        raise UnparsableError("syntax", str(problem), None if end is None else end.line + 1) from error
    scalar = text[start.index : end.index + 1].replace("'", "''")
    return f"{text[: start.index]}'{scalar}'{text[end.index + 1 :]}"


def _decoded(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise UnparsableError("too-large", f"more than {MAX_BYTES} bytes")
    mark, encoding = next(((m, e) for m, e in _BYTE_ORDER_MARKS if data.startswith(m)), (b"", "utf-8"))
    try:
        return data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise UnparsableError("syntax", f"byte {error.start + len(mark)} is not {encoding.upper()}") from error


class _Composer:
    """Builds the tree from events as go-yaml v2's decoder does."""

    def __init__(self, text: str) -> None:
        self.findings: list[Finding] = []
        self._text = text
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_LOADER))
        self._anchors: dict[str, Node | None] = {}
        self._merged = 0
        self._flows = 0

    def document(self) -> Node | None:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if event.version not in (None, (1, 1)):
                    raise UnparsableError("syntax", "readers know no YAML but 1.1", _line(event))
                node = self._node(next(self._events), 0)
                self._check_rest()
                return None if isinstance(node, ScalarNode) and node.value is None else node
        return None

    def _check_rest(self) -> None:
        """Report that something follows the document, whatever it is."""
        next(self._events)  # The document's end: readers scan as far as this, too, and reject what they cannot scan.
        try:
            if isinstance(next(self._events), yaml.StreamEndEvent):
                return
        except yaml.YAMLError:
            pass
        self._find("ignored-rest", "only the first document of a file is read, and more follows", None)

    def _node(self, event: yaml.Event, depth: int) -> Node:
        line = _line(event)
        if depth > MAX_DEPTH:
            self._find("wrong-type", f"no spec is nested more than {MAX_DEPTH} deep", line)
            return self._skipped(event, line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor or "", line)
        anchor = event.anchor if isinstance(event, yaml.NodeEvent) else None
        if anchor is not None:
            self._anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node: Node = self._scalar(event, line)
        else:
            assert isinstance(event, yaml.CollectionStartEvent)
            self._flows += bool(event.flow_style)
            is_list = isinstance(event, yaml.SequenceStartEvent)
            node = SequenceNode(tuple(self._items(depth)), line) if is_list else self._mapping(line, depth)
            self._flows -= bool(event.flow_style)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _skipped(self, event: yaml.Event, line: int) -> Node:
        """Skip the node that starts with ``event``, without recursion, and return an empty scalar for it."""
        depth = int(isinstance(event, yaml.CollectionStartEvent))
        while depth:
            if depth > _MAX_OPEN:
                raise UnparsableError("syntax", "there is no end to its brackets", line)
            event = next(self._events)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        return ScalarNode("", "", line)

    def _alias(self, anchor: str, line: int) -> Node:
        if anchor not in self._anchors:
            raise UnparsableError("syntax", f"alias *{anchor} has no anchor before it", line)
        node = self._anchors[anchor]
        if node is None:
            raise UnparsableError("syntax", f"the value of anchor &{anchor} contains itself", line)
        return node

    def _items(self, depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._node(event, depth + 1)

    def _mapping(self, line: int, depth: int) -> MappingNode:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if _is_merge(event):
                self._merge(entries, value, key.line)
            elif isinstance(key, ScalarNode) and is_key(key.value):
                self._add(entries, self._key(key), value, key.line)
            else:
                self._find("wrong-type", "a key must be a text", key.line)
        return MappingNode(entries, line)

    def _key(self, node: ScalarNode) -> str:
        if isinstance(node.value, str):
            return node.value
        key = as_key(node.value)
        self._find("bare-scalar", f"key {node.text} without quotes is read as {key!r} by some releases", node.line)
        return key

    def _merge(self, entries: dict[str, Node], value: Node, line: int) -> None:
        self._find("merge-key", "merge keys are read differently from release to release", line)
        # The last source comes first, so that an earlier one overrides it; to strict readers any overlap is an error.
        for source in reversed(value.items) if isinstance(value, SequenceNode) else (value,):
            if not isinstance(source, MappingNode):
                raise UnparsableError("syntax", "a merge key takes an object or a list of objects", line)
            self._merged += len(source.entries)
            if self._merged > MAX_VALUES:
                raise UnparsableError("too-large", f"merge keys copy more than {MAX_VALUES} values", line)
            for key, item in source.entries.items():
                self._add(entries, key, item, line)

    def _add(self, entries: dict[str, Node], key: str, value: Node, line: int) -> None:
        if key in entries:
            self._find("duplicate-key", f"key {key!r} occurs twice", line)
        entries[key] = value

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> ScalarNode:
        is_plain, _ = event.implicit
        self._reject_newer_yaml(event, line)
        if event.tag is None:
            return ScalarNode(resolve(event.value) if is_plain else event.value, event.value, line)
        tag = event.tag.removeprefix(STANDARD_TAG)
        self._find("explicit-tag", f"tag {tag!r} is read differently from release to release", line)
        try:
            return ScalarNode(resolve_tagged(tag, event.value), event.value, line)
        except ValueError as error:
            raise UnparsableError("syntax", f"{event.value!r} is not what its tag says: {tag}", line) from error

    def _reject_newer_yaml(self, event: yaml.ScalarEvent, line: int) -> None:
        """Reject or rewrite what libyaml accepts or reads differently since its translation to Go."""
        assert event.start_mark is not None
        assert event.end_mark is not None
        start, end = event.start_mark.index, event.end_mark.index
        if event.style == '"' and "/" in event.value and _ESCAPED_SLASH.search(self._text, start, end):
            raise UnparsableError("syntax", r"\/ is no escape in YAML; write the slash alone", line)
        if self._flows and not event.style and "?" in event.value:
            raise UnparsableError("syntax", f"{event.value!r} has a question mark; put it in quotes", line)
        if event.tag is not None and event.value == event.style == "" and self._text[end : end + 1] == ",":
            # To Go the comma is a part of the tag.
            raise _RewrittenTextError(f"{self._text[:end]}%2C{self._text[end + 1 :]}")

    def _find(self, code: str, message: str, line: int | None) -> None:
        self.findings.append(Finding(code=code, path="", message=message, severity=severity(code, "1.1"), line=line))


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None, "PyYAML marks every event it parses"
    return event.start_mark.line + 1


def _is_merge(event: yaml.Event) -> bool:
    if not isinstance(event, yaml.ScalarEvent) or event.value != "<<":
        return False
    is_plain, _ = event.implicit
    return is_plain or event.tag == f"{STANDARD_TAG}merge"
