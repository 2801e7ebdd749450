"""A cluster's state made ready to be asked: indexes, who holds what, and the allocator over both."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Final

import msgspec

from api.core.v1 import Node, Pod
from api.model.claims import DeviceClass, ResourceClaim, ResourceClaimTemplate
from api.model.devices import ResourceSlice
from api.model.metadata import ObjectT
from api.model.names import ObjectRef
from driver.allocation import AllocatedState, Budget, ClusterAllocator, Features, Inventory, Outcome, allocate
from driver.allocation.explain.diagnosis import Diagnosis, diagnose
from driver.allocation.explain.holders import Holdings, PoolKey
from driver.diagnostics.card_usage import CardUse, PublishedCards, in_use, published_cards
from driver.diagnostics.cluster_state import ClusterState
from driver.diagnostics.explain.feature_gates import features_of
from driver.scheduling.node_filter import node_view

_BUDGET: Final = Budget()
_OF_SLICES: Final = ("inventory", "cards", "_slice_pools", "_slices_by_pool")
"""What follows from the slices alone."""


class Occupancy:
    """Which allocated claims hold something of which pool. Claims can be added and taken away."""

    def __init__(self, claims: Iterable[ResourceClaim]) -> None:
        self._by_pool: dict[PoolKey, dict[ObjectRef, ResourceClaim]] = defaultdict(dict)
        for claim in claims:
            self.add(claim)

    def add(self, claim: ResourceClaim) -> None:
        for pool in _pools(claim):
            self._by_pool[pool][claim.ref] = claim

    def remove(self, claim: ResourceClaim) -> None:
        for pool in _pools(claim):
            self._by_pool[pool].pop(claim.ref, None)

    def copy(self) -> "Occupancy":
        """A copy that changes for itself."""
        copy = Occupancy(())
        copy._by_pool = defaultdict(dict, {pool: dict(claims) for pool, claims in self._by_pool.items()})
        return copy

    def of(self, pools: Iterable[PoolKey]) -> tuple[ResourceClaim, ...]:
        """The claims that hold something of any of ``pools``."""
        found: dict[ObjectRef, ResourceClaim] = {}
        for pool in pools:
            found |= self._by_pool.get(pool, {})
        return tuple(found.values())


class Cluster:
    """One state, indexed. Everything is worked out when it is first asked for."""

    def __init__(self, state: ClusterState, features: Features | None = None, budget: Budget = _BUDGET) -> None:
        self.state = state
        self.features = features or features_of(state)
        self.budget = budget
        """Of each attempt on one node."""
        self.occupancy = Occupancy(state.claims)
        """Who holds what now; an answer that plays something through changes a copy of its own."""

    def narrowed(self, names: Collection[str]) -> "Cluster":
        """The same cluster with only these nodes."""
        nodes = tuple(node for node in self.state.nodes if node.metadata.name in names)
        return self._derived(msgspec.structs.replace(self.state, nodes=nodes))

    def with_classes(self, classes: Iterable[DeviceClass]) -> "Cluster":
        """The same cluster with these classes beside its own, or in their place."""
        by_name = {**self.classes, **{each.metadata.name: each for each in classes}}
        return self._derived(msgspec.structs.replace(self.state, classes=tuple(by_name.values())))

    def with_claims(self, claims: Iterable[ResourceClaim]) -> "Cluster":
        """The same cluster with these claims beside its own, or in their place."""
        by_ref = {**self.claims, **{each.ref: each for each in claims}}
        return self._derived(msgspec.structs.replace(self.state, claims=tuple(by_ref.values())))

    def _derived(self, state: ClusterState) -> "Cluster":
        """A cluster with the same slices, which are expensive to index."""
        derived = Cluster(state, self.features, self.budget)
        derived.__dict__ |= {name: getattr(self, name) for name in _OF_SLICES}
        return derived

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """By name, the order in which answers try them."""
        return tuple(sorted(self.state.nodes, key=lambda node: node.metadata.name))

    @cached_property
    def pods(self) -> Mapping[ObjectRef, Pod]:
        return _by_ref(self.state.pods)

    @cached_property
    def claims(self) -> Mapping[ObjectRef, ResourceClaim]:
        return _by_ref(self.state.claims)

    @cached_property
    def templates(self) -> Mapping[ObjectRef, ResourceClaimTemplate]:
        return _by_ref(self.state.templates)

    @cached_property
    def classes(self) -> Mapping[str, DeviceClass]:
        return {class_.metadata.name: class_ for class_ in self.state.classes}

    @cached_property
    def inventory(self) -> Inventory:
        return Inventory.build(self.state.slices, self.state.taint_rules)

    @cached_property
    def all_holdings(self) -> Holdings:
        """Who holds what of everything."""
        return Holdings(self.state.slices, self.state.claims)

    @cached_property
    def cards(self) -> PublishedCards:
        """Kerf's cards, on all nodes."""
        return published_cards(self.state.slices)

    def cards_in_use(self, nodes: Collection[str] = ()) -> list[CardUse]:
        """Who has what of the cards of ``nodes``; empty: of all."""
        holders = self.all_holdings.holders
        return [in_use(card, holders) for card in self.cards.known if not nodes or card.node in nodes]

    @cached_property
    def _slice_pools(self) -> tuple[Mapping[str, frozenset[PoolKey]], frozenset[PoolKey]]:
        """The pools with slices for one node by its name, and those with other slices."""
        of_node: dict[str, set[PoolKey]] = defaultdict(set)
        shared: set[PoolKey] = set()
        for slice_ in self.state.slices:
            pool = slice_.spec.driver, slice_.spec.pool.name
            if slice_.spec.node_name:
                of_node[slice_.spec.node_name].add(pool)
            else:
                shared.add(pool)
        return {node: frozenset(pools) for node, pools in of_node.items()}, frozenset(shared)

    def pools(self, node: Node) -> frozenset[PoolKey]:
        """The pools of which the node may be able to use something."""
        of_node, shared = self._slice_pools
        return of_node.get(node.metadata.name, frozenset()) | shared

    def holdings(self, node: Node) -> Holdings:
        """Who holds what of the node's pools."""
        pools = self.pools(node)
        slices = [slice_ for pool in sorted(pools) for slice_ in self._slices_by_pool[pool]]
        return Holdings(slices, self.occupancy.of(pools))

    @cached_property
    def _slices_by_pool(self) -> Mapping[PoolKey, Sequence[ResourceSlice]]:
        by_pool: dict[PoolKey, list[ResourceSlice]] = defaultdict(list)
        for slice_ in self.state.slices:
            by_pool[slice_.spec.driver, slice_.spec.pool.name].append(slice_)
        return by_pool

    def attempt(
        self, claims: Sequence[ResourceClaim], node: Node, held: Iterable[ResourceClaim] | None = None
    ) -> Outcome:
        """What the allocator says to ``claims`` on ``node`` while ``held`` have their devices; None: as things are."""
        numbers = count()
        return allocate(
            self.inventory,
            claims,
            node_view(node),
            self.classes,
            AllocatedState.from_claims(self.occupancy.of(self.pools(node)) if held is None else held),
            self.features,
            share_id=lambda: f"{claims[0].ref}#{next(numbers)}",
            budget=self.budget,
        )

    def allocator(self) -> ClusterAllocator:
        """An allocator for all nodes as things are, to play something through."""
        return ClusterAllocator(
            self.features, self.inventory, nodes=map(node_view, self.nodes), claims=self.state.claims
        )

    def diagnose(self, claims: Sequence[ResourceClaim], node: Node, holdings: Holdings) -> tuple[Diagnosis, ...]:
        """Why ``claims`` do not fit on ``node``, once ``attempt`` has said so."""
        return diagnose(self.inventory, claims, node_view(node), self.classes, holdings, self.features)


def _by_ref(objects: Iterable[ObjectT]) -> dict[ObjectRef, ObjectT]:
    return {each.ref: each for each in objects}


def _pools(claim: ResourceClaim) -> set[PoolKey]:
    allocation = claim.status.allocation
    return {(each.driver, each.pool) for each in allocation.devices.results} if allocation else set()
