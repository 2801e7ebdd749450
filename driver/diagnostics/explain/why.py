"""Why a pod or a claim waits: what stands against it on each node, and whose end would help.

A claim is judged together with the pod that waits for it, because a pod's claims are allocated together and the pod's
node selector counts.
"""

from collections.abc import Sequence
from typing import Final

from api.core.v1 import Pod
from api.model.claims import ResourceClaim
from api.model.names import ObjectRef
from driver.diagnostics.cluster_index import Cluster
from driver.diagnostics.errors import QuestionError
from driver.diagnostics.explain.remedies import Candidate, find_remedies
from driver.diagnostics.explain.report import Remedy, Subject, Verdict, WhyAnswer
from driver.diagnostics.explain.targets import PodClaims, claims_of, state_of, waiting_pod
from driver.diagnostics.node_check import UNDECIDED, Judged, UndecidableError, grouped, judge
from driver.diagnostics.progress import Track, unwatched

_SCHEDULED: Final = "PodScheduled"


def why_pod(cluster: Cluster, ref: ObjectRef, track: Track = unwatched) -> WhyAnswer:
    """Why the pod ``ref`` waits for devices. Raises QuestionError when there is no such pod with claims."""
    pod = cluster.pods.get(ref)
    if pod is None:
        raise QuestionError.unknown("pod that asks for devices", ref, cluster.pods)
    subject = Subject(kind="Pod", namespace=ref.namespace, name=ref.name)
    return _Question(cluster, subject, pod, claims_of(cluster, pod)).answer(track)


def why_claim(cluster: Cluster, ref: ObjectRef, track: Track = unwatched) -> WhyAnswer:
    """Why the claim ``ref`` has no devices. Raises QuestionError when there is no such claim."""
    claim = cluster.claims.get(ref)
    if claim is None:
        raise QuestionError.unknown("ResourceClaim", ref, cluster.claims)
    subject = Subject(kind="ResourceClaim", namespace=ref.namespace, name=ref.name)
    pod = None if claim.status.allocation else waiting_pod(cluster, claim)
    if pod is None:
        return why_not(cluster, subject, None, [claim], track=track)
    return _Question(cluster, subject, pod, claims_of(cluster, pod)).answer(track)


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
    asked = PodClaims(tuple(map(state_of, claims)), tuple(claims))
    return _Question(cluster, subject, pod, asked, staying).answer(track)


class _Question:
    """One question: about ``claims``, all of which ``pod`` needs."""

    def __init__(
        self,
        cluster: Cluster,
        subject: Subject,
        pod: Pod | None,
        claims: PodClaims,
        staying: frozenset[ObjectRef] = frozenset(),
    ) -> None:
        self._cluster = cluster
        self._subject = subject
        self._pod = pod
        self._claims = claims
        self._staying = staying
        self._unallocated = tuple(claim for claim in claims.found if claim.status.allocation is None)

    def answer(self, track: Track) -> WhyAnswer:
        pod = self._pod
        if blocked := self._blocked():
            return self._answer(Verdict.BLOCKED, blocked)
        if not self._unallocated and (pod is None or pod.spec.node_name):
            where = f" and the pod is on node {pod.spec.node_name}" if pod else ""
            return self._answer(Verdict.HAS_DEVICES, f"all claims have their devices{where}")
        nodes = track(self._cluster.nodes, "looking at nodes")
        try:
            judged = [judge(self._cluster, pod, self._claims.found, node) for node in nodes]
        except UndecidableError as error:
            return self._answer(Verdict.INVALID, str(error))
        if not all(each.reasons for each in judged):
            return self._fits(judged)
        if any(reason.obstacle == UNDECIDED for each in judged for reason in each.reasons):
            message = "it may fit on some node: the search was given up there; a longer --deadline may decide it"
            return self._answer(Verdict.UNDECIDED, message, judged)
        return self._does_not_fit(judged, track)

    def _blocked(self) -> str:
        """What has to happen before devices matter; empty: nothing."""
        pod = self._pod
        if pod is not None and (pod.is_terminating or pod.is_finished):
            return f"the pod is {'being deleted' if pod.is_terminating else 'finished'}: it gets no devices any more"
        if pod is not None and pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            return f"the pod is held back by the scheduling gate {gates}; who set it must remove it"
        if self._claims.missing:
            return self._claims.missing
        return next(
            (f"claim {claim.name} is being deleted" for claim in self._claims.states if claim.state == "deleting"), ""
        )

    def _fits(self, judged: Sequence[Judged]) -> WhyAnswer:
        fitting = tuple(each.node.metadata.name for each in judged if not each.reasons)
        others = f" and {len(fitting) - 1} more" if len(fitting) > 1 else ""
        message = f"as far as devices go it fits on {fitting[0]}{others}"
        if self._scheduler_says:
            message += "; what keeps it waiting is something else, or is over by now"
        return self._answer(Verdict.FITS, message, judged, fitting)

    def _does_not_fit(self, judged: Sequence[Judged], track: Track) -> WhyAnswer:
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
        judged: Sequence[Judged] = (),
        fitting: tuple[str, ...] = (),
        remedies: tuple[Remedy, ...] = (),
        searched: int = 0,
    ) -> WhyAnswer:
        return WhyAnswer(
            subject=self._subject,
            verdict=verdict,
            message=message,
            scheduler_says=self._scheduler_says,
            claims=self._claims.states,
            nodes=len(self._cluster.nodes),
            fitting_nodes=fitting,
            groups=grouped(each for each in judged if each.reasons),
            remedies=remedies,
            remedies_searched=searched,
        )
