"""Validation of structural schemas, and of their rules and defaults, when a definition is written.

Only common mistakes of authors are found; a schema with another one validates less than it says.
Source: ``apiextensions-apiserver`` ``pkg/apiserver/schema`` (KEP-1165).
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.admission.cel import RuleError, compile_expression
from kerf_dra.driver.local.apiserver.crd.cel_rules import VARIABLES
from kerf_dra.driver.local.apiserver.crd.object_validation import validate_value
from kerf_dra.driver.local.apiserver.crd.structural_schema import prune
from kerf_dra.driver.local.apiserver.meta.documents import deep_copy
from kerf_dra.driver.local.apiserver.meta.status_errors import FieldErrors, forbidden, invalid, not_supported, required

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_LIST_TYPES: Final = ("atomic", "map", "set")
_FORBIDDEN: Final = ("$ref", "definitions", "dependencies", "patternProperties", "id", "additionalItems", "deprecated")
_REASONS: Final = ("FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate")


def validate_structural_schema(schema: JsonObject, path: str) -> FieldErrors:
    """Yield the errors of a whole ``openAPIV3Schema``."""
    if schema.get("type") != "object":
        yield invalid(f"{path}.type", schema.get("type") or "", "must be object at the root")
    yield from _validate(schema, path, position="at the root")


def _validate(schema: JsonObject, path: str, *, position: str) -> FieldErrors:
    yield from _validate_type(schema, path, position)
    for name in _FORBIDDEN:
        if name in schema:
            yield forbidden(f"{path}.{name}", "is not allowed")
    if schema.get("uniqueItems"):
        yield forbidden(
            f"{path}.uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        )
    if schema.get("additionalProperties") is not None and schema.get("properties"):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if schema.get("x-kubernetes-embedded-resource") and not (
        schema.get("properties") or schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        yield required(
            f"{path}.properties",
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        )
    yield from _validate_list(schema, path)
    yield from _validate_default(schema, path)
    yield from _validate_pattern(schema, path)
    yield from _validate_rule(schema, path)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _validate(inner, f"{path}.properties[{name}]", position="for specified object fields")
    if isinstance(schema.get("items"), dict):
        yield from _validate(schema["items"], f"{path}.items", position="for specified array items")
    if isinstance(schema.get("additionalProperties"), dict):
        inner = schema["additionalProperties"]
        yield from _validate(inner, f"{path}.additionalProperties", position="for specified object fields")


def _validate_type(schema: JsonObject, path: str, position: str) -> FieldErrors:
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    type_ = schema.get("type")
    if not type_:
        if not free:
            yield required(f"{path}.type", f"must not be empty {position}")
    elif type_ not in _TYPES:
        yield not_supported(f"{path}.type", type_, _TYPES)
    elif schema.get("x-kubernetes-int-or-string"):
        yield invalid(f"{path}.type", type_, "must be empty if x-kubernetes-int-or-string is true")
    if type_ == "array" and schema.get("items") is None:
        yield required(f"{path}.items", "must be specified")


def _validate_list(schema: JsonObject, path: str) -> FieldErrors:
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    if kind is not None and schema.get("type") != "array":
        yield invalid(f"{path}.type", schema.get("type") or "", "must be array if x-kubernetes-list-type is specified")
    if kind is not None and kind not in _LIST_TYPES:
        yield not_supported(f"{path}.x-kubernetes-list-type", kind, _LIST_TYPES)
    if kind == "map":
        yield from _validate_keys(keys, schema.get("items") or {}, path)
    elif keys:
        message = "must be map if x-kubernetes-list-map-keys is non-empty"
        where = f"{path}.x-kubernetes-list-type"
        yield required(where, message) if kind is None else invalid(where, kind, message)


def _validate_keys(keys: Sequence[str], items: JsonObject, path: str) -> FieldErrors:
    """Validate the keys of a list of type map: scalars that each item has."""
    if not keys:
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    if items.get("type") != "object":
        message = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", message)
        return
    for key in keys:
        of_key = (items.get("properties") or {}).get(key)
        if of_key is None:
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "entries must all be names of item properties")
            continue
        if of_key.get("type") in {"array", "object"}:
            message = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", items["type"], message)
        if key not in (items.get("required") or ()) and "default" not in of_key:
            message = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            yield required(f"{path}.items.properties[{key}].default", message)


def _validate_default(schema: JsonObject, path: str) -> FieldErrors:
    """Validate a default, which must be a valid value itself."""
    if schema.get("default") is None:
        return
    whole, around = deep_copy({"default": schema["default"]}), {"properties": {"default": schema}}
    if prune(whole, around):
        yield invalid(f"{path}.default", schema["default"], "must not have unknown fields")
    for error in validate_value(schema["default"], schema):
        yield replace(error, path=f"{path}.default.{error.path}" if error.path else f"{path}.default")


def _validate_pattern(schema: JsonObject, path: str) -> FieldErrors:
    try:
        re.compile(schema.get("pattern") or "")
    except re.error as error:
        yield invalid(f"{path}.pattern", schema["pattern"], f"must be a valid regular expression, but isn't: {error}")


def _validate_rule(schema: JsonObject, path: str) -> FieldErrors:
    for index, entry in enumerate(schema.get("x-kubernetes-validations") or ()):
        here = f"{path}.x-kubernetes-validations[{index}]"
        if not str(entry.get("rule") or "").strip():
            yield required(f"{here}.rule", "rule is not specified")
            continue
        reason = entry.get("reason")
        if reason is not None and reason not in _REASONS:
            yield not_supported(f"{here}.reason", reason, _REASONS)
        for field in ("rule", "messageExpression"):
            if not entry.get(field):
                continue
            try:
                compile_expression(entry[field], VARIABLES)
            except RuleError as error:
                yield invalid(f"{here}.{field}", entry[field], str(error))
