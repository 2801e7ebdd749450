"""The short way to the spec in a document that says nothing doubtful, as most do, in a third of the time.

What is not plain at a glance (a text beyond ASCII, an escape, an anchor, a key of another case, a type that is not the
field's own) is left to the long way, ``cdi.document.yaml_parser`` and ``cdi.document.decoder``, which knows what
readers make of it and on which line it is. So nothing is decided here, and tests hold that both ways come to the same.
"""

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from cdi.document.block_yaml import plain_value
from cdi.document.document_tree import MAX_BYTES
from cdi.document.fields import RANGES, WIRE, ListOf, Scalar, Shape, TextMap
from cdi.names import Kind
from cdi.spec import Spec

# Where JSON is no YAML, or not to every parser: escapes, tabs, DEL, a key apart from its colon.
_DOUBTFUL = ("\\", "\t", "\x7f", " :", "\n:", "\r:")
# Of a longer key YAML does not find the colon (1024 characters). Fields have none, annotations might.
_KEY_MAX = 1000


def skim(data: bytes) -> Spec | None:
    """The spec in ``data``; None: take the long way. Whether the spec is valid is not looked at."""
    if len(data) > MAX_BYTES or not data.isascii():
        return None
    text = data.decode()
    try:
        spec: Spec = _SPEC(_json_value(text) if text.startswith("{") else plain_value(text))
    except (ValueError, LookupError, RecursionError):
        return None
    return spec


def _json_value(text: str) -> object:
    return _doubt(text) if any(mark in text for mark in _DOUBTFUL) else _JSON.decode(text)


def _doubt(_: object) -> NoReturn:
    raise ValueError


def _integer(text: str) -> int:
    """An integer as it is written everywhere: not -0."""
    number = int(text)
    return number if str(number) == text else _doubt(text)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    entries = dict(pairs)
    return entries if len(entries) == len(pairs) else _doubt(pairs)


_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer, parse_float=_doubt, parse_constant=_doubt)

_Decode: TypeAlias = Callable[[Any], Any]
"""Makes a field of a plain value. Errors: ValueError, or LookupError for a key."""


def _decoder(shape: Shape) -> _Decode:
    if isinstance(shape, ListOf):
        return _list_decoder(shape)
    if isinstance(shape, TextMap):
        return _text_map
    if shape in RANGES:
        return _integer_decoder(*RANGES[shape])
    return _exactly(bool if shape is Scalar.FLAG else str) if isinstance(shape, Scalar) else _struct_decoder(shape)


def _exactly(type_: type) -> _Decode:
    return lambda value: value if type(value) is type_ else _doubt(value)


def _integer_decoder(lowest: int, highest: int) -> _Decode:
    return lambda value: value if type(value) is int and lowest <= value <= highest else _doubt(value)


def _list_decoder(shape: ListOf) -> _Decode:
    item = _decoder(shape.item)
    return lambda value: tuple(map(item, value)) if type(value) is list else _doubt(value)


def _text_map(value: object) -> object:
    if type(value) is not dict:
        raise ValueError
    return value if all(type(text) is str and len(key) <= _KEY_MAX for key, text in value.items()) else _doubt(value)


def _struct_decoder(shape: type) -> _Decode:
    rows = {row.key: (row.attribute, _decoder(row.shape)) for row in WIRE[shape]}
    required = {row.key for row in WIRE[shape] if row.required}

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
