"""Admission: what the rest of the cluster has to say on a write.

Source: the admission plugins NamespaceLifecycle and ValidatingAdmissionPolicy, and ``AuthorizedForAdmin`` of the
ResourceClaim strategy (KEP-5018).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from api.model.base import JsonObject
from driver.local.apiserver.admission import validating_policies
from driver.local.apiserver.kinds.types import ResourceType
from driver.local.apiserver.meta.documents import lookup
from driver.local.apiserver.meta.status_errors import FieldError, forbidden, object_forbidden, object_not_found
from driver.local.apiserver.storage import GroupResource, ObjectKey, Storage

NAMESPACES: Final = GroupResource("", "namespaces")
ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"
_CLAIMS: Final = (
    GroupResource("resource.k8s.io", "resourceclaims"),
    GroupResource("resource.k8s.io", "resourceclaimtemplates"),
)
_ADMIN_REFUSAL: Final = (
    f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
)


@dataclass(frozen=True, slots=True)
class Admission:
    """Checks writes against other objects in the storage."""

    storage: Storage

    def check_namespace(self, type_: ResourceType, key: ObjectKey) -> None:
        """The namespace of a new object must be there, and stay. Raises RefusedError (404, 403)."""
        namespace = self.storage.get(NAMESPACES, ObjectKey("", key.namespace))
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

    def new_errors(self, type_: ResourceType, key: ObjectKey, body: JsonObject) -> Iterator[FieldError]:
        """Requests for administrative access to devices, in a namespace without the label for it."""
        if type_.store not in _CLAIMS or self._allows_admin_access(key.namespace):
            return
        spec = lookup(body, "spec", "spec") or body.get("spec")
        for index, request in enumerate(lookup(spec, "devices", "requests") or []):
            if lookup(request, "exactly", "adminAccess"):
                yield forbidden(f"spec.devices.requests[{index}].adminAccess", _ADMIN_REFUSAL)
                return

    def status_errors(
        self, type_: ResourceType, key: ObjectKey, body: JsonObject, old: JsonObject
    ) -> Iterator[FieldError]:
        """The same for an allocation, unless it had administrative access before."""
        if type_.store != _CLAIMS[0] or self._allows_admin_access(key.namespace):
            return
        granted = _first_admin_result(body)
        if granted is not None and _first_admin_result(old) is None:
            yield forbidden(f"status.allocation.devices.results[{granted}].adminAccess", _ADMIN_REFUSAL)

    def check_policies(self, write: validating_policies.AdmissionAttributes) -> None:
        """The administrator's own policies. Raises RefusedError (by default 422)."""
        validating_policies.check(self.storage, write)

    def _allows_admin_access(self, namespace: str) -> bool:
        stored = self.storage.get(NAMESPACES, ObjectKey("", namespace))
        labels = stored.body["metadata"].get("labels") if stored else None
        return (labels or {}).get(ADMIN_ACCESS_LABEL) == "true"


def _first_admin_result(body: JsonObject) -> int | None:
    results = lookup(body, "status", "allocation", "devices", "results") or []
    return next((index for index, result in enumerate(results) if result.get("adminAccess")), None)
