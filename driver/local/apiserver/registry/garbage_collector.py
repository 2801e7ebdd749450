"""What goes after something else went: dependents of owners, content of namespaces, objects of definitions.

A work list of objects to look at, fed by every change. Looking at an object again is harmless: each look does what the
present state asks for and nothing else. Source: ``kubernetes/pkg/controller/garbagecollector``,
``pkg/controller/namespace`` and ``apiextensions-apiserver`` ``pkg/controller/finalizer``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel

from api.model.base import JsonObject
from driver.local.apiserver.crd.definitions import CLEANUP_FINALIZER, DEFINITIONS
from driver.local.apiserver.http.query_options import DeleteOptions, WriteOptions
from driver.local.apiserver.kinds.registry import Catalogue
from driver.local.apiserver.kinds.validation.core import NAMESPACE_FINALIZER
from driver.local.apiserver.meta.documents import lookup
from driver.local.apiserver.registry.create_update import Writer, WriteRequest
from driver.local.apiserver.registry.delete import FOREGROUND, ORPHAN, Deleter
from driver.local.apiserver.registry.owner_index import Place, Relations, owners_of
from driver.local.apiserver.registry.subresources import NAMESPACES, finalize
from driver.local.apiserver.storage import Event, GroupResource, Key, Storage, Stored

_MANAGER: Final = "kube-controller-manager"
"""Whose work this is in a real cluster."""


@dataclass(slots=True, kw_only=True)
class Collector:
    """Looks after one storage. ``notice`` must see every change; ``run`` does the work."""

    storage: Storage
    catalogue: Catalogue
    deleter: Deleter
    writer: Writer
    relations: Relations = field(default_factory=Relations)
    _pending: dict[Place, None] = field(default_factory=dict)
    _signal: anyio.Event = field(default_factory=anyio.Event)

    def notice(self, resource: GroupResource, event: Event) -> None:
        """Notes what a change may have consequences for."""
        if event.new is None and event.old is not None:
            self._add(dependent.place for dependent in self.relations.dependents(event.old.body["metadata"]["uid"]))
            self._add(self._waiting_for(resource, event.old))
        self.relations.apply(resource, event)
        if event.new and _is_of_interest(resource, event.new.body):
            self._add([Place(resource, event.key)])

    async def run(self) -> None:
        """Works for ever; start it in a task group."""
        while True:
            while self._pending:
                self.step()
                await anyio.lowlevel.checkpoint()
            self._signal = anyio.Event()
            await self._signal.wait()

    def step(self) -> None:
        """Looks at one object."""
        place = next(iter(self._pending))
        del self._pending[place]
        stored = self.storage.get(*place)
        if stored is None:
            return
        if stored.body["metadata"].get("deletionTimestamp"):
            self._look_at_deleted(place, stored)
        else:
            self._look_at_owners(place, stored)

    def _add(self, places: Iterable[Place]) -> None:
        self._pending.update(dict.fromkeys(places))
        self._signal.set()

    def _waiting_for(self, resource: GroupResource, gone: Stored) -> Iterable[Place]:
        """What may have waited for this object to go: owners, its namespace, its definition."""
        for uid, _ in owners_of(gone.body):
            if owner := self.relations.place(uid):
                yield owner
        if gone.key.namespace:
            yield Place(NAMESPACES, Key("", gone.key.namespace))
        yield Place(DEFINITIONS, Key("", f"{resource.plural}.{resource.group}"))

    def _look_at_deleted(self, place: Place, stored: Stored) -> None:
        metadata = stored.body["metadata"]
        finalizers = metadata.get("finalizers") or []
        if ORPHAN in finalizers:
            for dependent in self.relations.dependents(metadata["uid"]):
                self._disown(dependent.place, {metadata["uid"]})
            self.deleter.drop_finalizer(*place, ORPHAN)
        elif FOREGROUND in finalizers:
            self._delete_foreground(place, metadata)
        elif place.resource == NAMESPACES:
            self._empty_namespace(stored)
        elif place.resource == DEFINITIONS and CLEANUP_FINALIZER in finalizers:
            self._empty_definition(place, stored)

    def _delete_foreground(self, place: Place, metadata: JsonObject) -> None:
        dependents = self.relations.dependents(metadata["uid"])
        for dependent in dependents:
            self._delete(dependent.place, "Foreground")
        if not any(dependent.blocks and self.storage.get(*dependent.place) for dependent in dependents):
            self.deleter.drop_finalizer(*place, FOREGROUND)

    def _empty_namespace(self, namespace: Stored) -> None:
        name = namespace.key.name
        resources = {type_.store for type_ in self.catalogue if type_.namespaced}
        places = [Place(each, stored.key) for each in resources for stored in self.storage.items(each, name)]
        for place in places:
            self._delete(place, "Background")
        if any(self.storage.items(resource, name) for resource in resources):
            return
        left = [each for each in lookup(namespace.body, "spec", "finalizers") or [] if each != NAMESPACE_FINALIZER]
        finalize(self.storage, namespace.key, {"spec": {"finalizers": left}})

    def _empty_definition(self, place: Place, definition: Stored) -> None:
        spec = definition.body["spec"]
        resource = GroupResource(spec["group"], spec["names"]["plural"])
        for stored in self.storage.items(resource):
            self._delete(Place(resource, stored.key), "Background")
        if not self.storage.count(resource):
            self.deleter.drop_finalizer(*place, CLEANUP_FINALIZER)

    def _look_at_owners(self, place: Place, stored: Stored) -> None:
        owners = {uid for uid, _ in owners_of(stored.body)}
        absent = {uid for uid in owners if not self._is_there(uid, place.key.namespace)}
        if absent and absent == owners:
            self._delete(place, "Background")
        elif absent:
            self._disown(place, absent)

    def _is_there(self, uid: str, namespace: str) -> bool:
        """An owner must be cluster-scoped, or in the same namespace."""
        owner = self.relations.place(uid)
        return owner is not None and owner.key.namespace in {"", namespace}

    def _disown(self, place: Place, owners: set[str]) -> None:
        """Removes references to owners that are no more."""
        type_ = self.catalogue.get(place.resource)
        if type_ is None or self.storage.get(*place) is None:
            return
        request = WriteRequest(
            type=type_, version=type_.versions[0], key=place.key, options=WriteOptions(field_manager=_MANAGER)
        )
        self.writer.update(request, partial(_without_owners, owners))

    def _delete(self, place: Place, propagation: str) -> None:
        stored, type_ = self.storage.get(*place), self.catalogue.get(place.resource)
        if stored is None or type_ is None or stored.body["metadata"].get("deletionTimestamp"):
            return
        uid = stored.body["metadata"]["uid"]
        self.deleter.delete(type_, place.key, DeleteOptions(propagation=propagation, uid=uid))


def _without_owners(owners: set[str], current: JsonObject | None) -> JsonObject:
    document = dict(current or {})
    kept = [each for each in document["metadata"].get("ownerReferences") or [] if each.get("uid") not in owners]
    return {**document, "metadata": {**document["metadata"], "ownerReferences": kept}}


def _is_of_interest(resource: GroupResource, body: JsonObject) -> bool:
    """Objects with owners, and deleted ones that somebody has to look after."""
    metadata = body["metadata"]
    if metadata.get("deletionTimestamp"):
        return resource in {NAMESPACES, DEFINITIONS} or bool(
            {ORPHAN, FOREGROUND} & set(metadata.get("finalizers") or ())
        )
    return bool(metadata.get("ownerReferences"))
