"""``kerf plan``: a dry run that places workloads, counts how many more would fit, and which partition sizes remain.

Pods are placed one after the other, on the devices that the scheduler's first-fit allocation takes on their node. Where
several nodes fit, kube-scheduler chooses by scores. Those of Kerf's extender are predicted where it is in effect
(``placement``); those for CPU, memory and images are not modeled, so that of equal nodes the first by name is
taken: restrict the plan to one node to see what happens on it. A node must
have room for what a pod requests of CPU, memory and other counted resources, where it is known what nodes have left.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

import msgspec

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.kerf.v1alpha1 import ClassPlacement
from kerf_dra.api.model.allocations import AllocationResult, ResourceClaimStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import DeviceId, ObjectRef
from kerf_dra.driver.allocation import NodeAllocation
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.report import Subject, WhyReport
from kerf_dra.driver.diagnostics.explain.resource_faults import explain_unjudged
from kerf_dra.driver.diagnostics.explain.why import explain_misfit
from kerf_dra.driver.diagnostics.extended_resources.offered_resources import ResourceUse
from kerf_dra.driver.diagnostics.feature_gates import find_unsupported
from kerf_dra.driver.diagnostics.frag import count_sizes
from kerf_dra.driver.diagnostics.manifests.workload import Workload
from kerf_dra.driver.diagnostics.node_fit import NodeFit
from kerf_dra.driver.diagnostics.placement.node_preference import ClusterPlacements, NodePreference
from kerf_dra.driver.diagnostics.progress import ProgressTracker, without_progress
from kerf_dra.driver.scheduling.ineffective_fields import find_ineffective_configurations, find_ineffective_fields
from kerf_dra.driver.scheduling.node_filter import explain_filter
from kerf_dra.driver.scheduling.resource_fit import pod_requests

MOST_COUNTED: Final = 1000
"""Copies of a workload that are counted beyond the plan: users need no more exact number than "at least 1000"."""

PLANNED: Final = "planned: "
"""What is before a workload that holds a part of a drawn card; names of claims have no spaces."""

_replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDevice:
    """A device that a planned pod would get."""

    claim: str
    """The name of the claim in the pod, or of the shared claim."""
    request: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCopy:
    """A copy of a workload that would get its devices."""

    demand: str
    """The workload, as ``Kind namespace/name``."""
    copy: int
    """The number of the copy, from 1."""
    node: str
    fitting_nodes: int
    """The number of nodes on which the copy fits; 0 for copies after the first, for which only one node is sought."""
    placement: str
    """The placement by which the node is preferred, such as ``Packed``; empty: it is the first by name."""
    devices: tuple[PlannedDevice, ...]
    """The devices that are newly allocated."""
    resources: Mapping[str, int]
    """Extended resources that ResourceClasses offer by the device plugin interface: the kubelet chooses devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedCopies:
    """Copies of a workload that would wait."""

    demand: str
    copies: int
    why: WhyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """The number of further copies of one workload that would fit after the plan, if nothing else came.

    Workloads whose pods take no devices of their own have no headroom.
    """

    demand: str
    copies: int
    is_bound: bool
    """Whether counting stopped at ``MOST_COUNTED``, so that ``copies`` is a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """The number of partitions of one size that are available at once, before and after the plan."""

    model: str
    size: str
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """The document that ``kerf plan --output json`` prints; its field names are the format."""

    fits: bool
    """Whether all copies would be placed."""
    placed: tuple[PlacedCopy, ...]
    unplaced: tuple[UnplacedCopies, ...]
    more: tuple[Headroom, ...]
    sizes: tuple[SizeChange, ...]
    passed_over: tuple[str, ...]
    """Documents of kinds that are not planned."""
    unheeded: tuple[str, ...]
    """Features that the workloads use and the cluster ignores, each with its feature gate."""
    warnings: tuple[str, ...]
    """What the documents have that is legal and has no effect."""
    notes: tuple[str, ...]
    """The sizes that the workloads get and that are hardly meant."""
    unjudged: str
    """Why CPU and memory are not judged; empty: they are, or no pod is planned."""


def plan_workloads(
    cluster: ClusterIndex,
    workloads: Sequence[Workload],
    *,
    copies: int = 1,
    placements: Mapping[str, ClassPlacement | None] | None = None,
    passed_over: tuple[str, ...] = (),
    warnings: Sequence[str] = (),
    track: ProgressTracker = without_progress,
) -> PlanReport:
    """Return where ``copies`` of all ``workloads``, in their order, would be placed on the nodes of ``cluster``.

    ``placements`` are those of classes that are only planned.
    """
    planner = _Planner(cluster, workloads, ClusterPlacements.find(cluster.state.resource_classes, placements))
    order = [position for _ in range(copies) for position, each in enumerate(workloads) for _ in range(each.replicas)]
    placed: list[PlacedCopy] = []
    tried: Counter[int] = Counter()
    missing: Counter[int] = Counter()
    for position in track(order, "placing"):
        tried[position] += 1
        copy = planner.place(position, tried[position]) if position not in missing else None
        if copy is None:
            missing[position] += 1
        else:
            placed.append(copy)
    after = cluster.with_claims(planner.allocated).with_pods(_planned_pods(workloads, placed))
    return PlanReport(
        fits=not missing,
        placed=tuple(placed),
        unplaced=tuple(
            UnplacedCopies(demand=str(workloads[position]), copies=number, why=planner.explain(position, after, track))
            for position, number in sorted(missing.items())
        ),
        more=tuple(
            planner.count_headroom(position, tried[position], track)
            for position, workload in enumerate(workloads)
            if position not in missing and workload.takes_more
        ),
        sizes=tuple(_compare_sizes(cluster, after)),
        passed_over=passed_over,
        unheeded=find_unsupported((each.claim for workload in workloads for each in workload.claims), cluster.features),
        warnings=(*warnings, *planner.find_warnings()),
        notes=tuple(planner.find_notes()),
        unjudged=explain_unjudged(cluster) if any(each.pod for each in workloads) else "",
    )


def find_planned(placed: Sequence[PlacedCopy]) -> Mapping[DeviceId, Sequence[str]]:
    """Return which copies would hold each device, as holders of parts of drawn cards."""
    planned: dict[DeviceId, list[str]] = {}
    has_copies = any(each.copy > 1 for each in placed)
    for each in placed:
        copy = f", copy {each.copy}" if has_copies else ""
        for device in each.devices:
            pool, _, name = device.device.rpartition("/")
            driver, _, pool = pool.partition("/")
            planned.setdefault(DeviceId(driver, pool, name), []).append(f"{PLANNED}{each.demand}{copy}")
    return planned


def _planned_pods(workloads: Sequence[Workload], placed: Sequence[PlacedCopy]) -> Iterator[Pod]:
    """Yield the pods of ``placed``, on their nodes."""
    pods = {str(each): each.pod for each in workloads}
    for copy in placed:
        pod = pods[copy.demand]
        if pod is not None:
            metadata = _replace(pod.metadata, name=f"{pod.metadata.name}/{copy.copy}")
            yield _replace(pod, metadata=metadata, spec=_replace(pod.spec, node_name=copy.node))


def _compare_sizes(before: ClusterIndex, after: ClusterIndex) -> Iterator[SizeChange]:
    nodes = {node.metadata.name for node in before.nodes}
    remaining = {(each.model, each.size): each.free for each in count_sizes(after, nodes)}
    for each in count_sizes(before, nodes):
        yield SizeChange(model=each.model, size=each.size, before=each.free, after=remaining[each.model, each.size])


class _Preferred(NamedTuple):
    """The nodes to which a copy is limited, because they are preferred."""

    rule: ClassPlacement
    nodes: frozenset[str]


class _Planner:
    """Places workloads one after the other; what is placed holds its devices from then on."""

    def __init__(self, cluster: ClusterIndex, workloads: Sequence[Workload], placements: ClusterPlacements) -> None:
        self._cluster = cluster
        self._placements = placements
        self._workloads = workloads
        self._allocator = cluster.build_allocator()
        self._preference = NodePreference(cluster, self._allocator)
        self._shared: dict[ObjectRef, ResourceClaim] = {}
        """Shared claims that the plan has allocated."""
        self._nodes: dict[tuple[int, tuple[ObjectRef, ...]], frozenset[str]] = {}
        """The nodes on which pods of a workload may run and have room, by its position and its allocated claims."""
        self._requests = [pod_requests(each.pod) if each.pod else None for each in workloads]
        self._fit = NodeFit(cluster.state)
        self._placed: list[tuple[int, str]] = []
        """The position and the node of each pod that the plan has placed."""
        self.allocated: list[ResourceClaim] = []
        self._resource_use = ResourceUse(cluster.state.offered_resources, cluster.state.pods)
        self._taken: list[tuple[str, str, int]] = []
        """What the plan has taken of extended resources: the resource, the node, the amount."""

    def place(self, position: int, copy: int, *, with_preference: bool = True) -> PlacedCopy | None:
        """Allocate devices for one more copy of a workload; None when no node has them.

        ``with_preference``: on the node that is preferred, where a preference is in effect.
        """
        workload = self._workloads[position]
        claims = self._claims(workload, copy)
        unallocated = [claim for claim in claims if claim.status.allocation is None]
        nodes = self._find_nodes(position, claims)
        pod, use = workload.pod, self._resource_use
        if pod is not None and workload.resources:
            nodes = frozenset(node for node in nodes if use.fits(pod, node))
        placement, candidates = "", nodes
        if with_preference and (preferred := self._find_preferred(unallocated, nodes)):
            placement, candidates = preferred.rule, preferred.nodes
        if unallocated:
            numbers = count()
            allocation = self._allocator.place(
                unallocated,
                self._cluster.classes,
                share_id=lambda: f"{unallocated[0].ref}#{next(numbers)}",
                budget=self._cluster.budget,
                nodes=candidates,
            )
            if not isinstance(allocation, NodeAllocation):
                return None
            node, results = allocation.node, allocation.results
        elif nodes:
            node, results = min(nodes), ()
        else:
            return None
        for name, amount in workload.resources.items():
            use.take(name, node, amount)
            self._taken.append((name, node, amount))
        self._take_room(position, node)
        return PlacedCopy(
            demand=str(workload),
            copy=copy,
            node=node,
            fitting_nodes=len(self._find_fitting(unallocated, nodes)) if copy == 1 else 0,
            placement=placement,
            devices=tuple(self._take(workload, claims, results)),
            resources=workload.resources,
        )

    def _find_preferred(self, claims: Sequence[ResourceClaim], nodes: frozenset[str]) -> "_Preferred | None":
        """Return the node that is preferred for ``claims``; None: they fit on none, or none is preferred."""
        placement = self._placements.of_pod(claims)
        if not claims or not self._placements.is_in_effect(placement):
            return None
        found = self._preference.find_preferred(claims, placement, nodes)
        return None if found is None else _Preferred(placement.rule, frozenset({found.name}))

    def _find_fitting(self, claims: Sequence[ResourceClaim], nodes: frozenset[str]) -> Collection[str]:
        cluster = self._cluster
        return (
            self._allocator.fitting_nodes(claims, cluster.classes, budget=cluster.budget, nodes=nodes)
            if claims
            else nodes
        )

    def count_headroom(self, position: int, placed: int, track: ProgressTracker) -> Headroom:
        """Count how many more copies fit by placing them, and take them away again.

        Equal copies fill each node by itself, so the order of nodes does not matter, and none is preferred.
        """
        workload = self._workloads[position]
        before, shared, taken = len(self.allocated), dict(self._shared), len(self._taken)
        pods = len(self._placed)
        copies = 0
        for number in track(range(1, 1 + MOST_COUNTED), f"counting how many more of {workload} fit"):
            if self.place(position, placed + number, with_preference=False) is None:
                break
            copies += 1
        for claim in self.allocated[before:]:
            self._allocator.remove_claim(claim.ref)
            self._preference.use.remove(claim.ref)
        del self.allocated[before:]
        for name, node, amount in self._taken[taken:]:
            self._resource_use.take(name, node, -amount)
        del self._taken[taken:]
        self._give_room_back(pods)
        self._shared = shared
        return Headroom(demand=str(workload), copies=copies, is_bound=copies == MOST_COUNTED)

    def explain(self, position: int, after: ClusterIndex, track: ProgressTracker) -> WhyReport:
        """Return why one more copy does not fit; ``after`` is the cluster with all that was placed."""
        workload = self._workloads[position]
        subject = Subject(kind=workload.kind, namespace=workload.name.namespace, name=workload.name.name)
        claims = [
            _replace(claim, metadata=_replace(claim.metadata, name=each.claim.metadata.name))
            for claim, each in zip(self._claims(workload, 0), workload.claims, strict=True)
        ]
        planned = frozenset(claim.ref for claim in self.allocated)
        return explain_misfit(after, subject, workload.pod, claims, staying=planned, track=track)

    def find_notes(self) -> Iterator[str]:
        """Yield which placements are not in effect, and which sizes are hardly meant."""
        for workload in self._workloads:
            placement = self._placements.of_pod([each.claim for each in workload.claims])
            yield from (f"{workload}: {text}" for text in self._placements.explain(placement))
        sizes = self._cluster.published_sizes
        allocated = {claim.ref: claim for claim in self.allocated}
        for workload in self._workloads:
            claims = self._list_first_claims(workload, allocated)
            for claim in claims:
                notes = sizes.find_notes(claim, self._cluster.classes)
                yield from (f"{workload}: claim {claim.metadata.name}, {text}" for text in notes)
            if workload.pod is not None:
                by_entry = dict(zip((entry.name for entry in workload.pod.spec.resource_claims), claims, strict=False))
                notes = sizes.find_container_notes(workload.pod, by_entry)
                yield from (f"{workload}: {text}" for text in notes)

    def _list_first_claims(
        self, workload: Workload, allocated: Mapping[ObjectRef, ResourceClaim]
    ) -> list[ResourceClaim]:
        """Return the claims of a workload's first copy under their own names, as they are among ``allocated``."""
        return [
            _replace(allocated.get(claim.ref, claim), metadata=each.claim.metadata)
            for claim, each in zip(self._claims(workload, 1), workload.claims, strict=True)
        ]

    def find_warnings(self) -> Iterator[str]:
        """Yield what the workloads have that has no effect, with the devices of their first copies."""
        drivers = {pool.driver for pool in self._cluster.slices.by_pool}
        allocated = {claim.ref: claim for claim in self.allocated}
        has_pods = any(each.pod for each in self._workloads)
        for workload in self._workloads:
            claims = self._list_first_claims(workload, allocated)
            if workload.pod is not None:
                entries = (entry.name for entry in workload.pod.spec.resource_claims)
                found = [*find_ineffective_fields(workload.pod, dict(zip(entries, claims, strict=False)), drivers)]
            else:
                found = [
                    text
                    for claim in claims
                    for text in find_ineffective_configurations(claim.metadata.name, claim, drivers)
                ]
                if has_pods:
                    found.insert(0, "no pod of the documents uses it, so it is placed by itself")
            yield from (f"{workload}: {text}" for text in found)

    def _claims(self, workload: Workload, copy: int) -> list[ResourceClaim]:
        """Return the claims of one copy: shared claims as they are now, the others new."""
        return [
            self._shared.get(each.claim.ref, each.claim) if each.is_shared else _copy_claim(each.claim, workload, copy)
            for each in workload.claims
        ]

    def _find_nodes(self, position: int, claims: Sequence[ResourceClaim]) -> frozenset[str]:
        """Return the nodes on which a workload's pods may run, have room and can use what its ``claims`` hold."""
        key = position, tuple(claim.ref for claim in claims if claim.status.allocation)
        if key not in self._nodes:
            pod = self._workloads[position].pod
            fitting = (node for node in self._cluster.nodes if explain_filter(pod, claims, node) is None)
            names = (node.metadata.name for node in fitting)
            self._nodes[key] = frozenset(name for name in names if self._has_room(position, name))
        return self._nodes[key]

    def _has_room(self, position: int, node: str) -> bool:
        requests = self._requests[position]
        return requests is None or not self._fit.find_shortages(requests, node)

    def _take_room(self, position: int, node: str) -> None:
        """Count a placed pod on ``node``, the only one that may have no room any more for others."""
        requests = self._requests[position]
        if requests is None:
            return
        self._fit.take(requests, node)
        self._placed.append((position, node))
        for key, nodes in self._nodes.items():
            if node in nodes and not self._has_room(key[0], node):
                self._nodes[key] = nodes - {node}

    def _give_room_back(self, kept: int) -> None:
        """Take away all placed pods but the first ``kept``."""
        for position, node in self._placed[kept:]:
            self._fit.take(self._requests[position] or {}, node, -1)
        del self._placed[kept:]
        self._nodes.clear()

    def _take(
        self, workload: Workload, claims: Sequence[ResourceClaim], results: Sequence[AllocationResult]
    ) -> Iterator[PlannedDevice]:
        pairs = zip(claims, workload.claims, strict=True)
        unallocated = ((claim, each) for claim, each in pairs if not claim.status.allocation)
        for (claim, each), result in zip(unallocated, results, strict=True):
            holding = _replace(claim, status=ResourceClaimStatus(allocation=result))
            self._allocator.set_claim(holding)
            self._preference.use.record(holding)
            self.allocated.append(holding)
            if each.is_shared:
                self._shared[each.claim.ref] = holding
            for device in result.devices.results:
                yield PlannedDevice(claim=each.claim.metadata.name, request=device.request, device=str(device.id))


def _copy_claim(claim: ResourceClaim, workload: Workload, copy: int) -> ResourceClaim:
    """Return the claim of one copy, under a name that no object can have: no DNS name has a slash."""
    name = f"{workload.name.name}/{copy}/{claim.metadata.name}"
    return _replace(claim, metadata=_replace(claim.metadata, name=name))
