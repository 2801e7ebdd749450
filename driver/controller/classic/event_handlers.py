"""Which claims and contexts need a pass after a change in the cluster."""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, Protocol

from msgspec.structs import replace

from api.core.v1 import Node
from api.kerf.classic_parameters import ParametersObject
from api.kerf.node_inventory import NodeInventory
from api.model.classic import ClassicClaim, ClassicClass, PodSchedulingContext
from api.model.names import ObjectRef
from driver.controller.classic.state import World
from driver.kube.store import ObjectChange

SETTLE_S: Final = 0.2
"""How long changes that concern every waiting pod are gathered: they come in groups, and each means many passes."""


class Key(NamedTuple):
    """What to work on."""

    what: Literal["claim", "context"]
    ref: ObjectRef

    def __str__(self) -> str:
        return f"{self.what} {self.ref}"


class Queueing(Protocol):
    """What this needs of the work queue: a key that waits already is merged, the earlier time wins."""

    def add(self, key: Key, *, after_s: float = 0.0) -> None: ...


class Triggers:
    """Turns changes that informers see into the world's knowledge and into keys of work. Quick, and never raises."""

    def __init__(self, queue: Queueing, world: World) -> None:
        self._queue = queue
        self._world = world

    def on_claim(self, change: ObjectChange[ClassicClaim]) -> None:
        self._world.on_claim(change)
        self._queue.add(Key("claim", change.ref))
        if change.old is None and change.new is not None:
            self._wake_contexts_of(change.new)
        if _freed(change.old, change.new):
            self.wake_waiting()

    def on_context(self, change: ObjectChange[PodSchedulingContext]) -> None:
        self._queue.add(Key("context", change.ref))

    def on_class(self, _change: ObjectChange[ClassicClass]) -> None:
        self.wake_waiting()

    def on_parameters(self, _change: ObjectChange[ParametersObject]) -> None:
        self.wake_waiting()

    def on_inventory(self, change: ObjectChange[NodeInventory]) -> None:
        """A renewal alone makes nothing possible that was not."""
        self._world.on_inventory(change)
        if _content(change.old) != _content(change.new):
            self.wake_waiting()
            self._wake_holders(change.ref.name)

    def on_node(self, change: ObjectChange[Node]) -> None:
        """Nodes report much that is of no interest here: only labels decide."""
        if change.old is None or change.new is None or change.old.metadata.labels != change.new.metadata.labels:
            self.wake_waiting()

    def wake_waiting(self) -> None:
        """Look at everything again that may wait for what has changed."""
        for context in self._world.caches.contexts.refs():
            self._queue.add(Key("context", context), after_s=SETTLE_S)
        for claim in self._world.waiting:
            self._queue.add(Key("claim", claim), after_s=SETTLE_S)

    def everything(self) -> None:
        """At the beginning of leadership."""
        for claim in self._world.caches.claims.refs():
            self._queue.add(Key("claim", claim))
        for context in self._world.caches.contexts.refs():
            self._queue.add(Key("context", context))

    def _wake_holders(self, node: str) -> None:
        """Claims that have something of a node: what it tells now may contradict them."""
        holders = self._world.holdings.on(node)
        for claim in self._world.caches.claims.values() if holders else ():
            if claim.metadata.uid in holders:
                self._queue.add(Key("claim", claim.ref), after_s=SETTLE_S)

    def _wake_contexts_of(self, claim: ClassicClaim) -> None:
        """A context is named like its pod. Whose pods name the claim itself is not known here: all of the namespace."""
        owners = [owner.name for owner in claim.metadata.owner_references if owner.kind == "Pod"]
        for ref in self._refs(claim.metadata.namespace, owners):
            self._queue.add(Key("context", ref))

    def _refs(self, namespace: str, names: Iterable[str]) -> list[ObjectRef]:
        contexts = self._world.caches.contexts
        wanted = [ObjectRef(namespace, name) for name in names]
        if wanted:
            return [ref for ref in wanted if contexts.get(ref) is not None]
        return [ref for ref in contexts.refs() if ref.namespace == namespace]


def _freed(old: ClassicClaim | None, new: ClassicClaim | None) -> bool:
    """Whether somebody may get what ``old`` had: devices, or a place among those who share the claim."""
    if old is None or old.status.allocation is None:
        return False
    return new is None or new.status.allocation is None or (old.is_full and not new.is_full)


def _content(inventory: NodeInventory | None) -> object:
    return None if inventory is None else replace(inventory.spec, renewed_at="")
