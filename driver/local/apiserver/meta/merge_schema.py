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
class MergeSchema:
    """How the value at one place merges."""

    atomic: bool = False
    """An object that is taken whole; lists without keys are whole anyway."""
    unique: bool = False
    """A list of scalars in which each value is there once."""
    keys: tuple[str, ...] = ()
    """A list of objects that these fields identify."""
    patch_key: str = ""
    """The field by which a strategic merge patch identifies list items; empty: the list is replaced."""
    retain_keys: bool = False
    """Strategic merge patch may list the keys that stay (``$retainKeys``)."""
    fields: Mapping[str, "MergeSchema"] = field(default_factory=dict)
    items: "MergeSchema | None" = None
    """Of list items, and of the values of a map."""
    key_defaults: Mapping[str, object] = field(default_factory=dict)
    """What an absent key field of a list item stands for, e.g. protocol TCP."""

    def of(self, name: str) -> "MergeSchema":
        """The shape of a field."""
        return self.fields.get(name) or self.items or PLAIN

    @property
    def of_items(self) -> "MergeSchema":
        return self.items or PLAIN


PLAIN: Final = MergeSchema()


def build_merge_schema(rows: Mapping[str, MergeSchema]) -> MergeSchema:
    """A shape tree from paths such as ``spec.containers[].env``; ``[]`` steps into a list's items."""
    root = PLAIN
    for path, schema in rows.items():
        root = _grown(root, path.replace("[]", ".[]").split("."), schema)
    return root


def _grown(node: MergeSchema, steps: list[str], schema: MergeSchema) -> MergeSchema:
    if not steps:
        return replace(schema, fields=node.fields, items=node.items)
    step, rest = steps[0], steps[1:]
    if step == "[]":
        return replace(node, items=_grown(node.items or PLAIN, rest, schema))
    return replace(node, fields={**node.fields, step: _grown(node.fields.get(step, PLAIN), rest, schema)})


ATOMIC: Final = MergeSchema(atomic=True)


def keyed_list(
    *keys: str, patch: str | None = None, retain: bool = False, defaults: JsonObject | None = None
) -> MergeSchema:
    """A list of objects with identity; ``patch``: what a strategic merge patch goes by, when that is another field."""
    patch_key = keys[0] if patch is None else patch
    return MergeSchema(keys=keys, patch_key=patch_key, retain_keys=retain, key_defaults=defaults or {})


METADATA_ROWS: Final[Mapping[str, MergeSchema]] = {
    "metadata.finalizers": MergeSchema(unique=True, patch_key="*"),
    "metadata.ownerReferences": keyed_list("uid"),
    "metadata.ownerReferences[]": ATOMIC,
}
METADATA_ONLY: Final = build_merge_schema(METADATA_ROWS)
CONDITIONS: Final = keyed_list("type")


def derive_merge_schema(schema: JsonObject) -> MergeSchema:
    """The shape that a custom resource's structural schema declares (KEP-2332)."""
    fields = {name: derive_merge_schema(each) for name, each in (schema.get("properties") or {}).items()}
    items = schema.get("items") or schema.get("additionalProperties")
    inner = items if isinstance(items, dict) else None
    keys = tuple(_strings(schema.get("x-kubernetes-list-map-keys")))
    inner_fields = (inner or {}).get("properties") or {}
    return MergeSchema(
        atomic=schema.get("x-kubernetes-map-type") == "atomic",
        unique=schema.get("x-kubernetes-list-type") == "set",
        keys=keys if schema.get("x-kubernetes-list-type") == "map" else (),
        fields={name: schema for name, schema in fields.items() if schema != PLAIN},
        items=derive_merge_schema(inner) if inner else None,
        key_defaults={key: inner_fields[key]["default"] for key in keys if "default" in inner_fields.get(key, {})},
    )


def _strings(value: object) -> Iterable[str]:
    return (str(each) for each in value) if isinstance(value, list) else ()


def with_metadata(schema: MergeSchema) -> MergeSchema:
    """The shape of a whole object: metadata merges the same way for every kind."""
    return replace(schema, fields={**schema.fields, "metadata": METADATA_ONLY.fields["metadata"]})
