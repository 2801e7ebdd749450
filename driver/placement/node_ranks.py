"""The ranks of a cluster's nodes for one pod, by the placement that the pod has.

| placement | of the nodes on which the pod fits, the best one is that |
|---|---|
| Packed | where its devices decrease the placement value of cards least; of several, where the card is fullest |
| Spread | where claims of its classes hold the fewest devices; of several, where the most units of cards are free |
| None | none: no node is preferred |

Equal nodes are tried once (``ClusterAllocator``). For Spread, equal nodes may still differ in which classes the devices
are held for, so their ranks are found node by node, from a count that is made once.

Example: node a has a 4g.40gb in use, node b is empty. A packed 1g.10gb goes to a, where the whole card is lost anyway.
A spread one goes to b, unless claims of its class hold more devices there than on a.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kerf_dra.api.model.allocations import AllocationResult
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.driver.allocation import Budget, ClusterAllocator
from kerf_dra.driver.allocation.cluster import EqualAllocations
from kerf_dra.driver.placement.class_placement import PodPlacement
from kerf_dra.driver.placement.class_use import ClassUse
from kerf_dra.driver.placement.node_scores import Rank
from kerf_dra.driver.placement.placement_value import PlacementValuer


class SpreadRank(NamedTuple):
    """The rank of a node for a pod that is to be spread: the lower one is better."""

    held: int
    """The devices on the node that claims of the pod's classes hold."""
    minus_free: int
    """The free units of the node's cards of the drivers that the pod needs, negative: the most first."""


class RankedNodes(NamedTuple):
    """Nodes with one rank on which a pod would get equal devices."""

    nodes: tuple[str, ...]
    """The names of the nodes, in their order."""
    rank: Rank
    results: tuple[AllocationResult, ...]
    """What the pod would get on a node that is equal to these, one result for each claim."""


class NodeRanker:
    """Ranks the nodes of one cluster; the placement values of its cards are kept."""

    def __init__(self, use: ClassUse) -> None:
        """``use`` is what claims hold; the owner keeps it up to date."""
        self._use = use
        self._values = PlacementValuer()

    def rank_nodes(
        self,
        allocator: ClusterAllocator,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        *,
        placement: PodPlacement,
        budget: Budget,
        nodes: frozenset[str],
    ) -> Iterator[RankedNodes]:
        """Yield the ranks of those of ``nodes`` on which all ``claims`` of one pod fit, equal nodes together.

        Nothing is yielded if no node is preferred. Nodes and claims must not change before the last rank is read.
        """
        if placement.rule == "None":
            return
        fitting = allocator.allocate_on_each(claims, classes, budget=budget, nodes=nodes)
        if placement.rule == "Packed":
            for each in fitting:
                yield RankedNodes(each.nodes, self._values.rank(each.node_devices, each.results), each.results)
            return
        held = self._use.count_by_node(placement.classes, allocator.pool_index)
        for each in fitting:
            yield from self._rank_spread(each, held)

    def _rank_spread(self, found: EqualAllocations, held: Mapping[str, int]) -> Iterator[RankedNodes]:
        drivers = {given.driver for result in found.results for given in result.devices.results}
        free = self._values.count_free_units(found.node_devices, drivers)
        by_held: dict[int, list[str]] = {}
        for node in found.nodes:
            by_held.setdefault(held.get(node, 0), []).append(node)
        for devices, names in by_held.items():
            yield RankedNodes(tuple(names), SpreadRank(devices, -free), found.results)
