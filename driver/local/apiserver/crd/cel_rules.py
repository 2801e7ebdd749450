"""``x-kubernetes-validations``: the CEL validation rules of custom resources (KEP-2876).

A rule that does not compile (``kerf_dra.driver.local.apiserver.admission.cel``) is refused when its definition is
written.
"""

import re
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.admission.cel import RuleError, evaluate
from kerf_dra.driver.local.apiserver.crd.structural_schema import children, properties
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    OMITTED,
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    required,
)

VARIABLES: Final = ("self", "oldSelf")
"""The variables of a rule."""
_ABSENT: Final = object()
_RESERVED: Final = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
        *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
"""The reserved words of CEL: in an expression a field of this name is ``__name__`` (KEP-2876, "escaping")."""
_ESCAPES: Final = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


@dataclass(frozen=True, slots=True)
class _Rule:
    """One entry of ``x-kubernetes-validations``."""

    text: str
    message: str
    message_expression: str
    reason: str
    field_path: str
    transition: bool

    @classmethod
    def of(cls, entry: JsonObject) -> "_Rule":
        text = str(entry.get("rule", ""))
        return cls(
            text=text,
            message=entry.get("message") or "",
            message_expression=entry.get("messageExpression") or "",
            reason=entry.get("reason") or "FieldValueInvalid",
            field_path=entry.get("fieldPath") or "",
            transition=bool(re.search(r"\boldSelf\b", text)) and not entry.get("optionalOldSelf"),
        )


def has_rules(schema: JsonObject) -> bool:
    """Whether a schema has rules, at any depth."""
    if schema.get("x-kubernetes-validations"):
        return True
    inside = [*properties(schema).values(), schema.get("items"), schema.get("additionalProperties")]
    return any(has_rules(inner) for inner in inside if isinstance(inner, dict))


def validate_rules(document: JsonObject, schema: JsonObject, old: JsonObject | None = None) -> FieldErrors:
    """Yield the errors that the rules of a schema find in an object; ``old`` is the object before an update."""
    yield from _validate(document, _ABSENT if old is None else old, schema, "")


def _validate(value: JsonValue, old: JsonValue, schema: JsonObject, path: str) -> FieldErrors:
    for entry in schema.get("x-kubernetes-validations") or ():
        rule = _Rule.of(entry)
        if not rule.transition or old is not _ABSENT:
            yield from _validate_rule(rule, value, old, schema, path)
    for ending, child, inner in children(value, schema):
        if child is not None:
            here = path + ending
            yield from _validate(
                child, _counterpart(old, ending, child, schema), inner, here if path else here.lstrip(".")
            )


def _counterpart(old: JsonValue, ending: str, child: JsonValue, schema: JsonObject) -> JsonValue:
    """Return the same part of the old object, by field or by list map key; items of other lists have none."""
    if isinstance(old, dict):
        return old.get(ending.strip(".[]"), _ABSENT)
    keys = schema.get("x-kubernetes-list-map-keys")
    if isinstance(old, list) and keys and isinstance(child, dict):
        wanted = [child.get(key) for key in keys]
        return next((item for item in old if [item.get(key) for key in keys] == wanted), _ABSENT)
    return _ABSENT


def _validate_rule(rule: _Rule, value: JsonValue, old: JsonValue, schema: JsonObject, path: str) -> FieldErrors:
    data = {"self": escape_fields(value, schema)}
    if old is not _ABSENT:
        data["oldSelf"] = escape_fields(old, schema)
    here = path + rule.field_path if path else rule.field_path.lstrip(".")
    shown = _show(value)
    try:
        if evaluate(rule.text, VARIABLES, data) is True:
            return
        message = evaluate(rule.message_expression, VARIABLES, data) if rule.message_expression else ""
    except RuleError as error:
        yield invalid(path or "<nil>", shown, f"{error} evaluating rule: {rule.message or rule.text}")
        return
    message = str(message or rule.message or f"failed rule: {rule.text}")
    match rule.reason:
        case "FieldValueForbidden":
            yield forbidden(here or "<nil>", message)
        case "FieldValueRequired":
            yield required(here or "<nil>", message)
        case "FieldValueDuplicate":
            yield duplicate(here or "<nil>", shown)
        case _:
            yield invalid(here or "<nil>", shown, message)


def _show(value: JsonValue) -> JsonValue:
    """Return the value as a message shows it; objects and lists are too long for one."""
    return OMITTED if isinstance(value, dict | list) else value


def escape_fields(value: JsonValue, schema: JsonObject) -> JsonValue:
    """Return a value with its field names escaped as in expressions; keys of maps stay as they are."""
    if isinstance(value, dict):
        known = properties(schema)
        return {
            escape_name(name) if name in known else name: escape_fields(child, known.get(name) or _inner(schema))
            for name, child in value.items()
        }
    if isinstance(value, list):
        inner = schema.get("items")
        return [escape_fields(item, inner if isinstance(inner, dict) else {}) for item in value]
    return value


def _inner(schema: JsonObject) -> JsonObject:
    additional = schema.get("additionalProperties")
    return additional if isinstance(additional, dict) else {}


def escape_name(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    for mark, spelled in _ESCAPES:
        name = name.replace(mark, spelled)
    return name
