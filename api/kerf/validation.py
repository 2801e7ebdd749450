"""Validates a JSON document against a struct type and finds every problem, where msgspec stops at the first.

The struct types are the only description of a document's shape: the validator recurses over the document and the types
that ``msgspec.inspect`` reports. Structs that forbid unknown fields are strict; others (``metadata``, ``status``)
ignore unknown fields. Quantities in Kerf's documents are sizes and must be more than zero.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from kerf_dra.api.errors import InvalidQuantityError, Problem
from kerf_dra.api.kerf.scalar_types import IDENTIFIER
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.printable_text import replace_unprintable
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import dec_hook

_MAX_SHOWN: Final = 64
"""The most characters of an invalid value, and of a name that nothing knows, that a message quotes."""
_MAX_LISTED: Final = 12
"""The most known words that a message lists if none is similar: one or two lines of a terminal."""


class _Broken:
    """The marker of an invalid value, whose field is left out of the cleaned document."""


_BROKEN: Final = _Broken()


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    """The result of validating a document.

    ``cleaned`` is the document without its invalid fields, so that cross-field rules can be evaluated on the rest. It
    is None when a required field is invalid or missing.
    """

    problems: tuple[Problem, ...]
    cleaned: object | None


def check_document(document: object, type_: Any, path: str = "", *, is_strict: bool = False) -> CheckedDocument:  # noqa: ANN401  (a struct type or a union)
    """Validate the JSON value ``document`` at ``path`` against a struct type, or a union of tagged ones.

    ``is_strict``: unknown fields are errors in every struct but metadata, whatever the type says of them.
    """
    problems: list[Problem] = []
    cleaned = _walk(document, (_strict_type_info if is_strict else _type_info)(type_), path, problems)
    return CheckedDocument(tuple(problems), None if isinstance(cleaned, _Broken) else cleaned)


def convert_document(cleaned: object, type_: Any) -> Any:  # noqa: ANN401  (as above)
    """Convert a document that ``check_document`` has cleaned to its struct."""
    return msgspec.convert(cleaned, type_, dec_hook=dec_hook)


def suggest(word: str, known: Collection[str], limit: int = 1) -> str:
    """Return a clause about an unknown word: the ``limit`` most similar known words, or a list of known words."""
    import difflib  # imported only for a mistyped word, to save memory

    by_lower = {candidate.lower(): candidate for candidate in known}
    close = [f'"{by_lower[found]}"' for found in difflib.get_close_matches(word.lower(), by_lower, n=limit)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    return f"known: {', '.join(sorted(known)[:_MAX_LISTED])}{more}" if known else "none is known"


def quote(value: object) -> str:
    """Return an invalid value as JSON, truncated to _MAX_SHOWN characters."""
    try:
        text = msgspec.json.encode(value).decode()
    except RecursionError:
        return "a value that is nested too deeply"
    except (TypeError, ValueError, OverflowError):
        text = repr(value)
    return show_name(text)


def show_name(name: object) -> str:
    """Return a name that a document gives, such as an unknown field's, printable and of _MAX_SHOWN characters."""
    text = str(name)
    return replace_unprintable(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…")


def join_path(path: str, field: str) -> str:
    """Return the path of a field in the struct at ``path``: ``spec.minimum`` for ``spec`` and ``minimum``."""
    return f"{path}.{field}" if path else field


_type_info = lru_cache(maxsize=None)(inspect.type_info)


@cache
def _strict_type_info(type_: Any) -> inspect.Type:  # noqa: ANN401  (as check_document)
    return _forbid_unknown_fields(_type_info(type_))


def _forbid_unknown_fields(node: inspect.Type) -> inspect.Type:
    """Return ``node`` with strict structs. Metadata has more fields than Kerf's type of it, and stays as it is."""
    replace = msgspec.structs.replace
    match node:
        case inspect.StructType() if node.cls is not ObjectMeta:
            fields = tuple(replace(each, type=_forbid_unknown_fields(each.type)) for each in node.fields)
            return replace(node, fields=fields, forbid_unknown_fields=True)
        case inspect.UnionType():
            return replace(node, types=tuple(map(_forbid_unknown_fields, node.types)))
        case inspect.VarTupleType():
            return replace(node, item_type=_forbid_unknown_fields(node.item_type))
        case inspect.Metadata():
            return replace(node, type=_forbid_unknown_fields(node.type))
    return node


def _walk(value: object, node: inspect.Type, path: str, problems: list[Problem]) -> object:
    """Return the cleaned value, or _BROKEN, and append its problems to ``problems``."""
    title = ""
    if isinstance(node, inspect.Metadata):
        title = str((node.extra_json_schema or {}).get("title", ""))
        node = node.type
    match node:
        case inspect.StructType():
            return _struct(value, node, path, problems)
        case inspect.UnionType():
            return _union(value, node, path, problems)
        case inspect.VarTupleType():
            return _list(value, node, path, problems)
        case inspect.DictType():
            return _map(value, node, path, problems)
        case inspect.AnyType():
            return value
    fault = _scalar_fault(value, node, title)
    if fault:
        problems.append(Problem(path, fault))
        return _BROKEN
    return value


def _struct(value: object, node: inspect.StructType, path: str, problems: list[Problem]) -> object:
    if not isinstance(value, Mapping):
        return _wrong(value, "an object", path, problems)
    cleaned: dict[str, object] = {}
    fields = {field.encode_name: field for field in node.fields}
    if node.tag_field is not None:
        cleaned[node.tag_field] = node.tag
    for name, held in value.items():
        if name == node.tag_field:
            continue
        if held is None and name in fields:
            continue  # null means unset, as to the API server for fields that are not nullable
        if name in fields:
            inner = _walk(held, fields[name].type, join_path(path, str(name)), problems)
            if not isinstance(inner, _Broken):
                cleaned[name] = inner
        elif node.forbid_unknown_fields:
            known = (*fields, node.tag_field) if node.tag_field else tuple(fields)
            message = f"unknown field; {suggest(str(name), known)}"
            problems.append(Problem(join_path(path, show_name(name)), message))
    for name, field in fields.items():
        if field.required and value.get(name) is None:
            problems.append(Problem(join_path(path, name), f"is required{_expected(field.type)}"))
    return cleaned if all(name in cleaned for name, field in fields.items() if field.required) else _BROKEN


def _union(value: object, node: inspect.UnionType, path: str, problems: list[Problem]) -> object:
    """Check a union with null, or of structs that are distinguished by their tag."""
    if value is None and any(isinstance(member, inspect.NoneType) for member in node.types):
        return None
    members = [member for member in node.types if not isinstance(member, inspect.NoneType)]
    if len(members) == 1:
        return _walk(value, members[0], path, problems)
    structs = {str(member.tag): member for member in members if isinstance(member, inspect.StructType)}
    tag_field = next(iter(structs.values())).tag_field
    assert tag_field is not None, "a union of untagged types"
    if not isinstance(value, Mapping):
        return _wrong(value, "an object", path, problems)
    member = structs.get(str(value.get(tag_field)))
    if member is None:
        missing = "is required: " if tag_field not in value else f"{quote(value[tag_field])} is not one of "
        problems.append(Problem(join_path(path, tag_field), f"{missing}{', '.join(structs)}"))
        return _BROKEN
    return _struct(value, member, path, problems)


def _list(value: object, node: inspect.VarTupleType, path: str, problems: list[Problem]) -> object:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return _wrong(value, "a list", path, problems)
    if node.max_length is not None and len(value) > node.max_length:
        return _too_many(len(value), node.max_length, path, problems)
    if node.min_length is not None and len(value) < node.min_length:
        return _empty(path, problems)
    items = [_walk(item, node.item_type, f"{path}[{index}]", problems) for index, item in enumerate(value)]
    # Without the invalid item, the following items would be reported with wrong indices.
    return _BROKEN if any(isinstance(item, _Broken) for item in items) else items


def _map(value: object, node: inspect.DictType, path: str, problems: list[Problem]) -> object:
    if not isinstance(value, Mapping):
        return _wrong(value, "an object", path, problems)
    if node.max_length is not None and len(value) > node.max_length:
        return _too_many(len(value), node.max_length, path, problems)
    if node.min_length is not None and len(value) < node.min_length:
        return _empty(path, problems)
    cleaned: dict[object, object] = {}
    key_type = node.key_type.type if isinstance(node.key_type, inspect.Metadata) else node.key_type
    as_field = isinstance(key_type, inspect.StrType) and key_type.pattern == IDENTIFIER
    for key, held in value.items():
        shown = show_name(key)
        where = join_path(path, shown) if as_field else f"{path}[{shown}]"  # as Kubernetes prints map keys
        key_found = _walk(key, node.key_type, where, problems)
        value_found = _walk(held, node.value_type, where, problems)
        if not isinstance(key_found, _Broken) and not isinstance(value_found, _Broken):
            cleaned[key] = value_found
    return cleaned if len(cleaned) >= (node.min_length or 0) else _BROKEN


def _scalar_fault(value: object, node: inspect.Type, title: str) -> str | None:
    match node:
        case inspect.LiteralType(values=values):
            if value in values and isinstance(value, str):
                return None
            return f"{quote(value)} is not one of {', '.join(quote(one) for one in values)}"
        case inspect.StrType():
            return _string_fault(value, node, title)
        case inspect.IntType():
            if not isinstance(value, int) or isinstance(value, bool):
                return f"{quote(value)} is not a whole number"
            return _range_fault(value, node)
        case inspect.FloatType():
            if not isinstance(value, int | float) or isinstance(value, bool):
                return f"{quote(value)} is not a number"
            return _range_fault(value, node)
        case inspect.BoolType():
            return None if isinstance(value, bool) else f"{quote(value)} is neither true nor false"
        case inspect.CustomType() if node.cls is Quantity:
            return _quantity_fault(value)
    raise TypeError(f"no check for {node}")  # a type that no struct has had before


def _range_fault(value: float, node: inspect.IntType | inspect.FloatType) -> str | None:
    """Return what is wrong with a number; one that is none (NaN) is in no range."""
    least, most = node.ge, node.le
    in_range = (least is None or value >= least) and (most is None or value <= most)
    return None if in_range else f"{value} is not between {least} and {most}"


def _string_fault(value: object, node: inspect.StrType, title: str) -> str | None:
    if not isinstance(value, str):
        unquoted = value is not None and not isinstance(value, Mapping | Sequence)
        return f"{quote(value)} is not a string{'; put it in quotes' if unquoted else ''}"
    if node.max_length is not None and len(value) > node.max_length:
        return f"{quote(value)} has {len(value)} characters; at most {node.max_length} are allowed"
    if node.pattern is not None and re.fullmatch(node.pattern, value) is None:
        if not title:  # a type of another vendor's, which has not named it
            return f"{quote(value)} does not match {node.pattern}"
        return f"{quote(value)} is not {'an' if title[0] in 'aeio' else 'a'} {title}"
    return None


def _quantity_fault(value: object) -> str | None:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return f"{quote(value)} is not a quantity"
    try:
        amount = Quantity(value if isinstance(value, int) else str(value))
    except InvalidQuantityError as error:
        return str(error).replace(repr(error.text), quote(value), 1)
    return None if amount > Quantity(0) else f"{quote(value)} must be more than zero"


def _wrong(value: object, expected: str, path: str, problems: list[Problem]) -> _Broken:
    problems.append(Problem(path, "must not be null" if value is None else f"{quote(value)} is not {expected}"))
    return _BROKEN


def _empty(path: str, problems: list[Problem]) -> _Broken:
    problems.append(Problem(path, "is empty: give one entry at least, or leave it out"))
    return _BROKEN


def _too_many(count: int, limit: int, path: str, problems: list[Problem]) -> _Broken:
    problems.append(Problem(path, f"has {count} entries; at most {limit} are allowed"))
    return _BROKEN


def _expected(node: inspect.Type) -> str:
    """Return the values of a missing field, if its type lists them."""
    return f": one of {', '.join(map(str, node.values))}" if isinstance(node, inspect.LiteralType) else ""
