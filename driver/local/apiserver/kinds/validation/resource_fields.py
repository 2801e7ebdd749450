"""Validation of the fields that claims, classes, slices and taint rules share.

Paths and messages are those of ``kubernetes/pkg/apis/resource/validation`` of 1.37, limits those of
``k8s.io/api/resource/v1`` types.go.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.cel.compile import (
    MAX_EXPRESSION_BYTES,
    ExpressionCompileError,
    ExpressionCostError,
    UnsupportedExpressionError,
    compile_selector,
)
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue, lookup
from kerf_dra.driver.local.apiserver.meta.names import (
    NameCheck,
    dns_subdomain,
    dns_subdomain_any_case,
    label_value,
    qualified_name,
    validate_format,
)
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    FieldError,
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

ItemCheck: TypeAlias = Callable[[Any, str], FieldErrors]

MAX_SELECTORS: Final = 32
MAX_CONFIGS: Final = 32
MAX_REQUESTS: Final = 32
MAX_BINDING_CONDITIONS: Final = 4
MAX_CONDITIONS: Final = 8
MAX_OPAQUE_BYTES: Final = 10 * 1024
"""``OpaqueParametersMaxLength``, which also holds for ``status.devices[].data``."""
"""``CELSelectorExpressionMaxLength`` of ``k8s.io/api/resource/v1``."""
_MAX_DRIVER: Final = 63
_MAX_POOL: Final = 253
_MAX_IDENTIFIER: Final = 32
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
TAINT_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_NEGATIVE: Final = "must be greater than or equal to 0"


def clear_status(body: JsonObject) -> None:
    """Prepare a new object, which never has a status."""
    body["status"] = {}


def validate_list(items: Sequence[Any], path: str, check: ItemCheck, *, limit: int | None = None) -> FieldErrors:
    """Validate each item of a list; the items of a list that is too long are not validated."""
    if limit is not None and len(items) > limit:
        yield too_many(path, len(items), limit)
        return
    for index, item in enumerate(items):
        yield from check(item, f"{path}[{index}]")


def validate_unique(
    items: Sequence[Any],
    path: str,
    check: ItemCheck,
    *,
    key: Callable[[Any], Hashable],
    limit: int | None = None,
    whole: bool = False,
) -> FieldErrors:
    """Validate as ``validate_list``, and that keys are unique; with ``whole`` the message shows the item."""
    yield from validate_list(items, path, check, limit=limit)
    if limit is not None and len(items) > limit:
        return
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        identity = key(item)
        if identity in seen:
            yield duplicate(f"{path}[{index}]", item if whole else identity)
        seen.add(identity)


def validate_map(entries: Mapping[str, Any], path: str, key_check: ItemCheck, check: ItemCheck) -> FieldErrors:
    """Validate each key and value of a map."""
    for key, value in entries.items():
        yield from key_check(key, path)
        yield from check(value, f"{path}[{key}]")


def name_of(item: JsonValue) -> Hashable:
    name = item.get("name") if isinstance(item, dict) else item
    return str(name)


def validate_driver_name(name: object, path: str, *, check: NameCheck = dns_subdomain) -> FieldErrors:
    """Validate a DNS subdomain of at most 63 bytes, in upper or lower case (the rule of CSI drivers)."""
    if not isinstance(name, str) or not name:
        yield required(path)
        return
    if len(name) > _MAX_DRIVER:
        yield too_long(path, _MAX_DRIVER)
    yield from (invalid(path, name, message) for message in check(name.lower()))


def validate_pool_name(name: object, path: str, *, numbered: bool = False) -> FieldErrors:
    """Validate DNS subdomains joined by ``/``; with ``numbered``, messages say which of them is wrong."""
    if not isinstance(name, str) or not name:
        yield required(path)
        return
    if len(name) > _MAX_POOL:
        yield too_long(path, _MAX_POOL)
    for index, part in enumerate(name.split("/")):
        where = f"segment {index}: " if numbered else ""
        yield from (invalid(path, part, f"{where}{message}") for message in dns_subdomain(part))


def validate_identifier(name: str, path: str) -> FieldErrors:
    if len(name) > _MAX_IDENTIFIER:
        yield too_long(path, _MAX_IDENTIFIER)
    if not re.fullmatch(_IDENTIFIER, name):
        yield invalid(
            path,
            name,
            "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
            "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
            f"'{_IDENTIFIER}')",
        )


def validate_attribute_name(name: str, path: str) -> FieldErrors:
    """Validate the name of an attribute or capacity: a C identifier with an optional domain."""
    domain, slash, rest = name.partition("/")
    if not slash:
        yield from validate_identifier(name, path)
        return
    if "/" in rest:
        return  # not refused by Kubernetes either: kubernetes/kubernetes validateQualifiedName, TODO
    if domain:
        yield from validate_driver_name(domain, path)
    else:
        yield invalid(path, "", "the domain must not be empty")
    if rest:
        yield from validate_identifier(rest, path)
    else:
        yield invalid(path, "", "the name must not be empty")


def validate_full_attribute_name(name: str, path: str) -> FieldErrors:
    yield from validate_attribute_name(name, path)
    if "/" not in name:
        yield invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash")


def validate_label_key(key: object, path: str) -> FieldErrors:
    text = key if isinstance(key, str) else ""
    yield from validate_format(path, text, qualified_name)


def validate_selector(item: JsonObject, path: str) -> FieldErrors:
    expression = lookup(item, "cel", "expression")
    if lookup(item, "cel") is None:
        yield required(f"{path}.cel")
    else:
        yield from _validate_expression(expression if isinstance(expression, str) else "", f"{path}.cel.expression")


def _validate_expression(expression: str, path: str) -> FieldErrors:
    if len(expression.encode()) > MAX_EXPRESSION_BYTES:
        yield too_long(path, MAX_EXPRESSION_BYTES)
        return
    if message := _find_syntax_error(expression):
        yield invalid(path, expression, f"compilation failed: {message}")
        return
    try:
        compile_selector(expression)
    except UnsupportedExpressionError:
        pass  # valid in Kubernetes; the allocator reports what it does not support
    except ExpressionCostError:
        yield forbidden(path, "too complex, exceeds cost limit")
    except ExpressionCompileError as error:
        yield invalid(path, expression, error.reason)


@lru_cache(maxsize=1)
def _environment() -> Any:  # noqa: ANN401  (the library has no types)
    # Imported with the first expression, because it maps 14 MB.
    from cel_expr_python import cel

    return cel.NewEnv()


@lru_cache(maxsize=1024)
def _find_syntax_error(expression: str) -> str:
    """Return the message of the parser; empty when the expression is well formed."""
    try:
        _environment().compile(expression, disable_check=True)
    except Exception as error:  # noqa: BLE001  (the library raises bare exceptions of several kinds)
        return str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
    return ""


def validate_opaque_config(item: JsonObject, path: str) -> FieldErrors:
    opaque = item.get("opaque")
    if not isinstance(opaque, dict):
        yield required(f"{path}.opaque")
        return
    yield from validate_driver_name(opaque.get("driver"), f"{path}.opaque.driver", check=dns_subdomain_any_case)
    yield from validate_json_object(opaque.get("parameters"), f"{path}.opaque.parameters")


def validate_json_object(value: object, path: str) -> FieldErrors:
    """Validate opaque parameters: a JSON object of at most 10 KiB."""
    if value is None:
        yield required(path)
    elif len(msgspec.json.encode(value)) > MAX_OPAQUE_BYTES:
        yield too_long(path, MAX_OPAQUE_BYTES)
    elif not isinstance(value, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


def validate_taint(item: JsonObject, path: str) -> FieldErrors:
    yield from validate_label_key(item.get("key"), f"{path}.key")
    value, effect = item.get("value") or "", item.get("effect")
    yield from validate_format(f"{path}.value", value, label_value)
    if not effect:
        yield required(f"{path}.effect")
    elif effect not in TAINT_EFFECTS:
        yield not_supported(f"{path}.effect", effect, TAINT_EFFECTS)


def validate_toleration(item: JsonObject, path: str) -> FieldErrors:
    key, operator, value = item.get("key"), item.get("operator"), item.get("value") or ""
    if key:
        yield from validate_label_key(key, f"{path}.key")
    match operator:
        case "Exists":
            if value:
                yield invalid(f"{path}.value", value, "must be empty for operator `Exists`")
        case "Equal":
            yield from validate_format(f"{path}.value", value, label_value)
        case None | "":
            yield required(f"{path}.operator")
        case _:
            yield not_supported(f"{path}.operator", operator, ("Equal", "Exists"))
    effect = item.get("effect")
    if effect and effect not in TAINT_EFFECTS:
        yield not_supported(f"{path}.effect", effect, TAINT_EFFECTS)


def validate_binding_conditions(item: JsonObject, path: str) -> FieldErrors:
    """Validate binding and binding failure conditions, which go together and do not overlap (KEP-5007)."""
    wanted, failing = item.get("bindingConditions") or [], item.get("bindingFailureConditions") or []
    for field, names in (("bindingConditions", wanted), ("bindingFailureConditions", failing)):
        yield from validate_unique(names, f"{path}.{field}", validate_label_key, key=str, limit=MAX_BINDING_CONDITIONS)
    for index, name in enumerate(failing):
        if name in wanted:
            yield invalid(
                f"{path}.bindingFailureConditions[{index}]",
                name,
                "bindingFailureConditions must not overlap with bindingConditions",
            )
    if failing and not wanted:
        yield invalid(
            f"{path}.bindingConditions", None, "bindingConditions are required to use bindingFailureConditions"
        )
    if wanted and not failing:
        yield invalid(
            f"{path}.bindingFailureConditions", None, "bindingFailureConditions are required to use bindingConditions"
        )


def validate_consumer(consumer: JsonObject, path: str) -> FieldErrors:
    for field in ("resource", "name", "uid"):
        if not consumer.get(field):
            yield required(f"{path}.{field}")


def validate_share_id(value: object, path: str) -> FieldErrors:
    text = str(value)
    if not re.fullmatch(_UUID, text):
        yield invalid(path, text, "must be a lowercase UUID in 8-4-4-4-12 format")


def validate_node_selector(item: JsonObject, path: str) -> FieldErrors:
    terms = item.get("nodeSelectorTerms") or []
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        here = f"{path}.nodeSelectorTerms[{index}]"
        yield from validate_list(term.get("matchExpressions") or [], f"{here}.matchExpressions", _node_requirement)
        yield from validate_list(term.get("matchFields") or [], f"{here}.matchFields", _node_field_requirement)


def _node_requirement(item: JsonObject, path: str) -> FieldErrors:
    operator, values = item.get("operator"), item.get("values") or []
    match operator:
        case "In" | "NotIn":
            if not values:
                yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                yield FieldError(
                    "FieldValueForbidden",
                    f"{path}.values",
                    "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                )
        case "Gt" | "Lt":
            if len(values) != 1:
                yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        case _:
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    yield from validate_label_key(item.get("key"), f"{path}.key")


def _node_field_requirement(item: JsonObject, path: str) -> FieldErrors:
    operator, values = item.get("operator"), item.get("values") or []
    if operator not in {"In", "NotIn"}:
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        yield required(
            f"{path}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        )
    if item.get("key") != "metadata.name":
        yield invalid(f"{path}.key", item.get("key"), "not a valid field selector key")


def validate_conditions(items: Sequence[JsonObject], path: str) -> FieldErrors:
    """Validate a list of ``metav1.Condition`` (``ValidateConditions``)."""
    if len(items) > MAX_CONDITIONS:
        yield too_many(path, len(items), MAX_CONDITIONS)
    seen: set[object] = set()
    for index, item in enumerate(items):
        here = f"{path}[{index}]"
        type_ = item.get("type")
        if type_ in seen:
            yield duplicate(f"{here}.type", type_)
        seen.add(type_)
        if not type_:
            yield required(f"{here}.type", "is required")
        else:
            yield from validate_label_key(type_, f"{here}.type")
        status = item.get("status")
        if not status:
            yield required(f"{here}.status")
        elif status not in {"True", "False", "Unknown"}:
            yield not_supported(f"{here}.status", status, ("False", "True", "Unknown"))
        if (item.get("observedGeneration") or 0) < 0:
            yield invalid(f"{here}.observedGeneration", item["observedGeneration"], _NEGATIVE)
        if not item.get("lastTransitionTime"):
            yield required(f"{here}.lastTransitionTime")
        reason = item.get("reason")
        if not reason:
            yield required(f"{here}.reason")
        elif not re.fullmatch(_REASON, reason):
            yield invalid(f"{here}.reason", reason, _REASON_RULE)


_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_RULE: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    f"'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
)
