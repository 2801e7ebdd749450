"""The plan to make a card free: in which order its pods are evicted, and where each fits afterwards.

Problem: before anything is evicted an administrator wants to know which pods will find no devices. The card's devices
are taken from the pools, the claims of the pods to be evicted are released, and each pod is placed again, one after the
other, on the first node by name that accepts it: by the node filter, by what it requests of CPU, memory and other
counted resources, and by the allocator of devices. A claim that is not the pod's own stays allocated. Other pods that
wait or come meanwhile are not counted, and kube-scheduler may choose another node: the answer is what is possible now.

Order: pods that fit elsewhere first, then the others, by namespace and name. Example: of two pods on ``gpu-0`` one fits
on ``gpu-1`` of the same node and the other nowhere: it would wait until the card is back.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import msgspec

from kerf_dra.api.core.policy import PodDisruptionBudget
from kerf_dra.api.core.v1 import Node, Pod
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import DeviceId, ObjectRef
from kerf_dra.driver.allocation import Budget, ClusterAllocator, Features, NodeAllocation, PoolIndex
from kerf_dra.driver.reclaim.cards import DrainableCard
from kerf_dra.driver.reclaim.holders import Holder, HolderVerdict, find_holders, is_own_claim
from kerf_dra.driver.scheduling.extended_resources import classes_by_resource
from kerf_dra.driver.scheduling.label_selector import match_labels
from kerf_dra.driver.scheduling.node_filter import filter_node, find_claim_elsewhere, node_view
from kerf_dra.driver.scheduling.resource_fit import NodeRequests, find_shortages, pod_requests

_replace: Final = msgspec.structs.replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimSnapshot:
    """The objects of a cluster on which a plan depends."""

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    """At least the pods that use devices."""
    claims: Sequence[ResourceClaim]
    classes: Sequence[DeviceClass]
    slices: Sequence[ResourceSlice]
    features: Features
    budget: Budget
    """The limits of each search for devices on one node."""
    requested: Mapping[str, NodeRequests] | None = None
    """What all pods request of each node; None: it is unknown, and CPU and memory are not judged."""
    disruption_budgets: Sequence[PodDisruptionBudget] | None = None
    """None: they are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedHolder:
    """A holder with what becomes of it."""

    holder: Holder
    new_node: str = ""
    """Where its pod fits afterwards; empty: nowhere, if it is evicted."""
    new_devices: tuple[str, ...] = ()
    """What it would get there."""
    is_undecided: bool = False
    """Whether a search for devices was given up, so that it may fit somewhere all the same."""
    blocked_by: tuple[str, ...] = ()
    """The disruption budgets that allow no eviction now, as ``namespace/name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimPlan:
    """What would be done to make a card free."""

    card: DrainableCard
    evicted: tuple[PlannedHolder, ...]
    """The pods to evict, in this order."""
    others: tuple[PlannedHolder, ...]
    """The holders that are not evicted."""


def plan_reclaim(snapshot: ReclaimSnapshot, card: DrainableCard, *, evicts_bare: bool) -> ReclaimPlan:
    """Return how ``card`` becomes free; ``evicts_bare``: pods are evicted that nothing creates again, too."""
    holders = find_holders(card, snapshot.claims, snapshot.pods, evicts_bare=evicts_bare)
    to_evict = [each for each in holders if each.verdict is HolderVerdict.EVICT]
    by_uid = {pod.metadata.uid: pod for pod in snapshot.pods}
    placement = _Placement(snapshot, card, [by_uid[each.uid] for each in to_evict])
    planned = [placement.place(each, by_uid[each.uid]) for each in to_evict]
    return ReclaimPlan(
        card=card,
        evicted=tuple(sorted(planned, key=lambda each: not each.new_node)),  # stable: by name within both
        others=tuple(PlannedHolder(holder=each) for each in holders if each.verdict is not HolderVerdict.EVICT),
    )


def find_blocking_budgets(budgets: Iterable[PodDisruptionBudget], pod: Pod) -> Iterator[str]:
    """Yield the disruption budgets that protect ``pod`` and allow no eviction now."""
    for each in budgets:
        selector = each.spec.selector
        is_protected = (
            selector is not None
            and each.metadata.namespace == pod.metadata.namespace
            and match_labels(selector.requirements, pod.metadata.labels)
        )
        if is_protected and each.status.disruptions_allowed <= 0:
            yield str(each.ref)


@dataclass(slots=True)
class _Room:
    """What nodes have left of counted resources."""

    nodes: Mapping[str, Node]
    backed: Mapping[str, str]
    used: dict[str, NodeRequests] | None

    def move(self, pod: Pod, node: str, pods: int) -> None:
        """Count ``pod`` on a node once more, or once less."""
        if self.used is not None:
            self.used.setdefault(node, NodeRequests()).add(pod_requests(pod), pods)

    def has(self, pod: Pod, node: str) -> bool:
        """Whether a node has room for ``pod``, as far as it is known."""
        allocatable = self.nodes[node].status.allocatable
        if self.used is None or not allocatable:
            return True
        used = self.used.get(node) or NodeRequests()
        return not find_shortages(pod_requests(pod), allocatable, used, self.backed.keys())


class _Placement:
    """Places evicted pods one after the other; what is placed holds its devices from then on."""

    def __init__(self, snapshot: ReclaimSnapshot, card: DrainableCard, evicted: Sequence[Pod]) -> None:
        self._snapshot = snapshot
        self._classes = {each.metadata.name: each for each in snapshot.classes}
        self._nodes = {node.metadata.name: node for node in snapshot.nodes}
        self._claims = {claim.ref: claim for claim in snapshot.claims}
        self._allocator = ClusterAllocator(
            snapshot.features,
            PoolIndex.build(_without_card(each, card) for each in snapshot.slices),
            nodes=map(node_view, snapshot.nodes),
            claims=snapshot.claims,
        )
        used = None if snapshot.requested is None else {**snapshot.requested}
        if used is not None:
            used = {name: NodeRequests(each.pods, each.nano.copy()) for name, each in used.items()}
        self._room = _Room(self._nodes, classes_by_resource(snapshot.classes), used)
        leaving = {pod.metadata.uid for pod in evicted}
        for pod in evicted:
            self._room.move(pod, pod.spec.node_name, -1)
            for ref in _list_claims(pod):
                if (claim := self._claims.get(ref)) is not None and _is_left(claim, leaving):
                    self._claims[ref] = _replace(claim, status=ResourceClaimStatus())
                    self._allocator.remove_claim(ref)

    def place(self, holder: Holder, pod: Pod) -> PlannedHolder:
        """Place the pod of ``holder``."""
        budgets = self._snapshot.disruption_budgets
        blocked = () if budgets is None else tuple(find_blocking_budgets(budgets, pod))
        claims = [self._claims[ref] for ref in _list_claims(pod) if ref in self._claims]
        nodes = frozenset(name for name, node in self._nodes.items() if self._accepts(pod, claims, node))
        missing = [claim for claim in claims if claim.status.allocation is None]
        if not missing:
            node = min(nodes, default="")
            if node:
                self._room.move(pod, node, 1)
            return PlannedHolder(holder=holder, new_node=node, blocked_by=blocked)
        numbers = count()
        outcome = self._allocator.place(
            missing,
            self._classes,
            share_id=lambda: f"{missing[0].ref}#{next(numbers)}",
            budget=self._snapshot.budget,
            nodes=nodes,
        )
        if not isinstance(outcome, NodeAllocation):
            undecided = bool(getattr(outcome, "undecided", None))
            return PlannedHolder(holder=holder, is_undecided=undecided, blocked_by=blocked)
        for claim, result in zip(missing, outcome.results, strict=True):
            placed = _replace(claim, status=ResourceClaimStatus(allocation=result))
            self._claims[claim.ref] = placed
            self._allocator.set_claim(placed)
        self._room.move(pod, outcome.node, 1)
        devices = (result.device for each in outcome.results for result in each.devices.results)
        return PlannedHolder(
            holder=holder, new_node=outcome.node, new_devices=tuple(dict.fromkeys(devices)), blocked_by=blocked
        )

    def _accepts(self, pod: Pod, claims: Sequence[ResourceClaim], node: Node) -> bool:
        return (
            filter_node(pod, node) is None
            and find_claim_elsewhere(claims, node) is None
            and self._room.has(pod, node.metadata.name)
        )


def _list_claims(pod: Pod) -> list[ObjectRef]:
    return [ObjectRef(pod.metadata.namespace, name) for name in dict.fromkeys(pod.all_claim_names)]


def _is_left(claim: ResourceClaim, leaving: set[str]) -> bool:
    """Whether a claim ends with a pod of ``leaving``: any other one stays allocated for the new pod."""
    return any(is_own_claim(claim, uid) for uid in leaving)


def _without_card(slice_: ResourceSlice, card: DrainableCard) -> ResourceSlice:
    """Return a slice without the devices of ``card``, which get no new claims."""
    spec = slice_.spec
    if (spec.driver, spec.pool.name) != (card.driver, card.pool):
        return slice_
    kept = tuple(device for device in spec.devices if not card.owns(DeviceId(spec.driver, spec.pool.name, device.name)))
    return slice_ if len(kept) == len(spec.devices) else _replace(slice_, spec=_replace(spec, devices=kept))
