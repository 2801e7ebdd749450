"""The first node of a cluster that has devices for a pod, however large the cluster is.

Whether claims fit depends on a node's layouts and on what is taken there, not on its name. Nodes that agree in these
are *alike*, and what does not fit on one is not tried on the others. What did not fit on a node is not tried there
again, until something changes there. So the cost of a pod grows with the number of different nodes that have changed
since an equal pod was tried, not with the number of nodes.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import msgspec

from api.model.allocations import AllocationResult
from api.model.claims import DeviceClass, DeviceSelector, ResourceClaim
from api.model.devices import DeviceTaintRule, ResourceSlice
from api.model.names import ObjectRef
from driver.allocation.pools.index import Inventory
from driver.allocation.pools.node_devices import OPTIONAL_OPERATIONS, Offer
from driver.allocation.search.backtracking import search
from driver.allocation.search.problem import Ask
from driver.allocation.semantics.allocated_state import Ledger, PoolId
from driver.allocation.semantics.bitset import bits
from driver.allocation.semantics.matching import InvalidNodeSelectorError, Selectors
from driver.allocation.semantics.outcomes import Budget, DoesNotFit, Failed, Features, Fits, NodeView, Undecided

_REMEMBERED: Final = 256
"""Different pods whose failures are remembered: pods of one workload ask for the same."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A node, and one allocation result for each claim."""

    node: str
    results: tuple[AllocationResult, ...]


@dataclass(frozen=True, slots=True)
class Nowhere:
    """No node has devices for all claims. Why not: ``allocate`` explains it for each node."""

    undecided: tuple[str, ...]
    """Nodes on which the budget ran out."""


Placement: TypeAlias = Placed | Nowhere | Failed


class Pod(NamedTuple):
    """What a pod asks for, without names: equal pods fit on the same nodes."""

    claims: bytes
    classes: tuple[tuple[str, tuple[DeviceSelector, ...] | None], ...]


class Cluster:
    """All nodes with what they offer and what is taken of it, kept up to date change by change.

    Nodes are tried in the order in which they came. A change costs far less than a placement.
    """

    def __init__(
        self,
        features: Features,
        *,
        nodes: Iterable[NodeView] = (),
        slices: Iterable[ResourceSlice] = (),
        taint_rules: Iterable[DeviceTaintRule] = (),
        claims: Iterable[ResourceClaim] = (),
    ) -> None:
        self.features = features
        self.inventory = Inventory.build(slices, taint_rules)
        self.ledger = Ledger()
        self._nodes: list[NodeView | None] = []
        self._positions: dict[str, int] = {}
        self._states: dict[int, Hashable] = {}
        self._alike: dict[Hashable, int] = {}
        """Masks of the nodes in each state."""
        self._present = 0
        """Mask of all nodes."""
        self._stale: set[int] = set()
        """Nodes whose state must be looked at again."""
        self._failed: OrderedDict[Pod, int] = OrderedDict()
        """Masks of the nodes on which a pod does not fit; the latest pod last."""
        for claim in claims:
            self.ledger.record(claim)
        for node in nodes:
            self.set_node(node)

    def set_node(self, node: NodeView) -> None:
        """A node has come, or its labels have changed."""
        position = self._positions.setdefault(node.name, len(self._nodes))
        if position == len(self._nodes):
            self._nodes.append(None)
        self._nodes[position] = node
        self._present |= 1 << position
        self._stale.add(position)

    def remove_node(self, name: str) -> None:
        """A node has gone, if it was there at all."""
        position = self._positions.pop(name, None)
        if position is not None:
            self._nodes[position] = None
            self._present &= ~(1 << position)
            self._stale.add(position)

    def set_slice(self, slice_: ResourceSlice) -> None:
        """A slice has come or changed."""
        self._slices_changed(slice_, self.inventory.with_slice(slice_))

    def remove_slice(self, slice_: ResourceSlice) -> None:
        """A slice has gone."""
        self._slices_changed(slice_, self.inventory.without_slice(slice_))

    def set_claim(self, claim: ResourceClaim) -> None:
        """A claim has come, or what it holds has changed."""
        self._claims_changed(self.ledger.record(claim))

    def remove_claim(self, ref: ObjectRef) -> None:
        """A claim has gone."""
        self._claims_changed(self.ledger.remove(ref))

    def _slices_changed(self, slice_: ResourceSlice, after: Inventory) -> None:
        pool = PoolId(slice_.spec.driver, slice_.spec.pool.name)
        for inventory in (self.inventory, after):
            nodes = self._positions if inventory.is_shared(pool) else inventory.nodes_of(pool)
            self._stale.update(self._positions[node] for node in nodes if node in self._positions)
        self.inventory = after

    def _claims_changed(self, pools: Iterable[PoolId]) -> None:
        for pool in pools:
            if self.inventory.is_shared(pool):
                self._failed.clear()
            else:
                nodes = self.inventory.nodes_of(pool)
                self._stale.update(self._positions[node] for node in nodes if node in self._positions)

    def place(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        *,
        share_id: Callable[[], str],
        budget: Budget,
        nodes: Iterable[str] | None = None,
    ) -> Placement:
        """Devices for all ``claims`` of one pod on the first node that has them, of ``nodes`` (None: of all).

        The same devices that ``allocate`` gives when it is asked node after node. Nothing is taken: ``set_claim`` does
        that. ``Failed`` is always fatal.
        """
        self._refresh()
        pod = self.pod(claims, classes)
        failed = self._failed.pop(pod, 0)
        undecided: list[str] = []
        candidates = self._mask(nodes) & ~failed
        placement: Placement | None = None
        while candidates and placement is None:
            position = (candidates & -candidates).bit_length() - 1
            node = self._nodes[position]
            assert node is not None
            outcome = self._try(claims, classes, node, share_id, budget)
            match outcome:
                case Fits(results):
                    placement = Placed(node.name, results)
                case Failed(kind="fatal"):
                    placement = outcome
                case _:
                    alike = self._alike_for(position, claims, classes)
                    candidates &= ~alike
                    if isinstance(outcome, Undecided):
                        undecided += [each.name for at in bits(alike) if (each := self._nodes[at]) is not None]
                    else:
                        failed |= alike
        self._remember(pod, failed)
        return placement or Nowhere(tuple(undecided))

    def pod(self, claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]) -> Pod:
        """What a pod with ``claims`` asks for."""
        return Pod(_asked(claims), _classes(claims, classes))

    def different(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        nodes: Iterable[str] | None = None,
    ) -> Iterator[tuple[Hashable, Offer]]:
        """What the first node of each kind offers, and its kind: nodes of one kind are alike to a pod with ``claims``.

        Raises InvalidNodeSelectorError.
        """
        self._refresh()
        candidates = self._mask(nodes)
        while candidates:
            position = (candidates & -candidates).bit_length() - 1
            node, kind = self._nodes[position], self._states[position]
            assert node is not None
            alike = self._alike_for(position, claims, classes)
            candidates &= ~alike
            is_told_apart = alike != self._alike[kind]
            offer = Offer.build(self.inventory, node, self.ledger, self.features)
            yield (kind, node.name) if is_told_apart else kind, offer

    def _mask(self, nodes: Iterable[str] | None) -> int:
        if nodes is None:
            return self._present
        return sum(1 << self._positions[name] for name in set(nodes) if name in self._positions)

    def _try(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        node: NodeView,
        share_id: Callable[[], str],
        budget: Budget,
    ) -> Fits | DoesNotFit | Failed | Undecided:
        try:
            offer = Offer.build(self.inventory, node, self.ledger, self.features)
        except InvalidNodeSelectorError as error:
            return Failed("fatal", str(error))
        answer = search(offer, claims, classes, share_id=share_id, budget=budget)
        return answer if isinstance(answer, Fits | Failed | Undecided) else DoesNotFit(())

    def _alike_for(self, position: int, claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]) -> int:
        """The nodes that are like the one at ``position`` in all that a pod with ``claims`` looks at."""
        node = self._nodes[position]
        assert node is not None
        layouts = [view.layout for view in self.inventory.views(node, self.features)]
        for selectors in _selectors(claims, classes):
            if selectors is None or any(layout.discerns(selectors) for layout in layouts):
                return 1 << position
        return self._alike[self._states[position]]

    def _remember(self, pod: Pod, failed: int) -> None:
        self._failed[pod] = failed
        if len(self._failed) > _REMEMBERED:
            self._failed.popitem(last=False)

    def _refresh(self) -> None:
        """Look again at the nodes that have changed."""
        changed = 0
        for position in self._stale:
            node, bit = self._nodes[position], 1 << position
            state = None if node is None else self._state(node)
            before = self._states.pop(position, None)
            if before is not None:
                self._alike[before] &= ~bit
                if not self._alike[before]:
                    del self._alike[before]
            if state is not None:
                self._states[position] = state
                self._alike[state] = self._alike.get(state, 0) | bit
            changed |= bit
        self._stale.clear()
        if changed:
            for pod, failed in self._failed.items():
                self._failed[pod] = failed & ~changed

    def _state(self, node: NodeView) -> Hashable:
        """All of a node that decides whether claims fit, but for texts that selectors read and pools of many nodes."""
        try:
            offer = Offer.build(self.inventory, node, self.ledger, self.features)
            return (
                tuple([(view.layout, view.problem and view.problem.kind) for view in offer.views]),
                tuple(
                    [
                        None if self.inventory.is_shared(view.id) else standing
                        for view, standing in zip(offer.views, offer.standings, strict=True)
                    ]
                ),
                offer.on_node,
                OPTIONAL_OPERATIONS in node.declared_features,
                _pattern([view.texts for view in offer.views]) if len(offer.views) > 1 else None,
            )
        except InvalidNodeSelectorError:
            return node.name


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
