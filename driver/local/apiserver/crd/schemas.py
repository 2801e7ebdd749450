"""Reading a structural schema (``openAPIV3Schema`` of a CustomResourceDefinition, KEP-1165).

The schema of an object never describes ``metadata`` beyond name rules, so ``apiVersion``, ``kind`` and ``metadata`` are
left to the server everywhere in this package.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from api.model.base import JsonObject

OBJECT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})
"""What every object has, whatever its schema says."""

_UNKNOWN_FINE: Final[JsonObject] = {"x-kubernetes-preserve-unknown-fields": True}


def properties(schema: JsonObject) -> Mapping[str, JsonObject]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def of_property(schema: JsonObject, name: str) -> JsonObject | None:
    """The schema of a field; None: the field is unknown."""
    if (known := properties(schema).get(name)) is not None:
        return known
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        return additional
    if additional is True or schema.get("x-kubernetes-preserve-unknown-fields"):
        return _UNKNOWN_FINE
    return None


def of_items(schema: JsonObject) -> JsonObject:
    items = schema.get("items")
    return items if isinstance(items, dict) else _UNKNOWN_FINE


def is_embedded(schema: JsonObject) -> bool:
    """Whether the value is a whole object of its own, with metadata."""
    return bool(schema.get("x-kubernetes-embedded-resource"))


def children(value: Any, schema: JsonObject) -> Iterator[tuple[str, Any, JsonObject]]:  # noqa: ANN401  (any JSON)
    """Path ending, value and schema of everything directly inside a value that the schema knows."""
    if isinstance(value, dict):
        for name, child in value.items():
            inner = of_property(schema, name)
            if inner is not None:
                known = name in properties(schema)
                yield (f".{name}" if known else f"[{name}]"), child, inner
    elif isinstance(value, list):
        inner = of_items(schema)
        for index, child in enumerate(value):
            yield f"[{index}]", child, inner
