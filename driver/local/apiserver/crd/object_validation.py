"""Custom resources against their schema: each error with its path, in the words of the API server.

Source: ``k8s.io/kube-openapi`` ``pkg/validation`` as ``apiextensions-apiserver`` uses it, and list types
(``pkg/apiserver/schema/listtype``). CEL rules are in ``cel_rules``.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.crd.structural_schema import OBJECT_FIELDS, children, is_embedded, properties
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    FieldError,
    FieldErrors,
    duplicate,
    invalid,
    not_supported,
    quoted,
    required,
    too_long,
    too_many,
    type_invalid,
)
from kerf_dra.driver.local.apiserver.times import parse_time

_INT_RANGES: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_BODY: Final = "in body"
_NOWHERE: Final = "<nil>"
"""The path that upstream prints for errors without one."""


def validate_object(document: JsonObject, schema: JsonObject) -> FieldErrors:
    """Yield the errors of a whole object."""
    inside = {name: value for name, value in document.items() if name not in OBJECT_FIELDS}
    own = {name: inner for name, inner in properties(schema).items() if name not in OBJECT_FIELDS}
    wanted = [name for name in schema.get("required") or () if name not in OBJECT_FIELDS]
    yield from _validate(inside, {**schema, "properties": own, "required": wanted}, "")
    yield from _validate_list_types(inside, schema, "")


def validate_value(value: JsonValue, schema: JsonObject) -> FieldErrors:
    """Yield the errors of a value that is no whole object, such as a default."""
    yield from _validate(value, schema, "")
    yield from _validate_list_types(value, schema, "")


def _validate(value: JsonValue, schema: JsonObject, path: str) -> FieldErrors:
    type_error = _find_type_error(value, schema, path)
    if type_error:
        yield type_error
    if value is None:
        return
    yield from _validate_combinations(value, schema, path)
    match value:
        case bool():
            pass
        case str():
            yield from _validate_string(value, schema, path)
        case int() | float():
            yield from _validate_number(value, schema, path)
        case list():
            yield from _validate_list(value, schema, path)
        case _:
            pass
    choices = schema.get("enum")
    if choices is not None and not any(_same(value, choice) for choice in choices):
        shown = [choice if isinstance(choice, str) else quoted(choice) for choice in choices]
        yield not_supported(path, value, shown)
    if isinstance(value, dict):
        yield from _validate_properties(value, schema, path)


def _same(value: JsonValue, choice: JsonValue) -> bool:
    return bool(value == choice) and isinstance(value, bool) == isinstance(choice, bool)


def _type_name(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _find_type_error(value: JsonValue, schema: JsonObject, path: str) -> FieldError | None:
    expected = ["integer", "string"] if schema.get("x-kubernetes-int-or-string") else [schema.get("type")]
    found = _type_name(value)
    if expected == [None] or found in expected:
        return None
    if value is None and schema.get("nullable"):
        return None
    if (found == "integer" and "number" in expected) or (
        "integer" in expected and isinstance(value, float) and value.is_integer()
    ):
        return None
    message = f'{path} {_BODY} must be of type {",".join(map(str, expected))}: "{found}"'
    return type_invalid(path, found, message)


def _validate_string(value: str, schema: JsonObject, path: str) -> FieldErrors:
    """Yield the errors of a string; of those in length and pattern only the first, as in upstream."""
    most, least, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if most is not None and len(value) > most:
        yield too_long(path, most)
    elif least is not None and len(value) < least:
        yield invalid(path, value, f"{path} {_BODY} should be at least {least} chars long")
    elif pattern is not None and not re.search(_python_pattern(pattern), value):
        yield invalid(path, value, f"{path} {_BODY} should match '{pattern}'")
    check = _FORMATS.get(schema.get("format") or "")
    if check and not check(value):
        yield type_invalid(path, value, f"{path} {_BODY} must be of type {schema['format']}: {quoted(value)}")


def _python_pattern(pattern: str) -> str:
    r"""Return a pattern of RE2 for Python, whose ``$`` also matches before a final newline and which has no ``\z``."""
    return re.sub(r"(?<!\\)\$(?=$|\))", r"\\Z", pattern).replace(r"\z", r"\Z")


def _validate_number(value: float, schema: JsonObject, path: str) -> FieldErrors:
    most, least, factor = schema.get("maximum"), schema.get("minimum"), schema.get("multipleOf")
    if factor and value % factor:
        yield invalid(path, value, f"{path} {_BODY} should be a multiple of {factor}")
    if most is not None:
        if schema.get("exclusiveMaximum") and value >= most:
            yield invalid(path, value, f"{path} {_BODY} should be less than {most}")
        elif value > most:
            yield invalid(path, value, f"{path} {_BODY} should be less than or equal to {most}")
    if least is not None:
        if schema.get("exclusiveMinimum") and value <= least:
            yield invalid(path, value, f"{path} {_BODY} should be greater than {least}")
        elif value < least:
            yield invalid(path, value, f"{path} {_BODY} should be greater than or equal to {least}")
    range_ = _INT_RANGES.get(schema.get("format") or "")
    if range_ and not range_[0] <= value <= range_[1]:
        message = f"Checked value must be of type integer with format {schema['format']} in {path}"
        yield invalid(_NOWHERE, "", message)


def _validate_list(value: list[JsonValue], schema: JsonObject, path: str) -> FieldErrors:
    for ending, item, inner in children(value, schema):
        yield from _validate(item, inner, path + ending)
    most, least = schema.get("maxItems"), schema.get("minItems")
    if least is not None and len(value) < least:
        yield invalid(path, len(value), f"{path} {_BODY} should have at least {least} items")
    if most is not None and len(value) > most:
        yield too_many(path, len(value), most)


def _validate_properties(value: JsonObject, schema: JsonObject, path: str) -> FieldErrors:
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if least is not None and len(value) < least:
        yield invalid(path, len(value), f"{path} {_BODY} should have at least {least} properties")
    if most is not None and len(value) > most:
        yield too_many(path, len(value), most)
    for ending, child, inner in children(value, schema):
        if is_embedded(schema) and ending.lstrip(".") in OBJECT_FIELDS:
            continue
        name = ending.strip(".[]")
        yield from _validate(child, inner, f"{path}.{name}" if path else name)
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{path}.{name}" if path else name)


def _validate_combinations(value: JsonValue, schema: JsonObject, path: str) -> FieldErrors:
    """Validate ``anyOf``, ``oneOf``, ``allOf`` and ``not``, with the errors of the alternative that has fewest."""
    if alternatives := schema.get("anyOf"):
        failures = _collect_failures(value, alternatives, path)
        if all(failures):
            yield invalid(_NOWHERE, "", f'"{path}" must validate at least one schema (anyOf)')
            yield from min(failures, key=len)
    if alternatives := schema.get("oneOf"):
        failures = _collect_failures(value, alternatives, path)
        fitting = sum(1 for each in failures if not each)
        if fitting != 1:
            found = f"Found {fitting} valid alternatives" if fitting else "Found none valid"
            message = f'"{path}" must validate one and only one schema (oneOf). {found}'
            yield invalid(_NOWHERE, "", message)
            yield from min(failures, key=len)
    if parts := schema.get("allOf"):
        failures = _collect_failures(value, parts, path)
        yield from (error for each in failures for error in each)
        if any(failures):
            none = ". None validated" if all(failures) else ""
            yield invalid(_NOWHERE, "", f'"{path}" must validate all the schemas (allOf){none}')
    if (excluded := schema.get("not")) is not None and not list(_validate(value, excluded, path)):
        yield invalid(_NOWHERE, "", f'"{path}" must not validate the schema (not)')


def _collect_failures(value: JsonValue, schemas: Sequence[JsonObject], path: str) -> list[list[FieldError]]:
    return [list(_validate(value, schema, path)) for schema in schemas]


def _validate_list_types(value: JsonValue, schema: JsonObject, path: str) -> FieldErrors:
    """Refuse items of a set, or of a list of type map, that occur twice."""
    if isinstance(value, list):
        match schema.get("x-kubernetes-list-type"):
            case "set":
                yield from _find_duplicates(value, path, lambda item: item)
            case "map":
                keys = schema.get("x-kubernetes-list-map-keys") or []
                yield from _find_duplicates(value, path, lambda item: _key_of(item, keys))
    for ending, child, inner in children(value, schema):
        here = path + ending
        yield from _validate_list_types(child, inner, here if path else here.lstrip("."))


def _key_of(item: JsonValue, keys: Sequence[str]) -> JsonObject:
    return {key: item[key] for key in keys if key in item} if isinstance(item, dict) else {}


def _find_duplicates(items: list[JsonValue], path: str, identity: Callable[[JsonValue], JsonValue]) -> FieldErrors:
    seen: set[str] = set()
    for index, item in enumerate(items):
        shown = quoted(identity(item))
        if shown in seen:
            yield duplicate(f"{path}[{index}]", identity(item))
        seen.add(shown)


_UUID: Final = "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
_DURATION: Final = r"[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d|w)([-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*|0"
_DATE_TIME: Final = r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})"
_EMAIL: Final = r"[^@\s]+@[^@\s]+"
_LABEL: Final = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_HOSTNAME: Final = rf"{_LABEL}|({_LABEL}\.)+[A-Za-z]{{2,63}}"


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2006-01-02")


def _is_date_time(text: str) -> bool:
    return bool(re.fullmatch(_DATE_TIME, text)) and parse_time(text.upper()) is not None


def _is_address(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _matching(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


_FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "byte": _is_base64,
    "cidr": _is_network,
    "date": _is_date,
    "date-time": _is_date_time,
    "duration": _matching(_DURATION),
    "email": _matching(_EMAIL),
    "hostname": _matching(_HOSTNAME),
    "ipv4": _is_address(4),
    "ipv6": _is_address(6),
    "uuid": _matching(_UUID),
}
"""The string formats; one that is not in this table is not validated, as in Kubernetes."""
