"""Rules of ResourceSlice and DeviceTaintRule (``resource.k8s.io``).

Checks within one slice only: that device names are unique in a pool, or that a counter set exists, nobody checks but
the scheduler. Source: ``kubernetes/pkg/apis/resource/validation`` of 1.37.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from api.model.base import JsonObject
from api.model.quantity import Quantity
from api.model.semver import parse_version
from driver.local.apiserver.kinds.types import Rules
from driver.local.apiserver.kinds.validation.devices import (
    attribute_name,
    binding_conditions,
    conditions,
    driver_name,
    each,
    each_entry,
    each_once,
    named,
    node_selector,
    pool_name,
    taint,
)
from driver.local.apiserver.kinds.validation.request_policies import policy_errors
from driver.local.apiserver.meta.documents import lookup
from driver.local.apiserver.meta.names import checked, dns_label, dns_subdomain
from driver.local.apiserver.meta.status_errors import (
    FieldError,
    forbidden,
    immutable,
    invalid,
    required,
    too_long,
    too_many,
)

MAX_DEVICES: Final = 128
MAX_ADVANCED_DEVICES: Final = 64
"""When any device has taints, consumes counters or has list attributes: such devices take more room."""
MAX_ATTRIBUTES_AND_CAPACITIES: Final = 32
MAX_ATTRIBUTE_VALUES: Final = 48
MAX_VALUE_BYTES: Final = 64
MAX_TAINTS: Final = 16
MAX_COUNTER_SETS: Final = 8
MAX_COUNTERS: Final = 32
MAX_CONSUMED_SETS: Final = 2
_LISTS: Final = ("ints", "bools", "strings", "versions")
_VALUES: Final = ("int", "bool", "string", "version", *_LISTS)
_SLICE_PLACES: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_DEVICE_PLACES: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)


def _slice_errors(body: JsonObject, old: JsonObject | None = None) -> Iterator[FieldError]:
    spec = body.get("spec") or {}
    yield from driver_name(spec.get("driver"), "spec.driver")
    yield from _pool_errors(spec.get("pool") or {}, "spec.pool")
    if old is not None:
        yield from _identity_errors(spec, old.get("spec") or {})
    yield from _place_errors(spec)
    devices, counter_sets = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counter_sets is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    devices = devices or []
    limit = MAX_ADVANCED_DEVICES if any(map(_is_advanced, devices)) else MAX_DEVICES
    device = partial(_device_errors, own_place=bool(spec.get("perDeviceNodeSelection")))
    yield from each_once(devices, "spec.devices", device, key=named, limit=limit)
    yield from each_once(
        counter_sets or [], "spec.sharedCounters", _counter_set_errors, key=named, limit=MAX_COUNTER_SETS, whole=True
    )


def _identity_errors(spec: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    for path in (("pool", "name"), ("driver",), ("nodeName",)):
        value = lookup(spec, *path)
        if value != lookup(old, *path):
            yield immutable("spec." + ".".join(path), value)


def _pool_errors(pool: JsonObject, path: str) -> Iterator[FieldError]:
    yield from pool_name(pool.get("name"), f"{path}.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        yield invalid(f"{path}.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        yield invalid(f"{path}.generation", generation, "must be greater than or equal to zero")


def _place_errors(spec: JsonObject) -> Iterator[FieldError]:
    given = []
    node, nodes = spec.get("nodeName"), spec.get("nodeSelector")
    if node:
        given.append("`nodeName`")
        yield from (invalid("spec.nodeName", node, said) for said in dns_subdomain(node))
    elif node is not None:
        yield invalid("spec.nodeName", node, "must be either unset or set to a non-empty string")
    if nodes is not None:
        given.append("`nodeSelector`")
        yield from node_selector(nodes, "spec.nodeSelector")
        if len(nodes.get("nodeSelectorTerms") or []) != 1:
            terms = nodes.get("nodeSelectorTerms")
            yield invalid("spec.nodeSelector.nodeSelectorTerms", terms, "must have exactly one node selector term")
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field):
            given.append(f"`{field}`")
        elif spec.get(field) is not None:
            yield invalid(f"spec.{field}", False, "must be either unset or set to true")
    if not given:
        yield required("spec", _SLICE_PLACES)
    elif len(given) > 1:
        yield invalid("spec", f"{{{', '.join(given)}}}", f"{_SLICE_PLACES}, but multiple fields are set")


def _is_advanced(device: JsonObject) -> bool:
    attributes = (device.get("attributes") or {}).values()
    return bool(
        device.get("taints")
        or device.get("consumesCounters")
        or any(field in attribute for attribute in attributes for field in _LISTS)
    )


def _device_errors(device: JsonObject, path: str, *, own_place: bool) -> Iterator[FieldError]:
    yield from checked(f"{path}.name", device.get("name"), dns_label)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    count = len(attributes) + len(capacity)
    if count > MAX_ATTRIBUTES_AND_CAPACITIES:
        said = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}"
        yield invalid(path, count, said)
    values = sum(_value_count(attribute) for attribute in attributes.values())
    if values > MAX_ATTRIBUTE_VALUES:
        yield invalid(path, values, f"the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}")
    yield from each_entry(attributes, f"{path}.attributes", attribute_name, _attribute_errors)
    shareable = bool(device.get("allowMultipleAllocations"))
    yield from each_entry(capacity, f"{path}.capacity", attribute_name, partial(_capacity_errors, shareable=shareable))
    yield from each(device.get("taints") or [], f"{path}.taints", taint, limit=MAX_TAINTS)
    yield from each_once(
        device.get("consumesCounters") or [],
        f"{path}.consumesCounters",
        _consumption_errors,
        key=lambda consumed: str(consumed.get("counterSet")),
        limit=MAX_CONSUMED_SETS,
        whole=True,
    )
    yield from _device_place_errors(device, path, own_place=own_place)
    yield from binding_conditions(device, path)


def _value_count(attribute: JsonObject) -> int:
    return sum(len(attribute.get(field) or []) for field in _LISTS) or 1


def _attribute_errors(attribute: JsonObject, path: str) -> Iterator[FieldError]:
    given = [field for field in _VALUES if attribute.get(field) is not None]
    choice = ", ".join(f"`{field}`" for field in _VALUES)
    if not given:
        yield invalid(path, "", f"must specify one of: {choice}")
    elif len(given) > 1:
        yield invalid(path, f"{{{', '.join(given)}}}", f"must specify exactly one of: {choice}")
    if (text := attribute.get("string")) is not None:
        yield from _text_errors(text, f"{path}.string")
    if (version := attribute.get("version")) is not None:
        yield from _version_errors(version, f"{path}.version")
    for field in _LISTS:
        if attribute.get(field) == []:
            yield invalid(f"{path}.{field}", [], "must not be empty if specified")
    yield from each(attribute.get("strings") or [], f"{path}.strings", _text_errors)
    yield from each(attribute.get("versions") or [], f"{path}.versions", _version_errors)


def _text_errors(text: str, path: str) -> Iterator[FieldError]:
    if len(text.encode()) > MAX_VALUE_BYTES:
        yield too_long(path, MAX_VALUE_BYTES)


def _version_errors(version: str, path: str) -> Iterator[FieldError]:
    if parse_version(version) is None:
        yield invalid(path, version, "must be a string compatible with semver.org spec 2.0.0")
    yield from _text_errors(version, path)


def _capacity_errors(capacity: JsonObject, path: str, *, shareable: bool) -> Iterator[FieldError]:
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    if not shareable:
        yield forbidden(f"{path}.requestPolicy", "allowMultipleAllocations must be true")
    else:
        yield from policy_errors(policy, Quantity(capacity.get("value") or 0), f"{path}.requestPolicy")


def _nothing(_value: Any, _path: str) -> Iterator[FieldError]:  # noqa: ANN401  (any JSON)
    return iter(())


def _counter_name(name: str, path: str) -> Iterator[FieldError]:
    yield from (invalid(path, name, said) for said in dns_label(name))


def _counters_errors(counters: JsonObject, path: str) -> Iterator[FieldError]:
    if not counters:
        yield required(path)
    elif len(counters) > MAX_COUNTERS:
        yield too_many(path, len(counters), MAX_COUNTERS)
    else:
        yield from each_entry(counters, path, _counter_name, _nothing)


def _counter_set_errors(counter_set: JsonObject, path: str) -> Iterator[FieldError]:
    yield from checked(f"{path}.name", counter_set.get("name"), dns_label)
    yield from _counters_errors(counter_set.get("counters") or {}, f"{path}.counters")


def _consumption_errors(consumed: JsonObject, path: str) -> Iterator[FieldError]:
    yield from checked(f"{path}.counterSet", consumed.get("counterSet"), dns_label)
    yield from _counters_errors(consumed.get("counters") or {}, f"{path}.counters")


def _device_place_errors(device: JsonObject, path: str, *, own_place: bool) -> Iterator[FieldError]:
    given = [field for field in ("nodeName", "nodeSelector", "allNodes") if device.get(field) is not None]
    if not own_place:
        if given:
            yield invalid(
                path,
                None,
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
                "in the ResourceSlice spec",
            )
        return
    node = device.get("nodeName")
    if node == "":
        yield invalid(f"{path}.nodeName", node, "must not be empty")
    elif node:
        yield from (invalid(f"{path}.nodeName", node, said) for said in dns_subdomain(node))
    if device.get("nodeSelector") is not None:
        yield from node_selector(device["nodeSelector"], f"{path}.nodeSelector")
    if device.get("allNodes") is False:
        yield invalid(f"{path}.allNodes", False, "must be either unset or set to true")
    said = [f"`{field}`" for field in given if device[field] not in ("", False)]
    if not said:
        yield required(path, _DEVICE_PLACES)
    elif len(said) > 1:
        yield invalid(path, f"{{{', '.join(said)}}}", _DEVICE_PLACES)


def _date(taint_: JsonObject, now: str) -> None:
    taint_["timeAdded"] = taint_.get("timeAdded") or now


def _default_slice(body: JsonObject, now: str) -> None:
    for device in lookup(body, "spec", "devices") or []:
        for each_taint in device.get("taints") or []:
            _date(each_taint, now)


SLICES: Final = Rules(default=_default_slice, validate=_slice_errors, validate_update=_slice_errors)


def _rule_errors(body: JsonObject, _old: JsonObject | None = None) -> Iterator[FieldError]:
    spec = body.get("spec") or {}
    chosen = spec.get("deviceSelector") or {}
    path = "spec.deviceSelector"
    if (driver := chosen.get("driver")) is not None:
        yield from driver_name(driver, f"{path}.driver")
    if (pool := chosen.get("pool")) is not None:
        yield from pool_name(pool, f"{path}.pool")
    if (device := chosen.get("device")) is not None:
        yield from checked(f"{path}.device", device, dns_label)
    yield from taint(spec.get("taint") or {}, "spec.taint")


def _rule_status_errors(body: JsonObject, _old: JsonObject) -> Iterator[FieldError]:
    yield from conditions(lookup(body, "status", "conditions") or [], "status.conditions")


def _default_rule(body: JsonObject, now: str) -> None:
    _date(body.setdefault("spec", {}).setdefault("taint", {}), now)


def _prepare_rule(body: JsonObject) -> None:
    body["status"] = {}


def _redate(body: JsonObject, old: JsonObject, now: str) -> None:
    """A new effect counts from now, unless the client says otherwise: tolerations count from there."""
    tainted, before = body["spec"]["taint"], lookup(old, "spec", "taint") or {}
    if tainted.get("effect") != before.get("effect") and tainted.get("timeAdded") == before.get("timeAdded"):
        tainted["timeAdded"] = now


TAINT_RULES: Final = Rules(
    default=_default_rule,
    prepare_create=_prepare_rule,
    prepare_update=_redate,
    validate=_rule_errors,
    validate_update=_rule_errors,
    validate_status=_rule_status_errors,
)
