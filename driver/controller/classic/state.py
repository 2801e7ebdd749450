"""The cluster as plans see it: the informers' stores, with own writes that they do not show yet.

One event loop reads and changes it. Nothing is awaited between a decision and the reservation of the devices that it
allocates, so two decisions never allocate one device.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.kerf.classic_parameters import ParametersObject
from kerf_dra.api.kerf.node_inventory import NodeInventory, NodeInventorySpec, inventory_name
from kerf_dra.api.model.classic import ClassicClaim, ClassicClass, PodSchedulingContext
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.controller.classic.node_model import (
    InventoryError,
    NodeInventoryModel,
    build_node_model,
    join_node_models,
)
from kerf_dra.driver.controller.classic.placement import NodeCardState, NodeSignature
from kerf_dra.driver.controller.classic.usage import UsageIndex, build_node_state, usage_of_claim
from kerf_dra.driver.controller.device_types import DeviceType, device_types_of, is_shipped
from kerf_dra.driver.families.registry import BUILT_IN_BY_DRIVER
from kerf_dra.driver.kube.assume_cache import AssumeCache
from kerf_dra.driver.kube.store import ObjectChange, Store

FINALIZER: Final = "kerf.dev/deletion-protection"
"""Our finalizer on claims (KEP-3063), whichever of our drivers has their devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerStores:
    """The stores of the informers."""

    claims: Store[ClassicClaim] = field(default_factory=Store)
    classes: Store[ClassicClass] = field(default_factory=Store)
    contexts: Store[PodSchedulingContext] = field(default_factory=Store)
    inventories: Store[NodeInventory] = field(default_factory=Store)
    nodes: Store[Node] = field(default_factory=Store)
    parameters: Mapping[str, Store[ParametersObject]] = field(default_factory=dict)
    """The store of each kind of parameters."""


@dataclass(frozen=True, slots=True)
class _ReportedInventory:
    """A NodeInventory as it was last reported, and the model built from it."""

    content: NodeInventorySpec
    """The spec without the fields that change at every renewal."""
    model: NodeInventoryModel | InventoryError
    spec: NodeInventorySpec
    """The newest spec. Only changes of its time of renewal count, because nodes' clocks differ."""
    seen_at: float
    """Monotonic time, in seconds, at which the last renewal was seen."""


class ClusterView:
    """The known claims, classes, nodes and cards, and the free units of each node."""

    def __init__(
        self,
        stores: InformerStores,
        *,
        monotonic: Callable[[], float],
        silence_s: float = 180.0,
        names_are_generated: bool = True,
        pods_can_be_limited: bool = True,
        unknown_claims: Callable[[], Collection[ObjectRef]] = tuple,
        claims_version: Callable[[], int] = lambda: 0,
    ) -> None:
        """``monotonic`` is a clock, in seconds; a plugin without reports for ``silence_s`` is down.

        ``names_are_generated``: the pod's status has the name of a claim from a template (from Kubernetes 1.28), which
        else follows from the pod's. ``pods_can_be_limited``: a policy can limit the pods of a claim (from 1.30).
        ``unknown_claims`` returns the claims that exist and cannot be read; ``claims_version`` the resource version up
        to which the store of claims has all changes.
        """
        self.stores: Final = stores
        self.names_are_generated: Final = names_are_generated
        self.pods_can_be_limited: Final = pods_can_be_limited
        self.published: frozenset[DeviceType] = frozenset()
        """The device types that nodes have, or had, beside those of the shipped tables."""
        self.waiting: Final[dict[ObjectRef, None]] = {}
        """The claims in Immediate mode that are not allocated, as the store shows them."""
        self.usage: Final = UsageIndex(self._forget_state)
        self._monotonic = monotonic
        self._silence_s = silence_s
        self._unknown_claims = unknown_claims
        self._claims_version = claims_version
        self._claims = AssumeCache(stores.claims, monotonic=monotonic)
        self._counted: dict[str, int] = {}
        """The claim's version in ``usage``, by UID, because a later claim may have the same name already."""
        self._unseen: dict[str, ClassicClaim] = {}
        """The claims of answers that the store has not shown, by UID."""
        self._inventories: dict[str, dict[str, _ReportedInventory]] = {}
        """What each driver has reported, by node."""
        self._models: dict[str, NodeInventoryModel | None] = {}
        """The cards of all drivers of a node; None: there is no valid inventory."""
        self._states: dict[str, NodeCardState] = {}
        self._nodes_by_signature: dict[NodeSignature, list[str]] = {}
        """The nodes of ``_states``, sorted."""
        self._unknown: set[str] = set()
        """The nodes whose state has to be built again."""

    def claim(self, ref: ObjectRef) -> ClassicClaim | None:
        """Return the newest known state of a claim."""
        return self._claims.get(ref)

    def assume(self, answer: ClassicClaim) -> None:
        """Record the server's answer to a write or a read; an answer about a deleted claim changes nothing.

        The devices of a claim count until its end has been seen, even if a later claim of its name is known already.
        """
        self._claims.assume(answer)
        uid, stored = answer.metadata.uid, self.stores.claims.get(answer.ref)
        if not self._claims.is_deleted(uid):
            self._count(answer)
            if stored is None or stored.metadata.uid != uid:
                self._unseen[uid] = answer

    def forget_missed(self) -> None:
        """Forget the claims that came and went while the watch was away: no change will ever show their end.

        Such a claim existed at a version up to which the store has all changes, and the store does not have it. Where
        versions are not numbers, nothing is forgotten.
        """
        known_to = self._claims_version() if self._unseen else 0
        for claim in tuple(self._unseen.values()):
            if 0 < claim.metadata.version <= known_to and claim.ref not in self._unknown_claims():
                self._claims.on_change(ObjectChange(claim.ref, claim, None))
                self._forget_claim(claim.metadata.uid)

    def on_claim(self, change: ObjectChange[ClassicClaim]) -> None:
        """Handle a change of the store of claims."""
        self._claims.on_change(change)
        if change.new is not None and change.new.spec.immediate and change.new.status.allocation is None:
            self.waiting[change.ref] = None
        else:
            self.waiting.pop(change.ref, None)
        if change.new is None:
            assert change.old is not None, "a change has an old or a new object"
            self._forget_claim(change.old.metadata.uid)
        else:
            self._unseen.pop(change.new.metadata.uid, None)
            self._count(change.new)

    def _forget_claim(self, uid: str) -> None:
        self.usage.put(uid, ())
        self._counted.pop(uid, None)
        self._unseen.pop(uid, None)

    def _count(self, claim: ClassicClaim) -> None:
        uid, version = claim.metadata.uid, claim.metadata.version
        if version >= self._counted.get(uid, 0):
            self._counted[uid] = version
            self.usage.put(uid, usage_of_claim(claim))

    def on_inventory(self, change: ObjectChange[NodeInventory]) -> None:
        """Handle a change of the store of inventories. A mere renewal leaves the node's state as it is.

        An inventory that has not the name of its node and driver is ignored, and so is that of an unknown driver.
        """
        inventory = change.new
        former, key = (_key(held) if held is not None else None for held in (change.old, inventory))
        if former is not None and former != key:
            self._forget_inventory(*former)
        if inventory is None or key is None:
            return
        node, driver = key
        before = self._inventories.get(node, {}).get(driver)
        content = replace(inventory.spec, renewed_at="", ready=True)
        is_renewal = before is None or before.spec.renewed_at != inventory.spec.renewed_at
        seen_at = self._monotonic() if before is None or is_renewal else before.seen_at
        if before is not None and before.content == content:
            model = before.model
        else:
            model = _build_model(inventory.spec)
            self._forget_model(node)
            self.published |= _unshipped_types(model)
        self._inventories.setdefault(node, {})[driver] = _ReportedInventory(content, model, inventory.spec, seen_at)

    def _forget_inventory(self, node: str, driver: str) -> None:
        of_node = self._inventories[node]
        del of_node[driver]
        if not of_node:
            del self._inventories[node]
        self._forget_model(node)

    def class_named(self, name: str) -> ClassicClass | None:
        return self.stores.classes.get(ObjectRef("", name))

    def node(self, name: str) -> Node | None:
        return self.stores.nodes.get(ObjectRef("", name))

    def node_model(self, node: str) -> NodeInventoryModel | None:
        """The cards of a node, of all drivers; None: there is no inventory that does not contradict itself."""
        if node not in self._models:
            models = [known.model for _, known in sorted(self._inventories.get(node, {}).items())]
            valid = [model for model in models if isinstance(model, NodeInventoryModel)]
            self._models[node] = join_node_models(valid) if valid else None
        return self._models[node]

    def problem_of(self, node: str, drivers: Iterable[str]) -> str | None:
        """Why no device of ``drivers`` on ``node`` may be allocated; None: their plugins run, and have valid cards."""
        if unknown := len(self._unknown_claims()):
            # No name: the reason reaches users of other namespaces. The client has logged which.
            return f"{unknown} claims cannot be read, and may hold any device; the controller's log names them"
        if self.node(node) is None:
            return "the node does not exist"
        for driver in drivers:
            known = self._inventories.get(node, {}).get(driver)
            if known is None:
                return f"its kubelet plugin of {driver} has not reported yet"
            if isinstance(known.model, InventoryError):
                return f"its NodeInventory of {driver} is wrong: {known.model}"
            if not known.spec.ready:
                return f"its kubelet plugin of {driver} is not running"
            if (silent_s := self._monotonic() - known.seen_at) > self._silence_s:
                return f"its kubelet plugin of {driver} has been silent for {silent_s:.0f} s"
        return None

    def state(self, node: str) -> NodeCardState:
        """The cards and free units of a node for which ``problem_of`` is None."""
        found = self._states.get(node)
        if found is None:
            model = self.node_model(node)
            assert model is not None, "problem_of has been asked"
            usage = (one for of_claim in self.usage.on(node).values() for one in of_claim)
            found = self._states[node] = build_node_state(model, usage)
            self._unknown.discard(node)
            insort(self._nodes_by_signature.setdefault(found.signature, []), node)
        return found

    def nodes_by_signature(self) -> Mapping[NodeSignature, Sequence[str]]:
        """All nodes with a valid inventory, sorted by name, in groups of interchangeable ones."""
        for node in tuple(self._unknown):
            if self.node_model(node) is not None:
                self.state(node)
        self._unknown.clear()
        return self._nodes_by_signature

    def _forget_model(self, node: str) -> None:
        self._models.pop(node, None)
        self._forget_state(node)

    def _forget_state(self, node: str) -> None:
        state = self._states.pop(node, None)
        self._unknown.add(node)
        if state is not None:
            nodes = self._nodes_by_signature[state.signature]
            del nodes[bisect_left(nodes, node)]
            if not nodes:
                del self._nodes_by_signature[state.signature]


def _key(inventory: NodeInventory) -> tuple[str, str] | None:
    """Return node and driver of an inventory; None: it is of none of our drivers, or is not named after them."""
    node, driver = inventory.spec.node, inventory.spec.driver
    is_ours = driver in BUILT_IN_BY_DRIVER and inventory.metadata.name == inventory_name(node, driver)
    return (node, driver) if is_ours else None


def _build_model(spec: NodeInventorySpec) -> NodeInventoryModel | InventoryError:
    try:
        return build_node_model(spec)
    except InventoryError as error:
        return error


def _unshipped_types(model: NodeInventoryModel | InventoryError) -> frozenset[DeviceType]:
    """The device types of a node's cards whose model no family ships."""
    if isinstance(model, InventoryError):
        return frozenset()
    geometries = {card.card.geometry for card in model.cards if not is_shipped(card.card.geometry)}
    return frozenset(each for geometry in geometries for each in device_types_of(geometry))
