"""The first node of a cluster that has devices for a pod, however large the cluster is.

The answer is that of asking ``allocate`` node after node, in the order of their names. It is found sooner because nodes
are *equal* where nothing differs that can decide whether claims fit: the templates of their pools, what is allocated of
these, what the kubelet declares. Of equal nodes one is tried. What did not fit on a node is not tried there again until
something changes there. So a pod costs as much as there are different nodes that could still have devices for it, and
a change costs as much as the nodes that see it.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import msgspec

from api.model.allocations import AllocationResult
from api.model.claims import DeviceClass, DeviceSelector, ExactDeviceRequest, ResourceClaim
from api.model.devices import DeviceTaintRule, ResourceSlice
from api.model.names import ObjectRef
from driver.allocation.pools.index import Inventory
from driver.allocation.pools.node_devices import OPTIONAL_OPERATIONS, Offer
from driver.allocation.search.backtracking import allocate, search
from driver.allocation.search.problem import Ask, Question
from driver.allocation.semantics.allocated_state import Ledger, PoolId
from driver.allocation.semantics.bitset import bits
from driver.allocation.semantics.matching import InvalidNodeSelectorError, Selectors
from driver.allocation.semantics.outcomes import Budget, Failed, Features, Fits, NodeView, Outcome, Undecided

_REMEMBERED: Final = 64
"""Different pods whose failures are remembered, of which each change takes a look: pods of a workload ask the same."""


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """A node, and one allocation result for each claim."""

    node: str
    results: tuple[AllocationResult, ...]


@dataclass(frozen=True, slots=True)
class NoFittingNode:
    """No node has devices for all claims. Why not: ``ClusterAllocator.allocate_on`` explains it for each node."""

    undecided: Mapping[str, Undecided]
    """Nodes on which the budget ran out."""


ClusterOutcome: TypeAlias = NodeAllocation | NoFittingNode | Failed


class _Pod(NamedTuple):
    """What a pod asks for, without names: equal pods fit on the same nodes."""

    claims: bytes
    classes: tuple[tuple[str, tuple[DeviceSelector, ...] | None], ...]


class _Attempt(NamedTuple):
    """What came of trying one of several equal nodes."""

    node: NodeView
    outcome: Fits | Failed | Undecided | None
    """None: they do not fit."""
    equal: int
    """The nodes of which the same is to be said, of those that were offered."""


class ClusterAllocator:
    """All nodes with what they offer and what is allocated of it, kept up to date change by change.

    Nodes are tried in the order of their names. A change costs far less than a placement.
    """

    def __init__(
        self,
        features: Features,
        inventory: Inventory,
        *,
        nodes: Iterable[NodeView] = (),
        claims: Iterable[ResourceClaim] = (),
    ) -> None:
        self.features = features
        self.inventory = inventory
        self.ledger = Ledger()
        self._nodes: dict[str, NodeView] = {}
        self._names: list[str] = []
        """By position: bit *i* of a mask of nodes is the *i*-th."""
        self._positions: dict[str, int] = {}
        self._is_ordered = True
        """Whether positions follow the names of the nodes that there are."""
        self._states: dict[str, Hashable] = {}
        self._equal: dict[Hashable, int] = {}
        """Masks of the nodes in each state."""
        self._stale: set[str] = set()
        """Nodes whose state must be worked out again."""
        self._failed: OrderedDict[_Pod, int] = OrderedDict()
        """Masks of the nodes on which a pod does not fit; the latest pod last."""
        self._offered: tuple[frozenset[str], int] = frozenset(), 0
        """The latest nodes that were offered, with their mask."""
        for claim in claims:
            self.ledger.record(claim)
        for node in nodes:
            self.set_node(node)

    def set_node(self, node: NodeView) -> None:
        """A node has come, or its labels or what its kubelet declares may have changed."""
        if self._nodes.get(node.name) != node:
            self._is_ordered &= node.name in self._nodes
            self._nodes[node.name] = node
            self._stale.add(node.name)

    def remove_node(self, name: str) -> None:
        """A node has gone, if it was there at all."""
        if self._nodes.pop(name, None) is not None:
            self._is_ordered = False

    def set_slice(self, slice_: ResourceSlice) -> None:
        """A slice has come or changed."""
        self._set_inventory(self.inventory.with_slice(slice_), [PoolId.of(slice_)])

    def remove_slice(self, slice_: ResourceSlice) -> None:
        """A slice has gone."""
        self._set_inventory(self.inventory.without_slice(slice_), [PoolId.of(slice_)])

    def set_taint_rules(self, rules: Iterable[DeviceTaintRule]) -> None:
        """These are all taint rules now."""
        self.inventory = self.inventory.with_taint_rules(rules)
        self._stale.update(self._nodes)

    def set_claim(self, claim: ResourceClaim) -> None:
        """A claim has come, or what it holds has changed."""
        self._claims_changed(self.ledger.record(claim))

    def remove_claim(self, ref: ObjectRef) -> None:
        """A claim has gone."""
        self._claims_changed(self.ledger.remove(ref))

    def _set_inventory(self, after: Inventory, pools: Iterable[PoolId]) -> None:
        for pool in pools:
            for inventory in (self.inventory, after):
                self._stale.update(self._nodes if inventory.is_shared(pool) else inventory.nodes_of(pool))
        self.inventory = after

    def _claims_changed(self, pools: Iterable[PoolId]) -> None:
        for pool in pools:
            if self.inventory.is_shared(pool):
                self._failed.clear()  # states leave out what is allocated of a pool of many nodes
            else:
                self._stale.update(self.inventory.nodes_of(pool))

    def place(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        *,
        share_id: Callable[[], str],
        budget: Budget,
        nodes: frozenset[str] | None = None,
    ) -> ClusterOutcome:
        """Devices for all ``claims`` of one pod on the first node that has them, of ``nodes`` (None: of all).

        ``budget`` is for each node that is tried. Nothing is allocated by this: ``set_claim`` does that. ``Failed`` is
        always fatal.
        """
        undecided: dict[str, Undecided] = {}
        for node, outcome, equal in self._attempts(claims, classes, share_id, budget, nodes):
            if isinstance(outcome, Fits):
                return NodeAllocation(node.name, outcome.results)
            if isinstance(outcome, Failed) and outcome.kind == "fatal":
                return outcome
            if isinstance(outcome, Undecided):
                undecided |= dict.fromkeys(self._named(equal), outcome)
        return NoFittingNode(undecided)

    def fitting_nodes(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        *,
        budget: Budget,
        nodes: frozenset[str] | None = None,
    ) -> list[str]:
        """All nodes on which ``place`` could find devices, by name."""
        attempts = self._attempts(claims, classes, str, budget, nodes)
        return self._named(sum(attempt.equal for attempt in attempts if isinstance(attempt.outcome, Fits)))

    def allocate_on(
        self,
        node: str,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        *,
        share_id: Callable[[], str],
        budget: Budget,
    ) -> Outcome:
        """What ``allocate`` says to ``claims`` on one node, with the reasons where they do not fit."""
        view = self._nodes[node]
        return allocate(
            self.inventory, claims, view, classes, self.ledger, self.features, share_id=share_id, budget=budget
        )

    def _attempts(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        share_id: Callable[[], str],
        budget: Budget,
        nodes: frozenset[str] | None,
    ) -> Iterator[_Attempt]:
        """One attempt for each kind of node, but for nodes of which it is known that the pod does not fit."""
        self._refresh()
        pod = _Pod(_asked(claims), _classes(claims, classes))
        selectors = set(_selectors(claims, classes))
        failed = self._failed.get(pod, 0)
        if failed:
            self._failed.move_to_end(pod)
        candidates = self._mask(nodes) & ~failed
        simple: Sequence[ExactDeviceRequest] = ()
        while candidates:
            node = self._nodes[self._names[(candidates & -candidates).bit_length() - 1]]
            outcome = self._try(claims, classes, node, share_id, budget, simple)
            simple = _simple(claims)  # the first attempt has found what is wrong with the claims themselves
            equal = self._equal_to(node, selectors)
            if outcome is None or (isinstance(outcome, Failed) and outcome.kind == "node"):
                failed |= equal
                self._remember(pod, failed)
            yield _Attempt(node, outcome, equal & candidates)
            candidates &= ~equal

    def _mask(self, nodes: frozenset[str] | None) -> int:
        if nodes is None:
            return (1 << len(self._names)) - 1
        if self._offered[0] is not nodes:
            self._offered = nodes, sum(1 << self._positions[name] for name in nodes if name in self._positions)
        return self._offered[1]

    def _named(self, mask: int) -> list[str]:
        return [self._names[position] for position in bits(mask)]

    def _try(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        node: NodeView,
        share_id: Callable[[], str],
        budget: Budget,
        simple: Iterable[ExactDeviceRequest],
    ) -> Fits | Failed | Undecided | None:
        try:
            offer = Offer.build(self.inventory, node, self.ledger, self.features)
            if self._is_short(offer, simple, classes):
                return None
        except InvalidNodeSelectorError as error:
            return Failed("fatal", str(error))
        answer = search(offer, claims, classes, share_id=share_id, budget=budget)
        return None if isinstance(answer, Question) else answer

    def _is_short(
        self, offer: Offer, requests: Iterable[ExactDeviceRequest], classes: Mapping[str, DeviceClass]
    ) -> bool:
        """Whether a node has too few devices for one of these simple requests: a search would say so, only later.

        Where something can fail for good on a device, the search has to find out. Raises InvalidNodeSelectorError.
        """
        is_short = False
        for request in requests:
            selectors = tuple([each.cel.expression for each in request.selectors if each.cel])
            selection = offer.select(classes[request.device_class_name], selectors)
            if selection.errors or selection.selected & offer.measured:
                return False
            devices = selection.selected & offer.recognized & offer.on_node & ~offer.held & offer.joinable
            is_short |= devices.bit_count() < (1 if request.count is None else request.count)
        return is_short

    def _equal_to(self, node: NodeView, selectors: Iterable[Selectors | None]) -> int:
        """The nodes that are equal to ``node`` in all that a pod with those selectors depends on."""
        equal = self._equal[self._states[node.name]]
        itself = 1 << self._positions[node.name]
        if equal != itself:
            templates = [view.layout for view in self.inventory.views(node, self.features)]
            for each in selectors:
                if each is None or any(template.discerns(each) for template in templates):
                    return itself
        return equal

    def _remember(self, pod: _Pod, failed: int) -> None:
        self._failed[pod] = failed
        if len(self._failed) > _REMEMBERED:
            self._failed.popitem(last=False)

    def _refresh(self) -> None:
        """Work out the states of the nodes that have changed."""
        if not self._is_ordered:
            self._order()
        changed = 0
        for name in self._stale & self._nodes.keys():
            self._leave_state(name)
            state = self._states[name] = self._state(self._nodes[name])
            bit = 1 << self._positions[name]
            self._equal[state] = self._equal.get(state, 0) | bit
            changed |= bit
        self._stale.clear()
        if changed:
            for pod, failed in self._failed.items():
                self._failed[pod] = failed & ~changed

    def _leave_state(self, name: str) -> None:
        state = self._states.pop(name, None)
        if state is not None:
            self._equal[state] &= ~(1 << self._positions[name])
            if not self._equal[state]:
                del self._equal[state]

    def _order(self) -> None:
        """Give every node its position, after nodes have come or gone."""
        self._is_ordered = True
        self._names = sorted(self._nodes)
        self._positions = {name: position for position, name in enumerate(self._names)}
        self._states = {name: state for name, state in self._states.items() if name in self._nodes}
        self._equal.clear()
        for name, state in self._states.items():
            self._equal[state] = self._equal.get(state, 0) | 1 << self._positions[name]
        self._failed.clear()
        self._offered = frozenset(), 0

    def _state(self, node: NodeView) -> Hashable:
        """All of a node that decides whether claims fit, but for texts that selectors read and pools of many nodes."""
        try:
            offer = Offer.build(self.inventory, node, self.ledger, self.features)
            return (
                tuple([(view.layout, view.problem and view.problem.kind) for view in offer.views]),
                tuple(
                    [
                        view.id if self.inventory.is_shared(view.id) else standing
                        for view, standing in zip(offer.views, offer.standings, strict=True)
                    ]
                ),
                offer.on_node,
                OPTIONAL_OPERATIONS in node.declared_features,
                _pattern([view.texts for view in offer.views]) if len(offer.views) > 1 else None,
            )
        except InvalidNodeSelectorError:
            return node.name


def _simple(claims: Iterable[ResourceClaim]) -> Sequence[ExactDeviceRequest]:
    """The requests, if trying to serve them can go wrong only where a selector fails; else none."""
    requests = [
        None if request.first_available else request.exactly
        for claim in claims
        for request in claim.spec.devices.requests
    ]
    simple = [
        request
        for request in requests
        if request is not None
        and request.allocation_mode != "All"
        and not (request.admin_access or request.capacity or request.derived_attributes)
    ]
    return simple if len(simple) == len(requests) else ()


def _pattern(texts: Iterable[Sequence[str]]) -> tuple[int, ...]:
    """Which texts are the same: constraints compare them."""
    numbers: dict[str, int] = {}
    return tuple([numbers.setdefault(text, len(numbers)) for text in chain.from_iterable(texts)])


def _asked(claims: Iterable[ResourceClaim]) -> bytes:
    devices = [claim.spec.devices for claim in claims]
    return msgspec.json.encode([(each.requests, each.constraints) for each in devices], enc_hook=str)


def _classes(
    claims: Iterable[ResourceClaim], classes: Mapping[str, DeviceClass]
) -> tuple[tuple[str, tuple[DeviceSelector, ...] | None], ...]:
    named = [(ask.device_class_name, classes.get(ask.device_class_name)) for ask in _asks(claims)]
    return tuple([(name, None if class_ is None else class_.spec.selectors) for name, class_ in named])


def _asks(claims: Iterable[ResourceClaim]) -> Iterable[Ask]:
    for claim in claims:
        for request in claim.spec.devices.requests:
            yield from request.first_available
            if request.exactly is not None:
                yield request.exactly


def _selectors(claims: Iterable[ResourceClaim], classes: Mapping[str, DeviceClass]) -> Iterable[Selectors | None]:
    """The selectors of each request; None: derived attributes, which may read anything."""
    for ask in _asks(claims):
        if ask.derived_attributes:
            yield None
        class_ = classes.get(ask.device_class_name)
        of_class = class_.spec.selectors if class_ is not None else ()
        yield tuple(each.cel.expression for each in (*of_class, *ask.selectors) if each.cel)
