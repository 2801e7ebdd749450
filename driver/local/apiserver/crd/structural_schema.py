"""Reading a structural schema (``openAPIV3Schema`` of a CustomResourceDefinition, KEP-1165).

The schema of an object never describes ``metadata`` beyond name rules, so ``apiVersion``, ``kind`` and ``metadata`` are
left to the server everywhere in this package.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from api.model.base import JsonObject
from driver.local.apiserver.meta.documents import deep_copy

OBJECT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
"""What every object has, whatever its schema says."""

_UNKNOWN_FINE: Final[JsonObject] = {"x-kubernetes-preserve-unknown-fields": True}


def properties(schema: JsonObject) -> Mapping[str, JsonObject]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def property_schema(schema: JsonObject, name: str) -> JsonObject | None:
    """The schema of a field; None: the field is unknown."""
    if (known := properties(schema).get(name)) is not None:
        return known
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        return additional
    if additional is True or schema.get("x-kubernetes-preserve-unknown-fields"):
        return _UNKNOWN_FINE
    return None


def item_schema(schema: JsonObject) -> JsonObject:
    items = schema.get("items")
    return items if isinstance(items, dict) else _UNKNOWN_FINE


def is_embedded(schema: JsonObject) -> bool:
    """Whether the value is a whole object of its own, with metadata."""
    return bool(schema.get("x-kubernetes-embedded-resource"))


def children(value: Any, schema: JsonObject) -> Iterator[tuple[str, Any, JsonObject]]:  # noqa: ANN401  (any JSON)
    """Path ending, value and schema of everything directly inside a value that the schema knows."""
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
    """Removes, in place, what the schema does not know, and returns its paths."""
    return list(_pruned(document, schema, "", whole=True))


def _pruned(value: Any, schema: JsonObject, path: str, *, whole: bool) -> Iterator[str]:  # noqa: ANN401  (any JSON)
    """``whole``: the value is an object with kind and metadata."""
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


def default(document: JsonObject, schema: JsonObject) -> None:
    """Fills in defaults, in place, from the outside in: a default may bring an object that has defaults itself."""
    _default(document, schema)


def _default(value: Any, schema: JsonObject) -> None:  # noqa: ANN401  (any JSON)
    if isinstance(value, dict):
        for name, inner in properties(schema).items():
            if value.get(name, ...) is None and not inner.get("nullable"):
                del value[name]
            if "default" in inner and name not in value:
                value[name] = deep_copy({"": inner["default"]})[""]
    for _, child, inner in children(value, schema):
        _default(child, inner)
