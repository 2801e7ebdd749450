"""Defaults of custom resources.

A ``null`` where none is allowed counts as absent.
Source: ``apiextensions-apiserver`` ``pkg/apiserver/schema/defaulting``.
"""

from typing import Any

from api.model.base import JsonObject
from driver.local.apiserver.crd.schemas import children, properties
from driver.local.apiserver.meta.documents import fresh


def default(document: JsonObject, schema: JsonObject) -> None:
    """Fills in defaults, in place, from the outside in: a default may bring an object that has defaults itself."""
    _default(document, schema)


def _default(value: Any, schema: JsonObject) -> None:  # noqa: ANN401  (any JSON)
    if isinstance(value, dict):
        for name, inner in properties(schema).items():
            if value.get(name, ...) is None and not inner.get("nullable"):
                del value[name]
            if "default" in inner and name not in value:
                value[name] = fresh({"": inner["default"]})[""]
    for _, child, inner in children(value, schema):
        _default(child, inner)
