"""Structural schemas (``openAPIV3Schema`` of a CustomResourceDefinition, KEP-1165): reading, pruning, defaulting.

The schema of an object describes ``metadata`` no further than its name, so ``apiVersion``, ``kind`` and ``metadata``
are left to the server. Source: ``apiextensions-apiserver`` ``pkg/apiserver/schema`` (``pruning``, ``defaulting``).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue, deep_copy

OBJECT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
"""The fields that every object has, whatever its schema says."""

_ANYTHING: Final[JsonObject] = {"x-kubernetes-preserve-unknown-fields": True}


def properties(schema: JsonObject) -> Mapping[str, JsonObject]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def property_schema(schema: JsonObject, name: str) -> JsonObject | None:
    """Return the schema of a field; None when the field is unknown."""
    if (known := properties(schema).get(name)) is not None:
        return known
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        return additional
    if additional is True or schema.get("x-kubernetes-preserve-unknown-fields"):
        return _ANYTHING
    return None


def item_schema(schema: JsonObject) -> JsonObject:
    items = schema.get("items")
    return items if isinstance(items, dict) else _ANYTHING


def is_embedded(schema: JsonObject) -> bool:
    """Whether the value is a whole object, with metadata."""
    return bool(schema.get("x-kubernetes-embedded-resource"))


def children(value: JsonValue, schema: JsonObject) -> Iterator[tuple[str, JsonValue, JsonObject]]:
    """Yield path suffix, value and schema of each field or item of a value that the schema knows."""
    if isinstance(value, dict):
        for name, child in value.items():
            inner = property_schema(schema, name)
            if inner is not None:
                known = name in properties(schema)
                yield (f".{name}" if known else f"[{name}]"), child, inner
    elif isinstance(value, list):
        inner = item_schema(schema)
        for index, child in enumerate(value):
            yield f"[{index}]", child, inner


def prune(document: JsonObject, schema: JsonObject) -> list[str]:
    """Remove, in place, the fields that the schema does not have, and return their paths."""
    return list(_pruned(document, schema, "", whole=True))


def _pruned(value: JsonValue, schema: JsonObject, path: str, *, whole: bool) -> Iterator[str]:
    """Prune one value; ``whole``: it is an object with kind and metadata."""
    if isinstance(value, dict):
        for name in list(value):
            if whole and name in OBJECT_FIELDS:
                continue
            here = f"{path}.{name}" if path else name
            inner = property_schema(schema, name)
            if inner is None:
                del value[name]
                yield here
            else:
                yield from _pruned(value[name], inner, here, whole=is_embedded(inner))
    elif isinstance(value, list):
        inner = item_schema(schema)
        for index, item in enumerate(value):
            yield from _pruned(item, inner, f"{path}[{index}]", whole=is_embedded(inner))


def default(value: JsonValue, schema: JsonObject) -> None:
    """Fill in defaults, in place, top-down, as a default may be an object with defaults; ``null`` counts as absent."""
    if isinstance(value, dict):
        for name, inner in properties(schema).items():
            if value.get(name, ...) is None and not inner.get("nullable"):
                del value[name]
            if "default" in inner and name not in value:
                value[name] = deep_copy({"": inner["default"]})[""]
    for _, child, inner in children(value, schema):
        default(child, inner)
