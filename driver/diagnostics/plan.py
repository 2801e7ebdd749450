"""What would be placed where, how much more would fit, and which sizes would be left.

Pods are placed one after the other, each on the first node by name where it fits, on the devices that the scheduler's
first-fit takes there. Among several nodes where a pod fits, kube-scheduler chooses by its scores, which see CPU, memory
and images: name a node to see what happens there.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import msgspec

from api.model.allocations import AllocationResult, ResourceClaimStatus
from api.model.claims import ResourceClaim
from api.model.names import ObjectRef
from driver.allocation import NodeAllocation
from driver.diagnostics.cluster_index import Cluster
from driver.diagnostics.explain.feature_gates import unheeded
from driver.diagnostics.explain.report import Subject, WhyAnswer
from driver.diagnostics.explain.why import why_not
from driver.diagnostics.frag import sizes_left
from driver.diagnostics.progress import Track, unwatched
from driver.diagnostics.workload import Demand
from driver.scheduling.node_filter import explain_filter

MOST_COUNTED: Final = 1000
"""Copies of each demand that are counted beyond the plan: "at least 1000" is all that anybody needs to know."""

_replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDevice:
    """One device of a planned pod."""

    claim: str
    """Its name in the pod, or that of the shared claim."""
    request: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One copy of a demand that would get its devices."""

    demand: str
    copy: int
    """From 1."""
    node: str
    fitting_nodes: int
    """On how many nodes it would have fitted; 0 for copies after the first, of which only one node is looked for."""
    devices: tuple[PlannedDevice, ...]
    """Only those that it does not have already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """Copies of a demand that would wait, and why."""

    demand: str
    copies: int
    why: WhyAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class More:
    """How many more copies of one demand would fit after the plan, if nothing else came.

    There is none of demands that take nothing more: pods with no claims of their own.
    """

    demand: str
    copies: int
    is_bound: bool
    """True: counting ended there, it may be more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLeft:
    """How many of one size can be had at once, before and after the plan."""

    model: str
    size: str
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """What would happen."""

    fits: bool
    """Whether everything would be placed."""
    placed: tuple[Placed, ...]
    unplaced: tuple[Unplaced, ...]
    more: tuple[More, ...]
    sizes: tuple[SizeLeft, ...]
    passed_over: tuple[str, ...]
    """Documents that have nothing to do with devices."""
    unheeded: tuple[str, ...]
    """What the demands have that the cluster does not heed, with the feature gate that it takes."""


def plan(
    cluster: Cluster,
    demands: Sequence[Demand],
    *,
    copies: int = 1,
    passed_over: tuple[str, ...] = (),
    track: Track = unwatched,
) -> PlanAnswer:
    """What ``copies`` of all ``demands`` would get on the nodes of ``cluster``, in their order."""
    planner = _Planner(cluster, demands)
    order = [position for _ in range(copies) for position, each in enumerate(demands) for _ in range(each.replicas)]
    placed: list[Placed] = []
    tried: Counter[int] = Counter()
    missing: Counter[int] = Counter()
    for position in track(order, "placing"):
        tried[position] += 1
        found = planner.place(position, tried[position]) if position not in missing else None
        if found is None:
            missing[position] += 1
        else:
            placed.append(found)
    after = cluster.with_claims(planner.allocated)
    return PlanAnswer(
        fits=not missing,
        placed=tuple(placed),
        unplaced=tuple(
            Unplaced(demand=str(demands[position]), copies=copies, why=planner.why_not(position, after, track))
            for position, copies in sorted(missing.items())
        ),
        more=tuple(
            planner.more(position, tried[position], track)
            for position, demand in enumerate(demands)
            if position not in missing and demand.takes_more
        ),
        sizes=tuple(_sizes(cluster, after)),
        passed_over=passed_over,
        unheeded=unheeded((asked.claim for demand in demands for asked in demand.claims), cluster.features),
    )


def _sizes(before: Cluster, after: Cluster) -> Iterator[SizeLeft]:
    nodes = {node.metadata.name for node in before.nodes}
    left = {(each.model, each.size): each.free for each in sizes_left(after, nodes)}
    for each in sizes_left(before, nodes):
        yield SizeLeft(model=each.model, size=each.size, before=each.free, after=left[each.model, each.size])


class _Planner:
    """Places demands one after the other and remembers what they took."""

    def __init__(self, cluster: Cluster, demands: Sequence[Demand]) -> None:
        self._cluster = cluster
        self._demands = demands
        self._allocator = cluster.allocator()
        self._shared: dict[ObjectRef, ResourceClaim] = {}
        self._nodes: dict[object, frozenset[str]] = {}
        self.allocated: list[ResourceClaim] = []

    def place(self, position: int, copy: int) -> Placed | None:
        """Devices for one more copy of a demand; None: there is no node for it."""
        demand = self._demands[position]
        claims = self._claims(demand, copy)
        unallocated = [claim for claim in claims if claim.status.allocation is None]
        nodes = self._nodes_for(position, claims)
        if unallocated:
            numbers = count()
            placement = self._allocator.place(
                unallocated,
                self._cluster.classes,
                share_id=lambda: f"{unallocated[0].ref}#{next(numbers)}",
                budget=self._cluster.budget,
                nodes=nodes,
            )
            if not isinstance(placement, NodeAllocation):
                return None
            node, results = placement.node, placement.results
        elif nodes:
            node, results = min(nodes), ()
        else:
            return None
        return Placed(
            demand=str(demand),
            copy=copy,
            node=node,
            fitting_nodes=self._count_fitting(unallocated, nodes) if copy == 1 else 0,
            devices=tuple(self._take(demand, claims, results)),
        )

    def _count_fitting(self, claims: Sequence[ResourceClaim], nodes: frozenset[str]) -> int:
        if not claims:
            return len(nodes)
        fitting = self._allocator.fitting_nodes(claims, self._cluster.classes, budget=self._cluster.budget, nodes=nodes)
        return len(fitting)

    def more(self, position: int, placed: int, track: Track) -> More:
        """How many more copies fit, found by going on as long as they do, and then taking them away again."""
        demand = self._demands[position]
        before, shared = len(self.allocated), dict(self._shared)
        copies = 0
        for number in track(range(1, 1 + MOST_COUNTED), f"counting how many more of {demand} fit"):
            if self.place(position, placed + number) is None:
                break
            copies += 1
        for claim in self.allocated[before:]:
            self._allocator.remove_claim(claim.ref)
        del self.allocated[before:]
        self._shared = shared
        return More(demand=str(demand), copies=copies, is_bound=copies == MOST_COUNTED)

    def why_not(self, position: int, after: Cluster, track: Track) -> WhyAnswer:
        """Why one more copy does not fit, where ``after`` is the cluster with all that was placed."""
        demand = self._demands[position]
        subject = Subject(kind=demand.kind, namespace=demand.name.namespace, name=demand.name.name)
        claims = [
            _replace(claim, metadata=_replace(claim.metadata, name=asked.claim.metadata.name))
            for claim, asked in zip(self._claims(demand, 0), demand.claims, strict=True)
        ]
        planned = frozenset(claim.ref for claim in self.allocated)
        return why_not(after, subject, demand.pod, claims, staying=planned, track=track)

    def _claims(self, demand: Demand, copy: int) -> list[ResourceClaim]:
        """The claims of one copy: shared ones as they are by now, the others new."""
        return [
            self._shared.get(asked.claim.ref, asked.claim) if asked.is_shared else _own(asked.claim, demand, copy)
            for asked in demand.claims
        ]

    def _nodes_for(self, position: int, claims: Sequence[ResourceClaim]) -> frozenset[str]:
        """The nodes where a demand's pods may run, and can use what its ``claims`` have already."""
        key = position, *(claim.ref for claim in claims if claim.status.allocation)
        if key not in self._nodes:
            pod = self._demands[position].pod
            fitting = (node for node in self._cluster.nodes if explain_filter(pod, claims, node) is None)
            self._nodes[key] = frozenset({node.metadata.name for node in fitting})
        return self._nodes[key]

    def _take(
        self, demand: Demand, claims: Sequence[ResourceClaim], results: Sequence[AllocationResult]
    ) -> Iterator[PlannedDevice]:
        unallocated = (
            (claim, asked) for claim, asked in zip(claims, demand.claims, strict=True) if not claim.status.allocation
        )
        for (claim, asked), result in zip(unallocated, results, strict=True):
            holding = _replace(claim, status=ResourceClaimStatus(allocation=result))
            self._allocator.set_claim(holding)
            self.allocated.append(holding)
            if asked.is_shared:
                self._shared[asked.claim.ref] = holding
            for each in result.devices.results:
                yield PlannedDevice(claim=asked.claim.metadata.name, request=each.request, device=str(each.id))


def _own(claim: ResourceClaim, demand: Demand, copy: int) -> ResourceClaim:
    """A claim of one copy, under a name that nobody else has: no DNS name has a slash."""
    name = f"{demand.name.name}/{copy}/{claim.metadata.name}"
    return _replace(claim, metadata=_replace(claim.metadata, name=name))
