"""The devices of all nodes and what claims hold of them, for the scores of nodes.

The informers' stores have the slices in interned form (some kilobytes for each node), and claims without what an
allocation does not depend on. The allocator over them is built once all lists have been read; from then on each change
is applied to it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.core.v1 import Node, Pod
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation import Budget, ClusterAllocator, Features, PoolIndex
from kerf_dra.driver.allocation.pools.interned_slices import CompactSlice, InternedSlices, SliceCompactor
from kerf_dra.driver.kube.store import ObjectChange, Store
from kerf_dra.driver.placement.class_placement import PodPlacement, find_placements, find_pod_placement
from kerf_dra.driver.placement.class_use import ClassUse
from kerf_dra.driver.placement.node_ranks import NodeRanker, RankedNodes
from kerf_dra.driver.scheduling.extended_resources import expected_claim
from kerf_dra.driver.scheduling.node_filter import node_view

_BUDGET: Final = Budget(steps=2_000)
"""The limit of the search on one node, some 20 ms: claims of real pods need some dozens of steps, and a pod whose
devices are harder to find is scheduled without a score."""
_REFRESHED: Final = 50
"""The nodes that are worked out at once, each in less than half a millisecond on an idle machine: the leader's other
work in the same event loop waits for it."""


class PlacementIndex:
    """The allocator over the objects of the informers."""

    def __init__(
        self,
        compactor: SliceCompactor,
        *,
        slices: Store[CompactSlice],
        claims: Store[ResourceClaim],
        nodes: Store[Node],
        device_classes: Store[DeviceClass],
        resource_classes: Store[ResourceClassObject],
    ) -> None:
        """``compactor`` is the one with which ``slices`` are made; ``claims`` are what ``project_claim`` keeps."""
        self._compactor = compactor
        self._slices = slices
        self._claims = claims
        self._nodes = nodes
        self._device_classes = device_classes
        self._resource_classes = resource_classes
        self._use = ClassUse()
        self._ranker = NodeRanker(self._use)
        self._allocator: ClusterAllocator | None = None

    def build(self) -> None:
        """Build the allocator, once all lists have been read; until then changes are in the stores only."""
        slices = InternedSlices(self._slices.values(), self._compactor.interner)
        self._allocator = ClusterAllocator(
            Features(),
            PoolIndex.build(slices),
            nodes=map(node_view, self._nodes.values()),
            claims=self._claims.values(),
        )
        for claim in self._claims.values():
            self._use.record(claim)

    def refresh(self) -> bool:
        """Work out some nodes that have changed, in some 20 ms, and return whether others are left."""
        return self._allocator is not None and self._allocator.refresh(_REFRESHED)

    def on_slice(self, change: ObjectChange[CompactSlice]) -> None:
        """Apply the change of a slice; one that moved to another pool leaves the former one."""
        if self._allocator is None:
            return
        old, new = change.old, change.new
        if old is not None and (new is None or new.pool_id != old.pool_id):
            self._allocator.remove_slice(old)
        if new is not None:
            self._allocator.set_slice(new)

    def on_claim(self, change: ObjectChange[ResourceClaim]) -> None:
        """Apply what a claim holds now."""
        if self._allocator is None:
            return
        if change.new is None:
            self._allocator.remove_claim(change.ref)
            self._use.remove(change.ref)
        elif change.old is None or change.old.status != change.new.status:
            self._allocator.set_claim(change.new)
            self._use.record(change.new)

    def on_node(self, change: ObjectChange[Node]) -> None:
        """Apply the labels of a node."""
        if self._allocator is None:
            return
        if change.new is None:
            self._allocator.remove_node(change.ref.name)
        else:
            self._allocator.set_node(node_view(change.new))

    def find_unallocated(self, pod: Pod) -> list[ResourceClaim] | None:
        """Return the pod's claims that need devices, with that for its extended resources; None: one is not known."""
        names = pod.claim_names()
        refs = [ObjectRef(pod.metadata.namespace, name) for name in names.values()]
        claims = [self._claims.get(ref) for ref in refs]
        found = [claim for claim in claims if claim is not None]
        not_needed = {status.name for status in pod.status.resource_claim_statuses if not status.resource_claim_name}
        missing = {entry.name for entry in pod.spec.resource_claims} - names.keys() - not_needed
        if len(found) < len(claims) or missing:
            return None
        if pod.extended_claim_name is None and _has_extended_resources(pod):
            extended = expected_claim(pod, self._device_classes.values())
            found += [extended] if extended is not None else []
        return [claim for claim in found if claim.status.allocation is None]

    def find_placement(self, claims: Sequence[ResourceClaim]) -> PodPlacement:
        """Return the placement of the pod with ``claims``, as its ResourceClasses ask for now."""
        return find_pod_placement(claims, find_placements(self._resource_classes.values()))

    def rank_nodes(
        self, claims: Sequence[ResourceClaim], placement: PodPlacement, names: Iterable[str]
    ) -> Iterator[RankedNodes]:
        """Yield the rank of the nodes of ``names`` on which ``claims`` fit, equal nodes together.

        Nothing may change between two results: the caller does not await.
        """
        classes = {each.metadata.name: each for each in self._device_classes.values()}
        assert self._allocator is not None, "pods are scored once the lists have been read"
        yield from self._ranker.rank_nodes(
            self._allocator, claims, classes, placement=placement, budget=_BUDGET, nodes=frozenset(names)
        )


def _has_extended_resources(pod: Pod) -> bool:
    """Whether a container requests a resource beside Kubernetes' own: such a name has a domain."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any("/" in name for each in containers for name in (*each.resources.limits, *each.resources.requests))


def project_claim(claim: ResourceClaim) -> ResourceClaim:
    """Return what is kept of a claim: its requests, and what it holds."""
    metadata = ObjectMeta(
        name=claim.metadata.name,
        namespace=claim.metadata.namespace,
        uid=claim.metadata.uid,
        resource_version=claim.metadata.resource_version,
    )
    return replace(claim, metadata=metadata, status=ResourceClaimStatus(allocation=claim.status.allocation))
