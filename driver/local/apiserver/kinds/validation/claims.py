"""The strategies of ResourceClaim, ResourceClaimTemplate and DeviceClass (``resource.k8s.io``).

Source: ``kubernetes/pkg/apis/resource`` (v1/defaults.go, validation) and ``pkg/registry/resource`` of 1.37.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.kinds.types import Strategy
from kerf_dra.driver.local.apiserver.kinds.validation.resource_fields import (
    MAX_CONFIGS,
    MAX_REQUESTS,
    MAX_SELECTORS,
    clear_status,
    name_of,
    validate_binding_conditions,
    validate_conditions,
    validate_consumer,
    validate_driver_name,
    validate_full_attribute_name,
    validate_json_object,
    validate_list,
    validate_node_selector,
    validate_opaque_config,
    validate_pool_name,
    validate_selector,
    validate_share_id,
    validate_toleration,
    validate_unique,
)
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.names import (
    dns_label,
    dns_subdomain,
    dns_subdomain_any_case,
    qualified_name,
    validate_format,
    validate_name,
)
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    FieldErrors,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
)

MAX_ALTERNATIVES: Final = 8
MAX_CONSTRAINTS: Final = 32
MAX_RESULTS: Final = 32
MAX_CONSUMERS: Final = 256
"""Limits of ``k8s.io/api/resource/v1`` types.go, as all above."""
_ONE_OF_REQUEST: Final = "exactly one of `exactly` or `firstAvailable` is required"

Names = Mapping[str, frozenset[str]]
"""The names of a claim's requests, each with those of its subrequests."""


def _default_request(request: JsonObject) -> None:
    request["allocationMode"] = request.get("allocationMode") or "ExactCount"
    if request["allocationMode"] == "ExactCount":
        request["count"] = request.get("count") or 1
    for each_toleration in request.get("tolerations") or []:
        each_toleration.setdefault("operator", "Equal")


def _default_spec(spec: JsonObject) -> None:
    for request in lookup(spec, "devices", "requests") or []:
        if (exactly := request.get("exactly")) is not None:
            _default_request(exactly)
        for alternative in request.get("firstAvailable") or []:
            _default_request(alternative)


def _default_claim(body: JsonObject, _now: str) -> None:
    _default_spec(body.setdefault("spec", {}))


def _default_template(body: JsonObject, _now: str) -> None:
    _default_spec(body.setdefault("spec", {}).setdefault("spec", {}))


def _validate_spec(spec: JsonObject, path: str) -> FieldErrors:
    devices = spec.get("devices") or {}
    names = _request_names(devices)
    path = f"{path}.devices"
    requests = devices.get("requests") or []
    yield from validate_unique(
        requests, f"{path}.requests", _validate_request, key=name_of, limit=MAX_REQUESTS, whole=True
    )
    constraints = devices.get("constraints") or []
    yield from validate_list(
        constraints, f"{path}.constraints", partial(_validate_constraint, names=names), limit=MAX_CONSTRAINTS
    )
    configs = devices.get("config") or []
    yield from validate_list(configs, f"{path}.config", partial(_validate_config, names=names), limit=MAX_CONFIGS)


def _request_names(devices: JsonObject) -> Names:
    return {
        str(request.get("name")): frozenset(str(sub.get("name")) for sub in request.get("firstAvailable") or [])
        for request in devices.get("requests") or []
    }


def _validate_request(request: JsonObject, path: str) -> FieldErrors:
    yield from validate_name(f"{path}.name", request.get("name"), dns_label)
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        yield required(path, _ONE_OF_REQUEST)
    elif exactly is not None and alternatives:
        yield invalid(path, None, f"{_ONE_OF_REQUEST}, but multiple fields are set")
    elif exactly is not None:
        yield from _validate_exact_request(exactly, f"{path}.exactly")
    else:
        path = f"{path}.firstAvailable"
        yield from validate_unique(
            alternatives, path, _validate_subrequest, key=name_of, limit=MAX_ALTERNATIVES, whole=True
        )


def _validate_subrequest(request: JsonObject, path: str) -> FieldErrors:
    yield from validate_name(f"{path}.name", request.get("name"), dns_label)
    yield from _validate_exact_request(request, path)


def _validate_exact_request(request: JsonObject, path: str) -> FieldErrors:
    yield from validate_name(f"{path}.deviceClassName", request.get("deviceClassName"), dns_subdomain)
    yield from validate_list(
        request.get("selectors") or [], f"{path}.selectors", validate_selector, limit=MAX_SELECTORS
    )
    mode, count = request.get("allocationMode"), request.get("count") or 0
    match mode:
        case "All":
            if count:
                yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
        case "ExactCount":
            if count <= 0:
                yield invalid(f"{path}.count", count, "must be greater than zero")
        case _:
            yield not_supported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    yield from validate_list(request.get("tolerations") or [], f"{path}.tolerations", validate_toleration)


def _validate_request_reference(name: object, path: str, *, names: Names) -> FieldErrors:
    """Validate ``request`` or ``request/subrequest``."""
    text = str(name or "")
    parts = text.split("/")
    if len(parts) <= 2:
        for part in parts:
            yield from validate_name(path, part, dns_label)
    known = names.get(parts[0])
    if len(parts) > 2 or known is None or (len(parts) == 2 and parts[1] not in known):
        yield invalid(
            path,
            text,
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
        )


def _validate_constraint(constraint: JsonObject, path: str, *, names: Names) -> FieldErrors:
    reference = partial(_validate_request_reference, names=names)
    yield from validate_unique(
        constraint.get("requests") or [], f"{path}.requests", reference, key=str, limit=MAX_REQUESTS
    )
    match, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    if match is not None:
        yield from validate_full_attribute_name(match, f"{path}.matchAttribute")
    elif distinct is not None:
        yield from validate_full_attribute_name(distinct, f"{path}.distinctAttribute")
    else:
        yield required(
            path, 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        )


def _validate_config(config: JsonObject, path: str, *, names: Names) -> FieldErrors:
    reference = partial(_validate_request_reference, names=names)
    yield from validate_unique(config.get("requests") or [], f"{path}.requests", reference, key=str, limit=MAX_REQUESTS)
    yield from validate_opaque_config(config, path)


def _validate_claim(body: JsonObject) -> FieldErrors:
    yield from _validate_spec(body["spec"], "spec")


def _validate_update(body: JsonObject, old: JsonObject) -> FieldErrors:
    if body.get("spec") != old.get("spec"):
        yield immutable("spec", None)  # not the value, which is the whole claim


def _device_id(entry: JsonObject) -> tuple[object, ...]:
    return tuple(entry.get(field) for field in ("driver", "pool", "device", "shareID"))


def _drop_deallocated(body: JsonObject, old: JsonObject) -> None:
    """Drop the status of devices that the claim no longer has."""
    status = body.setdefault("status", {})
    devices = status.get("devices")
    if not devices:
        return
    had = {_device_id(result) for result in lookup(old, "status", "allocation", "devices", "results") or []}
    has = {_device_id(result) for result in lookup(body, "status", "allocation", "devices", "results") or []}
    kept = [entry for entry in devices if _device_id(entry) not in had - has]
    if kept:
        status["devices"] = kept
    else:
        status.pop("devices")


def _validate_status(body: JsonObject, old: JsonObject) -> FieldErrors:
    status, before = body.get("status") or {}, old.get("status") or {}
    names = _request_names(lookup(body, "spec", "devices") or {})
    allocation, consumers = status.get("allocation"), status.get("reservedFor") or []
    yield from validate_unique(
        consumers,
        "status.reservedFor",
        validate_consumer,
        key=lambda consumer: str(consumer.get("uid")),
        limit=MAX_CONSUMERS,
        whole=True,
    )
    allocated = {_device_id(result) for result in lookup(allocation, "devices", "results") or []}
    yield from validate_unique(
        status.get("devices") or [],
        "status.devices",
        partial(_validate_device_status, allocated=allocated),
        key=_device_id,
    )
    if consumers and allocation is None:
        yield forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    elif body["metadata"].get("deletionTimestamp") and any(
        consumer not in (before.get("reservedFor") or []) for consumer in consumers
    ):
        yield forbidden(
            "status.reservedFor",
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
        )
    if allocation is None:
        return
    if before.get("allocation") is None:
        yield from _validate_allocation(allocation, "status.allocation", names)
    elif allocation != before["allocation"]:
        yield invalid("status.allocation", None, "field cannot be modified once set")


def _validate_device_status(entry: JsonObject, path: str, *, allocated: set[tuple[object, ...]]) -> FieldErrors:
    yield from validate_driver_name(entry.get("driver"), f"{path}.driver")
    yield from validate_pool_name(entry.get("pool"), f"{path}.pool")
    yield from validate_name(f"{path}.device", entry.get("device"), dns_label)
    if (share := entry.get("shareID")) is not None:
        yield from validate_share_id(share, f"{path}.shareID")
    if _device_id(entry) not in allocated:
        identity = {"Driver": entry.get("driver"), "Pool": entry.get("pool"), "Device": entry.get("device")}
        yield invalid(
            path, {**identity, "ShareID": entry.get("shareID") or ""}, "must be an allocated device in the claim"
        )
    yield from validate_conditions(entry.get("conditions") or [], f"{path}.conditions")
    if entry.get("data") is not None:
        yield from validate_json_object(entry["data"], f"{path}.data")


def _validate_allocation(allocation: JsonObject, path: str, names: Names) -> FieldErrors:
    devices = allocation.get("devices") or {}
    yield from validate_list(
        devices.get("results") or [],
        f"{path}.devices.results",
        partial(_validate_result, names=names),
        limit=MAX_RESULTS,
    )
    yield from validate_list(
        devices.get("config") or [],
        f"{path}.devices.config",
        partial(_validate_allocated_config, names=names),
        limit=2 * MAX_CONFIGS,  # of the classes and of the claim
    )
    if (nodes := allocation.get("nodeSelector")) is not None:
        yield from validate_node_selector(nodes, f"{path}.nodeSelector")


def _validate_result(result: JsonObject, path: str, *, names: Names) -> FieldErrors:
    yield from _validate_request_reference(result.get("request"), f"{path}.request", names=names)
    yield from validate_driver_name(result.get("driver"), f"{path}.driver", check=dns_subdomain_any_case)
    yield from validate_pool_name(result.get("pool"), f"{path}.pool", numbered=True)
    yield from validate_name(f"{path}.device", result.get("device"), dns_label)
    yield from validate_binding_conditions(result, path)
    yield from validate_list(result.get("tolerations") or [], f"{path}.tolerations", validate_toleration)
    if (share := result.get("shareID")) is not None:
        yield from validate_share_id(share, f"{path}.shareID")


def _validate_allocated_config(config: JsonObject, path: str, *, names: Names) -> FieldErrors:
    source = config.get("source")
    if not source:
        yield required(f"{path}.source")
    elif source not in {"FromClaim", "FromClass"}:
        yield not_supported(f"{path}.source", source, ("FromClaim", "FromClass"))
    yield from _validate_config(config, path, names=names)


_REQUESTED_CAPACITIES: Final = (
    "devices.requests[].exactly.capacity.requests{}",
    "devices.requests[].firstAvailable[].capacity.requests{}",
)
CLAIMS: Final = Strategy(
    quantities=(
        *(f"spec.{path}" for path in _REQUESTED_CAPACITIES),
        "status.allocation.devices.results[].consumedCapacity{}",
    ),
    default=_default_claim,
    prepare_for_create=clear_status,
    prepare_for_status_update=_drop_deallocated,
    validate=_validate_claim,
    validate_update=_validate_update,
    validate_status=_validate_status,
)


def _validate_template(body: JsonObject) -> FieldErrors:
    yield from _validate_spec(body["spec"]["spec"], "spec.spec")


TEMPLATES: Final = Strategy(
    quantities=[f"spec.spec.{path}" for path in _REQUESTED_CAPACITIES],
    default=_default_template,
    validate=_validate_template,
    validate_update=_validate_update,
)


def _validate_class(body: JsonObject, _old: JsonObject | None = None) -> FieldErrors:
    spec = body.get("spec") or {}
    yield from validate_list(spec.get("selectors") or [], "spec.selectors", validate_selector, limit=MAX_SELECTORS)
    yield from validate_list(spec.get("config") or [], "spec.config", validate_opaque_config, limit=MAX_CONFIGS)
    name = spec.get("extendedResourceName")
    if name is not None:
        yield from validate_format("spec.extendedResourceName", name, _check_extended_resource_name)


def _check_extended_resource_name(name: str) -> Iterator[str]:
    """Check an extended resource name: ``<domain>/<name>`` outside kubernetes.io; quotas put a prefix before it."""
    if "/" not in name:
        yield "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
    elif "kubernetes.io/" in name:
        yield 'must not have "kubernetes.io/" domain'
    if name.startswith("requests."):
        yield 'must not have "requests." prefix'
    yield from qualified_name(f"requests.{name}")


def _default_class(body: JsonObject, _now: str) -> None:
    body.setdefault("spec", {})


CLASSES: Final = Strategy(default=_default_class, validate=_validate_class, validate_update=_validate_class)
