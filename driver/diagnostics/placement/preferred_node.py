"""Which node Kerf prefers for a pod, and why: what would be lost elsewhere, or what claims of its classes hold.

For a pod that waits it is a prediction. Of a pod that has its devices it says what would be preferred if they were
free again and everything else as it is now: what was free when the pod was scheduled is not known any more.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.allocations import AllocationResult, ResourceClaimStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.diagnostics.card_usage import CardUsage
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex, pods_of
from kerf_dra.driver.diagnostics.placement.node_preference import ClusterPlacements, NodePreference
from kerf_dra.driver.partitions.fragmentation import Fragmentation, fragmentation
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.placement.class_placement import PodPlacement
from kerf_dra.driver.placement.node_ranks import RankedNodes
from kerf_dra.driver.scheduling.node_filter import explain_filter

_NAMED = 3
"""Nodes that are named of those that are equally good."""
_COMPARED = 16
"""Ranks that are compared with the best one: a pod has fewer on nodes of one model."""


def describe_preferred_node(
    cluster: ClusterIndex, pod: Pod, claims: Sequence[ResourceClaim], fitting: Sequence[str]
) -> Iterator[str]:
    """Yield which of the ``fitting`` nodes is preferred for a pod that waits, or would be for one that has its node.

    ``claims`` are all claims of the pod. If its classes ask for what is not in effect, that is said instead.
    """
    placements = ClusterPlacements.find(cluster.state.resource_classes)
    unallocated = [claim for claim in claims if claim.status.allocation is None]
    node = pod.spec.node_name
    if node and not unallocated:
        own = [replace(each, status=ResourceClaimStatus()) for each in claims if set(pods_of(each)) <= {pod.ref}]
        if not own or len(own) < len(claims):
            return  # a claim that other pods use stays where it is
        cluster, unallocated = cluster.with_claims(own), own
    placement = placements.of_pod(unallocated)
    yield from placements.explain(placement)
    if unallocated and placements.is_in_effect(placement):
        asked = f"placement: {placement.rule}" + (", in three grades" if placements.is_graded(placement) else "")
        yield from _describe(cluster, pod, unallocated, placement, fitting, asked)


def _describe(
    cluster: ClusterIndex,
    pod: Pod,
    claims: Sequence[ResourceClaim],
    placement: PodPlacement,
    fitting: Sequence[str],
    asked: str,
) -> Iterator[str]:
    """Yield the preferred node and why; ``asked`` is the preference in words."""
    node = pod.spec.node_name
    candidates = fitting or [
        each.metadata.name for each in cluster.nodes if node and explain_filter(pod, claims, each) is None
    ]
    ranked = NodePreference(cluster, cluster.build_allocator()).rank_nodes(claims, placement, frozenset(candidates))
    if sum(len(each.nodes) for each in ranked) < 2:
        return  # there is no choice
    best = [name for each in ranked if each.rank == ranked[0].rank for name in each.nodes]
    others = [each for each in ranked if each.rank != ranked[0].rank][:_COMPARED]
    if not others:
        yield f"all {len(best)} nodes on which it fits are equally good ({asked}): the scheduler's own scores decide"
        return
    if placement.rule == "Spread":
        why = _compare_spread(placement, ranked[0], others[0])
    else:
        why = _compare_packed(cluster, ranked[0], others)
    if node and node not in best:
        yield f"{_list_best(best)} would be preferred to {node} now ({asked}): {why}"
    elif node:
        yield f"{node} was preferred ({asked}): {why}"
    else:
        yield f"{_list_best(best)} is preferred ({asked}): {why}"


def _list_best(names: Sequence[str]) -> str:
    ordered = sorted(names)
    more = f" or one of {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return f"{' or '.join(ordered[:_NAMED])}{more}"


def _compare_spread(placement: PodPlacement, best: RankedNodes, nearest: RankedNodes) -> str:
    """Return what claims of the pod's classes hold on the best node and elsewhere."""
    names, held, elsewhere = " and ".join(placement.classes), best.rank[0], nearest.rank[0]
    if held == elsewhere:
        return f"claims of {names} hold as few devices on {nearest.nodes[0]}, where fewer units are free"
    return f"claims of {names} hold {held} devices there, and {elsewhere} or more elsewhere"


def _compare_packed(cluster: ClusterIndex, best: RankedNodes, others: Sequence[RankedNodes]) -> str:
    """Return what the best node keeps that another one would lose."""
    kept = _find_lost_sizes(cluster, best.results)
    for other in sorted(others, key=lambda each: each.rank, reverse=True):
        lost = _find_lost_sizes(cluster, other.results)
        broken = {name: units for name, units in lost.items() if name not in kept}
        if broken:
            largest = max(broken, key=lambda name: (broken[name], name))
            return f"it breaks no free {largest}, as {other.nodes[0]} would"
    nearest = others[0]
    if nearest.rank[0] == best.rank[0]:
        return f"as little is lost as on {nearest.nodes[0]}, and its cards are fuller"
    return f"its devices make fewer others impossible than those of {nearest.nodes[0]}"


def _find_lost_sizes(cluster: ClusterIndex, results: Sequence[AllocationResult]) -> Mapping[str, int]:
    """Return the sizes of which fewer partitions are free with ``results``, with their units."""
    taken: dict[tuple[str, str], set[str]] = {}
    for result in results:
        for given in result.devices.results:
            taken.setdefault((given.driver, given.pool), set()).add(given.device)
    nodes = {pool.rpartition("/")[0] for _, pool in taken}
    found: dict[str, int] = {}
    for card in cluster.card_usages(nodes) if nodes else ():
        names = taken.get((card.published.driver, card.published.pool), set()) & card.published.devices
        if names:
            found |= _compare_card(card, [card.published.partitions[name] for name in names])
    return found


def _compare_card(card: CardUsage, added: Sequence[Partition]) -> Mapping[str, int]:
    held = [*card.partitions.values()]
    before, after = (_measure(card, partitions) for partitions in (held, [*held, *added]))
    specs = (spec for spec in card.published.card.geometry.specs if spec.placement is not None)
    units = {spec.profile or spec.function or "": spec.mask.bit_count() for spec in specs}
    return {
        name or "slots": units[name]
        for name, count in before.free_instances.items()
        if after.free_instances.get(name, 0) < count
    }


def _measure(card: CardUsage, partitions: Sequence[Partition]) -> Fragmentation:
    return fragmentation(card.published.card, partitions)
