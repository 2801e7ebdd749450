"""Generates the CRDs of ``kerf.dev/v1alpha1`` from the struct types.

Shapes, patterns and limits come from the types, cross-field rules from ``kerf_dra.api.kerf.cross_field_rules``,
descriptions from docstrings. ``msgspec.json.schema`` does not serve: its ``$ref``, ``anyOf`` with null and
``additionalProperties: false`` are not allowed in a structural schema (apiextensions.k8s.io/v1).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from msgspec import inspect

from kerf_dra.api.kerf.card_maintenance import CARD_MAINTENANCES, CardMaintenance
from kerf_dra.api.kerf.classic_parameters import (
    CLAIM_PARAMETERS,
    CLASS_PARAMETERS,
    FpgaClaimParameters,
    FpgaClassParameters,
    GpuClaimParameters,
    GpuClassParameters,
)
from kerf_dra.api.kerf.cross_field_rules import RULES, SERVER_RULES, ServerRule
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDevice,
    DiscoveryConfiguration,
)
from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS, FpgaImage, FpgaShell
from kerf_dra.api.kerf.node_inventory import NODE_INVENTORIES, NodeInventory
from kerf_dra.api.kerf.scalar_types import POSITIVE_QUANTITY
from kerf_dra.api.kerf.v1alpha1 import GROUP, RESOURCE_CLASSES, VERSION, ResourceClass
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import Kind

FieldDocs: TypeAlias = Mapping[tuple[type, str], str]
"""The docstring of each field, by struct type and attribute name."""

_AGE: Final = ("Age", ".metadata.creationTimestamp", "date")
_PARAMETERS_COLUMNS: Final = (("Max-Pods", ".spec.maxPods", "integer"), _AGE)
_RESOURCE_CLASS_COLUMNS: Final = (
    ("Device", ".spec.device", "string"),
    ("Cut", ".spec.cut", "string"),
    ("Size", ".status.size", "string"),
    ("Matching", ".status.matchingDevices.total", "integer"),
    ("Ready", '.status.conditions[?(@.type=="Ready")].status', "string"),
    _AGE,
)
_VERIFIED: Final = ("Verified", '.status.conditions[?(@.type=="Verified")].status', "string")
_POSITIVE_QUANTITY: Final[JsonObject] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "minimum": 1,  # for integers; strings have the pattern
    "pattern": POSITIVE_QUANTITY,
    "x-kubernetes-int-or-string": True,
}
_RESERVED: Final = re.compile(r"(?<=\w)\.(function)\b")
"""Accesses to a field that has the name of a reserved word: ``function`` is the only one in the rules."""
_LIST_KEYS: Final[Mapping[type, str]] = {Condition: "type"}
"""The key of lists that are merged entry by entry, because they have several writers; others are replaced whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrdDefinition:
    """The parts of a CRD beside its schema."""

    kind: Kind[Any]
    type: type
    """The struct type with the whole shape; ``kind`` may leave a part undecoded."""
    short_name: str
    columns: tuple[tuple[str, str, str], ...]
    """The name, path and type of each printer column."""
    has_status: bool = False


RESOURCE_CLASS: Final = CrdDefinition(
    kind=RESOURCE_CLASSES, type=ResourceClass, short_name="kclass", columns=_RESOURCE_CLASS_COLUMNS, has_status=True
)
DEFINITIONS: Final[tuple[CrdDefinition, ...]] = (
    RESOURCE_CLASS,
    CrdDefinition(
        kind=CLASS_PARAMETERS[0],
        type=GpuClassParameters,
        short_name="gpuclass",
        columns=(("Profile", ".spec.profile", "string"), *_PARAMETERS_COLUMNS),
    ),
    CrdDefinition(
        kind=CLASS_PARAMETERS[1],
        type=FpgaClassParameters,
        short_name="fpgaclass",
        columns=(("Function", ".spec.function", "string"), *_PARAMETERS_COLUMNS),
    ),
    CrdDefinition(
        kind=CLAIM_PARAMETERS[0],
        type=GpuClaimParameters,
        short_name="gpuclaim",
        columns=(("Profile", ".spec.profile", "string"), ("Memory", ".spec.minimum.memory", "string"), _AGE),
    ),
    CrdDefinition(
        kind=CLAIM_PARAMETERS[1],
        type=FpgaClaimParameters,
        short_name="fpgaclaim",
        columns=(("Function", ".spec.function", "string"), _AGE),
    ),
    CrdDefinition(
        kind=NODE_INVENTORIES,
        type=NodeInventory,
        short_name="inventory",
        columns=(("Driver", ".spec.driver", "string"), ("Ready", ".spec.ready", "boolean"), _AGE),
    ),
    CrdDefinition(
        kind=FPGA_SHELLS,
        type=FpgaShell,
        short_name="fshell",
        columns=(
            ("Interface", ".spec.interfaceUUID", "string"),
            ("Nodes", ".status.nodes.total", "integer"),
            _VERIFIED,
            _AGE,
        ),
        has_status=True,
    ),
    CrdDefinition(
        kind=FPGA_IMAGES,
        type=FpgaImage,
        short_name="fimage",
        columns=(
            ("Function", ".spec.function", "string"),
            ("Version", ".spec.version", "string"),
            ("Nodes", ".status.nodes.total", "integer"),
            ("Fetched", ".status.nodes.fetched", "integer"),
            _VERIFIED,
            _AGE,
        ),
        has_status=True,
    ),
    CrdDefinition(
        kind=DISCOVERY_CONFIGURATIONS,
        type=DiscoveryConfiguration,
        short_name="dconfig",
        columns=(
            ("Handler", ".spec.discoveryHandler.name", "string"),
            ("Capacity", ".spec.capacity", "integer"),
            ("Devices", ".status.devices.total", "integer"),
            ("Online", ".status.devices.online", "integer"),
            _AGE,
        ),
        has_status=True,
    ),
    CrdDefinition(
        kind=DISCOVERED_DEVICES,
        type=DiscoveredDevice,
        short_name="ddevice",
        columns=(
            ("Config", ".spec.configurationName", "string"),
            ("Shared", ".spec.shared", "boolean"),
            ("Nodes", ".spec.nodes", "string"),
            _AGE,
        ),
        has_status=True,
    ),
    CrdDefinition(
        kind=CARD_MAINTENANCES,
        type=CardMaintenance,
        short_name="maint",
        columns=(
            ("Node", ".spec.nodeName", "string"),
            ("Card", ".spec.card", "string"),
            ("Phase", ".status.phase", "string"),
            ("Holders", ".status.holderCount", "integer"),
            ("Reason", ".spec.reason", "string"),
            _AGE,
        ),
        has_status=True,
    ),
)
"""The CRDs of all kinds of the group."""


def build_crd(definition: CrdDefinition, docs: FieldDocs) -> JsonObject:
    """Build the CustomResourceDefinition of a kind, as JSON values."""
    kind = definition.kind
    names = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "shortNames": [definition.short_name],
        "categories": ["kerf"],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object_schema(definition.type, docs)},
        **({"subresources": {"status": {}}} if definition.has_status else {}),
        "additionalPrinterColumns": [
            {"name": name, "jsonPath": path, "type": type_} for name, path, type_ in definition.columns
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def build_schema(type_: type, docs: FieldDocs) -> JsonObject:
    """Build the schema of a document that is a part of another object, such as a configuration."""
    return _schema(inspect.type_info(type_), docs)


def _object_schema(type_: type, docs: FieldDocs) -> JsonObject:
    """Build the schema of an API object; the API server itself validates ``metadata``, ``apiVersion`` and ``kind``."""
    schema = _schema(inspect.type_info(type_), docs)
    own = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return {**schema, "properties": own | {k: v for k, v in schema["properties"].items() if k not in own}}


def _schema(node: inspect.Type, docs: FieldDocs) -> JsonObject:
    match node:
        case inspect.Metadata(
            type=inspect.DictType(value_type=inspect.AnyType(), max_length=limit), extra_json_schema=own
        ):
            return {"type": "object", "maxProperties": limit} | (own or {})
        case inspect.Metadata(type=inspect.VarTupleType() as inner, extra_json_schema=own):
            return _list(inner, docs) | (own or {})
        case inspect.Metadata(type=inner):
            return _schema(inner, docs)
        case inspect.StructType():
            return _struct([node], docs)
        case inspect.UnionType(types=types):
            members = [member for member in types if not isinstance(member, inspect.NoneType)]
            structs = [member for member in members if isinstance(member, inspect.StructType)]
            assert len(members) == 1 or len(structs) == len(members), "a union of other types than tagged structs"
            return _struct(structs, docs) if structs else _schema(members[0], docs)
        case inspect.VarTupleType():
            return _list(node, docs)
        case inspect.DictType(value_type=value):
            bounds = {"minProperties": node.min_length, "maxProperties": node.max_length}
            given = {name: bound for name, bound in bounds.items() if bound is not None}
            return {"type": "object", "additionalProperties": _schema(value, docs)} | given
    return _scalar(node)


def _struct(members: list[inspect.StructType], docs: FieldDocs) -> JsonObject:
    """Build the schema of a struct, or of a union of structs that are distinguished by their tag.

    A structural schema has no "one of": that of a union has the fields of all structs, rules say which tags they belong
    to, and no field has a default, which could be set beside another tag.
    """
    properties: JsonObject = {}
    first = members[0]
    required = [field.encode_name for field in first.fields if field.required]
    if first.tag_field is not None:
        required.append(first.tag_field)
        properties[first.tag_field] = {"type": "string", "enum": [member.tag for member in members]}
    for member in members:
        for field in member.fields:
            properties.setdefault(field.encode_name, _field(member, field, docs, with_default=len(members) == 1))
    of_members = [(*RULES.get(member.cls, ()), *SERVER_RULES.get(member.cls, ())) for member in members]
    rules = [_validation(rule) for rules in of_members for rule in rules] + _tag_rules(members)
    return {
        "description": "; or: ".join(_prose(member.cls.__doc__ or "") for member in members),
        "type": "object",
        **({"required": required} if required else {}),
        "properties": properties,
        **({"x-kubernetes-validations": rules} if rules else {}),
    }


def _field(owner: inspect.StructType, field: inspect.Field, docs: FieldDocs, *, with_default: bool) -> JsonObject:
    schema = _schema(field.type, docs)
    doc = next((docs[base, field.name] for base in owner.cls.__mro__ if (base, field.name) in docs), None)
    described = {"description": _prose(doc)} if doc else {}
    with_default = with_default and isinstance(field.default, str) and bool(field.default)
    return described | (schema | described) | ({"default": field.default} if with_default else {})


def _tag_rules(members: list[inspect.StructType]) -> list[JsonObject]:
    """The rules that a field may be set only beside the tags of the structs that have it."""
    owners: dict[str, list[str]] = {}
    for member in members:
        for field in member.fields:
            owners.setdefault(field.encode_name, []).append(str(member.tag))
    tag = members[0].tag_field
    return [
        {
            "rule": escape_reserved_words(f"!has(self.{name}) || self.{tag} in {having}"),
            "message": f"is a field of {', '.join(having)} only",
            "fieldPath": f".{name}",
        }
        for name, having in owners.items()
        if len(having) < len(members)
    ]


def _validation(rule: ServerRule) -> JsonObject:
    validation: JsonObject = {"rule": escape_reserved_words(rule.cel), "message": rule.message}
    return validation | {"fieldPath": f".{rule.field}"} if rule.field else validation


def escape_reserved_words(rule: str) -> str:
    """``rule`` as every API server reads it: before 1.33 fields named like reserved words of CEL must be escaped.

    Source: ``k8s.io/apiserver/pkg/cel`` escaping.go.
    """
    return _RESERVED.sub(r".__\1__", rule)


def _list(node: inspect.VarTupleType, docs: FieldDocs) -> JsonObject:
    item = node.item_type
    key = _LIST_KEYS.get(item.cls) if isinstance(item, inspect.StructType) else None
    schema: JsonObject = {"type": "array", "items": _schema(item, docs)}
    if node.min_length is not None:
        schema["minItems"] = node.min_length
    if node.max_length is not None:
        schema["maxItems"] = node.max_length
    schema["x-kubernetes-list-type"] = "map" if key else "atomic"
    return schema | {"x-kubernetes-list-map-keys": [key]} if key else schema


def _scalar(node: inspect.Type) -> JsonObject:
    match node:
        case inspect.LiteralType(values=values):
            return {"type": "string", "enum": list(values)}
        case inspect.StrType(max_length=limit, pattern=pattern):
            bounds = {"maxLength": limit, "pattern": pattern}
            return {"type": "string"} | {name: bound for name, bound in bounds.items() if bound is not None}
        case inspect.IntType(ge=least, le=most):
            bounds = {"minimum": least, "maximum": most}
            known = {name: bound for name, bound in bounds.items() if bound is not None}
            return {"type": "integer", "format": "int64"} | known
        case inspect.FloatType(ge=least, le=most):
            limits = {"minimum": least, "maximum": most}
            return {"type": "number"} | {name: limit for name, limit in limits.items() if limit is not None}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.CustomType() if node.cls is Quantity:
            return dict(_POSITIVE_QUANTITY)
    raise TypeError(f"no schema for {node}")  # a type that no struct has had before


def _prose(docstring: str) -> str:
    """Return the first paragraph of a docstring as plain text."""
    return " ".join(docstring.strip().split("\n\n")[0].split()).replace("``", "`")
