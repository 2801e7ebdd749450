"""Shortages of a node: CPU, memory, pods, and extended resources that no class backs."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from kerf_dra.api.core.v1 import Node, Pod
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.report import CauseCode, NodeReason
from kerf_dra.driver.families.counted_resources import is_convertible
from kerf_dra.driver.scheduling.extended_resources import classes_by_resource
from kerf_dra.driver.scheduling.resource_fit import PODS, Shortage, pod_requests

_LARGE: Final = ("Ei", "Pi", "Ti", "Gi", "Mi")
"""The suffixes with which amounts of bytes are shown, rounded to three digits."""


def find_resource_reasons(cluster: ClusterIndex, pod: Pod, node: Node) -> tuple[NodeReason, ...]:
    """Return what ``node`` has too little of for ``pod``; empty: it has room, or its amounts are unknown.

    A message has no amounts of a single node, so that nodes with the same shortage are one group.
    """
    shortages = cluster.node_fit.find_shortages(pod_requests(pod), node.metadata.name)
    return tuple(_reason(cluster, each) for each in shortages)


def explain_unjudged(cluster: ClusterIndex) -> str:
    """Return why CPU and memory are not judged; empty: they are."""
    if cluster.node_fit.is_judged or not cluster.nodes:
        return ""
    if PODS in cluster.state.forbidden_lists:
        return "CPU and memory are not judged: the pods may not be listed"
    return "CPU and memory are not judged: it is unknown what nodes have and pods request"


def _reason(cluster: ClusterIndex, shortage: Shortage) -> NodeReason:
    name = shortage.resource
    if "/" in name and name not in cluster.node_fit.listed:
        said = "; ".join((f"no node offers {name}", *_suggest(cluster, name)))
        return _build(CauseCode.RESOURCE_NOT_OFFERED, f"{shortage}: {said}")
    is_too_small = name != PODS and shortage.requested > shortage.allocatable
    code = CauseCode.NODE_TOO_SMALL if is_too_small else CauseCode.INSUFFICIENT_RESOURCE
    return _build(code, f"{shortage}: {_describe(cluster, shortage)}")


def _describe(cluster: ClusterIndex, shortage: Shortage) -> str:
    most, left = cluster.node_fit.find_largest(shortage.resource)
    if shortage.resource == PODS:
        return f"the node has as many pods as it may have (no node may have more than {_round(most)})"
    wanted = f"the pod requests {_round(shortage.requested)}"
    if shortage.requested > most:
        return f"{wanted}, and no node has more than {_round(most)}"
    if shortage.requested > shortage.allocatable:
        return f"{wanted}, more than the node has (the largest has {_round(most)})"
    return f"{wanted}, more than the node's pods leave (the most that is left on a node is {_round(left)})"


def _suggest(cluster: ClusterIndex, name: str) -> Iterator[str]:
    known = {each for each in (*classes_by_resource(cluster.classes.values()), *cluster.node_fit.listed) if "/" in each}
    if is_convertible(name):
        yield "`kerf migrate -f` converts it to a claim"
    elif near := get_close_matches(name, sorted(known), n=3):
        yield f"there is {', '.join(near)}"


def _build(code: CauseCode, message: str) -> NodeReason:
    return NodeReason(claim="", request="", obstacle=code, message=message)


def _round(amount: Quantity) -> str:
    """Return an amount as people write it: bytes with three digits, all else exactly."""
    if amount.family == "binary":
        for number, suffix in enumerate(_LARGE):
            unit = 1024 ** (len(_LARGE) + 1 - number)
            if int(amount) >= unit:
                hundredths = int(amount) * 100 // unit  # whole numbers, because no float holds the largest quantities
                return f"{hundredths // 100 if hundredths >= 10_000 else format(hundredths / 100, '.3g')}{suffix}"
    return str(int(amount)) if amount.is_integer else str(amount)
