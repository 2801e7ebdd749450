"""Objects in memory with one revision counter and a bounded history of changes: what etcd and the watch cache are.

Invariants: each change has a revision of its own, over all kinds; a body is never changed once it is stored; the
history of each kind reaches back to its horizon, and a request for something older is expired. There is no I/O and no
clock in here.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple

import msgspec

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject

Converter = Callable[[JsonObject], JsonObject]
"""Converts the stored body to that of one API version, or back, without changing its argument."""


class GroupResource(NamedTuple):
    """A kind over all its versions: ``("resource.k8s.io", "resourceclaims")``."""

    group: str
    plural: str


class ObjectKey(NamedTuple):
    """The identity of an object within its kind, in the order of lists; cluster-scoped ones have no namespace."""

    namespace: str
    name: str


class ExpiredRevisionError(KerfError):
    """The history does not reach back to a revision."""

    def __init__(self, revision: int, horizon: int) -> None:
        self.revision = revision
        super().__init__(f"too old resource version: {revision} ({horizon})")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One revision of one object. Its body has neither ``kind`` nor ``apiVersion``, which belong to a request."""

    key: ObjectKey
    revision: int
    body: JsonObject
    _wire: dict[Converter | None, bytes] = field(default_factory=dict, compare=False, repr=False)
    _copies: "dict[int, StoredObject]" = field(default_factory=dict, compare=False, repr=False)

    def at_revision(self, revision: int) -> "StoredObject":
        """Return the same body with another revision, copied once for all watches."""
        return self._copies.get(revision) or self._copies.setdefault(revision, _stamped(self.key, revision, self.body))

    def encode(self, converter: Converter | None) -> bytes:
        """Return the body as JSON in one API version, encoded once for all watches and lists."""
        encoded = self._wire.get(converter)
        if encoded is None:
            encoded = msgspec.json.encode(converter(self.body) if converter else self.body)
            self._wire[converter] = encoded
        return encoded


@dataclass(frozen=True, slots=True)
class StorageEvent:
    """One change of an object: a creation has no ``old``, a deletion no ``new``."""

    revision: int
    old: StoredObject | None
    new: StoredObject | None
    last: StoredObject
    """The object after the change; after a deletion its last body, with the revision of the deletion."""

    @property
    def key(self) -> ObjectKey:
        return self.last.key


class _KindStore:
    """The objects of one kind and their recent changes."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, StoredObject] = {}
        self.events: deque[StorageEvent] = deque()
        self.horizon = 0  # the revision of the latest change that is no longer in the history


class Storage:
    """All objects of the cluster.

    ``history`` is the number of changes kept for each kind. ``listener`` is called after each change, in order, within
    the call that made it; it must not make changes itself.
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
        """Return the objects of a kind (of one namespace, if given) in key order, now or as they were at ``revision``.

        Raises ExpiredRevisionError when ``revision`` is before the horizon.
        """
        objects = self._objects_at(self._kind_store(resource), self.revision if revision is None else revision)
        return [objects[key] for key in sorted(objects) if not namespace or key.namespace == namespace]

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
        """Delete an object; its last state is ``body``, if given. Raises KeyError when there is no such object."""
        kind_store = self._kind_store(resource)
        old = kind_store.objects.pop(key)
        self.revision += 1
        last = _stamped(key, self.revision, old.body if body is None else body)
        self._record(resource, kind_store, StorageEvent(self.revision, old, None, last))
        return last

    def events_after(self, resource: GroupResource, revision: int) -> list[StorageEvent]:
        """Return a kind's changes after ``revision``, oldest first. Raises ExpiredRevisionError before the horizon."""
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
        """Return the objects at a revision: those of today with later changes undone, newest first."""
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
