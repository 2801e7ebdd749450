"""Event handlers of the informers: they update the cluster view and queue the claims and contexts to reconcile."""

from typing import Final, Literal, NamedTuple, Protocol

from msgspec.structs import replace

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.kerf.classic_parameters import ParametersObject
from kerf_dra.api.kerf.node_inventory import NodeInventory
from kerf_dra.api.model.classic import ClassicClaim, ClassicClass, PodSchedulingContext
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.controller.classic.state import ClusterView
from kerf_dra.driver.kube.store import ObjectChange

SETTLE_S: Final = 0.2
"""The delay after changes that concern every waiting pod: they come in groups, and each queues many keys."""


class ReconcileKey(NamedTuple):
    """The claim or scheduling context to reconcile."""

    what: Literal["claim", "context"]
    ref: ObjectRef

    def __str__(self) -> str:
        return f"{self.what} {self.ref}"


class ClaimQueue(Protocol):
    """The work queue of keys: equal keys are merged, and the earlier time counts."""

    def add(self, key: ReconcileKey, *, after_s: float = 0.0) -> None: ...


class ClaimEventHandlers:
    """One handler for each informer. They return at once and never raise."""

    def __init__(self, queue: ClaimQueue, view: ClusterView) -> None:
        self._queue = queue
        self._view = view

    def on_claim(self, change: ObjectChange[ClassicClaim]) -> None:
        """Queue the claim; contexts that may wait for a new claim; all waiting keys if devices have become free."""
        self._view.on_claim(change)
        self._queue.add(ReconcileKey("claim", change.ref))
        if change.old is None and change.new is not None:
            self._requeue_contexts_of(change.new)
        if _frees(change.old, change.new):
            self.requeue_waiting()

    def on_context(self, change: ObjectChange[PodSchedulingContext]) -> None:
        self._queue.add(ReconcileKey("context", change.ref))

    def on_class(self, _change: ObjectChange[ClassicClass]) -> None:
        self.requeue_waiting()

    def on_parameters(self, _change: ObjectChange[ParametersObject]) -> None:
        self.requeue_waiting()

    def on_inventory(self, change: ObjectChange[NodeInventory]) -> None:
        """Queue all waiting keys, and the claims that use the node: the inventory may contradict them now."""
        self._view.on_inventory(change)
        if _content(change.old) != _content(change.new):  # a mere renewal makes nothing possible
            self.requeue_waiting()
            nodes = {inventory.spec.node for inventory in (change.old, change.new) if inventory is not None}
            users = {uid for node in nodes for uid in self._view.usage.on(node)}
            for claim in self._view.stores.claims.values() if users else ():
                if claim.metadata.uid in users:
                    self._queue.add(ReconcileKey("claim", claim.ref), after_s=SETTLE_S)

    def on_node(self, change: ObjectChange[Node]) -> None:
        """Queue all waiting keys when a node is created, deleted or relabeled: no other field of a node matters."""
        if change.old is None or change.new is None or change.old.metadata.labels != change.new.metadata.labels:
            self.requeue_waiting()

    def requeue_waiting(self) -> None:
        """Queue all keys that may wait for the change."""
        for context in self._view.stores.contexts.refs():
            self._queue.add(ReconcileKey("context", context), after_s=SETTLE_S)
        for claim in self._view.waiting:
            self._queue.add(ReconcileKey("claim", claim), after_s=SETTLE_S)

    def requeue_all(self) -> None:
        """Queue all keys, when leadership begins."""
        for claim in self._view.stores.claims.refs():
            self._queue.add(ReconcileKey("claim", claim))
        for context in self._view.stores.contexts.refs():
            self._queue.add(ReconcileKey("context", context))

    def _requeue_contexts_of(self, claim: ClassicClaim) -> None:
        """Queue the context of the owning pod, which has its name; without an owner, all of the namespace."""
        contexts, namespace = self._view.stores.contexts, claim.metadata.namespace
        pods = [owner.name for owner in claim.metadata.owner_references if owner.kind == "Pod"]
        if pods:
            refs = [ref for name in pods if contexts.get(ref := ObjectRef(namespace, name)) is not None]
        else:
            refs = [ref for ref in contexts.refs() if ref.namespace == namespace]
        for ref in refs:
            self._queue.add(ReconcileKey("context", ref))


def _frees(old: ClassicClaim | None, new: ClassicClaim | None) -> bool:
    """Whether the change makes devices available to others, or room for another pod in a full claim."""
    if old is None or old.status.allocation is None:
        return False
    return new is None or new.status.allocation is None or (old.is_full and not new.is_full)


def _content(inventory: NodeInventory | None) -> object:
    return None if inventory is None else replace(inventory.spec, renewed_at="")
