"""The strategies of ``resource.k8s.io/v1alpha2``: ResourceClass, claims that drivers allocate, PodSchedulingContext.

Source: ``kubernetes/pkg/apis/resource`` (v1alpha2/defaults.go, validation) and ``pkg/registry/resource`` of 1.30.
"""

from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.kinds.types import Strategy
from kerf_dra.driver.local.apiserver.kinds.validation.resource_fields import (
    clear_status,
    validate_consumer,
    validate_driver_name,
    validate_list,
    validate_node_selector,
    validate_unique,
)
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.names import dns_subdomain, validate_name
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    FieldErrors,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

MAX_HANDLES: Final = 32
MAX_HANDLE_BYTES: Final = 16 * 1024
MAX_CONSUMERS: Final = 32
MAX_NODES: Final = 128
"""Limits of ``k8s.io/api/resource/v1alpha2`` types.go, as all above."""
_MODES: Final = ("Immediate", "WaitForFirstConsumer")
_ENDING: Final = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"


def _default_spec(spec: JsonObject) -> None:
    spec["allocationMode"] = spec.get("allocationMode") or "WaitForFirstConsumer"


def _default_claim(body: JsonObject, _now: str) -> None:
    _default_spec(body.setdefault("spec", {}))


def _default_template(body: JsonObject, _now: str) -> None:
    _default_spec(body.setdefault("spec", {}).setdefault("spec", {}))


def _validate_spec(spec: JsonObject, path: str) -> FieldErrors:
    yield from validate_name(f"{path}.resourceClassName", spec.get("resourceClassName"), dns_subdomain)
    if (reference := spec.get("parametersRef")) is not None:
        yield from _validate_reference(reference, f"{path}.parametersRef", namespaced=False)
    if spec.get("allocationMode") not in _MODES:
        yield not_supported(f"{path}.allocationMode", spec.get("allocationMode"), _MODES)


def _validate_reference(reference: JsonObject, path: str, *, namespaced: bool) -> FieldErrors:
    for field in ("kind", "name"):
        if not reference.get(field):
            yield required(f"{path}.{field}")
    if reference.get("namespace") and not namespaced:
        yield forbidden(f"{path}.namespace", "parameters of a claim are in its own namespace")


def _validate_claim(body: JsonObject) -> FieldErrors:
    yield from _validate_spec(body["spec"], "spec")


def _validate_update(body: JsonObject, old: JsonObject) -> FieldErrors:
    if body.get("spec") != old.get("spec"):
        yield immutable("spec", body.get("spec"))


def validate_claim_status(body: JsonObject, old: JsonObject) -> FieldErrors:
    """Yield the errors in the new status of a claim."""
    status, before = body.get("status") or {}, old.get("status") or {}
    allocation, was = status.get("allocation"), before.get("allocation")
    consumers = status.get("reservedFor") or []
    if status.get("driverName"):
        yield from validate_driver_name(status["driverName"], "status.driverName")
    if allocation is not None and was is None:
        if not status.get("driverName"):
            yield required("status.driverName", "must be specified when `allocation` is set")
        yield from _validate_allocation(allocation, "status.allocation")
    elif allocation is not None and allocation != was:
        yield immutable("status.allocation", None)
    yield from _validate_consumers(consumers, allocation, "status.reservedFor")
    is_ending = bool(status.get("deallocationRequested") or lookup(body, "metadata", "deletionTimestamp"))
    known = {consumer.get("uid") for consumer in before.get("reservedFor") or []}
    if is_ending and any(consumer.get("uid") not in known for consumer in consumers):
        yield forbidden("status.reservedFor", _ENDING)
    yield from _validate_deallocation(status, before, consumers)


def _validate_consumers(consumers: list[JsonObject], allocation: JsonObject | None, path: str) -> FieldErrors:
    if len(consumers) > MAX_CONSUMERS:
        yield too_many(path, len(consumers), MAX_CONSUMERS)
        return
    yield from validate_unique(consumers, path, validate_consumer, key=lambda consumer: consumer.get("uid"))
    if consumers and allocation is None:
        yield forbidden(path, "may not be specified when `allocated` is not set")
    elif len(consumers) > 1 and not (allocation or {}).get("shareable"):
        yield forbidden(path, "may not be reserved more than once")


def _validate_deallocation(status: JsonObject, before: JsonObject, consumers: list[JsonObject]) -> FieldErrors:
    requested, was = bool(status.get("deallocationRequested")), bool(before.get("deallocationRequested"))
    path = "status.deallocationRequested"
    if requested and not was and consumers:
        yield forbidden(path, "deallocation cannot be requested while `reservedFor` is set")
    if requested and status.get("allocation") is None:
        yield forbidden(path, "not allocated")
    if was and not requested and status.get("allocation") is not None:
        yield forbidden(path, "may not be cleared when `allocation` is set")


def _validate_allocation(allocation: JsonObject, path: str) -> FieldErrors:
    handles = allocation.get("resourceHandles") or []
    yield from validate_list(handles, f"{path}.resourceHandles", _validate_handle, limit=MAX_HANDLES)
    if (nodes := allocation.get("availableOnNodes")) is not None:
        yield from validate_node_selector(nodes, f"{path}.availableOnNodes")


def _validate_handle(handle: JsonObject, path: str) -> FieldErrors:
    yield from validate_driver_name(handle.get("driverName"), f"{path}.driverName")
    if len(str(handle.get("data") or "").encode()) > MAX_HANDLE_BYTES:
        yield too_long(f"{path}.data", MAX_HANDLE_BYTES)
    if handle.get("data") and handle.get("structuredData") is not None:
        yield invalid(path, None, "data and structuredData are mutually exclusive")


def _validate_template(body: JsonObject) -> FieldErrors:
    yield from _validate_spec(body["spec"]["spec"], "spec.spec")


def _validate_class(body: JsonObject, _old: JsonObject | None = None) -> FieldErrors:
    yield from validate_driver_name(body.get("driverName"), "driverName")
    if (reference := body.get("parametersRef")) is not None:
        yield from _validate_reference(reference, "parametersRef", namespaced=True)
    if (nodes := body.get("suitableNodes")) is not None:
        yield from validate_node_selector(nodes, "suitableNodes")


def _validate_context(body: JsonObject, _old: JsonObject | None = None) -> FieldErrors:
    yield from _validate_nodes(lookup(body, "spec", "potentialNodes") or [], "spec.potentialNodes")


def validate_context_status(body: JsonObject, _old: JsonObject) -> FieldErrors:
    """Yield the errors in the new status of a PodSchedulingContext."""
    entries = lookup(body, "status", "resourceClaims") or []
    yield from validate_unique(entries, "status.claims", _validate_entry, key=lambda entry: entry.get("name"))


def _validate_entry(entry: JsonObject, path: str) -> FieldErrors:
    yield from _validate_nodes(entry.get("unsuitableNodes") or [], f"{path}.unsuitableNodes")


def _validate_nodes(names: list[str], path: str) -> FieldErrors:
    if len(names) > MAX_NODES:
        yield too_many(path, len(names), MAX_NODES)
        return
    for index, name in enumerate(names):
        yield from validate_name(f"{path}[{index}]", name, dns_subdomain)
        if name in names[:index]:
            yield duplicate(f"{path}[{index}]", name)


CLAIMS: Final = Strategy(
    default=_default_claim,
    prepare_for_create=clear_status,
    validate=_validate_claim,
    validate_update=_validate_update,
    validate_status=validate_claim_status,
)
TEMPLATES: Final = Strategy(default=_default_template, validate=_validate_template, validate_update=_validate_update)
CLASSES: Final = Strategy(validate=_validate_class, validate_update=_validate_class)
CONTEXTS: Final = Strategy(
    prepare_for_create=clear_status,
    validate=_validate_context,
    validate_update=_validate_context,
    validate_status=validate_context_status,
)
