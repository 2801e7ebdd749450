"""``ClusterAllocator``: the first node of a cluster that has devices for a pod.

Problem: the outcome must be that of ``allocate`` on node after node, in the order of their names, but a cluster has
thousands of nodes and a change touches one. Nodes are *equal* if they agree in everything that can decide whether
claims fit: the templates of their pools, their usage, the features of the kubelet. Of equal nodes one is tried, and
a pod that did not fit on a node is not tried there again until the node changes. So a pod costs one attempt for each
class of equal nodes that could still have devices for it, and a change one pass over the nodes that see it.

Invariant: equal nodes have the same outcome for every pod whose selectors read no string in which they differ; with
other selectors, or with derived attributes, each node is tried. The usage of pools for several nodes is not part of a
node's state, so a change of such a pool drops all recorded failures. Sets of nodes are bitsets, in the order of names.

Example: of 500 equal nodes 3 are full and the others empty. A pod is tried on one full node and on one empty one.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kerf_dra.api.model.allocations import AllocationResult
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.api.model.devices import DeviceTaintRule, ResourceSlice
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation.allocator import allocate, try_allocate
from kerf_dra.driver.allocation.pools.index import PoolIndex
from kerf_dra.driver.allocation.pools.interned_slices import CompactSlice, pool_id_of
from kerf_dra.driver.allocation.pools.node_devices import OPTIONAL_OPERATIONS, NodeDevices
from kerf_dra.driver.allocation.search.problem import AllocationProblem, RequestSpec
from kerf_dra.driver.allocation.semantics.allocated_state import AllocatedStateTracker, PoolId
from kerf_dra.driver.allocation.semantics.bitset import iter_bits
from kerf_dra.driver.allocation.semantics.matching import InvalidNodeSelectorError, Selectors, selector_expressions
from kerf_dra.driver.allocation.semantics.outcomes import Budget, Failed, Features, Fits, NodeView, Outcome, Undecided

_MAX_FAILED_PODS: Final = 64
"""The number of different pods whose failures are kept: each change visits all of them; equal pods count once."""


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """Devices for a pod on one node."""

    node: str
    """The node's name."""
    results: tuple[AllocationResult, ...]
    """One result for each claim, in their order."""


@dataclass(frozen=True, slots=True)
class NoFittingNode:
    """No node has devices for all claims; ``ClusterAllocator.allocate_on`` returns the reasons of each node."""

    undecided: Mapping[str, Undecided]
    """The nodes on which the budget ran out, by name."""


ClusterOutcome: TypeAlias = NodeAllocation | NoFittingNode | Failed


class EqualAllocations(NamedTuple):
    """The devices that a pod would get on each of several equal nodes."""

    nodes: tuple[str, ...]
    """The names of the nodes."""
    node_devices: NodeDevices
    """The devices of one of these nodes, before the allocation."""
    results: tuple[AllocationResult, ...]
    """One result for each claim, on that node."""


class _SimpleRequest(NamedTuple):
    """A request that a node cannot serve if too few of the devices that it selects are available there."""

    selectors: Selectors
    """The selectors of the request's class and of the request itself."""
    needed: int
    """The number of devices that it needs."""


class _Attempt(NamedTuple):
    """The outcome of trying one of several equal nodes."""

    node: NodeView
    outcome: Fits | Failed | Undecided | None
    """The outcome on ``node``; None: the claims do not fit."""
    equal: int
    """The bitset of candidate nodes that have the same outcome."""


class ClusterAllocator:
    """All nodes with their devices and what is allocated of them, kept up to date change by change."""

    def __init__(
        self,
        features: Features,
        pool_index: PoolIndex,
        *,
        nodes: Iterable[NodeView] = (),
        claims: Iterable[ResourceClaim] = (),
    ) -> None:
        self.features = features
        self.pool_index = pool_index
        self.allocated_state = AllocatedStateTracker()
        self._nodes: dict[str, NodeView] = {}
        self._names: list[str] = []
        """The names of all nodes by position."""
        self._positions: dict[str, int] = {}
        self._is_ordered = True
        """Whether the positions are the order of the names of all current nodes."""
        self._states: dict[str, Hashable] = {}
        """The state of each node; equal nodes have equal states."""
        self._nodes_by_state: dict[Hashable, int] = {}
        self._stale: set[str] = set()
        """The nodes whose state must be computed again."""
        self._node_devices: dict[str, NodeDevices] = {}
        """The devices of the nodes that have been tried since they last changed."""
        self._failed: OrderedDict[bytes, int] = OrderedDict()
        """The nodes on which each pod (see ``_pod_key``) does not fit; the latest pod last."""
        self._latest_candidates: tuple[frozenset[str], int] = frozenset(), 0
        """The names of the nodes to which the latest pod was limited, with their bitset."""
        for claim in claims:
            self.allocated_state.record(claim)
        for node in nodes:
            self.set_node(node)

    def set_node(self, node: NodeView) -> None:
        """Add a node, or replace its labels and the features that its kubelet declares."""
        if self._nodes.get(node.name) != node:
            self._is_ordered &= node.name in self._nodes
            self._nodes[node.name] = node
            self._stale.add(node.name)

    def remove_node(self, name: str) -> None:
        """Remove a node, if it is there."""
        if self._nodes.pop(name, None) is not None:
            self._is_ordered = False

    def set_slice(self, slice_: ResourceSlice | CompactSlice) -> None:
        """Add a slice, or replace the one of that name."""
        self._set_pool_index(self.pool_index.with_slice(slice_), [pool_id_of(slice_)])

    def remove_slice(self, slice_: ResourceSlice | CompactSlice) -> None:
        """Remove the slice of that name and pool."""
        self._set_pool_index(self.pool_index.without_slice(slice_), [pool_id_of(slice_)])

    def set_taint_rules(self, rules: Iterable[DeviceTaintRule]) -> None:
        """Replace all taint rules."""
        self.pool_index = self.pool_index.with_taint_rules(rules)
        self._stale.update(self._nodes)

    def set_claim(self, claim: ResourceClaim) -> None:
        """Record what ``claim`` holds, in place of what it held before."""
        self._claims_changed(self.allocated_state.record(claim))

    def remove_claim(self, ref: ObjectRef) -> None:
        """Forget what a claim held."""
        self._claims_changed(self.allocated_state.remove(ref))

    def _set_pool_index(self, after: PoolIndex, pools: Iterable[PoolId]) -> None:
        for pool in pools:
            for index in (self.pool_index, after):
                self._stale.update(self._nodes if index.is_shared(pool) else index.nodes_of(pool))
        self.pool_index = after

    def _claims_changed(self, pools: Iterable[PoolId]) -> None:
        for pool in pools:
            if self.pool_index.is_shared(pool):
                self._failed.clear()  # states leave out what is allocated of a pool of many nodes
                self._node_devices.clear()
            else:
                self._stale.update(self.pool_index.nodes_of(pool))

    def place(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        *,
        share_id: Callable[[], str],
        budget: Budget,
        nodes: frozenset[str] | None = None,
    ) -> ClusterOutcome:
        """Find devices for all ``claims`` of one pod on the first of ``nodes`` that has them (None: of all nodes).

        ``budget`` is for each node that is tried. The devices stay free until ``set_claim`` records them. A ``Failed``
        outcome is always fatal.
        """
        undecided: dict[str, Undecided] = {}
        for node, outcome, equal in self._attempts(claims, classes, share_id, budget, nodes):
            if isinstance(outcome, Fits):
                return NodeAllocation(node.name, outcome.results)
            if isinstance(outcome, Failed) and outcome.kind == "fatal":
                return outcome
            if isinstance(outcome, Undecided):
                undecided |= dict.fromkeys(self._names_of(equal), outcome)
        return NoFittingNode(undecided)

    def fitting_nodes(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        *,
        budget: Budget,
        nodes: frozenset[str] | None = None,
    ) -> list[str]:
        """The names of all nodes on which ``place`` could find devices."""
        attempts = self._attempts(claims, classes, str, budget, nodes)
        return self._names_of(sum(attempt.equal for attempt in attempts if isinstance(attempt.outcome, Fits)))

    def allocate_on_each(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        *,
        budget: Budget,
        nodes: frozenset[str],
    ) -> Iterator[EqualAllocations]:
        """Yield what all ``claims`` of one pod would get on each of ``nodes`` that has devices for them.

        Nodes and claims must not change before the last result is read. A permanent failure ends the results.
        """
        for node, outcome, equal in self._attempts(claims, classes, str, budget, nodes):
            if isinstance(outcome, Fits):
                yield EqualAllocations(tuple(self._names_of(equal)), self._node_devices[node.name], outcome.results)
            elif isinstance(outcome, Failed) and outcome.kind == "fatal":
                return

    def allocate_on(
        self,
        node: str,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        *,
        share_id: Callable[[], str],
        budget: Budget,
    ) -> Outcome:
        """Return the outcome of ``allocate`` on one node, with the reasons if the claims do not fit."""
        view, index, state = self._nodes[node], self.pool_index, self.allocated_state
        return allocate(index, claims, view, classes, state, self.features, share_id=share_id, budget=budget)

    def _attempts(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        share_id: Callable[[], str],
        budget: Budget,
        nodes: frozenset[str] | None,
    ) -> Iterator[_Attempt]:
        """Yield one attempt for each set of equal nodes, without the nodes on which the pod is known not to fit."""
        self._refresh()
        pod = _pod_key(claims, classes)
        selectors = set(_selectors(claims, classes))
        failed = self._failed.get(pod, 0)
        if failed:
            self._failed.move_to_end(pod)
        candidates = self._bitset(nodes) & ~failed
        simple: Sequence[_SimpleRequest] | None = None
        while candidates:
            node = self._nodes[self._names[(candidates & -candidates).bit_length() - 1]]
            outcome = self._try(claims, classes, node, share_id, budget, simple or ())
            if simple is None:  # the first attempt has found what is wrong with the claims themselves
                simple = _simple_requests(claims, classes)
            equal = self._equal_to(node, selectors)
            if outcome is None or (isinstance(outcome, Failed) and outcome.kind == "node"):
                failed |= equal
                self._record_failure(pod, failed)
            yield _Attempt(node, outcome, equal & candidates)
            candidates &= ~equal

    def _bitset(self, nodes: frozenset[str] | None) -> int:
        if nodes is None:
            return (1 << len(self._names)) - 1
        if self._latest_candidates[0] is not nodes:
            self._latest_candidates = (
                nodes,
                sum(1 << self._positions[name] for name in nodes if name in self._positions),
            )
        return self._latest_candidates[1]

    def _names_of(self, nodes: int) -> list[str]:
        return [self._names[position] for position in iter_bits(nodes)]

    def _try(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        node: NodeView,
        share_id: Callable[[], str],
        budget: Budget,
        simple: Iterable[_SimpleRequest],
    ) -> Fits | Failed | Undecided | None:
        try:
            node_devices = self._node_devices.get(node.name)
            if node_devices is None:
                node_devices = self._node_devices[node.name] = self._build(node)
            if _has_too_few(node_devices, simple):
                return None
        except InvalidNodeSelectorError as error:
            return Failed("fatal", str(error))
        outcome = try_allocate(node_devices, claims, classes, share_id=share_id, budget=budget)
        return None if isinstance(outcome, AllocationProblem) else outcome

    def _build(self, node: NodeView) -> NodeDevices:
        return NodeDevices.build(self.pool_index, node, self.allocated_state, self.features)

    def _equal_to(self, node: NodeView, selectors: Iterable[Selectors | None]) -> int:
        """Return the bitset of nodes that are equal to ``node`` for a pod with those selectors."""
        equal = self._nodes_by_state[self._states[node.name]]
        itself = 1 << self._positions[node.name]
        if equal != itself:
            views = self._node_devices[node.name].views
            for each in selectors:
                if each is None or any(view.template.may_distinguish(each) for view in views):
                    return itself
        return equal

    def _record_failure(self, pod: bytes, failed: int) -> None:
        self._failed[pod] = failed
        if len(self._failed) > _MAX_FAILED_PODS:
            self._failed.popitem(last=False)

    def refresh(self, most: int) -> bool:
        """Compute the state of up to ``most`` changed nodes now, and return whether others are left.

        The next pod is tried after all of them are computed anyway; a caller that must not block for long does it in
        parts before.
        """
        self._refresh(most)
        return bool(self._stale)

    def _refresh(self, most: int | None = None) -> None:
        if not self._is_ordered:
            self._assign_positions()
        changed = 0
        self._stale.intersection_update(self._nodes)
        for name in list(islice(self._stale, most)):
            self._stale.remove(name)
            self._node_devices.pop(name, None)
            self._leave_state(name)
            state = self._states[name] = self._state(self._nodes[name])
            bit = 1 << self._positions[name]
            self._nodes_by_state[state] = self._nodes_by_state.get(state, 0) | bit
            changed |= bit
        if changed:
            self._failed = OrderedDict([(pod, failed & ~changed) for pod, failed in self._failed.items()])

    def _leave_state(self, name: str) -> None:
        state = self._states.pop(name, None)
        if state is not None:
            self._nodes_by_state[state] &= ~(1 << self._positions[name])
            if not self._nodes_by_state[state]:
                del self._nodes_by_state[state]

    def _assign_positions(self) -> None:
        self._is_ordered = True
        self._names = sorted(self._nodes)
        self._positions = {name: position for position, name in enumerate(self._names)}
        self._states = {name: state for name, state in self._states.items() if name in self._nodes}
        self._node_devices.clear()
        self._nodes_by_state.clear()
        for name, state in self._states.items():
            self._nodes_by_state[state] = self._nodes_by_state.get(state, 0) | 1 << self._positions[name]
        self._failed.clear()
        self._latest_candidates = frozenset(), 0

    def _state(self, node: NodeView) -> Hashable:
        """Everything that decides whether claims fit on a node, except strings that selectors read and shared pools."""
        try:
            node_devices = self._build(node)
            return (
                tuple([(view.template, view.fault and view.fault.kind) for view in node_devices.views]),
                tuple(
                    [
                        view.id if self.pool_index.is_shared(view.id) else usage
                        for view, usage in zip(node_devices.views, node_devices.usages, strict=True)
                    ]
                ),
                node_devices.on_node,
                OPTIONAL_OPERATIONS in node.declared_features,
                _equality_pattern([view.strings for view in node_devices.views])
                if len(node_devices.views) > 1
                else None,
            )
        except InvalidNodeSelectorError:
            return node.name


def _simple_requests(claims: Iterable[ResourceClaim], classes: Mapping[str, DeviceClass]) -> Sequence[_SimpleRequest]:
    """The requests, if only a selector can make serving them fail permanently; else none."""
    simple: list[_SimpleRequest] = []
    for request in chain.from_iterable(claim.spec.devices.requests for claim in claims):
        exactly = None if request.first_available else request.exactly
        class_ = classes.get(exactly.device_class_name) if exactly is not None else None
        if exactly is None or class_ is None or exactly.allocation_mode == "All":
            return ()
        if exactly.admin_access or exactly.capacity or exactly.derived_attributes:
            return ()
        selectors = selector_expressions(class_.spec.selectors, exactly.selectors)
        simple.append(_SimpleRequest(selectors, 1 if exactly.count is None else exactly.count))
    return simple


def _has_too_few(node_devices: NodeDevices, requests: Iterable[_SimpleRequest]) -> bool:
    """Whether a node has too few devices for one of ``requests``, which a search would find out only later.

    If a device can cause a permanent failure, only the search decides. Raises InvalidNodeSelectorError if a published
    node selector is invalid.
    """
    has_too_few = False
    for selectors, needed in requests:
        selection = node_devices.select(selectors)
        if selection.errors or selection.selected & node_devices.measured:
            return False
        has_too_few |= (selection.selected & node_devices.available).bit_count() < needed
    return has_too_few


def _equality_pattern(strings: Iterable[Sequence[str]]) -> tuple[int, ...]:
    """Which strings are equal, as the position of the first equal string: constraints compare strings."""
    numbers: dict[str, int] = {}
    return tuple([numbers.setdefault(string, len(numbers)) for string in chain.from_iterable(strings)])


def _pod_key(claims: Iterable[ResourceClaim], classes: Mapping[str, DeviceClass]) -> bytes:
    """The content of a pod's claims without names of claims: pods with equal keys fit on the same nodes."""
    devices = [(claim.spec.devices.requests, claim.spec.devices.constraints) for claim in claims]
    names = dict.fromkeys(spec.device_class_name for spec in _specs(claims))
    selectors = [classes[name].spec.selectors if name in classes else None for name in names]
    return msgspec.json.encode((devices, selectors), enc_hook=str)


def _specs(claims: Iterable[ResourceClaim]) -> Iterable[RequestSpec]:
    for claim in claims:
        for request in claim.spec.devices.requests:
            yield from request.first_available
            if request.exactly is not None:
                yield request.exactly


def _selectors(claims: Iterable[ResourceClaim], classes: Mapping[str, DeviceClass]) -> Iterable[Selectors | None]:
    """The selectors of each request; None stands for derived attributes, which may read anything."""
    for spec in _specs(claims):
        if spec.derived_attributes:
            yield None
        class_ = classes.get(spec.device_class_name)
        yield selector_expressions(() if class_ is None else class_.spec.selectors, spec.selectors)
