"""Who owns whom: an index over all objects by uid and by owner, kept up to date change by change."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from api.model.base import JsonObject
from driver.local.apiserver.storage import Event, GroupResource, Key


class Place(NamedTuple):
    """Where one object is stored."""

    resource: GroupResource
    key: Key


@dataclass(frozen=True, slots=True)
class Dependent:
    """An object that names an owner."""

    place: Place
    blocks: bool
    """Whether a foreground deletion of the owner waits for it (``blockOwnerDeletion``)."""


class Relations:
    """The index. ``apply`` must see every change, in order."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._dependents: dict[str, dict[Place, bool]] = {}

    def apply(self, resource: GroupResource, event: Event) -> None:
        place = Place(resource, event.key)
        if event.old:
            self._places.pop(event.old.body["metadata"]["uid"], None)
            for uid, _ in owners_of(event.old.body):
                self._dependents.get(uid, {}).pop(place, None)
                if not self._dependents.get(uid, True):
                    del self._dependents[uid]
        if event.new:
            self._places[event.new.body["metadata"]["uid"]] = place
            for uid, blocks in owners_of(event.new.body):
                self._dependents.setdefault(uid, {})[place] = blocks

    def place(self, uid: str) -> Place | None:
        return self._places.get(uid)

    def dependents(self, uid: str) -> list[Dependent]:
        return [Dependent(place, blocks) for place, blocks in self._dependents.get(uid, {}).items()]


def owners_of(body: JsonObject) -> Iterator[tuple[str, bool]]:
    """The uid of each owner, and whether it must wait for this object."""
    for reference in body["metadata"].get("ownerReferences") or ():
        yield str(reference.get("uid")), bool(reference.get("blockOwnerDeletion"))
