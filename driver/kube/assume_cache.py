"""An assume cache: an informer's store with the answers to own writes laid over it.

Named after kube-scheduler's ``pkg/scheduler/util/assumecache``, which does the same.

A watch shows a write some time after the server has answered it. A decision from the store alone may in that time
create an object again, or give a device to two claims. Here the newer of the two counts, the stored object or the
assumed one; resource versions are compared as numbers, as the API server counts them (KEP-5504).

A write's answer may also be late: the watch has shown the object's end already. So the UIDs of deleted objects are
remembered, and an answer about one of them is not assumed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic

from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.kube.store import ObjectChange, Store

UNSEEN_S: Final = 30.0
"""How long an object is assumed that the store has never shown. Watches deliver within a second; an object that came
and went between two lists would otherwise be assumed for ever."""
DELETED_UIDS: Final = 4096
"""How many UIDs are remembered: what a cluster deletes while one answer is on its way, many times over."""


@dataclass(frozen=True, slots=True)
class _Assumed(Generic[ObjectT]):
    value: ObjectT
    at: float
    """Monotonic time of the answer, in seconds."""


class AssumeCache(Generic[ObjectT]):
    """``store`` with own writes. The informer's event handler has to call ``on_change`` for every change."""

    def __init__(self, store: Store[ObjectT], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._assumed: dict[ObjectRef, _Assumed[ObjectT]] = {}
        self._deleted: dict[str, None] = {}
        """UIDs of deleted objects, the latest last."""

    def get(self, ref: ObjectRef) -> ObjectT | None:
        """Return the newest known state of an object; None: it does not exist, as far as is known."""
        stored, assumed = self._store.get(ref), self._assumed.get(ref)
        if assumed is None:
            return stored
        if stored is not None:
            return max(stored, assumed.value, key=_version)
        if self._monotonic() - assumed.at > UNSEEN_S:
            del self._assumed[ref]
            return None
        return assumed.value

    def values(self) -> tuple[ObjectT, ...]:
        """Return the newest known states of all objects."""
        refs = dict.fromkeys((*self._store.refs(), *self._assumed))
        return tuple(value for ref in refs if (value := self.get(ref)) is not None)

    def assume(self, answer: ObjectT) -> bool:
        """Assume the server's answer to a write or a read; returns whether it is newer than what was known."""
        known = self.get(answer.ref)
        if answer.metadata.uid in self._deleted or (known is not None and _version(known) >= _version(answer)):
            return False
        self._assumed[answer.ref] = _Assumed(answer, self._monotonic())
        return True

    def is_deleted(self, uid: str) -> bool:
        """Whether the store has shown the end of the object with this UID."""
        return uid in self._deleted

    def on_change(self, change: ObjectChange[ObjectT]) -> None:
        """Handle a change of the store, whose objects replace assumed ones that are not newer."""
        assumed = self._assumed.get(change.ref)
        if change.new is not None:
            is_over = assumed is not None and _version(change.new) >= _version(assumed.value)
        else:
            assert change.old is not None, "a change has an old or a new object"
            uid = change.old.metadata.uid
            is_over = assumed is not None and assumed.value.metadata.uid == uid
            self._deleted[uid] = None
            if len(self._deleted) > DELETED_UIDS:
                del self._deleted[next(iter(self._deleted))]
        if is_over:
            del self._assumed[change.ref]


def _version(value: ObjectT) -> int:
    return value.metadata.version
