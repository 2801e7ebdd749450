"""A fast decoder for unambiguous specs, as most files are: it takes a third of the full decoder's time.

A document is handed to the full decoder (``kerf_dra.cdi.document.yaml_parser`` and ``kerf_dra.cdi.document.decoder``),
which knows how readers interpret it and the lines of its fields, as soon as anything in it is unusual: a character
beyond ASCII, an escape, an anchor, a key in another case, a value of another type than the field's own. So this module
decides nothing, and tests verify that both decoders return the same spec.

JSON is decoded by the standard library. YAML is decoded here, without PyYAML, in the form in which most programs write
it, block style with one key or item a line::

    devices:
    - name: gpu0
      containerEdits:
        env: ...

Lines are read in order. A stack holds the open lists and objects, each with its column; a line belongs to the innermost
one that starts in its column. At most one place waits for a value: the end of a list, or a key without one. Flow style
(``[a, b]``) and scalars over several lines are left to the full decoder.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias, TypeVar

from kerf_dra.cdi.document.document_tree import MAX_BYTES, MAX_DEPTH
from kerf_dra.cdi.document.fields import FIELDS, KEYS, RANGES, ListOf, Scalar, Shape, TextMap
from kerf_dra.cdi.document.yaml_scalars import resolve
from kerf_dra.cdi.names import Kind
from kerf_dra.cdi.spec import Spec

_JSONValue: TypeAlias = "str | int | bool | list[_JSONValue] | dict[str, _JSONValue]"

_Collection: TypeAlias = "list[_JSONValue] | dict[str, _JSONValue]"
_T = TypeVar("_T", "list[_JSONValue]", "dict[str, _JSONValue]")

_SCALAR = r"""(?:"[ !#-\[\]-~]*"|'[ -&(-~]*'|[\w/.][\w/.=+-]*(?::[\w/.=+-]+)*)"""
"""A quoted scalar without escapes, or an unquoted one without characters that have a meaning in YAML."""
_LINE = re.compile(rf"^( *)(?:#[ -~]*|((?:- )*)(?:({_SCALAR}):(?: |$))?({_SCALAR})?)$", re.MULTILINE | re.ASCII)
"""The indentation, dashes, key and value of a line; one without the last three is blank or a comment."""

_DOUBTFUL = ("\\", "\t", "\x7f", " :", "\n:", "\r:")
"""The strings with which JSON is not YAML to some parsers: escapes, tabs, DEL, space between a key and its colon."""
_KEY_MAX = 1000
"""The most characters of a key, which annotations may reach: YAML finds no colon after more than 1024."""


def decode_fast(data: bytes) -> Spec | None:
    """Return the spec in ``data``, not validated; None: only the full decoder can decode it."""
    if len(data) > MAX_BYTES or not data.isascii():
        return None
    text = data.decode()
    try:
        spec: Spec = _SPEC(_json_value(text) if text.startswith("{") else _parse_block_yaml(text))
    except (ValueError, LookupError, RecursionError):
        return None
    return spec


def _json_value(text: str) -> object:
    return _give_up(text) if any(mark in text for mark in _DOUBTFUL) else _JSON.decode(text)


def _give_up(_: object) -> NoReturn:
    raise ValueError


def _integer(text: str) -> int:
    """Parse an integer in canonical form, which -0 is not."""
    number = int(text)
    return number if str(number) == text else _give_up(text)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    return entries if len(entries) == len(pairs) else _give_up(pairs)


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer, parse_float=_give_up, parse_constant=_give_up)

_Decode: TypeAlias = Callable[[Any], Any]
"""A conversion of a JSON value to a field: ValueError for a value of another type, LookupError for an unknown key."""


def _decoder(shape: Shape) -> _Decode:
    if isinstance(shape, ListOf):
        return _list_decoder(shape)
    if isinstance(shape, TextMap):
        return _text_map
    if shape in RANGES:
        return _integer_decoder(*RANGES[shape])
    return _exactly(bool if shape is Scalar.FLAG else str) if isinstance(shape, Scalar) else _struct_decoder(shape)


def _exactly(type_: type) -> _Decode:
    return lambda value: value if type(value) is type_ else _give_up(value)


def _integer_decoder(lowest: int, highest: int) -> _Decode:
    return lambda value: value if type(value) is int and lowest <= value <= highest else _give_up(value)


def _list_decoder(shape: ListOf) -> _Decode:
    item = _decoder(shape.item)
    return lambda value: tuple(map(item, value)) if type(value) is list else _give_up(value)


def _text_map(value: object) -> object:
    if type(value) is not dict:
        raise ValueError
    return value if all(type(text) is str and len(key) <= _KEY_MAX for key, text in value.items()) else _give_up(value)


def _struct_decoder(shape: type) -> _Decode:
    rows = {row.key: (row.attribute, _decoder(row.shape)) for row in FIELDS[shape]}
    required = {row.key for row in FIELDS[shape] if row.required}

    def decode(value: dict[str, object]) -> object:
        if type(value) is not dict or not required <= value.keys():
            raise ValueError
        fields = {}
        for key, item in value.items():
            attribute, decode_item = rows[key]
            fields[attribute] = decode_item(item)
        if shape is Spec:
            fields["kind"] = Kind.split(fields["kind"])
        return shape(**fields)

    return decode


_SPEC = _decoder(Spec)


def _parse_block_yaml(text: str) -> _JSONValue:
    """Parse block YAML to JSON values. Raises ValueError when ``text`` is anything else."""
    text = text.removeprefix("---\n")
    lines = _LINE.findall(text)
    if len(lines) != text.count("\n") + 1:
        raise ValueError
    parser = _BlockParser()
    for margin, dashes, key, value in lines:
        column = len(margin) + len(dashes)
        if dashes:
            parser.add_items(len(margin), len(dashes) // 2, "" if key else value)
        if key:
            parser.add_entry(column, key, value)
        elif value and not dashes:
            raise ValueError  # a scalar over two lines
    return parser.finish()


class _BlockParser:
    """The lists and objects built so far, and the place in them of the next line."""

    def __init__(self) -> None:
        self._root: list[_JSONValue] = []
        self._open: list[tuple[int, _Collection]] = [(-1, self._root)]
        """The collections that a line can continue, each with its column, the innermost last."""
        self._waiting: tuple[_Collection, str] | None = (self._root, "")
        """The place that waits for its value: a list and "", or an object and a key; None: no place does."""

    def add_items(self, column: int, dashes: int, value: str) -> None:
        """Add the list items of a line's dashes; ``value`` is that of the last one, empty: other lines follow."""
        for _ in range(dashes):
            items = self._collection(column, list)
            self._waiting = (items, "")
            column += 2
        if value:
            self._fill(_scalar(value))

    def add_entry(self, column: int, key: str, value: str) -> None:
        """Add the entry of a line, or of its rest, with a key; ``value`` empty: the following lines are its value."""
        entries = self._collection(column, dict)
        name = key if key in KEYS else _scalar(key)
        if type(name) is not str or name in entries:
            raise ValueError
        if value:
            entries[name] = _scalar(value)
        else:
            self._waiting = (entries, name)

    def finish(self) -> _JSONValue:
        """Return the document. Raises ValueError when a place still waits for its value."""
        if self._waiting is not None:
            raise ValueError
        return self._root[0]

    def _collection(self, column: int, kind: type[_T]) -> _T:
        """Return the list or object at ``column``: a new one where a place waits for a value, else the open one."""
        if self._waiting is None:
            while True:
                found_column, found = self._open[-1]
                if found_column < column:
                    raise ValueError
                if found_column == column and type(found) is kind:
                    return found
                self._open.pop()
        outer_column, _ = self._open[-1]
        # A list may start in the column of its key.
        is_inside = column > outer_column or (column == outer_column and self._waiting[1] and kind is list)
        if not is_inside or len(self._open) > MAX_DEPTH:
            raise ValueError
        new = kind()
        self._fill(new)
        self._open.append((column, new))
        return new

    def _fill(self, value: _JSONValue) -> None:
        if self._waiting is None:
            raise ValueError
        collection, key = self._waiting
        if isinstance(collection, dict):
            collection[key] = value
        else:
            collection.append(value)
        self._waiting = None


def _scalar(text: str) -> str | int | bool:
    if text[0] in "\"'":
        return text[1:-1]
    value = resolve(text)
    if isinstance(value, str) or (isinstance(value, int) and text in (str(value), str(value).lower())):
        return value
    raise ValueError
