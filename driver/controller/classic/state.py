"""Everything that a decision may look at: what the caches show, and our own writes that they do not show yet.

One event loop changes and reads it; between a look and the reservation that follows from it nothing is awaited, so two
decisions never give away one device.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from api.core.v1 import Node
from api.kerf.classic_parameters import ParametersObject
from api.kerf.node_inventory import NodeInventory, NodeInventorySpec
from api.model.classic import ClassicClaim, ClassicClass, PodSchedulingContext
from api.model.names import ObjectRef
from driver.controller.classic.node_model import InventoryError, Stock, stock_of
from driver.controller.classic.placement import ByLook, Look, NodeState, cost, has_room
from driver.controller.classic.usage import Holding, Holdings, holdings_of, state_of
from driver.controller.device_types import DeviceType, device_types_of
from driver.kube.assume_cache import AssumeCache
from driver.kube.store import ObjectChange, Store
from driver.partitions import catalog
from driver.partitions.geometry import GpuCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """What informers show."""

    claims: Store[ClassicClaim] = field(default_factory=Store)
    classes: Store[ClassicClass] = field(default_factory=Store)
    contexts: Store[PodSchedulingContext] = field(default_factory=Store)
    inventories: Store[NodeInventory] = field(default_factory=Store)
    nodes: Store[Node] = field(default_factory=Store)
    parameters: Mapping[str, Store[ParametersObject]] = field(default_factory=dict)
    """By kind."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A node's stock as of one version of its inventory."""

    content: NodeInventorySpec
    """Without what changes at every renewal."""
    stock: Stock | InventoryError
    renewed: str
    """What the inventory says of its last renewal: only whether it changes counts, clocks of nodes differ."""
    seen_at: float


class World:
    """See the head of the file. ``driver`` is ours; ``monotonic`` counts seconds."""

    def __init__(
        self,
        caches: Caches,
        *,
        driver: str,
        monotonic: Callable[[], float],
        silence_s: float = 180.0,
        names_are_generated: bool = True,
        pods_can_be_limited: bool = True,
    ) -> None:
        """``silence_s``: how long a plugin may be silent. ``names_are_generated``: from Kubernetes 1.28 the name of a
        claim from a template stands in the pod's status; before, it is made from the pod's. ``pods_can_be_limited``:
        from 1.30 a policy can say how many pods may use a claim.
        """
        self.driver: Final = driver
        self.caches: Final = caches
        self.names_are_generated: Final = names_are_generated
        self.pods_can_be_limited: Final = pods_can_be_limited
        self.has_room: Final = ByLook(has_room)
        self.cost: Final = ByLook(cost)
        self.published: frozenset[DeviceType] = frozenset()
        """Device types that nodes have, or had, beside those of the shipped tables."""
        self.waiting: Final[dict[ObjectRef, None]] = {}
        """Claims that are to be allocated without a pod and are not yet, as the cache shows them."""
        self._monotonic = monotonic
        self._silence_s = silence_s
        self._claims = AssumeCache(caches.claims, monotonic=monotonic)
        self._stocks: dict[str, _Known] = {}
        self._states: dict[str, NodeState] = {}
        self._alike: dict[Look, list[str]] = {}
        self._unseen: set[str] = set()
        """Nodes whose state is not worked out: those of ``_states`` and no others are in ``_alike``."""
        self.holdings: Final = Holdings(self._forget_state)

    @property
    def finalizer(self) -> str:
        """Ours on claims (KEP-3063)."""
        return f"{self.driver}/deletion-protection"

    def claim(self, ref: ObjectRef) -> ClassicClaim | None:
        """The newest state of a claim that is known."""
        return self._claims.get(ref)

    def note(self, answer: ClassicClaim) -> None:
        """``answer`` is to a write or a read of ours; the watch may have told of the claim's end before."""
        if self._claims.assume(answer):
            self.holdings.put(answer.metadata.uid, holdings_of(answer, self.driver))

    def on_claim(self, change: ObjectChange[ClassicClaim]) -> None:
        """The cache has seen a change."""
        self._claims.on_change(change)
        if change.new is not None and change.new.spec.immediate and change.new.status.allocation is None:
            self.waiting[change.ref] = None
        else:
            self.waiting.pop(change.ref, None)
        if change.new is None:
            assert change.old is not None, "a change has a side"
            self.holdings.put(change.old.metadata.uid, ())
        elif (newest := self._claims.get(change.ref)) is not None:
            self.holdings.put(newest.metadata.uid, holdings_of(newest, self.driver))

    def on_inventory(self, change: ObjectChange[NodeInventory]) -> None:
        name, inventory = change.ref.name, change.new
        before = self._stocks.pop(name, None)
        if inventory is None:
            self._forget_state(name)
            return
        content = replace(inventory.spec, renewed_at="", ready=True)
        alive = before is None or before.renewed != inventory.spec.renewed_at
        seen_at = self._monotonic() if alive or before is None else before.seen_at
        if before is not None and before.content == content:
            stock = before.stock
        else:
            stock = _stock(inventory.spec)
            self._forget_state(name)
            self.published |= _unshipped(stock)
        self._stocks[name] = _Known(content=content, stock=stock, renewed=inventory.spec.renewed_at, seen_at=seen_at)

    def class_named(self, name: str) -> ClassicClass | None:
        return self.caches.classes.get(ObjectRef("", name))

    def node(self, name: str) -> Node | None:
        return self.caches.nodes.get(ObjectRef("", name))

    def stock(self, node: str) -> Stock | None:
        """The cards of a node; None: it has not told of them, or contradicts itself."""
        known = self._stocks.get(node)
        return known.stock if known is not None and isinstance(known.stock, Stock) else None

    def problem_of(self, node: str) -> str | None:
        """Why nothing of ``node`` may be given away; None: its plugin is there."""
        known = self._stocks.get(node)
        inventory = self.caches.inventories.get(ObjectRef("", node))
        if self.node(node) is None:
            return "the node is gone"
        if known is None or inventory is None:
            return f"its kubelet plugin of {self.driver} has not reported yet"
        if isinstance(known.stock, InventoryError):
            return f"its NodeInventory is wrong: {known.stock}"
        if inventory.spec.driver != self.driver:
            return f"its NodeInventory is of driver {inventory.spec.driver}"
        if not inventory.spec.ready:
            return "its kubelet plugin is not running"
        if (silent_s := self._monotonic() - known.seen_at) > self._silence_s:
            return f"its kubelet plugin has been silent for {silent_s:.0f} s"
        return None

    def state(self, node: str) -> NodeState:
        """What is free of a node without a problem."""
        found = self._states.get(node)
        if found is None:
            stock = self.stock(node)
            assert stock is not None, "problem_of has been asked"
            holdings = (holding for held in self.holdings.on(node).values() for holding in held)
            found = self._states[node] = state_of(stock, holdings)
            self._unseen.discard(node)
            insort(self._alike.setdefault(found.look, []), node)
        return found

    def alike(self) -> Mapping[Look, Sequence[str]]:
        """All nodes that have told of their cards, in order of their names, by what is free of them."""
        for node in tuple(self._unseen):
            if self.stock(node) is not None:
                self.state(node)
        self._unseen.clear()
        return self._alike

    def reserve(self, claim: ClassicClaim, holdings: tuple[Holding, ...]) -> None:
        """Have devices count as the claim's while the write that gives them to it is under way."""
        self.holdings.reserve(claim.metadata.uid, holdings)

    def _forget_state(self, node: str) -> None:
        state = self._states.pop(node, None)
        self._unseen.add(node)
        if state is not None:
            nodes = self._alike[state.look]
            del nodes[bisect_left(nodes, node)]
            if not nodes:
                del self._alike[state.look]


def _stock(spec: NodeInventorySpec) -> Stock | InventoryError:
    try:
        return stock_of(spec)
    except InventoryError as error:
        return error


def _unshipped(stock: Stock | InventoryError) -> frozenset[DeviceType]:
    if isinstance(stock, InventoryError):
        return frozenset()
    shipped = {model.id for model in catalog.gpu_models()} | {shell.name for shell in catalog.shells()}
    cards = (held.card for held in stock.cards if held.model not in shipped)
    geometries = {card.model if isinstance(card, GpuCard) else card.shell for card in cards}
    return frozenset(each for geometry in geometries for each in device_types_of(geometry))
