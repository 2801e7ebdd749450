"""Specs to bytes that every reader understands alike.

Readers in Go parse ``.json`` files with a YAML parser too, so JSON is written to be the same text to both: see
``_UNSAFE``. Keys stand in a fixed order and equal specs give equal bytes. YAML has every text in double quotes, because
readers turn a bare ``1e3`` or ``on`` in a text field into ``1000`` and ``true``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from cdi.document.fields import FIELDS, KEYS, Field
from cdi.document.validation import validate
from cdi.errors import InvalidSpecError
from cdi.spec import Spec
from cdi.versions import minimum_version

JSON: TypeAlias = str | int | bool | list["JSON"] | dict[str, "JSON"]
"""What a document is made of. There is no null, which crashes readers inside a list, and there are no fractions."""

# Not printable in YAML 1.1 (section 5.1), or a line break to it: raw they are refused, and U+0085 silently becomes a
# space. Beyond U+FFFF it is the other way round: raw text is read, the surrogate escapes json would write are refused.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def encode_json(spec: Spec) -> bytes:
    """The content of a ``.json`` file, indented for people.

    The version is the one ``spec`` declares, else the lowest possible. Errors: InvalidSpecError when ``validate`` finds
    an error.
    """
    return (to_json(to_document(spec)) + "\n").encode()


def encode_yaml(spec: Spec) -> bytes:
    """The content of a ``.yaml`` file: the same document. Errors: as for ``encode_json``."""
    return (to_yaml(to_document(spec)) + "\n").encode()


def to_document(spec: Spec) -> dict[str, JSON]:
    """The document as plain JSON values, empty fields left out. Errors: as for ``encode_json``."""
    findings = validate(spec)
    if any(finding.severity == "error" for finding in findings):
        raise InvalidSpecError(f"spec of kind {spec.kind}", findings)
    # Readers before library 0.5.4 do not know the leading v that later ones take.
    version = (spec.version or minimum_version(spec).version).removeprefix("v")
    return to_document_unchecked(replace(spec, version=version))


def to_document_unchecked(spec: Spec) -> dict[str, JSON]:
    """The same for a spec that was read: as it is, whatever is wrong with it. To be shown, not to be written."""
    return _object(spec)


def to_json(value: object) -> str:
    """Any JSON value, indented, in the same careful JSON."""
    return _safe(value, indent=2)


def to_yaml(value: object) -> str:
    """Any JSON value in the same careful YAML. A number such as 1e+21 is text to some parsers; specs have none."""
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
    """JSON that is the same text to a YAML 1.1 parser."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _block(value: object, margin: str) -> Iterator[str]:
    """The lines of a map or list that has items, in block style."""
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
