"""Documents of ``resource.k8s.io`` as users write them: their problems, and their conversion to v1.

The API server converts v1beta1 and v1beta2 to v1; what is written in another version it refuses. Unknown fields are
errors, as they are for kubectl. Example: a request of v1beta1's form in a document of v1 has the problem
``spec.devices.requests[0].deviceClassName: unknown field; v1 has it below "exactly"``.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kerf_dra.api.errors import Problem
from kerf_dra.api.kerf.validation import check_document, quote, show_name, suggest
from kerf_dra.api.model.base import JsonObject, Value, as_list, as_mapping
from kerf_dra.api.model.claims import (
    DeviceClassSpec,
    ExactDeviceRequest,
    ResourceClaimSpec,
    ResourceClaimTemplateSpec,
)
from kerf_dra.api.resource.kinds import GROUP, ResourceKinds
from kerf_dra.api.resource.registry import VERSIONS, load_kinds
from kerf_dra.api.resource.v1beta1 import FlatResourceClaimSpec, FlatResourceClaimTemplateSpec
from kerf_dra.api.wire import Kind

KINDS: Final = ("DeviceClass", "ResourceClaimTemplate", "ResourceClaim")
"""The kinds that users write."""
PUBLISHED_KINDS: Final = ("ResourceSlice", "DeviceTaintRule")
"""The kinds that describe a cluster's devices, which are read from the cluster."""

_FLAT_VERSION: Final = "v1beta1"
"""The version whose requests have the fields of ``exactly`` themselves."""
_OBJECT_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_EXACT_FIELDS: Final = frozenset(ExactDeviceRequest.__struct_encode_fields__)
_REQUEST_FIELD: Final = re.compile(r"(?P<request>.*\.requests\[\d+\])\.(?P<field>[^.\[]+)")
_SPECS: Final[Mapping[str, type[Value]]] = MappingProxyType(
    {
        "DeviceClass": DeviceClassSpec,
        "ResourceClaimTemplate": ResourceClaimTemplateSpec,
        "ResourceClaim": ResourceClaimSpec,
    }
)
_FLAT_SPECS: Final[Mapping[str, type[Value]]] = MappingProxyType(
    {**_SPECS, "ResourceClaimTemplate": FlatResourceClaimTemplateSpec, "ResourceClaim": FlatResourceClaimSpec}
)


def is_claim_document(body: Mapping[str, Any]) -> bool:
    """Whether a document is of ``resource.k8s.io``, in any version."""
    return str(body.get("apiVersion", "")).partition("/")[0] == GROUP


def find_claim_problems(body: Mapping[str, Any]) -> list[Problem]:
    """Find every problem of a document of ``resource.k8s.io``; none: ``convert_to_v1`` can convert it."""
    version, kind = _version_of(body), body.get("kind")
    if kind in PUBLISHED_KINDS:
        return [Problem("kind", f"{kind} is not read from documents, but from the cluster: leave this document out")]
    if kind not in KINDS:
        return [Problem("kind", f"{quote(kind)} is not a kind of {GROUP} that pods use; {suggest(str(kind), KINDS)}")]
    if version not in VERSIONS:
        return [Problem("apiVersion", _describe_version(body))]
    unknown = (name for name in body if name not in _OBJECT_FIELDS)
    found = [Problem(show_name(name), f"unknown field; {suggest(str(name), _OBJECT_FIELDS)}") for name in unknown]
    specs = _FLAT_SPECS if version == _FLAT_VERSION else _SPECS
    spec = body.get("spec")
    checked = check_document({} if spec is None else spec, specs[str(kind)], "spec", is_strict=True).problems
    found += (_explain_form(problem, version) for problem in checked)
    return [*found, *_find_incomplete_requests(body, version)]


def find_claim_spec(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the spec of the claims that a document stands for, and its path; empty: it stands for none."""
    spec = as_mapping(body.get("spec"))
    if body.get("kind") == "ResourceClaimTemplate":
        return as_mapping(spec.get("spec")), "spec.spec"
    return (spec if body.get("kind") == "ResourceClaim" else {}), "spec"


def convert_to_v1(body: JsonObject) -> JsonObject:
    """Return the document in v1, as the API server converts it. Documents of other groups stay as they are.

    Raises UndecodableObjectError for a document that has problems.
    """
    version, name = _version_of(body), str(body.get("kind"))
    if not is_claim_document(body) or version not in VERSIONS[1:] or name not in KINDS:
        return body
    decoded = _kind_of(load_kinds(version), name).decode(msgspec.json.encode(body))
    converted = _kind_of(load_kinds(VERSIONS[0]), name).encode(decoded)
    own = {field: body[field] for field in ("metadata",) if field in body}  # has fields that the model has not
    return {**converted, **own}


def _kind_of(kinds: ResourceKinds, name: str) -> Kind[Any]:
    by_name = (kinds.device_classes, kinds.resource_claim_templates, kinds.resource_claims)
    return next(each for each in by_name if each.kind == name)


def _version_of(body: Mapping[str, Any]) -> str:
    return str(body.get("apiVersion", "")).rpartition("/")[2]


def _describe_version(body: Mapping[str, Any]) -> str:
    known = ", ".join(VERSIONS)
    return (
        f"{quote(body.get('apiVersion'))} is not a version that Kubernetes 1.32 and later convert ({known}): write "
        f'{GROUP}/v1, which has the fields of a request below "exactly"'
    )


def _explain_form(problem: Problem, version: str) -> Problem:
    """Say of a field that has another place in this version where it is."""
    match = _REQUEST_FIELD.fullmatch(problem.path)
    if match is None or not problem.message.startswith("unknown field"):
        return problem
    field = match["field"]
    if version != _FLAT_VERSION and field in _EXACT_FIELDS:
        message = f'unknown field; {version} has it below "exactly": write exactly: {{{field}: ...}}'
    elif version == _FLAT_VERSION and field == "exactly":
        message = f"unknown field; {version} has its fields in the request itself: write apiVersion: {GROUP}/v1"
    else:
        return problem
    return Problem(problem.path, message)


def _find_incomplete_requests(body: Mapping[str, Any], version: str) -> Iterator[Problem]:
    """Yield a problem for each request that names no class, or in two ways; others are of the wrong type."""
    spec, path = find_claim_spec(body)
    single = "deviceClassName" if version == _FLAT_VERSION else "exactly"
    for index, request in enumerate(as_list(as_mapping(spec.get("devices")).get("requests"))):
        if not isinstance(request, Mapping):
            continue
        where = f"{path}.devices.requests[{index}]"
        given = [name for name in (single, "firstAvailable") if request.get(name)]
        if len(given) > 1:
            yield Problem(where, f"has both {single} and firstAvailable: remove one of the two")
        elif not given and not set(request) - {"name", single, "firstAvailable"}:
            yield Problem(where, f"needs {single}, or firstAvailable with alternatives")
