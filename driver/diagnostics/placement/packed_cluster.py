"""What packing would gain: the cards of a cluster if all claims were recreated, packed over its nodes.

All claims that hold devices of Kerf's cards are taken away and placed again, large ones first, each pod's claims on the
node that ``placement: Packed`` prefers (``kerf_dra.driver.placement``) of those where the pod may run or runs. The
claims of pods that wait come last. Claims of other drivers' devices stay, unless a pod has both.

The result is no advice, because claims cannot be moved, but a measure: how much of what lies idle the choice of nodes
has cost so far. Claims that come and go one by one are packed less well than all at once. On a node devices are taken
in the order in which they are published now, which plugins would change after each claim: so the gain may be larger.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation import NodeAllocation
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex, pods_of
from kerf_dra.driver.diagnostics.defragmentation import group_claims
from kerf_dra.driver.diagnostics.placement.node_preference import NodePreference
from kerf_dra.driver.diagnostics.progress import ProgressTracker
from kerf_dra.driver.partitions.fragmentation import fragmentation
from kerf_dra.driver.placement.class_placement import PACKED
from kerf_dra.driver.scheduling.node_filter import explain_filter

_MOST_STEPS: Final = 100_000
"""The most pairs of claims and nodes that are tried, some ten seconds: that is 300 claims on 300 nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The units of Kerf's cards in use, as claims are now and if all were packed, with the pods that wait."""

    units: int
    as_now: int
    """The units in use if claims stay where they are, with those of waiting pods that fit."""
    packed: int
    """The units in use if all claims were packed."""
    waiting: int
    """The pods that wait for devices of their own."""
    fit_now: int
    """Those of them that fit if claims stay where they are."""
    fit_packed: int
    """Those of them that would fit if all claims were packed."""


@dataclass(frozen=True, slots=True)
class PackedCluster:
    """A cluster whose claims were packed."""

    figures: Packing
    as_now: ClusterIndex
    """The cluster with the waiting pods that fit."""
    packed: ClusterIndex


def pack_claims(cluster: ClusterIndex, track: ProgressTracker) -> PackedCluster | None:
    """Return ``cluster`` packed; None: it is too large to try, or a claim that has its devices would not fit."""
    held = list(_find_held(cluster))
    waiting = list(_find_waiting(cluster))
    if not held or (len(held) + len(waiting)) * len(cluster.nodes) > _MOST_STEPS:
        return None
    groups = group_claims(cluster, held)
    packing, staying = _Trial(cluster, chain.from_iterable(groups)), _Trial(cluster, ())
    if not all(packing.place(group) for group in track(groups, "packing claims")):
        return None
    fit_packed = sum(packing.place(group) for group in waiting)
    fit_now = sum(staying.place(group) for group in waiting)
    as_now, packed = cluster.with_claims(staying.placed), cluster.with_claims(packing.placed)
    units, used_now = _count_units(as_now)
    figures = Packing(
        units=units,
        as_now=used_now,
        packed=_count_units(packed)[1],
        waiting=len(waiting),
        fit_now=fit_now,
        fit_packed=fit_packed,
    )
    return PackedCluster(figures, as_now, packed)


class _Trial:
    """The nodes of a cluster while claims are placed again."""

    def __init__(self, cluster: ClusterIndex, moved: Iterable[ResourceClaim]) -> None:
        """``moved`` are the claims that hold nothing at first."""
        released = [replace(claim, status=ResourceClaimStatus()) for claim in moved]
        self._cluster = cluster
        empty = cluster.with_claims(released)
        self._allocator = empty.build_allocator()
        self._preference = NodePreference(empty, self._allocator)
        self._numbers = count()
        self._users: dict[ObjectRef, list[ObjectRef]] = {}
        """The pods that name each claim."""
        for pod in cluster.pods.values():
            for ref in _name_claims(pod):
                self._users.setdefault(ref, []).append(pod.ref)
        self.placed: list[ResourceClaim] = []
        """The claims with the devices that they have got."""

    def place(self, group: Sequence[ResourceClaim]) -> bool:
        """Place the claims of one pod, or of pods that share claims, and return whether they fit."""
        claims = [replace(claim, status=ResourceClaimStatus()) for claim in group]
        preferred = self._preference.find_preferred(claims, PACKED, self._find_nodes(group))
        if preferred is None:
            return False
        allocation = self._allocator.place(
            claims,
            self._cluster.classes,
            share_id=self._name_share,
            budget=self._cluster.budget,
            nodes=frozenset({preferred.name}),
        )
        assert isinstance(allocation, NodeAllocation), "the claims fit on a node that has a rank"
        for claim, result in zip(group, allocation.results, strict=True):
            placed = replace(claim, status=replace(claim.status, allocation=result))
            self._allocator.set_claim(placed)
            self.placed.append(placed)
        return True

    def _find_nodes(self, group: Sequence[ResourceClaim]) -> frozenset[str]:
        """Return the nodes on which the pods of ``group`` may run, and those on which they do."""
        refs = dict.fromkeys(ref for claim in group for ref in (*pods_of(claim), *self._users.get(claim.ref, ())))
        pods = [pod for ref in refs if (pod := self._cluster.pods.get(ref)) is not None]
        here = {pod.spec.node_name for pod in pods if pod.spec.node_name}
        candidates: Sequence[Pod | None] = pods or [None]
        return frozenset(
            node.metadata.name
            for node in self._cluster.nodes
            if node.metadata.name in here or all(explain_filter(pod, (), node) is None for pod in candidates)
        )

    def _name_share(self) -> str:
        return f"packed-{next(self._numbers)}"


def _find_held(cluster: ClusterIndex) -> Iterator[ObjectRef]:
    """Yield the claims of which all devices are of cards whose units are known."""
    pools = {(card.driver, card.pool) for card in cluster.cards.known}
    for claim in cluster.state.claims:
        allocation = claim.status.allocation
        given = allocation.devices.results if allocation is not None else ()
        if given and all((each.driver, each.pool) in pools and not each.admin_access for each in given):
            yield claim.ref


def _find_waiting(cluster: ClusterIndex) -> Iterator[tuple[ResourceClaim, ...]]:
    """Yield the claims of each pod that waits for devices, if none of them is allocated or another pod's, too."""
    seen: set[ObjectRef] = set()
    for pod in cluster.pods.values():
        refs = _name_claims(pod)
        claims = [cluster.claims.get(ref) for ref in refs]
        found = tuple(claim for claim in claims if claim is not None and claim.status.allocation is None)
        is_waiting = not (pod.spec.node_name or pod.spec.scheduling_gates or pod.is_terminating or pod.is_finished)
        if is_waiting and found and len(found) == len(pod.spec.resource_claims) and seen.isdisjoint(refs):
            seen.update(refs)
            yield found


def _name_claims(pod: Pod) -> list[ObjectRef]:
    return [ObjectRef(pod.metadata.namespace, name) for name in pod.claim_names().values()]


def _count_units(cluster: ClusterIndex) -> tuple[int, int]:
    """Return the units of all cards, and those in use."""
    figures = [fragmentation(card.published.card, card.partitions.values()) for card in cluster.card_usages()]
    units = sum(each.units for each in figures)
    return units, units - sum(each.free_units for each in figures)
