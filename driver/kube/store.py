"""What the API server was last seen to have, in memory, with indexes.

One task writes, everybody reads. Readers get tuples: what they hold does not change under them, also across an await.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias

from api.model.metadata import ObjectT
from api.model.names import ObjectRef

Indexer: TypeAlias = Callable[[ObjectT], Iterable[str]]
"""The keys that an object is found under; pure."""


@dataclass(frozen=True, slots=True)
class Change(Generic[ObjectT]):
    """One object came (``old`` None), changed, or went (``new`` None).

    An object that was deleted and made anew under the same name goes and comes: two changes, never one.
    """

    ref: ObjectRef
    old: ObjectT | None
    new: ObjectT | None


class Store(Generic[ObjectT]):
    """The read side of an informer; the informer alone calls ``put`` and ``remove``."""

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
        """The objects that ``index`` finds under ``key``. Raises KeyError when there is no such index."""
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
