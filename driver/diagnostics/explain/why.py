"""Explanations of why a pod or a claim waits: the obstacles on each node, and the claims whose end would help.

A claim is checked together with the pod that waits for it: the scheduler allocates all claims of a pod together, and
only on nodes that the pod itself accepts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from api.core.v1 import Pod
from api.model.claims import ResourceClaim
from api.model.names import ObjectRef
from driver.diagnostics.cluster_index import ClusterIndex
from driver.diagnostics.errors import QueryError
from driver.diagnostics.explain.node_check import UNDECIDED, InvalidClaimsError, NodeCheck, check_node, group_nodes
from driver.diagnostics.explain.pod_claims import PodClaims, describe_claim, find_pod_claims, find_waiting_pod
from driver.diagnostics.explain.report import Subject, Verdict, Victims, WhyReport
from driver.diagnostics.explain.victims import Candidate, find_victims
from driver.diagnostics.progress import ProgressTracker, without_progress

_POD_SCHEDULED: Final = "PodScheduled"


def explain_pod(cluster: ClusterIndex, ref: ObjectRef, track: ProgressTracker = without_progress) -> WhyReport:
    """Return why the pod ``ref`` waits for devices. Raises QueryError when no such pod uses devices."""
    pod = cluster.pods.get(ref)
    if pod is None:
        raise QueryError.unknown("pod that requests devices", ref, cluster.pods)
    subject = Subject(kind="Pod", namespace=ref.namespace, name=ref.name)
    return _Explainer(cluster, subject, pod, find_pod_claims(cluster, pod), track).explain()


def explain_claim(cluster: ClusterIndex, ref: ObjectRef, track: ProgressTracker = without_progress) -> WhyReport:
    """Return why the claim ``ref`` has no devices. Raises QueryError when there is no such claim."""
    claim = cluster.claims.get(ref)
    if claim is None:
        raise QueryError.unknown("ResourceClaim", ref, cluster.claims)
    subject = Subject(kind="ResourceClaim", namespace=ref.namespace, name=ref.name)
    pod = None if claim.status.allocation else find_waiting_pod(cluster, claim)
    if pod is None:
        return explain_misfit(cluster, subject, None, [claim], track=track)
    return _Explainer(cluster, subject, pod, find_pod_claims(cluster, pod), track).explain()


def explain_misfit(
    cluster: ClusterIndex,
    subject: Subject,
    pod: Pod | None,
    claims: Sequence[ResourceClaim],
    *,
    staying: frozenset[ObjectRef] = frozenset(),
    track: ProgressTracker = without_progress,
) -> WhyReport:
    """Return why ``pod`` with ``claims``, which need not exist in the cluster, does not fit.

    The claims ``staying`` are never proposed as victims.
    """
    pod_claims = PodClaims(tuple(map(describe_claim, claims)), tuple(claims))
    return _Explainer(cluster, subject, pod, pod_claims, track, staying).explain()


@dataclass(frozen=True, slots=True)
class _Explainer:
    """Explains why ``pod``, which needs all of ``claims``, waits."""

    cluster: ClusterIndex
    subject: Subject
    pod: Pod | None
    claims: PodClaims
    track: ProgressTracker
    staying: frozenset[ObjectRef] = frozenset()

    def explain(self) -> WhyReport:
        pod = self.pod
        if blocker := self._find_blocker():
            return self._report(Verdict.BLOCKED, blocker)
        if not self._unallocated and (pod is None or pod.spec.node_name):
            where = f" and the pod is on node {pod.spec.node_name}" if pod else ""
            return self._report(Verdict.HAS_DEVICES, f"all claims have their devices{where}")
        nodes = self.track(self.cluster.nodes, "checking nodes")
        try:
            checks = [check_node(self.cluster, pod, self.claims.found, node) for node in nodes]
        except InvalidClaimsError as error:
            return self._report(Verdict.INVALID, str(error))
        if not all(check.reasons for check in checks):
            return self._report_fit(checks)
        if any(reason.obstacle == UNDECIDED for check in checks for reason in check.reasons):
            message = "it may fit on some node: the search was given up there; a longer --deadline may decide it"
            return self._report(Verdict.UNDECIDED, message, checks)
        return self._report_misfit(checks)

    def _find_blocker(self) -> str:
        """Return what has to change before devices matter; empty when nothing has to."""
        pod = self.pod
        if pod is not None and (pod.is_terminating or pod.is_finished):
            return f"the pod is {'being deleted' if pod.is_terminating else 'finished'}: it gets no more devices"
        if pod is not None and pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            return f"the pod waits for its scheduling gate {gates}; whoever set it must remove it"
        if self.claims.missing:
            return self.claims.missing
        deleting = (f"claim {claim.name} is being deleted" for claim in self.claims.states if claim.state == "deleting")
        return next(deleting, "")

    def _report_fit(self, checks: Sequence[NodeCheck]) -> WhyReport:
        fitting = tuple(check.node.metadata.name for check in checks if not check.reasons)
        others = f" and {len(fitting) - 1} more" if len(fitting) > 1 else ""
        message = f"devices for it are free on {fitting[0]}{others}"
        if self._scheduler_says:
            message += "; it waits for something else, or no longer waits"
        return self._report(Verdict.FITS, message, checks, fitting)

    def _report_misfit(self, checks: Sequence[NodeCheck]) -> WhyReport:
        total = len(checks)
        message = f"it fits on none of {total} nodes" if total != 1 else "it does not fit on the one node there is"
        candidates = [
            Candidate(check.node, tuple(blocked.claims for blocked in check.in_the_way))
            for check in checks
            if check.is_releasable
        ]
        victims, searched = find_victims(self.cluster, self._unallocated, candidates, self.staying, self.track)
        return self._report(
            Verdict.DOES_NOT_FIT, message if total else "the cluster has no node", checks, (), victims, searched
        )

    @property
    def _unallocated(self) -> tuple[ResourceClaim, ...]:
        return tuple(claim for claim in self.claims.found if claim.status.allocation is None)

    @property
    def _scheduler_says(self) -> str:
        conditions = self.pod.status.conditions if self.pod else ()
        messages = (each.message for each in conditions if each.type == _POD_SCHEDULED and each.status != "True")
        return next(messages, "")

    def _report(
        self,
        verdict: Verdict,
        message: str,
        checks: Sequence[NodeCheck] = (),
        fitting: tuple[str, ...] = (),
        victims: tuple[Victims, ...] = (),
        searched: int = 0,
    ) -> WhyReport:
        return WhyReport(
            subject=self.subject,
            verdict=verdict,
            message=message,
            scheduler_says=self._scheduler_says,
            claims=self.claims.states,
            nodes=len(self.cluster.nodes),
            fitting_nodes=fitting,
            groups=group_nodes(check for check in checks if check.reasons),
            remedies=victims,
            remedies_searched=searched,
        )
