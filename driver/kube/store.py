"""A cache of the objects of one kind with indexes, as client-go's ``Indexer``.

One task writes, all others read. Readers get tuples, which do not change, also across an await.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias

from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.model.names import ObjectRef

Indexer: TypeAlias = Callable[[ObjectT], Iterable[str]]
"""The keys of an object in one index; a pure function."""


@dataclass(frozen=True, slots=True)
class ObjectChange(Generic[ObjectT]):
    """One object was added (``old`` is None), updated, or deleted (``new`` is None).

    An object that was deleted and created again under the same name gives two changes, never one.
    """

    ref: ObjectRef
    old: ObjectT | None
    new: ObjectT | None


class Store(Generic[ObjectT]):
    """The objects that an informer knows; only the informer calls ``put`` and ``remove``."""

    def __init__(self, indexers: Mapping[str, Indexer[ObjectT]] | None = None) -> None:
        self._objects: dict[ObjectRef, ObjectT] = {}
        self._indexers = dict(indexers or {})
        self._indexes: dict[str, dict[str, dict[ObjectRef, ObjectT]]] = {name: {} for name in self._indexers}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, ref: ObjectRef) -> ObjectT | None:
        return self._objects.get(ref)

    def refs(self) -> tuple[ObjectRef, ...]:
        return tuple(self._objects)

    def values(self) -> tuple[ObjectT, ...]:
        return tuple(self._objects.values())

    def indexed(self, index: str, key: str) -> tuple[ObjectT, ...]:
        """Return the objects with ``key`` in ``index``. Raises KeyError when there is no such index."""
        return tuple(self._indexes[index].get(key, {}).values())

    def put(self, value: ObjectT) -> None:
        ref = value.ref
        self._unindex(ref)
        self._objects[ref] = value
        for name, keys_of in self._indexers.items():
            for key in keys_of(value):
                self._indexes[name].setdefault(key, {})[ref] = value

    def remove(self, ref: ObjectRef) -> None:
        self._unindex(ref)
        self._objects.pop(ref, None)

    def _unindex(self, ref: ObjectRef) -> None:
        old = self._objects.get(ref)
        if old is None:
            return
        for name, keys_of in self._indexers.items():
            for key in set(keys_of(old)):
                found = self._indexes[name][key]
                del found[ref]
                if not found:
                    del self._indexes[name][key]
