"""The built-in admission checks, which compare a write with other objects in the storage.

Source: the admission plugin NamespaceLifecycle, and ``AuthorizedForAdmin`` of the ResourceClaim strategy (KEP-5018).
"""

from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.kinds.types import ResourceType
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    FieldErrors,
    forbidden,
    object_forbidden,
    object_not_found,
)
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey, Storage

NAMESPACES: Final = GroupResource("", "namespaces")
ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"
_CLAIMS: Final = (
    GroupResource("resource.k8s.io", "resourceclaims"),
    GroupResource("resource.k8s.io", "resourceclaimtemplates"),
)
_ADMIN_REFUSAL: Final = (
    f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
)


def check_namespace(storage: Storage, type_: ResourceType, key: ObjectKey) -> None:
    """Raise ApiStatusError (404, 403) unless the namespace of a new object exists and is not being deleted."""
    namespace = storage.get(NAMESPACES, ObjectKey("", key.namespace))
    if namespace is None:
        raise object_not_found("", "namespaces", key.namespace)
    if namespace.body["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {key.namespace} because it is being terminated"
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {key.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        raise object_forbidden(type_.group, type_.plural, key.name, why, [cause])


def validate_admin_access(storage: Storage, type_: ResourceType, key: ObjectKey, body: JsonObject) -> FieldErrors:
    """Refuse a new claim or template that requests administrative access in a namespace not labeled for it."""
    if type_.store not in _CLAIMS or _allows_admin_access(storage, key.namespace):
        return
    spec = lookup(body, "spec", "spec") or body.get("spec")
    for index, request in enumerate(lookup(spec, "devices", "requests") or []):
        if lookup(request, "exactly", "adminAccess"):
            yield forbidden(f"spec.devices.requests[{index}].adminAccess", _ADMIN_REFUSAL)
            return


def validate_admin_access_of_status(
    storage: Storage, type_: ResourceType, key: ObjectKey, body: JsonObject, old: JsonObject
) -> FieldErrors:
    """Refuse an allocation with administrative access there, unless it had administrative access before."""
    if type_.store != _CLAIMS[0] or _allows_admin_access(storage, key.namespace):
        return
    granted = _first_admin_result(body)
    if granted is not None and _first_admin_result(old) is None:
        yield forbidden(f"status.allocation.devices.results[{granted}].adminAccess", _ADMIN_REFUSAL)


def _allows_admin_access(storage: Storage, namespace: str) -> bool:
    stored = storage.get(NAMESPACES, ObjectKey("", namespace))
    labels = stored.body["metadata"].get("labels") if stored else None
    return (labels or {}).get(ADMIN_ACCESS_LABEL) == "true"


def _first_admin_result(body: JsonObject) -> int | None:
    results = lookup(body, "status", "allocation", "devices", "results") or []
    return next((index for index, result in enumerate(results) if result.get("adminAccess")), None)
