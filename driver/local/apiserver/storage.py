"""Objects in memory, with one revision counter and a bounded history of changes (what etcd and the watch cache are).

Rules: one revision per change, over all kinds; a body is never changed once stored; the history of each kind reaches
back to its horizon, and whoever asks for something older gets an ExpiredRevisionError. No I/O and no clock in here.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple

import msgspec

from api.errors import KerfError
from api.model.base import JsonObject

Converter = Callable[[JsonObject], JsonObject]
"""From the stored body to that of one API version, or back."""


class GroupResource(NamedTuple):
    """A kind of objects in one store, over all its versions: ``("resource.k8s.io", "resourceclaims")``."""

    group: str
    plural: str


class ObjectKey(NamedTuple):
    """One object of a kind; cluster-scoped objects have no namespace. Lists are in this order."""

    namespace: str
    name: str


class ExpiredRevisionError(KerfError):
    """The history does not reach back to the revision that was asked for."""

    def __init__(self, revision: int, horizon: int) -> None:
        self.revision = revision
        super().__init__(f"too old resource version: {revision} ({horizon})")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One revision of one object. ``body`` has neither ``kind`` nor ``apiVersion``: these belong to a request."""

    key: ObjectKey
    revision: int
    body: JsonObject
    _wire: dict[Converter | None, bytes] = field(default_factory=dict, compare=False, repr=False)
    _copies: "dict[int, StoredObject]" = field(default_factory=dict, compare=False, repr=False)

    def at(self, revision: int) -> "StoredObject":
        """The same body, said to be of another revision: made once, however many watchers see it."""
        return self._copies.get(revision) or self._copies.setdefault(revision, _stamped(self.key, revision, self.body))

    def wire(self, converter: Converter | None) -> bytes:
        """The body as JSON for one API version: encoded once, however many watchers and lists send it."""
        encoded = self._wire.get(converter)
        if encoded is None:
            encoded = msgspec.json.encode(converter(self.body) if converter else self.body)
            self._wire[converter] = encoded
        return encoded


@dataclass(frozen=True, slots=True)
class StorageEvent:
    """One change. No ``old``: created. No ``new``: deleted, and ``last`` is how it went, with the revision of that."""

    revision: int
    old: StoredObject | None
    new: StoredObject | None
    last: StoredObject
    """The object after the change; of a deletion the last body, at the deletion's revision."""

    @property
    def key(self) -> ObjectKey:
        return self.last.key


class _KindStore:
    """The objects of one kind and their recent changes."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, StoredObject] = {}
        self.events: deque[StorageEvent] = deque()
        self.horizon = 0  # changes up to this revision have been forgotten


class Storage:
    """Every object of the cluster.

    ``history`` is how many changes are kept for each kind. ``listener`` is called after each change, in order, within
    the call that made it; it must not change anything itself.
    """

    def __init__(self, *, history: int, listener: Callable[[GroupResource, StorageEvent], None] | None = None) -> None:
        self.revision = 1  # etcd starts there too: 0 means "any" in requests
        self._history: Final = history
        self._listener = listener
        self._kind_stores: dict[GroupResource, _KindStore] = {}

    def get(self, resource: GroupResource, key: ObjectKey) -> StoredObject | None:
        kind_store = self._kind_stores.get(resource)
        return kind_store.objects.get(key) if kind_store else None

    def items(self, resource: GroupResource, namespace: str = "", *, revision: int | None = None) -> list[StoredObject]:
        """The objects of a kind (of one namespace, if given) in key order, now or as they were at ``revision``.

        Raises ExpiredRevisionError when the history is too short for that.
        """
        objects = self._objects_at(self._kind_store(resource), self.revision if revision is None else revision)
        return [objects[key] for key in sorted(objects) if not namespace or key.namespace == namespace]

    def count(self, resource: GroupResource) -> int:
        return len(self._kind_store(resource).objects)

    def put(self, resource: GroupResource, key: ObjectKey, body: JsonObject) -> StoredObject:
        """Create or replace. ``metadata.resourceVersion`` is set in a copy."""
        self.revision += 1
        kind_store = self._kind_store(resource)
        new = _stamped(key, self.revision, body)
        old = kind_store.objects.get(key)
        kind_store.objects[key] = new
        self._record(resource, kind_store, StorageEvent(self.revision, old, new, new))
        return new

    def remove(self, resource: GroupResource, key: ObjectKey, body: JsonObject | None = None) -> StoredObject:
        """Delete, and return how the object went: ``body`` if given, else as it was. Raises KeyError."""
        kind_store = self._kind_store(resource)
        old = kind_store.objects.pop(key)
        self.revision += 1
        last = _stamped(key, self.revision, old.body if body is None else body)
        self._record(resource, kind_store, StorageEvent(self.revision, old, None, last))
        return last

    def events_after(self, resource: GroupResource, revision: int) -> list[StorageEvent]:
        """The changes of a kind later than ``revision``, oldest first. Raises ExpiredRevisionError."""
        kind_store = self._kind_store(resource)
        self._check_horizon(kind_store, revision)
        later = list(takewhile(lambda event: event.revision > revision, reversed(kind_store.events)))
        later.reverse()
        return later

    def _kind_store(self, resource: GroupResource) -> _KindStore:
        return self._kind_stores.setdefault(resource, _KindStore())

    def _record(self, resource: GroupResource, kind_store: _KindStore, event: StorageEvent) -> None:
        kind_store.events.append(event)
        if len(kind_store.events) > self._history:
            kind_store.horizon = kind_store.events.popleft().revision
        if self._listener:
            self._listener(resource, event)

    @staticmethod
    def _check_horizon(kind_store: _KindStore, revision: int) -> None:
        if revision < kind_store.horizon:
            raise ExpiredRevisionError(revision, kind_store.horizon)

    def _objects_at(self, kind_store: _KindStore, revision: int) -> dict[ObjectKey, StoredObject]:
        """The objects as they were: the present with later changes undone, newest first."""
        self._check_horizon(kind_store, revision)
        if revision >= self.revision or not kind_store.events or kind_store.events[-1].revision <= revision:
            return kind_store.objects
        objects = dict(kind_store.objects)
        for event in reversed(kind_store.events):
            if event.revision <= revision:
                break
            if event.old is None:
                del objects[event.key]
            else:
                objects[event.key] = event.old
        return objects


def _stamped(key: ObjectKey, revision: int, body: JsonObject) -> StoredObject:
    metadata = {**body["metadata"], "resourceVersion": str(revision)}
    return StoredObject(key, revision, {**body, "metadata": metadata})
