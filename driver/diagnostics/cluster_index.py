"""Indexes over the snapshot of a cluster, and the allocator over them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from types import MappingProxyType
from typing import Final

import msgspec

from kerf_dra.api.core.v1 import Node, Pod
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim, ResourceClaimTemplate
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.model.names import DeviceId, ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import AllocatedState, Budget, ClusterAllocator, Features, Outcome, PoolIndex, allocate
from kerf_dra.driver.allocation.explain.diagnosis import Diagnosis, diagnose
from kerf_dra.driver.allocation.explain.holders import HolderIndex, PoolKey
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId
from kerf_dra.driver.diagnostics.card_usage import CardUsage, PublishedCards, build_usage, find_published_cards
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.extended_resources.discovered_devices import DiscoveredDeviceUse
from kerf_dra.driver.diagnostics.extended_resources.offered_resources import ResourceUse
from kerf_dra.driver.diagnostics.feature_gates import detect_features
from kerf_dra.driver.diagnostics.node_fit import NodeFit, add_requests
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture
from kerf_dra.driver.partitions.card_pictures.picture_builder import (
    build_card_pictures,
    find_consumed,
    find_holders,
)
from kerf_dra.driver.scheduling.node_filter import node_view
from kerf_dra.driver.scheduling.size_notes import PublishedSizes

_BUDGET: Final = Budget()
_NOTHING: Final[Mapping[DeviceId, Sequence[str]]] = MappingProxyType({})
_SHARED: Final = ("features", "slices", "inventory", "cards", "published_sizes", "_slice_pools")
"""The properties that an index shares with the ones derived from it: features, and what depends on slices only."""


class ClaimsByPool:
    """The allocated claims, indexed by the pools of which they hold devices."""

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

    def copy(self) -> "ClaimsByPool":
        copy = ClaimsByPool(())
        copy._by_pool = defaultdict(dict, {pool: dict(claims) for pool, claims in self._by_pool.items()})
        return copy

    def find(self, pools: Iterable[PoolKey]) -> tuple[ResourceClaim, ...]:
        """Return the claims that hold devices of any of ``pools``."""
        found: dict[ObjectRef, ResourceClaim] = {}
        for pool in pools:
            found |= self._by_pool.get(pool, {})
        return tuple(found.values())


class ClusterIndex:
    """A snapshot with indexes, each of which is built on first use."""

    def __init__(self, state: ClusterState, budget: Budget = _BUDGET) -> None:
        self.state = state
        self.budget = budget
        """The search budget of each attempt on one node."""
        self.claims_by_pool = ClaimsByPool(state.claims)
        """The claims that hold devices now; a trial changes a copy of it."""

    def restricted_to(self, names: Collection[str]) -> "ClusterIndex":
        """Return this cluster with only the nodes ``names``."""
        nodes = tuple(node for node in self.state.nodes if node.metadata.name in names)
        return self._derived(msgspec.structs.replace(self.state, nodes=nodes))

    def with_classes(self, classes: Iterable[DeviceClass]) -> "ClusterIndex":
        """Return this cluster with ``classes`` added, or in place of those of the same name."""
        by_name = {**self.classes, **{each.metadata.name: each for each in classes}}
        return self._derived(msgspec.structs.replace(self.state, classes=tuple(by_name.values())))

    def with_claims(self, claims: Iterable[ResourceClaim]) -> "ClusterIndex":
        """Return this cluster with ``claims`` added, or in place of those of the same name."""
        by_ref = {**self.claims, **{each.ref: each for each in claims}}
        return self._derived(msgspec.structs.replace(self.state, claims=tuple(by_ref.values())))

    def with_pods(self, pods: Iterable[Pod]) -> "ClusterIndex":
        """Return this cluster with ``pods`` added."""
        added = tuple(pods)
        requested = add_requests(self.state.requested, added)
        return self._derived(msgspec.structs.replace(self.state, pods=(*self.state.pods, *added), requested=requested))

    def _derived(self, state: ClusterState) -> "ClusterIndex":
        """Return an index over ``state``, which has the same slices, without indexing them again."""
        derived = ClusterIndex(state, self.budget)
        derived.__dict__ |= {name: getattr(self, name) for name in _SHARED}
        return derived

    @cached_property
    def features(self) -> Features:
        return detect_features(self.state)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes by name, the order in which they are tried."""
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
    def node_fit(self) -> NodeFit:
        """What is left on nodes of CPU, memory and other counted resources."""
        return NodeFit(self.state)

    @cached_property
    def resource_use(self) -> ResourceUse:
        """What is left of the extended resources that ResourceClasses offer."""
        return ResourceUse(self.state.offered_resources, self.state.pods)

    @cached_property
    def discovered_use(self) -> DiscoveredDeviceUse:
        """Who sees discovered devices, and what of them is left on nodes that count their users themselves."""
        state = self.state
        pods = () if state.classic is None else state.pods
        return DiscoveredDeviceUse(state.discovery_configurations, state.discovered_devices, pods)

    @cached_property
    def classes(self) -> Mapping[str, DeviceClass]:
        return {class_.metadata.name: class_ for class_ in self.state.classes}

    @cached_property
    def slices(self) -> InternedSlices:
        return InternedSlices.of(self.state.slices)

    @cached_property
    def published_sizes(self) -> PublishedSizes:
        """What says of requests which sizes they get that are hardly meant."""
        return PublishedSizes(self.slices)

    @cached_property
    def inventory(self) -> PoolIndex:
        return PoolIndex.build(self.slices, self.state.taint_rules)

    @cached_property
    def all_holdings(self) -> HolderIndex:
        """The holdings of all claims, in all pools."""
        return HolderIndex(self.slices, self.state.claims)

    @cached_property
    def cards(self) -> PublishedCards:
        """Kerf's cards on all nodes."""
        return find_published_cards(self.slices)

    def card_usages(self, nodes: Collection[str] = ()) -> list[CardUsage]:
        """Return the usage of each card of ``nodes``, or of all nodes if ``nodes`` is empty."""
        holders = self.all_holdings.holders
        return [build_usage(card, holders) for card in self.cards.known if not nodes or card.node in nodes]

    def build_pictures(
        self, pools: Iterable[PoolKey], planned: Mapping[DeviceId, Sequence[str]] = _NOTHING
    ) -> list[CardPicture]:
        """Return pictures of the cards in these pools, in this order; ``planned`` hold devices beside the claims."""
        return [
            picture
            for pool in dict.fromkeys(pools)
            for picture in build_card_pictures(
                self.slices.newest_of_pool(PoolId(*pool)),
                _add_holders(self._drawn_holders[pool], planned),
                consumed=self._consumed,
                rules=self.state.taint_rules,
            )
        ]

    @cached_property
    def _drawn_holders(self) -> Mapping[PoolKey, Mapping[DeviceId, Sequence[str]]]:
        """The claims that hold each device, by pool."""
        found: dict[PoolKey, dict[DeviceId, Sequence[str]]] = defaultdict(dict)
        for id_, names in find_holders(self.state.claims).items():
            found[id_.driver, id_.pool][id_] = names
        return found

    @cached_property
    def _consumed(self) -> Mapping[DeviceId, Mapping[str, Quantity]]:
        """What claims have of the capacities of devices that they share."""
        return find_consumed(self.state.claims)

    @cached_property
    def _slice_pools(self) -> tuple[Mapping[str, frozenset[PoolKey]], frozenset[PoolKey]]:
        """The pools with slices for a single node, by node name, and the pools with other slices."""
        of_node: dict[str, set[PoolKey]] = defaultdict(set)
        shared: set[PoolKey] = set()
        for slice_ in self.slices.compact:
            if slice_.published.node_name:
                of_node[slice_.published.node_name].add(slice_.pool_id)
            else:
                shared.add(slice_.pool_id)
        return {node: frozenset(pools) for node, pools in of_node.items()}, frozenset(shared)

    def pools(self, node: Node) -> frozenset[PoolKey]:
        """Return the pools whose devices the node may be able to use."""
        of_node, shared = self._slice_pools
        return of_node.get(node.metadata.name, frozenset()) | shared

    def holdings(self, node: Node) -> HolderIndex:
        """Return the holdings of all claims in the pools of ``node``."""
        return HolderIndex(self.slices, self.claims_by_pool.find(self.pools(node)))

    def attempt(
        self, claims: Sequence[ResourceClaim], node: Node, held: Iterable[ResourceClaim] | None = None
    ) -> Outcome:
        """Allocate ``claims`` on ``node`` while the claims ``held`` keep their devices; None stands for all claims."""
        numbers = count()
        return allocate(
            self.inventory,
            claims,
            node_view(node),
            self.classes,
            AllocatedState.from_claims(self.claims_by_pool.find(self.pools(node)) if held is None else held),
            self.features,
            share_id=lambda: f"{claims[0].ref}#{next(numbers)}",
            budget=self.budget,
        )

    def build_allocator(self) -> ClusterAllocator:
        """Build an allocator for all nodes, for trials that change the allocated devices."""
        return ClusterAllocator(
            self.features, self.inventory, nodes=map(node_view, self.nodes), claims=self.state.claims
        )

    def diagnose(self, claims: Sequence[ResourceClaim], node: Node, holdings: HolderIndex) -> tuple[Diagnosis, ...]:
        """Return why ``claims`` do not fit on ``node``, after ``attempt`` has failed."""
        return diagnose(self.inventory, claims, node_view(node), self.classes, holdings, self.features)


def pods_of(claim: ResourceClaim) -> list[ObjectRef]:
    """Return the pods for which ``claim`` is reserved."""
    namespace = claim.metadata.namespace
    return [ObjectRef(namespace, user.name) for user in claim.status.reserved_for if user.resource == "pods"]


def _add_holders(
    holders: Mapping[DeviceId, Sequence[str]], planned: Mapping[DeviceId, Sequence[str]]
) -> Mapping[DeviceId, Sequence[str]]:
    return {id_: (*holders.get(id_, ()), *planned.get(id_, ())) for id_ in (*holders, *planned)}


def _by_ref(objects: Iterable[ObjectT]) -> dict[ObjectRef, ObjectT]:
    return {each.ref: each for each in objects}


def _pools(claim: ResourceClaim) -> set[PoolKey]:
    allocation = claim.status.allocation
    return {(each.driver, each.pool) for each in allocation.devices.results} if allocation else set()
