"""Operations on JSON documents: deep copy, lookup by path, and changes at every place that a path names."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from kerf_dra.api.model.base import JsonObject

JsonValue: TypeAlias = Any
"""Any JSON value."""


def deep_copy(document: JsonObject) -> JsonObject:
    """Return a deep copy that may be changed in place. Faster than ``copy.deepcopy`` by an order of magnitude."""
    copy: JsonObject = msgspec.json.decode(msgspec.json.encode(document))
    return copy


def lookup(document: JsonValue, *path: str) -> JsonValue:
    """Return the value at a path of fields; None where a field is absent or its parent is no object."""
    for step in path:
        if not isinstance(document, dict):
            return None
        document = document.get(step)
    return document


def find_objects(document: JsonValue, path: Sequence[str]) -> list[JsonObject]:
    """Return the objects at a path; ``field[]`` stands for each item of a list, ``field{}`` for each value of a map."""
    found = [document]
    for step in path:
        name = step.rstrip("[]{}")
        values = [parent.get(name) for parent in found if isinstance(parent, dict)]
        if step.endswith("[]"):
            found = [item for value in values if isinstance(value, list) for item in value]
        elif step.endswith("{}"):
            found = [item for value in values if isinstance(value, dict) for item in value.values()]
        else:
            found = values
    return [value for value in found if isinstance(value, dict)]


def drop(document: JsonObject, path: str) -> None:
    """Remove, in place, every field at a path such as ``spec.devices[].taints``."""
    *parents, last = path.split(".")
    for parent in find_objects(document, parents):
        parent.pop(last, None)


def replace(document: JsonObject, path: str, change: Callable[[Any], Any]) -> None:
    """Change, in place, every value at a path, which may end in ``[]`` or ``{}`` as those of ``find_objects``."""
    *parents, last = path.split(".")
    name = last.rstrip("[]{}")
    for parent in find_objects(document, parents):
        match parent.get(name):
            case None:
                pass
            case dict() as values if last.endswith("{}"):
                parent[name] = {key: change(value) for key, value in values.items()}
            case list() as values if last.endswith("[]"):
                parent[name] = [change(value) for value in values]
            case value:
                parent[name] = change(value)


def without(document: JsonObject, *fields: str) -> JsonObject:
    """Return a shallow copy that lacks some fields."""
    return {key: value for key, value in document.items() if key not in fields}


def without_nulls(document: JsonObject) -> JsonObject:
    """Return a copy without ``null`` fields, which in built-in kinds mean absent: typed clients send them."""
    return {key: _pruned(value) for key, value in document.items() if value is not None}


def _pruned(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return without_nulls(value)
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return value
