"""Generates the JSON schema of spec files from the table of fields: for editors, and for checks in other languages.

The schema describes the documents that this package writes, a subset of those that readers accept, without the rules
that relate several fields, such as those on versions. ``cdi/schema.json`` is the output of ``python -m cdi schema``; a
test compares them.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from kerf_dra.cdi.document.fields import FIELDS, RANGES, Field, ListOf, Scalar, Shape, TextMap
from kerf_dra.cdi.spec import HOOK_STAGES, ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec
from kerf_dra.cdi.versions import VERSIONS

JSONSchema: TypeAlias = dict[str, Any]

_PART = "[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]"
"""A vendor or class of at least two characters: one alone crashes readers up to release 1.1.0."""
_ENTRY = {"items": {"type": "string", "pattern": "^[^=]+="}}
_ABSOLUTE = {"pattern": "^/"}
_DEVICE_NUMBER = {"minimum": 0, "maximum": 2**32 - 1}
_INTERFACE = {"minLength": 1, "maxLength": 15}

_CONSTRAINTS: Mapping[tuple[type, str], JSONSchema] = {
    (Spec, "cdiVersion"): {"enum": list(VERSIONS)},
    (Spec, "kind"): {"pattern": f"^{_PART}/{_PART}$"},
    (Spec, "devices"): {"minItems": 1},
    (Device, "name"): {"pattern": "^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"},
    (Device, "containerEdits"): {"minProperties": 1},
    (ContainerEdits, "env"): _ENTRY,
    (DeviceNode, "path"): _ABSOLUTE,
    (DeviceNode, "hostPath"): _ABSOLUTE,
    (DeviceNode, "type"): {"enum": ["b", "c", "u", "p"]},
    (DeviceNode, "major"): _DEVICE_NUMBER,
    (DeviceNode, "minor"): _DEVICE_NUMBER,
    (DeviceNode, "permissions"): {"pattern": "^[rwm]*$"},
    (NetDevice, "hostInterfaceName"): _INTERFACE,
    (NetDevice, "name"): _INTERFACE,
    (Hook, "hookName"): {"enum": list(HOOK_STAGES)},
    (Hook, "path"): _ABSOLUTE,
    (Hook, "env"): _ENTRY,
    (Hook, "timeout"): {"minimum": 1},
    (Mount, "hostPath"): {"minLength": 1},
    (Mount, "containerPath"): _ABSOLUTE,
    (IntelRdt, "closID"): {"pattern": "^(/|[^/\n]*)$"},
}


def schema() -> JSONSchema:
    """Return the schema as plain JSON values (draft 2020-12)."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Container Device Interface spec",
        **_object(Spec),
        "$defs": {shape.__name__: _object(shape) for shape in FIELDS if shape is not Spec},
    }


def _object(shape: type) -> JSONSchema:
    rows = FIELDS[shape]
    required = [row.key for row in rows if row.required]
    return {
        "type": "object",
        "properties": {row.key: _property(shape, row) for row in rows},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _property(shape: type, row: Field) -> JSONSchema:
    return {**_shape(row.shape), **_CONSTRAINTS.get((shape, row.key), {})}


def _shape(shape: Shape) -> JSONSchema:
    match shape:
        case Scalar.TEXT:
            return {"type": "string"}
        case Scalar.FLAG:
            return {"type": "boolean"}
        case Scalar():
            lowest, highest = RANGES[shape]
            return {"type": "integer", "minimum": lowest, "maximum": highest}
        case ListOf():
            return {"type": "array", "items": _shape(shape.item)}
        case TextMap():
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case _:
            return {"$ref": f"#/$defs/{shape.__name__}"}
