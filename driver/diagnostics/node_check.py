"""What stands against claims on one node, in the form of the answer; and nodes of which the same is to be said."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from api.core.v1 import Node, Pod
from api.errors import PermanentError
from api.model.claims import ResourceClaim
from driver.allocation import DoesNotFit, Failed, Fits
from driver.allocation.explain.diagnosis import RELEASABLE, Diagnosis
from driver.allocation.explain.near_misses import Miss
from driver.diagnostics.cluster_index import Cluster
from driver.diagnostics.explain.report import InTheWay, NearMiss, NodeGroup, NodeReason, UnmetCondition
from driver.scheduling.node_filter import explain_filter

UNDECIDED = "undecided"
"""The obstacle of a node on which the search was given up."""


class UndecidableError(PermanentError):
    """The claims ask for what no node can decide, until somebody changes an object."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found on one node."""

    node: Node
    reasons: tuple[NodeReason, ...]
    """Empty: it fits."""
    in_the_way: tuple[InTheWay, ...] = ()
    is_releasable: bool = False
    """Whether the end of other claims may help."""


def judge(cluster: Cluster, pod: Pod | None, claims: Sequence[ResourceClaim], node: Node) -> Judged:
    """Whether ``pod`` with ``claims``, of which some may be allocated, fits on ``node``. Raises UndecidableError."""
    if obstacle := explain_filter(pod, claims, node):
        return _for_the_node(node, "node-filter", obstacle)
    unallocated = [claim for claim in claims if claim.status.allocation is None]
    if not unallocated:
        return Judged(node, ())
    outcome = cluster.attempt(unallocated, node)
    match outcome:
        case Fits():
            return Judged(node, ())
        case Failed(kind="fatal", message=message):
            raise UndecidableError(message)
        case Failed(message=message):
            return _for_the_node(node, "error", message)
        case DoesNotFit():
            diagnoses = cluster.diagnose(unallocated, node, cluster.holdings(node))
            return Judged(
                node,
                tuple(map(_reason, diagnoses)),
                tuple(dict.fromkeys(_in_the_way(node, diagnoses))),
                all(diagnosis.obstacle in RELEASABLE for diagnosis in diagnoses),
            )
        case _:
            return _for_the_node(node, UNDECIDED, str(outcome))


def grouped(judged: Iterable[Judged]) -> tuple[NodeGroup, ...]:
    """Nodes of which the same is to be said but for names, the largest group first."""
    groups: dict[object, list[Judged]] = {}
    for each in judged:
        groups.setdefault(tuple(map(_without_names, each.reasons)), []).append(each)
    ordered = sorted(groups.values(), key=lambda group: -len(group))
    return tuple(
        NodeGroup(
            nodes=tuple(each.node.metadata.name for each in group),
            reasons=group[0].reasons,
            in_the_way=tuple(one for each in group for one in each.in_the_way),
        )
        for group in ordered
    )


def _for_the_node(node: Node, obstacle: str, message: str) -> Judged:
    return Judged(node, (NodeReason(claim="", request="", obstacle=obstacle, message=message),))


def _reason(diagnosis: Diagnosis) -> NodeReason:
    return NodeReason(
        claim=str(diagnosis.claim),
        request=diagnosis.request,
        obstacle=str(diagnosis.obstacle),
        message=diagnosis.message,
        near_misses=tuple(map(_near_miss, diagnosis.misses)),
        taints=tuple(f"{taint.key}={taint.value}:{taint.effect}" for taint in diagnosis.taints),
    )


def _near_miss(miss: Miss) -> NearMiss:
    unmet = (UnmetCondition(source=one.source, condition=one.condition, has=dict(one.has)) for one in miss.unmet)
    return NearMiss(device=str(miss.device), devices=miss.devices, unmet=tuple(unmet))


def _in_the_way(node: Node, diagnoses: Iterable[Diagnosis]) -> Iterator[InTheWay]:
    for diagnosis in diagnoses:
        for blocker in diagnosis.blockers:
            yield InTheWay(
                node=node.metadata.name,
                pool=blocker.pool,
                card=blocker.card,
                counters=blocker.counters,
                claims=tuple(map(str, blocker.claims)),
            )


def _without_names(reason: NodeReason) -> object:
    """What equal nodes have in common."""
    misses = tuple(
        (miss.devices, tuple((one.source, one.condition, *sorted(one.has.items())) for one in miss.unmet))
        for miss in reason.near_misses
    )
    return reason.claim, reason.request, reason.obstacle, reason.message, misses, reason.taints
