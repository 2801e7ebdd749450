"""The strategies of ResourceSlice and DeviceTaintRule (``resource.k8s.io``).

Validation looks at one slice: that device names are unique in a pool, or that a counter set exists, only the scheduler
checks. Request policies (KEP-5075) are validated with the gate DRAFractionalCapacityRange off, as it is by default.
Source: ``kubernetes/pkg/apis/resource/validation`` of 1.37.
"""

from functools import partial
from itertools import pairwise
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.model.semver import parse_version
from kerf_dra.driver.local.apiserver.kinds.types import Strategy
from kerf_dra.driver.local.apiserver.kinds.validation.resource_fields import (
    clear_status,
    name_of,
    validate_attribute_name,
    validate_binding_conditions,
    validate_conditions,
    validate_driver_name,
    validate_list,
    validate_map,
    validate_node_selector,
    validate_pool_name,
    validate_taint,
    validate_unique,
)
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue, lookup
from kerf_dra.driver.local.apiserver.meta.names import dns_label, dns_subdomain, validate_format, validate_name
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    FieldErrors,
    duplicate,
    forbidden,
    immutable,
    invalid,
    required,
    too_long,
    too_many,
)

MAX_DEVICES: Final = 128
MAX_ADVANCED_DEVICES: Final = 64
"""The limit once a device has taints, consumes counters or has list attributes, as such devices are larger."""
MAX_ATTRIBUTES_AND_CAPACITIES: Final = 32
MAX_ATTRIBUTE_VALUES: Final = 48
MAX_VALUE_BYTES: Final = 64
MAX_TAINTS: Final = 16
MAX_COUNTER_SETS: Final = 8
MAX_COUNTERS: Final = 32
MAX_CONSUMED_SETS: Final = 2
MAX_VALID_VALUES: Final = 10
"""Limits of ``k8s.io/api/resource/v1`` types.go, as all above."""
_LISTS: Final = ("ints", "bools", "strings", "versions")
_VALUES: Final = ("int", "bool", "string", "version", *_LISTS)
_SLICE_NODES: Final = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_DEVICE_NODES: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)


def _validate_slice(body: JsonObject, old: JsonObject | None = None) -> FieldErrors:
    spec = body.get("spec") or {}
    yield from validate_driver_name(spec.get("driver"), "spec.driver")
    yield from _validate_pool(spec.get("pool") or {}, "spec.pool")
    if old is not None:
        yield from _validate_identity(spec, old.get("spec") or {})
    yield from _validate_nodes(spec)
    devices, counter_sets = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counter_sets is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    devices = devices or []
    limit = MAX_ADVANCED_DEVICES if any(map(_is_advanced, devices)) else MAX_DEVICES
    device = partial(_validate_device, own_nodes=bool(spec.get("perDeviceNodeSelection")))
    yield from validate_unique(devices, "spec.devices", device, key=name_of, limit=limit)
    yield from validate_unique(
        counter_sets or [],
        "spec.sharedCounters",
        _validate_counter_set,
        key=name_of,
        limit=MAX_COUNTER_SETS,
        whole=True,
    )


def _validate_identity(spec: JsonObject, old: JsonObject) -> FieldErrors:
    for path in (("pool", "name"), ("driver",), ("nodeName",)):
        value = lookup(spec, *path)
        if value != lookup(old, *path):
            yield immutable("spec." + ".".join(path), value)


def _validate_pool(pool: JsonObject, path: str) -> FieldErrors:
    yield from validate_pool_name(pool.get("name"), f"{path}.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        yield invalid(f"{path}.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        yield invalid(f"{path}.generation", generation, "must be greater than or equal to zero")


def _validate_nodes(spec: JsonObject) -> FieldErrors:
    given = []
    node, nodes = spec.get("nodeName"), spec.get("nodeSelector")
    if node:
        given.append("`nodeName`")
        yield from validate_format("spec.nodeName", node, dns_subdomain)
    elif node is not None:
        yield invalid("spec.nodeName", node, "must be either unset or set to a non-empty string")
    if nodes is not None:
        given.append("`nodeSelector`")
        yield from validate_node_selector(nodes, "spec.nodeSelector")
        if len(nodes.get("nodeSelectorTerms") or []) != 1:
            terms = nodes.get("nodeSelectorTerms")
            yield invalid("spec.nodeSelector.nodeSelectorTerms", terms, "must have exactly one node selector term")
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field):
            given.append(f"`{field}`")
        elif spec.get(field) is not None:
            yield invalid(f"spec.{field}", False, "must be either unset or set to true")
    if not given:
        yield required("spec", _SLICE_NODES)
    elif len(given) > 1:
        yield invalid("spec", f"{{{', '.join(given)}}}", f"{_SLICE_NODES}, but multiple fields are set")


def _is_advanced(device: JsonObject) -> bool:
    attributes = (device.get("attributes") or {}).values()
    return bool(
        device.get("taints")
        or device.get("consumesCounters")
        or any(field in attribute for attribute in attributes for field in _LISTS)
    )


def _validate_device(device: JsonObject, path: str, *, own_nodes: bool) -> FieldErrors:
    yield from validate_name(f"{path}.name", device.get("name"), dns_label)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    count = len(attributes) + len(capacity)
    if count > MAX_ATTRIBUTES_AND_CAPACITIES:
        message = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES_AND_CAPACITIES}"
        yield invalid(path, count, message)
    values = sum(_value_count(attribute) for attribute in attributes.values())
    if values > MAX_ATTRIBUTE_VALUES:
        yield invalid(path, values, f"the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}")
    yield from validate_map(attributes, f"{path}.attributes", validate_attribute_name, _validate_attribute)
    shareable = bool(device.get("allowMultipleAllocations"))
    yield from validate_map(
        capacity, f"{path}.capacity", validate_attribute_name, partial(_validate_capacity, shareable=shareable)
    )
    yield from validate_list(device.get("taints") or [], f"{path}.taints", validate_taint, limit=MAX_TAINTS)
    yield from validate_unique(
        device.get("consumesCounters") or [],
        f"{path}.consumesCounters",
        _validate_consumption,
        key=lambda consumed: str(consumed.get("counterSet")),
        limit=MAX_CONSUMED_SETS,
        whole=True,
    )
    yield from _validate_device_nodes(device, path, own_nodes=own_nodes)
    yield from validate_binding_conditions(device, path)


def _value_count(attribute: JsonObject) -> int:
    return sum(len(attribute.get(field) or []) for field in _LISTS) or 1


def _validate_attribute(attribute: JsonObject, path: str) -> FieldErrors:
    given = [field for field in _VALUES if attribute.get(field) is not None]
    choice = ", ".join(f"`{field}`" for field in _VALUES)
    if not given:
        yield invalid(path, "", f"must specify one of: {choice}")
    elif len(given) > 1:
        yield invalid(path, f"{{{', '.join(given)}}}", f"must specify exactly one of: {choice}")
    if (text := attribute.get("string")) is not None:
        yield from _validate_text(text, f"{path}.string")
    if (version := attribute.get("version")) is not None:
        yield from _validate_version(version, f"{path}.version")
    for field in _LISTS:
        if attribute.get(field) == []:
            yield invalid(f"{path}.{field}", [], "must not be empty if specified")
    yield from validate_list(attribute.get("strings") or [], f"{path}.strings", _validate_text)
    yield from validate_list(attribute.get("versions") or [], f"{path}.versions", _validate_version)


def _validate_text(text: str, path: str) -> FieldErrors:
    if len(text.encode()) > MAX_VALUE_BYTES:
        yield too_long(path, MAX_VALUE_BYTES)


def _validate_version(version: str, path: str) -> FieldErrors:
    if parse_version(version) is None:
        yield invalid(path, version, "must be a string compatible with semver.org spec 2.0.0")
    yield from _validate_text(version, path)


def _validate_capacity(capacity: JsonObject, path: str, *, shareable: bool) -> FieldErrors:
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    if not shareable:
        yield forbidden(f"{path}.requestPolicy", "allowMultipleAllocations must be true")
    else:
        yield from validate_request_policy(policy, Quantity(capacity.get("value") or 0), f"{path}.requestPolicy")


def validate_request_policy(policy: JsonObject, most: Quantity, path: str) -> FieldErrors:
    """Validate which shares of a capacity may be requested; ``most`` is the whole capacity."""
    values, range_ = policy.get("validValues") or [], policy.get("validRange")
    if values and range_ is not None:
        yield forbidden(
            path, 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        )
        return
    default = _amount(policy, "default")
    if default is None:
        if values or range_ is not None:
            kind = "validValues" if values else "validRange"
            yield required(f"{path}.default", f"required when {kind} is defined")
    elif values:
        yield from _validate_values([Quantity(value) for value in values], default, most, f"{path}.validValues")
    elif range_ is not None:
        yield from _validate_range(range_, default, most, f"{path}.validRange")


def _amount(fields: JsonObject, name: str) -> Quantity | None:
    return Quantity(fields[name]) if name in fields else None


def _validate_values(values: list[Quantity], default: Quantity, most: Quantity, path: str) -> FieldErrors:
    for index, (before, value) in enumerate(pairwise(values), 1):
        if before > value:
            yield invalid(f"{path}[{index}]", str(value), "values must be sorted in ascending order")
    too_long = len(values) > MAX_VALID_VALUES
    if too_long:
        yield too_many(path, len(values), MAX_VALID_VALUES)
    else:
        for index, value in enumerate(values):
            if value > most:
                yield invalid(f"{path}[{index}]", str(value), f"option is larger than capacity value: {most}")
        for index, value in enumerate(values):
            if value in values[:index]:
                yield duplicate(f"{path}[{index}]", str(value))
    if too_long or default not in values:  # too many values are not examined
        yield invalid(path, str(default), "default value is not valid according to the requestPolicy")


def _validate_range(range_: JsonObject, default: Quantity, most: Quantity, path: str) -> FieldErrors:
    least, top, step = (_amount(range_, field) for field in ("min", "max", "step"))
    if least is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    if least > most:
        yield invalid(f"{path}.min", str(least), f"min is larger than capacity value: {most}")
    if default < least:
        yield invalid(f"{path}.default", str(default), f"default is less than min: {least}")
    if top is not None:
        if least > top:
            yield invalid(f"{path}.max", str(least), f"min is larger than max: {top}")
        if top > most:
            yield invalid(f"{path}.max", str(top), f"max is larger than capacity value: {most}")
        if default > top:
            yield invalid(f"{path}.default", str(default), f"default is more than max: {top}")
    if step is not None:
        yield from _validate_step(step, least, [default, *([top] if top is not None else [])], most, f"{path}.step")


def _validate_step(step: Quantity, least: Quantity, values: list[Quantity], most: Quantity, path: str) -> FieldErrors:
    if step.nano <= 0:
        yield invalid(path, str(step), "must be greater than zero")
        return
    if least + step > most:
        yield invalid(path, str(step), f"one step {least + step} is larger than capacity value: {most}")
    for value in values:
        if (value.nano - least.nano) % step.nano:
            yield invalid(path, str(value), f"value is not a multiple of a given step ({step}) from ({least})")


def _nothing(_value: JsonValue, _path: str) -> FieldErrors:
    return iter(())


def _validate_counter_name(name: str, path: str) -> FieldErrors:
    yield from validate_format(path, name, dns_label)


def _validate_counters(counters: JsonObject, path: str) -> FieldErrors:
    if not counters:
        yield required(path)
    elif len(counters) > MAX_COUNTERS:
        yield too_many(path, len(counters), MAX_COUNTERS)
    else:
        yield from validate_map(counters, path, _validate_counter_name, _nothing)


def _validate_counter_set(counter_set: JsonObject, path: str) -> FieldErrors:
    yield from validate_name(f"{path}.name", counter_set.get("name"), dns_label)
    yield from _validate_counters(counter_set.get("counters") or {}, f"{path}.counters")


def _validate_consumption(consumed: JsonObject, path: str) -> FieldErrors:
    yield from validate_name(f"{path}.counterSet", consumed.get("counterSet"), dns_label)
    yield from _validate_counters(consumed.get("counters") or {}, f"{path}.counters")


def _validate_device_nodes(device: JsonObject, path: str, *, own_nodes: bool) -> FieldErrors:
    given = [field for field in ("nodeName", "nodeSelector", "allNodes") if device.get(field) is not None]
    if not own_nodes:
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
        yield from validate_format(f"{path}.nodeName", node, dns_subdomain)
    if device.get("nodeSelector") is not None:
        yield from validate_node_selector(device["nodeSelector"], f"{path}.nodeSelector")
    if device.get("allNodes") is False:
        yield invalid(f"{path}.allNodes", False, "must be either unset or set to true")
    message = [f"`{field}`" for field in given if device[field] not in ("", False)]
    if not message:
        yield required(path, _DEVICE_NODES)
    elif len(message) > 1:
        yield invalid(path, f"{{{', '.join(message)}}}", _DEVICE_NODES)


def _set_time(taint_: JsonObject, now: str) -> None:
    taint_["timeAdded"] = taint_.get("timeAdded") or now


def _default_slice(body: JsonObject, now: str) -> None:
    for device in lookup(body, "spec", "devices") or []:
        for each_taint in device.get("taints") or []:
            _set_time(each_taint, now)


_QUANTITIES: Final = (
    "spec.devices[].capacity{}.value",
    "spec.devices[].capacity{}.requestPolicy.default",
    "spec.devices[].capacity{}.requestPolicy.validValues[]",
    *(f"spec.devices[].capacity{{}}.requestPolicy.validRange.{bound}" for bound in ("min", "max", "step")),
    "spec.devices[].consumesCounters[].counters{}.value",
    "spec.sharedCounters[].counters{}.value",
)
SLICES: Final = Strategy(
    quantities=_QUANTITIES, default=_default_slice, validate=_validate_slice, validate_update=_validate_slice
)


def _validate_taint_rule(body: JsonObject, _old: JsonObject | None = None) -> FieldErrors:
    spec = body.get("spec") or {}
    chosen = spec.get("deviceSelector") or {}
    path = "spec.deviceSelector"
    if (driver := chosen.get("driver")) is not None:
        yield from validate_driver_name(driver, f"{path}.driver")
    if (pool := chosen.get("pool")) is not None:
        yield from validate_pool_name(pool, f"{path}.pool")
    if (device := chosen.get("device")) is not None:
        yield from validate_name(f"{path}.device", device, dns_label)
    yield from validate_taint(spec.get("taint") or {}, "spec.taint")


def _validate_taint_rule_status(body: JsonObject, _old: JsonObject) -> FieldErrors:
    yield from validate_conditions(lookup(body, "status", "conditions") or [], "status.conditions")


def _default_rule(body: JsonObject, now: str) -> None:
    _set_time(body.setdefault("spec", {}).setdefault("taint", {}), now)


def _update_time(body: JsonObject, old: JsonObject, now: str) -> None:
    """Set the time of a changed effect, from which tolerations count, unless the client sets it."""
    tainted, before = body["spec"]["taint"], lookup(old, "spec", "taint") or {}
    if tainted.get("effect") != before.get("effect") and tainted.get("timeAdded") == before.get("timeAdded"):
        tainted["timeAdded"] = now


TAINT_RULES: Final = Strategy(
    default=_default_rule,
    prepare_for_create=clear_status,
    prepare_for_update=_update_time,
    validate=_validate_taint_rule,
    validate_update=_validate_taint_rule,
    validate_status=_validate_taint_rule_status,
)
