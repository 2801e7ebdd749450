"""Encodes specs to JSON or YAML with the same meaning for every reader.

Readers in Go parse ``.json`` files with a YAML parser, so JSON is written to mean the same to both kinds of parser (see
``_UNSAFE``). Keys have a fixed order, and equal specs give equal bytes. In YAML every string is in double quotes,
because readers turn an unquoted ``1e3`` or ``on`` in a string field into ``1000`` and ``true``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from kerf_dra.cdi.document.fields import FIELDS, KEYS, Field
from kerf_dra.cdi.document.validation import validate
from kerf_dra.cdi.errors import InvalidSpecError
from kerf_dra.cdi.spec import Spec
from kerf_dra.cdi.versions import minimum_version

JSON: TypeAlias = str | int | bool | list["JSON"] | dict[str, "JSON"]
"""The values of a document. There is no null, which crashes readers inside a list, and there are no fractions."""

_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that must be escaped: YAML 1.1 (section 5.1) refuses them or takes them for line breaks. Characters beyond
U+FFFF must not be escaped: YAML parsers refuse the surrogate pairs that ``json`` would write."""


def encode_json(spec: Spec) -> bytes:
    """Encode ``spec`` as the content of a ``.json`` file, indented.

    The version is the one that ``spec`` declares, else the lowest possible one. Raises InvalidSpecError when
    ``validate`` finds an error.
    """
    return (to_json(to_document(spec)) + "\n").encode()


def encode_yaml(spec: Spec) -> bytes:
    """Encode ``spec`` as the content of a ``.yaml`` file. Raises InvalidSpecError as ``encode_json`` does."""
    return (to_yaml(to_document(spec)) + "\n").encode()


def to_document(spec: Spec) -> dict[str, JSON]:
    """Convert ``spec`` to JSON values without empty fields. Raises InvalidSpecError as ``encode_json`` does."""
    findings = validate(spec)
    if any(finding.severity == "error" for finding in findings):
        raise InvalidSpecError(f"spec of kind {spec.kind}", findings)
    # Readers before library 0.5.4 do not know the leading v that later ones accept.
    version = (spec.version or minimum_version(spec).version).removeprefix("v")
    return to_document_unchecked(replace(spec, version=version))


def to_document_unchecked(spec: Spec) -> dict[str, JSON]:
    """Convert a spec that was read to JSON values, whatever its errors: for display, not to be written."""
    return _object(spec)


def to_json(value: object) -> str:
    """Encode any JSON value as indented JSON with the same meaning for YAML parsers."""
    return _safe(value, indent=2)


def to_yaml(value: object) -> str:
    """Encode any JSON value as YAML. A number such as 1e+21 is a string to some parsers; specs have none."""
    lines = _block(value, "") if isinstance(value, dict | list | tuple) and value else [_safe(value)]
    return "\n".join(("---", *lines))


def _object(value: object) -> dict[str, JSON]:
    fields = ((row, getattr(value, row.attribute)) for row in FIELDS[type(value)])
    return {row.key: _plain(field) for row, field in fields if _is_written(row, field)}


def _is_written(row: Field, field: object) -> bool:
    return field is not None if row.optional else row.required or bool(field)


def _plain(field: object) -> JSON:
    match field:
        case str() | int():
            return field
        case tuple():
            return [_plain(item) for item in field]
        case Mapping():
            return {key: field[key] for key in sorted(field)}
        case _:
            return _object(field) if type(field) in FIELDS else str(field)


def _safe(value: object, indent: int | None = None) -> str:
    """Encode as JSON that has the same meaning for a YAML 1.1 parser."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _block(value: object, margin: str) -> Iterator[str]:
    """Yield the lines of a non-empty map or list in block style."""
    if isinstance(value, dict):
        for key, item in value.items():
            name = key if key in KEYS else _safe(key)
            if isinstance(item, dict | list | tuple) and item:
                yield f"{margin}{name}:"
                yield from _block(item, margin + "  ")
            else:
                yield f"{margin}{name}: {_safe(item)}"
    else:
        assert isinstance(value, list | tuple)
        for item in value:
            is_map = isinstance(item, dict) and item
            first, *rest = _block(item, margin + "  ") if is_map else [f"{margin}  {_safe(item)}"]
            yield f"{margin}- {first.removeprefix(margin + '  ')}"
            yield from rest
