"""What one pass over a class decides on: the caches as they are, with our own writes that they have not seen yet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic

from api.core.v1 import Node
from api.kerf.v1alpha1 import ResourceClassObject
from api.model.claims import DeviceClass
from api.model.metadata import ObjectT
from api.model.names import ObjectRef
from driver.controller.structured.device_types import Shape

TRUST_S: Final = 30.0
"""How long a write of ours is believed over a cache that does not move: watches deliver within a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The last write of a DeviceClass, not long ago: what was asked for, and what the server made of it."""

    desired: DeviceClass
    answer: DeviceClass
    at: float
    """Monotonic time, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a pass over one class may look at."""

    resource_class: ResourceClassObject
    device_class: DeviceClass | None
    """The one of the class's name, whoever made it."""
    written: Written | None
    nodes: tuple[Node, ...]
    shapes: frozenset[Shape]
    """All hardware that can exist."""


@dataclass(frozen=True, slots=True)
class _Write(Generic[ObjectT]):
    before: tuple[str, str] | None
    answer: ObjectT
    at: float


class OwnWrites(Generic[ObjectT]):
    """Answers to our own writes, until the cache moves on from what it showed when they were made."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._writes: dict[ObjectRef, _Write[ObjectT]] = {}

    def note(self, before: ObjectT | None, answer: ObjectT) -> None:
        """``answer`` is the server's to a write that was decided on ``before``."""
        self._writes[answer.ref] = _Write(_version(before), answer, self._monotonic())

    def moved(self, ref: ObjectRef) -> None:
        """The cache has seen a change of the object: ours, or one that is newer than what ours was decided on."""
        self._writes.pop(ref, None)

    def over(self, ref: ObjectRef, cached: ObjectT | None) -> ObjectT | None:
        """The newest known state of an object: ours as long as the cache has not moved, else what it shows."""
        write = self._writes.get(ref)
        if write is None:
            return cached
        if write.before != _version(cached) or self._monotonic() - write.at > TRUST_S:
            del self._writes[ref]
            return cached
        return write.answer


def _version(value: ObjectT | None) -> tuple[str, str] | None:
    return None if value is None else (value.metadata.uid, value.metadata.resource_version)
