"""Conversion between API versions, on plain documents, so that unknown fields survive.

``resource.k8s.io/v1beta1`` differs from v1 in three ways (``k8s.io/api/resource/v1beta1`` types.go): a request has the
fields of ``exactly`` itself, the content of a device is in ``basic``, and unset ``nodeName`` and ``allNodes`` are zero
values. v1beta2 is v1. ``events.k8s.io/v1`` renames fields of the core event.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.documents import lookup, without
from kerf_dra.driver.local.apiserver.storage import Converter

_REQUEST_OWN: Final[Sequence[str]] = ("name", "firstAvailable")
"""The fields of a v1beta1 request that v1 has in the same place; all others belong to ``exactly``."""


def _nested_request(request: JsonObject) -> JsonObject:
    exactly = without(request, *_REQUEST_OWN)
    own = {name: request[name] for name in _REQUEST_OWN if name in request}
    return {**own, "exactly": exactly} if any(exactly.values()) else own


def _flat_request(request: JsonObject) -> JsonObject:
    return {"deviceClassName": "", **without(request, "exactly"), **(request.get("exactly") or {})}


def _wrapped_device(device: JsonObject) -> JsonObject:
    return {**({"name": device["name"]} if "name" in device else {}), "basic": without(device, "name")}


def _unwrapped_device(device: JsonObject) -> JsonObject:
    return {**without(device, "basic"), **(device.get("basic") or {})}


def _with_requests(spec: JsonObject, convert: Callable[[JsonObject], JsonObject]) -> JsonObject:
    requests = lookup(spec, "devices", "requests")
    if not isinstance(requests, list):
        return spec
    return {**spec, "devices": {**spec["devices"], "requests": list(map(convert, requests))}}


def _claim(body: JsonObject, *, convert: Callable[[JsonObject], JsonObject]) -> JsonObject:
    return {**body, "spec": _with_requests(body.get("spec") or {}, convert)}


def _template(body: JsonObject, *, convert: Callable[[JsonObject], JsonObject]) -> JsonObject:
    spec = body.get("spec") or {}
    return {**body, "spec": {**spec, "spec": _with_requests(spec.get("spec") or {}, convert)}}


claim_to_v1beta1: Final[Converter] = partial(_claim, convert=_flat_request)
claim_from_v1beta1: Final[Converter] = partial(_claim, convert=_nested_request)
template_to_v1beta1: Final[Converter] = partial(_template, convert=_flat_request)
template_from_v1beta1: Final[Converter] = partial(_template, convert=_nested_request)


def slice_to_v1beta1(body: JsonObject) -> JsonObject:
    spec = body.get("spec") or {}
    if not isinstance(spec.get("devices"), list):
        return body
    return {**body, "spec": {**spec, "devices": list(map(_wrapped_device, spec["devices"]))}}


def slice_from_v1beta1(body: JsonObject) -> JsonObject:
    spec = {name: value for name, value in (body.get("spec") or {}).items() if (name, value) not in _UNSET_NODES}
    if isinstance(spec.get("devices"), list):
        spec["devices"] = list(map(_unwrapped_device, spec["devices"]))
    return {**body, "spec": spec}


_UNSET_NODES: Final = (("nodeName", ""), ("allNodes", False))
"""The fields and values that v1beta1 clients may send for "unset"."""

_EVENT_FIELDS: Final = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
"""The fields of a core/v1 Event, each with its name in events.k8s.io/v1."""


def _rename(body: JsonObject, *, names: Mapping[str, str]) -> JsonObject:
    return {names.get(name, name): value for name, value in body.items()}


event_to_events_group: Final[Converter] = partial(_rename, names=dict(_EVENT_FIELDS))
event_from_events_group: Final[Converter] = partial(_rename, names={new: old for old, new in _EVENT_FIELDS})
