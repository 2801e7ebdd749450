"""Decodes documents to specs as readers in Go do, with a warning wherever those readers are lenient.

Up to release 1.1.0 and on the main branch of August 2026 readers use sigs.k8s.io/yaml before encoding/json: keys match
in any case, numbers are accepted for strings, and null means absent. Release 1.1.1 decodes with go-yaml v3 and differs
from them only where this module warns; a document without warnings has the same meaning for all readers.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kerf_dra.cdi.document.document_tree import (
    MAX_VALUES,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    UnparsableError,
    describe_node,
    is_null,
)
from kerf_dra.cdi.document.fast_decoder import decode_fast
from kerf_dra.cdi.document.fields import FIELDS, RANGES, Field, ListOf, Scalar, Shape, TextMap
from kerf_dra.cdi.document.rules import severity
from kerf_dra.cdi.document.validation import has_no_findings, validate
from kerf_dra.cdi.document.yaml_scalars import as_integer, as_text
from kerf_dra.cdi.errors import Finding, InvalidSpecError
from kerf_dra.cdi.names import Kind, Semantics
from kerf_dra.cdi.spec import DeviceNode, Hook, Mount, NetDevice, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document that was read: its spec, and all errors and warnings."""

    spec: Spec | None
    """The spec as far as it could be decoded, to be used only if ``is_valid``; None: the document is no object."""
    findings: tuple[Finding, ...]

    @property
    def is_valid(self) -> bool:
        return self.spec is not None and all(finding.severity == "warning" for finding in self.findings)


def load(data: bytes, *, semantics: Semantics = "1.1", subject: str = "document") -> Spec:
    """Decode the content of a ``.json`` or ``.yaml`` file, which is called ``subject`` in errors.

    Raises InvalidSpecError, with every finding, when the library ``semantics`` refuses it.
    """
    document = read(data, semantics=semantics)
    if document.spec is None or not document.is_valid:
        raise InvalidSpecError(subject, document.findings)
    return document.spec


def read(data: bytes, *, semantics: Semantics | None = "1.1") -> Document:
    """Decode a document with all findings; never raises. ``semantics`` None: check it as a spec to be written."""
    spec = decode_fast(data)
    if spec is not None and has_no_findings(spec):
        return Document(spec=spec, findings=())
    return read_fully(data, semantics)


def read_fully(data: bytes, semantics: Semantics | None) -> Document:
    """Decode a document with the full decoder, which finds all errors and warnings."""
    # Imported here because it imports PyYAML, which most documents do not need.
    from kerf_dra.cdi.document.yaml_parser import parse

    try:
        node, findings = parse(data)
        if node is None:
            empty = Finding(code="empty-document", path="", message="the document is empty")
            return Document(spec=None, findings=(*findings, empty))
        decoder = _Decoder(findings)
        spec = decoder.spec(node)
    except UnparsableError as error:
        return Document(spec=None, findings=(error.finding,))
    if spec is not None:
        findings += [replace(finding, line=decoder.line(finding.path)) for finding in validate(spec, semantics)]
    return Document(spec=spec, findings=tuple(sorted(findings, key=lambda finding: finding.line or 0)))


class _Decoder:
    """Decodes a tree by the table of ``kerf_dra.cdi.document.fields``; a value of the wrong type is reported and left
    empty.
    """

    def __init__(self, findings: list[Finding]) -> None:
        self._findings = findings
        self._lines: dict[str, int] = {}
        self._values = 0

    def spec(self, node: Node) -> Spec | None:
        if not isinstance(node, MappingNode):
            self._find("wrong-type", "", f"a spec is an object, not {describe_node(node)}", node)
            return None
        fields = self._fields(Spec, node, "", None)
        return Spec(**{**fields, "kind": Kind.split(fields["kind"])})

    def line(self, path: str) -> int | None:
        """Return the line of ``path``, or of the innermost field around it that the document has."""
        while path not in self._lines and path:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._lines.get(path)

    def _find(self, code: str, path: str, message: str, node: Node) -> None:
        finding = Finding(code=code, path=path, message=message, severity=severity(code, "1.1"), line=node.line)
        self._findings.append(finding)

    def _value(self, shape: Shape, node: Node, path: str, old: object) -> object:
        """Return the value, merged into ``old`` if the field was there before; None for null and for the wrong type."""
        self._count(node)
        self._lines[path] = node.line
        if is_null(node):
            return None
        if isinstance(shape, Scalar):
            return self._scalar(shape, node, path)
        if isinstance(shape, ListOf):
            return self._list(shape, node, path, old)
        if isinstance(shape, TextMap):
            return self._text_map(node, path, old)
        if isinstance(node, MappingNode):
            return shape(**self._fields(shape, node, path, old))
        self._find("wrong-type", path, f"an object is needed, not {describe_node(node)}", node)
        return None

    def _count(self, node: Node) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise UnparsableError("too-large", f"its aliases come to more than {MAX_VALUES} values", node.line)

    def _scalar(self, shape: Scalar, node: Node, path: str) -> str | int | bool | None:
        if isinstance(node, ScalarNode):
            if shape is Scalar.TEXT:
                return self._text(node, path)
            if shape is Scalar.FLAG and isinstance(node.value, bool):
                return node.value
            if shape in RANGES:
                return self._integer(shape, node, path)
        self._find("wrong-type", path, f"{shape.value} is needed, not {describe_node(node)}", node)
        return None

    def _text(self, node: ScalarNode, path: str) -> str:
        text = as_text(node.value)
        if not isinstance(node.value, str):
            self._find("bare-scalar", path, f"{node.text} without quotes is read as {text!r} by some releases", node)
        return text

    def _integer(self, shape: Scalar, node: ScalarNode, path: str) -> int | None:
        number = as_integer(node.value)
        lowest, highest = RANGES[shape]
        # Readers convert -0.0 to -0, which is no unsigned number.
        is_negative = str(node.value).startswith("-")
        if number is None or not lowest <= number <= highest or (is_negative and lowest == 0):
            given = f"the text {node.text!r}" if isinstance(node.value, str) else node.text
            self._find("wrong-type", path, f"{shape.value} is needed, not {given}", node)
            return None
        if str(number) != node.text:
            self._find("converted-number", path, f"{node.text} is read as {number}", node)
        return number

    def _list(self, shape: ListOf, node: Node, path: str, old: object) -> tuple[object, ...] | None:
        if not isinstance(node, SequenceNode):
            self._find("wrong-type", path, f"a list is needed, not {describe_node(node)}", node)
            return None
        before = old if isinstance(old, tuple) else ()
        pairs = itertools.zip_longest(node.items, before[: len(node.items)])
        return tuple(self._item(shape.item, item, f"{path}[{i}]", was) for i, (item, was) in enumerate(pairs))

    def _item(self, shape: Scalar | type, node: Node, path: str, old: object) -> object:
        value = self._value(shape, node, path, old)
        if value is not None:
            return value
        if is_null(node):
            if shape in _POINTERS:
                self._find("null-item", path, "a null among objects crashes every reader", node)
            else:
                self._find("null-text", path, "null is read as an empty value", node)
        return _zero(shape) if old is None else old

    def _text_map(self, node: Node, path: str, old: object) -> Mapping[str, str] | None:
        if not isinstance(node, MappingNode):
            self._find("wrong-type", path, f"an object is needed, not {describe_node(node)}", node)
            return None
        texts = {key: str(self._item(Scalar.TEXT, item, f"{path}[{key}]", None)) for key, item in node.entries.items()}
        return {**old, **texts} if isinstance(old, Mapping) else texts

    def _fields(self, shape: type, node: MappingNode, path: str, old: object) -> dict[str, Any]:
        """Return the given attributes of ``shape`` merged into those of ``old``, and empty values of required ones."""
        fields = {} if old is None else {row.attribute: getattr(old, row.attribute) for row in FIELDS[shape]}
        for row, item in self._matched(shape, node, path):
            value = self._value(row.shape, item, f"{path}.{row.key}" if path else row.key, fields.get(row.attribute))
            if value is not None:
                fields[row.attribute] = value
            elif row.optional or isinstance(row.shape, ListOf | TextMap):
                fields.pop(row.attribute, None)
        return {row.attribute: _zero(row.shape) for row in FIELDS[shape] if row.required} | fields

    def _matched(self, shape: type, node: MappingNode, path: str) -> Iterator[tuple[Field, Node]]:
        """Yield each given field with its node in the order of readers up to release 1.1.0: sorted by key.

        Those readers merge the values of two spellings of one field, such as ``kind`` and ``Kind``.
        """
        spelled: dict[Field, str] = {}
        for key in sorted(node.entries):
            item = node.entries[key]
            row = next((row for row in FIELDS[shape] if _folded(row.key) == _folded(key)), None)
            where = f"{path}.{key}" if path else key
            if row is None:
                known = ", ".join(row.key for row in FIELDS[shape])
                self._find("unknown-field", where, f"no such field{_WITHDRAWN.get(key, '')}; known are {known}", item)
                continue
            if key != row.key:
                self._find("key-case", where, f"later releases know only {row.key!r}", item)
            if row in spelled:
                message = f"{spelled[row]!r} is another spelling of the same field; some releases mix the two values"
                self._find("two-spellings", where, message, item)
            spelled[row] = key
            yield row, item


_POINTERS = (DeviceNode, NetDevice, Hook, Mount)
"""The items to which readers keep pointers that they dereference without a nil check."""

_WITHDRAWN = dict.fromkeys(("enableCMT", "enableMBM"), " since CDI 1.1.0; use enableMonitoring")


def _zero(shape: Shape) -> object:
    """Return the value of a field that a document leaves out."""
    match shape:
        case Scalar():
            return {Scalar.TEXT: "", Scalar.FLAG: False}.get(shape, 0)
        case ListOf():
            return ()
        case TextMap():
            return {}
        case _:
            return shape(**{row.attribute: _zero(row.shape) for row in FIELDS[shape] if row.required})


def _folded(key: str) -> str:
    """Fold the case of ``key`` as encoding/json does, including the two letters beyond ASCII that fold into ASCII."""
    return key.replace("\u017f", "s").replace("\u212a", "k").lower()
