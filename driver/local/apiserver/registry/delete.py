"""Deletion: at once, graceful, or held up by finalizers.

Source: ``k8s.io/apiserver`` ``pkg/registry/rest/delete.go`` and ``pkg/registry/generic/registry/store.go``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.times import format_time
from kerf_dra.driver.local.apiserver.http.query_options import DeleteOptions
from kerf_dra.driver.local.apiserver.kinds.types import ResourceType
from kerf_dra.driver.local.apiserver.kinds.validation.core import NAMESPACE_FINALIZER
from kerf_dra.driver.local.apiserver.meta.documents import deep_copy, lookup
from kerf_dra.driver.local.apiserver.meta.status_errors import conflict, object_not_found
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey, Storage, StoredObject
from kerf_dra.driver.local.apiserver.times import parse_time

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_PROPAGATION: Final = {"Orphan": ORPHAN, "Foreground": FOREGROUND}


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The object as the request left it; ``gone``: it has been removed."""

    stored: StoredObject
    gone: bool


@dataclass(frozen=True, slots=True)
class ObjectDeleter:
    """Deletes objects in one storage."""

    storage: Storage
    clock: Callable[[], datetime]

    def delete(self, type_: ResourceType, key: ObjectKey, options: DeleteOptions) -> DeleteResult:
        """Delete an object. Raises ApiStatusError (404, 409 when a precondition does not hold)."""
        stored = self.storage.get(type_.store, key)
        if stored is None:
            raise object_not_found(type_.group, type_.plural, key.name)
        _check_preconditions(type_, stored, options)
        body = self._mark(type_, stored.body, options)
        metadata = body["metadata"]
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds") or _has_content(body)
        if not held:
            # Only what is deleted gracefully is marked before it is removed; all else is removed as it was.
            last = body if type_.strategy.grace else stored.body
            if options.dry_run:
                return DeleteResult(StoredObject(key, stored.revision, last), gone=True)
            return DeleteResult(self.storage.remove(type_.store, key, last), gone=True)
        if body == stored.body or options.dry_run:
            return DeleteResult(StoredObject(key, stored.revision, body), gone=False)
        return DeleteResult(self.storage.put(type_.store, key, body), gone=False)

    def drop_finalizer(self, resource: GroupResource, key: ObjectKey, finalizer: str) -> None:
        """Remove a finalizer, and a deleted object that nothing else holds."""
        stored = self.storage.get(resource, key)
        if stored is None:
            return
        metadata = dict(stored.body["metadata"])
        left = [each for each in metadata.pop("finalizers", []) if each != finalizer]
        if left:
            metadata["finalizers"] = left
        body = {**stored.body, "metadata": metadata}
        if is_gone(metadata) and not _has_content(body):
            self.storage.remove(resource, key, body)
        else:
            self.storage.put(resource, key, body)

    def _mark(self, type_: ResourceType, body: JsonObject, options: DeleteOptions) -> JsonObject:
        """Return the object with its deletion time, grace period, and the finalizers of the propagation policy."""
        metadata = {**body["metadata"], **self._compute_deadline(type_, body, options)}
        finalizers = _finalizers(metadata.get("finalizers") or [], options.propagation)
        metadata.pop("finalizers", None)
        if finalizers:
            metadata["finalizers"] = finalizers
        if "generation" in metadata and not body["metadata"].get("deletionTimestamp"):
            metadata["generation"] += 1
        marked = deep_copy({**body, "metadata": metadata})
        type_.strategy.prepare_for_delete(marked, format_time(self.clock()))
        return marked

    def _compute_deadline(self, type_: ResourceType, body: JsonObject, options: DeleteOptions) -> JsonObject:
        """Return the deletion time and grace period; a later request can shorten the period, never extend it."""
        now = self.clock()
        begun = body["metadata"].get("deletionTimestamp")
        if not begun:
            grace = type_.strategy.grace(body, options.grace_s) if type_.strategy.grace else 0
            end = now + timedelta(seconds=grace)
            return {"deletionTimestamp": format_time(end), "deletionGracePeriodSeconds": grace}
        present = body["metadata"].get("deletionGracePeriodSeconds") or 0
        if options.grace_s is None or options.grace_s >= present:
            return {}
        end = (parse_time(begun) or now) + timedelta(seconds=options.grace_s - present)
        # A period that is already over leaves one second, unless the request asks for none.
        grace = options.grace_s if end >= now or not options.grace_s else 1
        return {"deletionTimestamp": format_time(max(end, now)), "deletionGracePeriodSeconds": grace}


def _check_preconditions(type_: ResourceType, stored: StoredObject, options: DeleteOptions) -> None:
    metadata = stored.body["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(type_.group, type_.kind, stored.key.name, why)
    if options.resource_version and options.resource_version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({metadata['resourceVersion']}). The object might have been modified"
        )
        raise conflict(type_.group, type_.kind, stored.key.name, why)


def _finalizers(present: list[str], propagation: str) -> list[str]:
    """Return the finalizers after a request; its propagation policy replaces that of an earlier one."""
    if not propagation:
        return present
    others = [each for each in present if each not in _PROPAGATION.values()]
    wanted = _PROPAGATION.get(propagation)
    return [*others, wanted] if wanted else others


def _has_content(body: JsonObject) -> bool:
    """Whether a namespace still waits for the removal of its content, whether or not there is any."""
    return NAMESPACE_FINALIZER in (lookup(body, "spec", "finalizers") or [])


def is_gone(metadata: JsonObject) -> bool:
    """Whether a deleted object has no finalizer left and no grace period to wait for."""
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )
