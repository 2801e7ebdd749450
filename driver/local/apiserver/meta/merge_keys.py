"""How documents merge: which lists are maps or sets, which objects are taken whole.

One description serves strategic merge patch and server-side apply. Without a word here an object merges field by field
and a list is replaced whole, which is what Kubernetes does too. Source of the built-in tables: the ``x-kubernetes-*``
marks of the Kubernetes 1.37 OpenAPI document; of custom resources: the same marks in their schema.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from api.model.base import JsonObject


@dataclass(frozen=True, slots=True)
class Shape:
    """How the value at one place merges."""

    atomic: bool = False
    """An object that is taken whole; lists without keys are whole anyway."""
    unique: bool = False
    """A list of scalars in which each value is there once."""
    keys: tuple[str, ...] = ()
    """A list of objects that these fields identify."""
    patch_key: str = ""
    """The field by which a strategic merge patch identifies list items; empty: the list is replaced."""
    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    items: "Shape | None" = None
    """Of list items, and of the values of a map."""
    key_defaults: Mapping[str, object] = field(default_factory=dict)
    """What an absent key field of a list item stands for, e.g. protocol TCP."""

    def of(self, name: str) -> "Shape":
        """The shape of a field."""
        return self.fields.get(name) or self.items or PLAIN

    @property
    def of_items(self) -> "Shape":
        return self.items or PLAIN


PLAIN: Final = Shape()


def shape_of(rows: Mapping[str, Shape]) -> Shape:
    """A shape tree from paths such as ``spec.containers[].env``; ``[]`` steps into a list's items."""
    root = PLAIN
    for path, shape in rows.items():
        root = _grown(root, path.replace("[]", ".[]").split("."), shape)
    return root


def _grown(node: Shape, steps: list[str], shape: Shape) -> Shape:
    if not steps:
        return replace(shape, fields=node.fields, items=node.items)
    step, rest = steps[0], steps[1:]
    if step == "[]":
        return replace(node, items=_grown(node.items or PLAIN, rest, shape))
    return replace(node, fields={**node.fields, step: _grown(node.fields.get(step, PLAIN), rest, shape)})


ATOMIC: Final = Shape(atomic=True)


def keyed(*keys: str, patch: str | None = None, defaults: JsonObject | None = None) -> Shape:
    """A list of objects with identity; ``patch``: what a strategic merge patch goes by, when that is another field."""
    patch_key = keys[0] if patch is None else patch
    return Shape(keys=keys, patch_key=patch_key, key_defaults=defaults or {})


METADATA_ROWS: Final[Mapping[str, Shape]] = {
    "metadata.finalizers": Shape(unique=True, patch_key="*"),
    "metadata.ownerReferences": keyed("uid"),
    "metadata.ownerReferences[]": ATOMIC,
}
METADATA_ONLY: Final = shape_of(METADATA_ROWS)
CONDITIONS: Final = keyed("type")


def shape_of_schema(schema: JsonObject) -> Shape:
    """The shape that a custom resource's structural schema declares (KEP-2332)."""
    fields = {name: shape_of_schema(each) for name, each in (schema.get("properties") or {}).items()}
    items = schema.get("items") or schema.get("additionalProperties")
    inner = items if isinstance(items, dict) else None
    keys = tuple(_strings(schema.get("x-kubernetes-list-map-keys")))
    inner_fields = (inner or {}).get("properties") or {}
    return Shape(
        atomic=schema.get("x-kubernetes-map-type") == "atomic",
        unique=schema.get("x-kubernetes-list-type") == "set",
        keys=keys if schema.get("x-kubernetes-list-type") == "map" else (),
        fields={name: shape for name, shape in fields.items() if shape != PLAIN},
        items=shape_of_schema(inner) if inner else None,
        key_defaults={key: inner_fields[key]["default"] for key in keys if "default" in inner_fields.get(key, {})},
    )


def _strings(value: object) -> Iterable[str]:
    return (str(each) for each in value) if isinstance(value, list) else ()


def with_metadata(shape: Shape) -> Shape:
    """The shape of a whole object: metadata merges the same way for every kind."""
    return replace(shape, fields={**shape.fields, "metadata": METADATA_ONLY.fields["metadata"]})
