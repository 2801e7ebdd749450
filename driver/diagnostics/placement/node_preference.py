"""Which node Kerf prefers for a pod in a snapshot, by the rule of the scheduler extender.

A preference is in effect as far as the controller says so in the condition Placement of classes: where schedulers ask
the extender for any class, they do so for all pods. Classes that are only graded prefer nodes by three grades of the
same rule; of the nodes of one grade the first by the rule stands for all. A snapshot without such a condition, or
without ResourceClasses, has none, and the scheduler's own scores decide, which are not known.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kerf_dra.api.kerf.v1alpha1 import EXTENDER_ACTIVE, GRADED, PLACEMENT, ClassPlacement, ResourceClassObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import Condition
from kerf_dra.driver.allocation import ClusterAllocator
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.placement.class_placement import PodPlacement, find_placements, find_pod_placement
from kerf_dra.driver.placement.class_use import ClassUse
from kerf_dra.driver.placement.node_ranks import NodeRanker, RankedNodes
from kerf_dra.driver.placement.node_scores import Rank


class PreferredNode(NamedTuple):
    """The node that is preferred for a pod; of several with the same rank the first by name."""

    name: str
    rank: Rank


@dataclass(frozen=True, slots=True)
class ClusterPlacements:
    """The placements that the classes of a snapshot ask for, and whether they are in effect."""

    by_class: Mapping[str, ClassPlacement] = field(default_factory=dict)
    """What classes ask for, by name."""
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    """The condition Placement of the classes that have it, by name."""

    @classmethod
    def find(
        cls,
        resource_classes: Iterable[ResourceClassObject],
        planned: Mapping[str, ClassPlacement | None] | None = None,
    ) -> "ClusterPlacements":
        """Return the placements of ``resource_classes``, with those of classes that are only planned in their place."""
        held = tuple(resource_classes)
        by_class: dict[str, ClassPlacement | None] = {**find_placements(held), **(planned or {})}
        return cls(
            by_class={name: asked for name, asked in by_class.items() if asked is not None},
            conditions={
                each.metadata.name: one for each in held for one in each.status.conditions if one.type == PLACEMENT
            },
        )

    @property
    def is_extender_active(self) -> bool:
        """Whether schedulers ask the extender, which then ranks nodes for all pods with devices."""
        return any(each.status == "True" and each.reason == EXTENDER_ACTIVE for each in self.conditions.values())

    def of_pod(self, claims: Sequence[ResourceClaim]) -> PodPlacement:
        """Return the placement of the pod that gets ``claims``, whether it is in effect or not."""
        return find_pod_placement(claims, self.by_class)

    def is_in_effect(self, placement: PodPlacement) -> bool:
        """Whether nodes are preferred by ``placement``: by the extender, or by the requests of its classes."""
        return placement.rule != "None" and (self.is_extender_active or self.is_graded(placement))

    def is_graded(self, placement: PodPlacement) -> bool:
        """Whether nodes are preferred by the requests of its classes alone, which know three grades of nodes.

        Grades are those of packing, and a class of the cluster may be planned with another placement than it has there.
        """
        of_classes = [self.conditions.get(name) for name in placement.classes]
        is_each_graded = all(each is not None and (each.status, each.reason) == ("True", GRADED) for each in of_classes)
        return not self.is_extender_active and placement.rule == "Packed" and bool(of_classes) and is_each_graded

    def explain(self, placement: PodPlacement) -> Iterator[str]:
        """Yield why nodes are not preferred as the classes of a pod ask for, if they are not."""
        names = " and ".join(placement.classes)
        if placement.is_contradictory:
            yield f"the classes {names} ask for different placements, so no node is preferred"
        elif placement.classes and placement.rule != "None" and not self.is_in_effect(placement):
            of_classes = (self.conditions.get(name) for name in placement.classes)
            said = next((each.message for each in of_classes if each is not None and each.status != "True"), "")
            why = (
                said.removeprefix("not in effect: ") or "the controller has not said that anything puts it into effect"
            )
            yield f"placement: {placement.rule} of {names} is not in effect: {why}"


class NodePreference:
    """Ranks the nodes of a cluster for pods, while a trial changes what claims hold."""

    def __init__(self, cluster: ClusterIndex, allocator: ClusterAllocator) -> None:
        """``allocator`` has the nodes of ``cluster``; the caller keeps it and ``use`` up to date."""
        self._cluster = cluster
        self._allocator = allocator
        self.use = ClassUse(cluster.state.claims)
        """What claims hold, by class."""
        self._ranker = NodeRanker(self.use)

    def rank_nodes(
        self, claims: Sequence[ResourceClaim], placement: PodPlacement, nodes: frozenset[str]
    ) -> list[RankedNodes]:
        """Return the ranks of those of ``nodes`` on which ``claims`` fit, the best first."""
        cluster = self._cluster
        found = self._ranker.rank_nodes(
            self._allocator, claims, cluster.classes, placement=placement, budget=cluster.budget, nodes=nodes
        )
        return sorted(found, key=lambda each: (each.rank, each.nodes))

    def find_preferred(
        self, claims: Sequence[ResourceClaim], placement: PodPlacement, nodes: frozenset[str]
    ) -> PreferredNode | None:
        """Return the preferred one of ``nodes``; None: ``claims`` fit on none."""
        ranked = self.rank_nodes(claims, placement, nodes)
        return PreferredNode(min(ranked[0].nodes), ranked[0].rank) if ranked else None
