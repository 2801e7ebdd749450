"""Unknown fields of custom resources: found, dropped, and named.

Source: ``apiextensions-apiserver`` ``pkg/apiserver/schema/pruning``, and ``fieldValidation`` (KEP-2885).
"""

from collections.abc import Iterator
from typing import Any

from api.model.base import JsonObject
from driver.local.apiserver.crd.schemas import OBJECT_FIELDS, is_embedded, of_items, of_property


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
            inner = of_property(schema, name)
            if inner is None:
                del value[name]
                yield here
            else:
                yield from _pruned(value[name], inner, here, whole=is_embedded(inner))
    elif isinstance(value, list):
        inner = of_items(schema)
        for index, item in enumerate(value):
            yield from _pruned(item, inner, f"{path}[{index}]", whole=is_embedded(inner))
