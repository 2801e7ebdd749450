"""The merge schema: which lists are maps or sets, and which objects are atomic.

One schema serves strategic merge patch and server-side apply. Where it says nothing, an object merges field by field
and a list is replaced as a whole, as in Kubernetes. The schemas of built-in kinds are tables (``kinds``) taken from the
``x-kubernetes-*`` extensions of the OpenAPI document of Kubernetes 1.37; those of custom resources are derived from
the same extensions in their structural schema.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kerf_dra.api.model.base import JsonObject


@dataclass(frozen=True, slots=True)
class MergeSchema:
    """How the value at one path merges."""

    atomic: bool = False
    """Whether an object is replaced as a whole (map type atomic); lists without identity are in any case."""
    unique: bool = False
    """Whether a list is a set: scalars, each at most once (list type set)."""
    keys: tuple[str, ...] = ()
    """The fields that identify the items of a list of type map; empty for other lists."""
    patch_key: str = ""
    """The field by which a strategic merge patch identifies items (``patchMergeKey``); empty: the list is replaced."""
    fields: Mapping[str, "MergeSchema"] = field(default_factory=dict)
    items: "MergeSchema | None" = None
    """The schema of list items, and of the values of a map; None: they merge by default."""
    key_defaults: Mapping[str, object] = field(default_factory=dict)
    """The value that an absent key field of an item stands for, e.g. protocol TCP."""

    def of(self, name: str) -> "MergeSchema":
        """Return the schema of a field."""
        return self.fields.get(name) or self.items or PLAIN

    @property
    def of_items(self) -> "MergeSchema":
        return self.items or PLAIN


PLAIN: Final = MergeSchema()


def build_merge_schema(rows: Mapping[str, MergeSchema]) -> MergeSchema:
    """Return a schema from paths such as ``spec.containers[].env``, in which ``[]`` stands for the items of a list."""
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


def keyed_list(*keys: str, patch: str | None = None, defaults: JsonObject | None = None) -> MergeSchema:
    """Return a list of type map. ``patch``: the merge key of a strategic merge patch, where it is not the first key."""
    patch_key = keys[0] if patch is None else patch
    return MergeSchema(keys=keys, patch_key=patch_key, key_defaults=defaults or {})


METADATA_ROWS: Final[Mapping[str, MergeSchema]] = {
    "metadata.finalizers": MergeSchema(unique=True, patch_key="*"),
    "metadata.ownerReferences": keyed_list("uid"),
    "metadata.ownerReferences[]": ATOMIC,
}
METADATA_ONLY: Final = build_merge_schema(METADATA_ROWS)
CONDITIONS: Final = keyed_list("type")


def derive_merge_schema(schema: JsonObject) -> MergeSchema:
    """Return the merge schema that the structural schema of a custom resource declares (KEP-2332)."""
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
    """Return the schema of a whole object, whose metadata merges as that of every kind."""
    return replace(schema, fields={**schema.fields, "metadata": METADATA_ONLY.fields["metadata"]})
