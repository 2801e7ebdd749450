"""The garbage collector, which deletes objects because others were deleted.

These are the dependents of a deleted owner, the content of a deleted namespace, and the objects of a deleted
CustomResourceDefinition. Every change puts the objects that it may concern into a queue. Processing an object is
idempotent: it does what the present state asks for and nothing else, so an object may be queued once too often.
Source: ``kubernetes/pkg/controller/garbagecollector``, ``pkg/controller/namespace`` and ``apiextensions-apiserver``
``pkg/controller/finalizer``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import anyio
import anyio.lowlevel

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.crd.definitions import CLEANUP_FINALIZER, DEFINITIONS
from kerf_dra.driver.local.apiserver.http.query_options import DeleteOptions, WriteOptions
from kerf_dra.driver.local.apiserver.kinds.served_kinds import ServedKinds
from kerf_dra.driver.local.apiserver.kinds.validation.core import NAMESPACE_FINALIZER
from kerf_dra.driver.local.apiserver.meta.documents import lookup
from kerf_dra.driver.local.apiserver.registry.create_update import ObjectWriter, WriteRequest
from kerf_dra.driver.local.apiserver.registry.delete import FOREGROUND, ORPHAN, ObjectDeleter
from kerf_dra.driver.local.apiserver.registry.subresources import NAMESPACES, finalize_namespace
from kerf_dra.driver.local.apiserver.storage import GroupResource, ObjectKey, Storage, StorageEvent, StoredObject

_MANAGER: Final = "kube-controller-manager"
"""The field manager of these writes: in a real cluster they are its work."""


class ObjectLocation(NamedTuple):
    """The place of one object in the storage."""

    resource: GroupResource
    key: ObjectKey


class OwnerIndex:
    """All objects by uid, and the dependents of each owner; ``apply`` must see every change, in order."""

    def __init__(self) -> None:
        self._locations: dict[str, ObjectLocation] = {}
        self._dependents: dict[str, dict[ObjectLocation, bool]] = {}

    def apply(self, resource: GroupResource, event: StorageEvent) -> None:
        location = ObjectLocation(resource, event.key)
        if event.old:
            self._locations.pop(event.old.body["metadata"]["uid"], None)
            for uid, _ in owners_of(event.old.body):
                self._dependents.get(uid, {}).pop(location, None)
                if not self._dependents.get(uid, True):
                    del self._dependents[uid]
        if event.new:
            self._locations[event.new.body["metadata"]["uid"]] = location
            for uid, blocks in owners_of(event.new.body):
                self._dependents.setdefault(uid, {})[location] = blocks

    def location(self, uid: str) -> ObjectLocation | None:
        return self._locations.get(uid)

    def dependents(self, uid: str) -> dict[ObjectLocation, bool]:
        """Return the objects that name this owner; True where its foreground deletion waits for them."""
        return dict(self._dependents.get(uid, {}))


def owners_of(body: JsonObject) -> Iterator[tuple[str, bool]]:
    """Yield the uid of each owner, and whether it must wait for this object."""
    for reference in body["metadata"].get("ownerReferences") or ():
        yield str(reference.get("uid")), bool(reference.get("blockOwnerDeletion"))


@dataclass(slots=True, kw_only=True)
class GarbageCollector:
    """The garbage collector of one storage: ``handle_event`` must see every change, ``run`` does the work."""

    storage: Storage
    served_kinds: ServedKinds
    deleter: ObjectDeleter
    writer: ObjectWriter
    owner_index: OwnerIndex = field(default_factory=OwnerIndex)
    _pending: dict[ObjectLocation, None] = field(default_factory=dict)
    _signal: anyio.Event = field(default_factory=anyio.Event)

    def handle_event(self, resource: GroupResource, event: StorageEvent) -> None:
        """Queue the objects for which a change may have consequences."""
        if event.new is None and event.old is not None:
            self._add(self.owner_index.dependents(event.old.body["metadata"]["uid"]))
            self._add(self._find_blocked(resource, event.old))
        self.owner_index.apply(resource, event)
        if event.new and _needs_processing(resource, event.new.body):
            self._add([ObjectLocation(resource, event.key)])

    async def run(self) -> None:
        """Process the queue until cancelled."""
        while True:
            while self._pending:
                self.process_next()
                await anyio.lowlevel.checkpoint()
            self._signal = anyio.Event()
            await self._signal.wait()

    def process_next(self) -> None:
        """Process the first object of the queue as its present state requires."""
        location = next(iter(self._pending))
        del self._pending[location]
        stored = self.storage.get(*location)
        if stored is None:
            return
        if stored.body["metadata"].get("deletionTimestamp"):
            self._process_deleting(location, stored)
        else:
            self._process_owned(location, stored)

    def _add(self, locations: Iterable[ObjectLocation]) -> None:
        self._pending.update(dict.fromkeys(locations))
        self._signal.set()

    def _find_blocked(self, resource: GroupResource, gone: StoredObject) -> Iterable[ObjectLocation]:
        """Find what may have waited for the end of this object: its owners, its namespace, its definition."""
        for uid, _ in owners_of(gone.body):
            if owner := self.owner_index.location(uid):
                yield owner
        if gone.key.namespace:
            yield ObjectLocation(NAMESPACES, ObjectKey("", gone.key.namespace))
        yield ObjectLocation(DEFINITIONS, ObjectKey("", f"{resource.plural}.{resource.group}"))

    def _process_deleting(self, location: ObjectLocation, stored: StoredObject) -> None:
        metadata = stored.body["metadata"]
        finalizers = metadata.get("finalizers") or []
        if ORPHAN in finalizers:
            for dependent in self.owner_index.dependents(metadata["uid"]):
                self._remove_owners(dependent, {metadata["uid"]})
            self.deleter.drop_finalizer(*location, ORPHAN)
        elif FOREGROUND in finalizers:
            self._delete_foreground(location, metadata)
        elif location.resource == NAMESPACES:
            self._empty_namespace(stored)
        elif location.resource == DEFINITIONS and CLEANUP_FINALIZER in finalizers:
            self._empty_definition(location, stored)

    def _delete_foreground(self, location: ObjectLocation, metadata: JsonObject) -> None:
        dependents = self.owner_index.dependents(metadata["uid"])
        for dependent in dependents:
            self._delete(dependent, "Foreground")
        if not any(blocks and self.storage.get(*dependent) for dependent, blocks in dependents.items()):
            self.deleter.drop_finalizer(*location, FOREGROUND)

    def _empty_namespace(self, namespace: StoredObject) -> None:
        name = namespace.key.name
        resources = {type_.store for type_ in self.served_kinds if type_.namespaced}
        locations = [
            ObjectLocation(each, stored.key) for each in resources for stored in self.storage.items(each, name)
        ]
        for location in locations:
            self._delete(location, "Background")
        if any(self.storage.items(resource, name) for resource in resources):
            return
        left = [each for each in lookup(namespace.body, "spec", "finalizers") or [] if each != NAMESPACE_FINALIZER]
        finalize_namespace(self.storage, namespace.key, {"spec": {"finalizers": left}})

    def _empty_definition(self, location: ObjectLocation, definition: StoredObject) -> None:
        spec = definition.body["spec"]
        resource = GroupResource(spec["group"], spec["names"]["plural"])
        for stored in self.storage.items(resource):
            self._delete(ObjectLocation(resource, stored.key), "Background")
        if not self.storage.items(resource):
            self.deleter.drop_finalizer(*location, CLEANUP_FINALIZER)

    def _process_owned(self, location: ObjectLocation, stored: StoredObject) -> None:
        owners = {uid for uid, _ in owners_of(stored.body)}
        absent = {uid for uid in owners if not self._exists(uid, location.key.namespace)}
        if absent and absent == owners:
            self._delete(location, "Background")
        elif absent:
            self._remove_owners(location, absent)

    def _exists(self, uid: str, namespace: str) -> bool:
        """Whether an owner is there: cluster-scoped, or in the same namespace."""
        owner = self.owner_index.location(uid)
        return owner is not None and owner.key.namespace in {"", namespace}

    def _remove_owners(self, location: ObjectLocation, owners: set[str]) -> None:
        """Remove the references to these owners."""
        type_ = self.served_kinds.get(location.resource)
        if type_ is None or self.storage.get(*location) is None:
            return
        request = WriteRequest(
            type=type_, version=type_.versions[0], key=location.key, options=WriteOptions(field_manager=_MANAGER)
        )
        self.writer.update(request, partial(_without_owners, owners))

    def _delete(self, location: ObjectLocation, propagation: str) -> None:
        stored, type_ = self.storage.get(*location), self.served_kinds.get(location.resource)
        if stored is None or type_ is None or stored.body["metadata"].get("deletionTimestamp"):
            return
        uid = stored.body["metadata"]["uid"]
        self.deleter.delete(type_, location.key, DeleteOptions(propagation=propagation, uid=uid))


def _without_owners(owners: set[str], current: JsonObject | None) -> JsonObject:
    document = dict(current or {})
    kept = [each for each in document["metadata"].get("ownerReferences") or [] if each.get("uid") not in owners]
    return {**document, "metadata": {**document["metadata"], "ownerReferences": kept}}


def _needs_processing(resource: GroupResource, body: JsonObject) -> bool:
    """Whether an object has owners, or is being deleted and waits for the garbage collector."""
    metadata = body["metadata"]
    if metadata.get("deletionTimestamp"):
        return resource in {NAMESPACES, DEFINITIONS} or bool(
            {ORPHAN, FOREGROUND} & set(metadata.get("finalizers") or ())
        )
    return bool(metadata.get("ownerReferences"))
