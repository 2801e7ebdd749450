"""The obstacles that keep a pod with its claims off one node, and groups of nodes with equal obstacles."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kerf_dra.api.core.v1 import Node, Pod
from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.driver.allocation import DoesNotFit, Failed, Fits, Obstacle
from kerf_dra.driver.allocation.explain.amounts import FREE
from kerf_dra.driver.allocation.explain.diagnosis import RELEASABLE, Diagnosis
from kerf_dra.driver.allocation.explain.near_misses import NearMissGroup
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.report import (
    BlockedCard,
    CauseCode,
    NearMiss,
    NodeGroup,
    NodeReason,
    ReasonCode,
    UnmetCondition,
)
from kerf_dra.driver.diagnostics.explain.resource_faults import find_resource_reasons
from kerf_dra.driver.scheduling.node_filter import explain_filter

_UNMATCHED: Final = frozenset({Obstacle.NO_POOL, Obstacle.CLASS, Obstacle.NODE})
"""The obstacles of a node for which no device is published that a request could have."""


class InvalidClaimsError(PermanentError):
    """The claims cannot be evaluated on any node until an object is changed."""


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """The result of a check of one node."""

    node: Node
    reasons: tuple[NodeReason, ...]
    """Empty when the pod fits."""
    in_the_way: tuple[BlockedCard, ...] = ()
    is_releasable: bool = False
    """Whether the end of other claims may remove all obstacles."""


def check_node(cluster: ClusterIndex, pod: Pod | None, claims: Sequence[ResourceClaim], node: Node) -> NodeCheck:
    """Return why ``pod`` with ``claims``, some of which may be allocated, does not fit on ``node``, if it does not.

    Raises InvalidClaimsError when no node can evaluate the claims.
    """
    if obstacle := explain_filter(pod, claims, node):
        return _blocked(node, CauseCode.NODE_FILTER, obstacle)
    if pod is not None and (shortage := cluster.resource_use.describe_shortage(pod, node.metadata.name)):
        return _blocked(node, CauseCode.EXTENDED_RESOURCE, shortage)
    if pod is not None and cluster.state.classic is not None and (found := _find_discovered(cluster, pod, node)):
        return _blocked(node, *found)
    if pod is not None and (shortages := find_resource_reasons(cluster, pod, node)):
        return NodeCheck(node, shortages)
    unallocated = [claim for claim in claims if claim.status.allocation is None]
    if not unallocated:
        return NodeCheck(node, ())
    outcome = cluster.attempt(unallocated, node)
    match outcome:
        case Fits():
            return NodeCheck(node, ())
        case Failed(kind="fatal", message=message):
            raise InvalidClaimsError(message)
        case Failed(message=message):
            return _blocked(node, CauseCode.NODE_ERROR, message)
        case DoesNotFit():
            diagnoses = cluster.diagnose(unallocated, node, cluster.holdings(node))
            return NodeCheck(
                node,
                tuple(_reason_of(cluster, unallocated, node, diagnosis) for diagnosis in diagnoses),
                tuple(dict.fromkeys(_in_the_way(node, diagnoses))),
                all(diagnosis.obstacle in RELEASABLE for diagnosis in diagnoses),
            )
        case _:
            return _blocked(node, CauseCode.UNDECIDED, str(outcome))


def group_nodes(checks: Iterable[NodeCheck]) -> tuple[NodeGroup, ...]:
    """Return the nodes grouped by obstacles that are equal except for the names of devices and claims."""
    groups: dict[object, list[NodeCheck]] = {}
    for each in checks:
        groups.setdefault(tuple(map(_without_names, each.reasons)), []).append(each)
    ordered = sorted(groups.values(), key=lambda group: -len(group))
    return tuple(
        NodeGroup(
            nodes=tuple(each.node.metadata.name for each in group),
            reasons=group[0].reasons,
            in_the_way=_join_in_the_way(group),
        )
        for group in ordered
    )


def _join_in_the_way(checks: Sequence[NodeCheck]) -> tuple[BlockedCard, ...]:
    """Return what is in the way on the nodes of a group; what is of no single node is there once, without a node."""
    found: dict[BlockedCard, list[BlockedCard]] = {}
    for each in checks:
        for one in each.in_the_way:
            found.setdefault(replace(one, node=""), []).append(one)
    return tuple(same[0] if len(same) == 1 else bare for bare, same in found.items())


def _blocked(node: Node, obstacle: ReasonCode, message: str) -> NodeCheck:
    return NodeCheck(node, (NodeReason(claim="", request="", obstacle=obstacle, message=message),))


def _find_discovered(cluster: ClusterIndex, pod: Pod, node: Node) -> tuple[CauseCode, str] | None:
    """Return what ``node`` lacks of the discovered devices that ``pod`` asks for by extended resources."""
    use, name = cluster.discovered_use, node.metadata.name
    if why := use.describe_unseen(pod, name):
        return CauseCode.DISCOVERED_DEVICE_UNSEEN, why
    if why := use.describe_full(pod, name):
        return CauseCode.DISCOVERED_DEVICE_FULL, why
    if why := use.describe_unlisted(pod, name):
        return CauseCode.DISCOVERED_DEVICE_UNLISTED, why
    return None


def _reason_of(cluster: ClusterIndex, claims: Sequence[ResourceClaim], node: Node, diagnosis: Diagnosis) -> NodeReason:
    """Return the obstacle of a request; of one for a discovered device that the node does not see, that it does not."""
    reason = _reason(diagnosis)
    if diagnosis.obstacle not in _UNMATCHED:
        return reason
    for name in _find_classes(claims, diagnosis):
        if why := cluster.discovered_use.describe_class_unseen(name, node.metadata.name):
            return NodeReason(
                claim=reason.claim, request=reason.request, obstacle=CauseCode.DISCOVERED_DEVICE_UNSEEN, message=why
            )
    return reason


def _find_classes(claims: Sequence[ResourceClaim], diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the class of the request that ``diagnosis`` is about."""
    for claim in claims:
        for request in claim.spec.devices.requests if claim.ref == diagnosis.claim else ():
            if request.name == diagnosis.request and request.exactly is not None:
                yield request.exactly.device_class_name
            for alternative in request.first_available:
                if f"{request.name}/{alternative.name}" == diagnosis.request:
                    yield alternative.device_class_name


def _reason(diagnosis: Diagnosis) -> NodeReason:
    return NodeReason(
        claim=str(diagnosis.claim),
        request=diagnosis.request,
        obstacle=diagnosis.obstacle,
        message=diagnosis.message,
        near_misses=tuple(map(_near_miss, diagnosis.misses)),
        taints=tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in diagnosis.taints),
    )


def _near_miss(miss: NearMissGroup) -> NearMiss:
    unmet = (UnmetCondition(source=one.source, condition=one.condition, has=dict(one.has)) for one in miss.unmet)
    return NearMiss(device=str(miss.device), devices=miss.devices, unmet=tuple(unmet))


def _in_the_way(node: Node, diagnoses: Iterable[Diagnosis]) -> Iterator[BlockedCard]:
    for diagnosis in diagnoses:
        for blocker in diagnosis.blockers:
            yield BlockedCard(
                node=node.metadata.name,
                pool=blocker.pool,
                card=blocker.card,
                counters=blocker.counters,
                claims=tuple(map(str, blocker.claims)),
            )


def _without_names(reason: NodeReason) -> object:
    """Return what the reasons of equal nodes have in common: of amounts not how much is free there now."""
    misses = tuple(dict.fromkeys(map(_without_free, reason.near_misses)))
    return reason.claim, reason.request, reason.obstacle, reason.message, misses, reason.taints


def _without_free(miss: NearMiss) -> object:
    unmet = tuple(
        (one.source, one.condition, *sorted(item for item in one.has.items() if item[0] != FREE)) for one in miss.unmet
    )
    return unmet if any(FREE in one.has for one in miss.unmet) else (miss.devices, unmet)
