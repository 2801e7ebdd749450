"""Why a pod or a claim waits: what stands against it on each node, and whose end would help.

A claim is judged together with the pod that waits for it, because a pod's claims are allocated together and the pod's
node selector counts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from api.core.v1 import Node, Pod
from api.model.claims import ResourceClaim
from api.model.names import ObjectRef
from driver.allocation import DoesNotFit, Failed, Fits
from driver.allocation.diagnosing import RELEASABLE, Diagnosis
from driver.allocation.near_misses import Miss
from driver.answers.cluster import Cluster
from driver.answers.errors import QuestionError
from driver.answers.extended import extended_claim
from driver.answers.filtering import node_obstacle
from driver.answers.remedies import Candidate, find_remedies
from driver.answers.tracking import Track, unwatched
from driver.answers.verdicts import (
    ClaimState,
    InTheWay,
    NearMiss,
    NodeGroup,
    NodeReason,
    Remedy,
    Subject,
    UnmetCondition,
    Verdict,
    WhyAnswer,
)

_SCHEDULED: Final = "PodScheduled"


@dataclass(frozen=True, slots=True)
class _Judged:
    """What was found on one node."""

    node: Node
    reasons: tuple[NodeReason, ...]
    """Empty: it fits."""
    in_the_way: tuple[InTheWay, ...] = ()
    is_releasable: bool = False
    """Whether the end of other claims may help."""


class _InvalidError(Exception):
    """The claims ask for what no node can decide."""


def why_pod(cluster: Cluster, ref: ObjectRef, track: Track = unwatched) -> WhyAnswer:
    """Why the pod ``ref`` waits for devices. Raises QuestionError when there is no such pod with claims."""
    pod = cluster.pods.get(ref)
    if pod is None:
        raise QuestionError.unknown("pod that asks for devices", ref, cluster.pods)
    subject = Subject(kind="Pod", namespace=ref.namespace, name=ref.name)
    return _Question(cluster, subject, pod, *_claims_of(cluster, pod)).answer(track)


def why_claim(cluster: Cluster, ref: ObjectRef, track: Track = unwatched) -> WhyAnswer:
    """Why the claim ``ref`` has no devices. Raises QuestionError when there is no such claim."""
    claim = cluster.claims.get(ref)
    if claim is None:
        raise QuestionError.unknown("ResourceClaim", ref, cluster.claims)
    subject = Subject(kind="ResourceClaim", namespace=ref.namespace, name=ref.name)
    pod = None if claim.status.allocation else _waiting_pod(cluster, claim)
    if pod is None:
        return why_not(cluster, subject, None, [claim], track=track)
    return _Question(cluster, subject, pod, *_claims_of(cluster, pod)).answer(track)


def why_not(
    cluster: Cluster,
    subject: Subject,
    pod: Pod | None,
    claims: Sequence[ResourceClaim],
    *,
    staying: frozenset[ObjectRef] = frozenset(),
    track: Track = unwatched,
) -> WhyAnswer:
    """Why ``claims``, which need not be in the cluster, do not fit as those of ``pod``.

    ``staying`` are claims whose end is out of the question.
    """
    return _Question(cluster, subject, pod, tuple(map(_state, claims)), tuple(claims), staying).answer(track)


def _waiting_pod(cluster: Cluster, claim: ResourceClaim) -> Pod | None:
    """The first pod, by name, that waits for the claim."""
    users = (
        pod
        for ref, pod in sorted(cluster.pods.items())
        if ref.namespace == claim.metadata.namespace
        and claim.metadata.name in pod.claim_names().values()
        and not (pod.spec.node_name or pod.is_finished or pod.is_terminating)
    )
    return next(users, None)


class _Question:
    """One question: about ``claims``, all of which ``pod`` needs."""

    def __init__(
        self,
        cluster: Cluster,
        subject: Subject,
        pod: Pod | None,
        states: tuple[ClaimState, ...],
        claims: tuple[ResourceClaim, ...],
        staying: frozenset[ObjectRef] = frozenset(),
    ) -> None:
        self._cluster = cluster
        self._subject = subject
        self._pod = pod
        self._states = states
        self._claims = claims
        self._staying = staying
        self._unallocated = tuple(claim for claim in claims if claim.status.allocation is None)

    def answer(self, track: Track) -> WhyAnswer:
        pod = self._pod
        if blocked := self._blocked():
            return self._answer(Verdict.BLOCKED, blocked)
        if not self._unallocated and (pod is None or pod.spec.node_name):
            where = f" and the pod is on node {pod.spec.node_name}" if pod and pod.spec.node_name else ""
            return self._answer(Verdict.HAS_DEVICES, f"all claims have their devices{where}")
        try:
            judged = [self._judge(node) for node in track(self._cluster.nodes, "looking at nodes")]
        except _InvalidError as error:
            return self._answer(Verdict.INVALID, str(error))
        fitting = tuple(each.node.metadata.name for each in judged if not each.reasons)
        if fitting:
            return self._fits(fitting, judged)
        if any(reason.obstacle == "undecided" for each in judged for reason in each.reasons):
            message = "there may be a node where it fits: the search was given up on some"
            return self._answer(Verdict.UNDECIDED, message, judged)
        return self._does_not_fit(judged, track)

    def _blocked(self) -> str:
        """What has to happen before devices matter; empty: nothing."""
        pod = self._pod
        if pod is not None and (pod.is_terminating or pod.is_finished):
            return f"the pod is {'being deleted' if pod.is_terminating else 'finished'}: it gets no devices any more"
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates) if pod else ""
        if gates:
            return f"the pod is held back by the scheduling gate {gates}; who set it must remove it"
        return next(
            (_missing(self._cluster, pod, state) for state in self._states if state.state == "missing"), ""
        ) or (next((f"claim {state.name} is being deleted" for state in self._states if state.state == "deleting"), ""))

    def _judge(self, node: Node) -> _Judged:
        if obstacle := node_obstacle(self._pod, self._claims, node):
            reason = NodeReason(claim="", request="", obstacle="node-filter", message=obstacle)
            return _Judged(node, (reason,))
        if not self._unallocated:
            return _Judged(node, ())
        outcome = self._cluster.attempt(self._unallocated, node)
        match outcome:
            case Fits():
                return _Judged(node, ())
            case Failed(kind="fatal", message=message):
                raise _InvalidError(message)
            case Failed(message=message):
                return _Judged(node, (NodeReason(claim="", request="", obstacle="error", message=message),))
            case DoesNotFit():
                holdings = self._cluster.holdings(node)
                diagnoses = self._cluster.diagnose(self._unallocated, node, holdings)
                return _Judged(
                    node,
                    tuple(map(_reason, diagnoses)),
                    tuple(_in_the_way(node, diagnoses)),
                    all(diagnosis.obstacle in RELEASABLE for diagnosis in diagnoses),
                )
            case _:
                message = f"no decision within {outcome.steps} steps"
                return _Judged(node, (NodeReason(claim="", request="", obstacle="undecided", message=message),))

    def _fits(self, fitting: tuple[str, ...], judged: Sequence[_Judged]) -> WhyAnswer:
        others = f" and {len(fitting) - 1} more" if len(fitting) > 1 else ""
        message = f"as far as devices go it fits on {fitting[0]}{others}"
        if self._scheduler_says:
            message += "; what keeps it waiting is something else, or is over by now"
        return self._answer(Verdict.FITS, message, judged, fitting)

    def _does_not_fit(self, judged: Sequence[_Judged], track: Track) -> WhyAnswer:
        total = len(judged)
        message = f"it fits on none of {total} nodes" if total != 1 else "it does not fit on the one node there is"
        candidates = [
            Candidate(each.node, tuple(blocker.claims for blocker in each.in_the_way))
            for each in judged
            if each.is_releasable
        ]
        remedies, searched = find_remedies(self._cluster, self._unallocated, candidates, self._staying, track)
        return self._answer(
            Verdict.DOES_NOT_FIT, message if total else "the cluster has no node", judged, (), remedies, searched
        )

    @property
    def _scheduler_says(self) -> str:
        conditions = self._pod.status.conditions if self._pod else ()
        said = (each.message for each in conditions if each.type == _SCHEDULED and each.status != "True")
        return next(said, "")

    def _answer(
        self,
        verdict: Verdict,
        message: str,
        judged: Sequence[_Judged] = (),
        fitting: tuple[str, ...] = (),
        remedies: tuple[Remedy, ...] = (),
        searched: int = 0,
    ) -> WhyAnswer:
        return WhyAnswer(
            subject=self._subject,
            verdict=verdict,
            message=message,
            scheduler_says=self._scheduler_says,
            claims=self._states,
            nodes=len(self._cluster.nodes),
            fitting_nodes=fitting,
            groups=_groups(each for each in judged if each.reasons),
            remedies=remedies,
            remedies_searched=searched,
        )


def _claims_of(cluster: Cluster, pod: Pod) -> tuple[tuple[ClaimState, ...], tuple[ResourceClaim, ...]]:
    names = pod.claim_names()
    states: list[ClaimState] = []
    claims: list[ResourceClaim] = []
    for entry in pod.spec.resource_claims:
        if any(
            each.name == entry.name and each.resource_claim_name is None for each in pod.status.resource_claim_statuses
        ):
            continue  # none was needed
        name = names.get(entry.name)
        claim = cluster.claims.get(ObjectRef(pod.metadata.namespace, name)) if name else None
        if claim is None:
            states.append(ClaimState(name=name or entry.name, state="missing"))
        else:
            states.append(_state(claim))
            claims.append(claim)
    extended = None if pod.spec.node_name else extended_claim(pod, cluster.classes.values())
    if extended is not None:
        states.append(_state(extended))
        claims.append(extended)
    return tuple(states), tuple(claims)


def _state(claim: ResourceClaim) -> ClaimState:
    allocation = claim.status.allocation
    if allocation is None:
        return ClaimState(name=claim.metadata.name, state="deleting" if claim.is_terminating else "pending")
    results = allocation.devices.results
    true = {
        (each.driver, each.pool, each.device, condition.type)
        for each in claim.status.devices
        for condition in each.conditions
        if condition.status == "True"
    }
    waits_for = tuple(
        f"{condition} of {each.id}"
        for each in results
        for condition in each.binding_conditions
        if (*each.id, condition) not in true
    )
    devices = tuple(str(each.id) for each in results)
    return ClaimState(name=claim.metadata.name, state="allocated", devices=devices, waits_for=waits_for)


def _missing(cluster: Cluster, pod: Pod | None, state: ClaimState) -> str:
    """Why a claim of the pod is not there."""
    namespace = pod.metadata.namespace if pod else ""
    entry = next((each for each in pod.spec.resource_claims if each.name == state.name), None) if pod else None
    template = entry.resource_claim_template_name if entry else None
    if template is None:
        return f"claim {namespace}/{state.name} does not exist; create it, or correct resourceClaimName"
    if ObjectRef(namespace, template) not in cluster.templates:
        return f"ResourceClaimTemplate {namespace}/{template} does not exist; create it, or correct the pod"
    return f"no claim has been made from ResourceClaimTemplate {namespace}/{template} yet: kube-controller-manager does"


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
    return NearMiss(
        device=str(miss.device),
        devices=miss.devices,
        unmet=tuple(
            UnmetCondition(source=one.source, condition=one.condition, has=dict(one.has)) for one in miss.unmet
        ),
    )


def _in_the_way(node: Node, diagnoses: Iterable[Diagnosis]) -> Iterator[InTheWay]:
    seen: set[object] = set()
    for diagnosis in diagnoses:
        for blocker in diagnosis.blockers:
            if blocker not in seen:
                seen.add(blocker)
                yield InTheWay(
                    node=node.metadata.name,
                    pool=blocker.pool,
                    card=blocker.card,
                    counters=blocker.counters,
                    claims=tuple(map(str, blocker.claims)),
                )


def _groups(judged: Iterable[_Judged]) -> tuple[NodeGroup, ...]:
    groups: dict[object, list[_Judged]] = {}
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


def _without_names(reason: NodeReason) -> object:
    """What equal nodes have in common."""
    misses = tuple(
        (miss.devices, tuple((one.source, one.condition, *sorted(one.has.items())) for one in miss.unmet))
        for miss in reason.near_misses
    )
    return reason.claim, reason.request, reason.obstacle, reason.message, misses, reason.taints
