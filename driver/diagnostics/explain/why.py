"""Explanations of why a pod or a claim waits: before allocation, between allocation and start, and at its end.

Before allocation these are the obstacles on each node, and the claims whose end would help. A claim is checked together
with the pod that waits for it: the scheduler allocates all claims of a pod together, and only on nodes that the pod
itself accepts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.driver.allocation import Obstacle
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex, pods_of
from kerf_dra.driver.diagnostics.drain.maintenances import find_drained_cards
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.explain.class_faults import (
    find_classes_without_devices,
    find_missing_classes,
    find_refused_resource,
    find_reserved,
    find_unbacked_resource,
    find_unknown_constraints,
    find_unknown_names,
    may_want_own_devices,
)
from kerf_dra.driver.diagnostics.explain.classic_claims import explain_classic_claim, explain_classic_pod
from kerf_dra.driver.diagnostics.explain.deletion import check_claim_deletion, check_pod_deletion, verdict_of_deletion
from kerf_dra.driver.diagnostics.explain.events.node_events import find_withheld_cards
from kerf_dra.driver.diagnostics.explain.next_steps import build_drain_cause, merge_causes, misfit_causes, recreate_step
from kerf_dra.driver.diagnostics.explain.node_check import InvalidClaimsError, NodeCheck, check_node, group_nodes
from kerf_dra.driver.diagnostics.explain.pod_claims import (
    PodClaims,
    describe_claim,
    find_pod_blocker,
    find_pod_claims,
    find_waiting_pod,
)
from kerf_dra.driver.diagnostics.explain.pod_start import (
    check_binding,
    check_running,
    check_start,
    has_lost_devices,
    verdict_of_start,
)
from kerf_dra.driver.diagnostics.explain.pod_status import has_started, held_claims, is_in_order, scheduler_message
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode, Subject, Verdict, Victims, WhyReport
from kerf_dra.driver.diagnostics.explain.victims import Candidate, find_victims
from kerf_dra.driver.diagnostics.placement.preferred_node import describe_preferred_node
from kerf_dra.driver.diagnostics.progress import ProgressTracker, without_progress
from kerf_dra.driver.scheduling.ineffective_fields import find_ineffective_configurations, find_ineffective_fields

_WITH_PREFERENCE: Final = frozenset({Verdict.FITS, Verdict.STARTING, Verdict.HAS_DEVICES})
"""The verdicts on pods that have a node, or several to choose from, and no fault that matters more."""
_NODES_INSTEAD: Final = 64
"""Other nodes that are tried for a pod that cannot start on its own: enough for a proposal in large clusters."""


def explain_pod(
    cluster: ClusterIndex, ref: ObjectRef, track: ProgressTracker = without_progress, *, with_preference: bool = True
) -> WhyReport:
    """Return why the pod ``ref`` waits for devices. Raises QueryError when no such pod uses devices.

    ``with_preference``: a note says which node is preferred, which takes a look at all nodes of the cluster.
    """
    pod = cluster.pods.get(ref)
    if pod is None:
        ended = f"kubectl describe pod {ref.name} -n {ref.namespace} says how a pod has ended"
        raise QueryError.unknown("pod", ref, cluster.pods, ended, which="that requests devices and has not ended")
    subject = Subject(kind="Pod", namespace=ref.namespace, name=ref.name)
    if cluster.state.classic is not None and pod.spec.resource_claims:
        return explain_classic_pod(cluster, cluster.state.classic, pod, subject)
    claims = find_pod_claims(cluster, pod)
    return _Explainer(cluster, subject, pod, claims, track, with_preference=with_preference).explain()


def explain_claim(cluster: ClusterIndex, ref: ObjectRef, track: ProgressTracker = without_progress) -> WhyReport:
    """Return why the claim ``ref`` has no devices, or is not in use. Raises QueryError when there is no such claim."""
    subject = Subject(kind="ResourceClaim", namespace=ref.namespace, name=ref.name)
    if cluster.state.classic is not None:
        return explain_classic_claim(cluster, cluster.state.classic, subject)
    claim = cluster.claims.get(ref)
    if claim is None:
        raise QueryError.unknown("ResourceClaim", ref, cluster.claims)
    pod = _user_in_trouble(cluster, claim) if claim.status.allocation else find_waiting_pod(cluster, claim)
    if pod is None or claim.is_terminating:
        claims = PodClaims((describe_claim(claim),), (claim,))
        return _Explainer(cluster, subject, None, claims, track).explain()
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


def _user_in_trouble(cluster: ClusterIndex, claim: ResourceClaim) -> Pod | None:
    """Return the first pod that uses the allocated ``claim`` and does not run as it should."""
    users = (cluster.pods.get(ref) for ref in sorted(pods_of(claim)))
    return next((pod for pod in users if pod is not None and not is_in_order(pod)), None)


@dataclass(frozen=True, slots=True)
class _Explainer:
    """Explains why ``pod``, which needs all of ``claims``, waits."""

    cluster: ClusterIndex
    subject: Subject
    pod: Pod | None
    claims: PodClaims
    track: ProgressTracker
    staying: frozenset[ObjectRef] = frozenset()
    with_preference: bool = False

    def explain(self) -> WhyReport:
        pod = self.pod
        if pod is not None and pod.is_terminating:
            return self._report_deletion(check_pod_deletion(self.cluster, pod, held_claims(self.claims.found)))
        if pod is None and (ending := [claim for claim in self.claims.found if claim.is_terminating]):
            return self._report_deletion(_check_claim_deletion(ending[0]))
        if blocker := self._find_blocker():
            return self._report(Verdict.BLOCKED, blocker.message, (blocker,))
        if pod is not None and pod.spec.node_name and self._unallocated:
            return self._report_bound(pod)
        if not self._unallocated:
            if pod is None:
                return self._report_unused()
            if pod.spec.node_name:
                return self._report_allocated(pod)
            if binding := check_binding(self.cluster, self.claims.found):
                return self._report_binding(binding)
        return self._report_nodes()

    def _find_blocker(self) -> Cause | None:
        """Return what has to change before devices matter; None when nothing has to."""
        if self.pod is not None and (blocker := find_pod_blocker(self.pod)):
            return blocker
        if self.claims.missing is not None:
            return self.claims.missing
        if (
            self.pod is not None
            and not self.pod.spec.node_name
            and (
                refused := find_refused_resource(self.cluster, self.pod)
                or find_unbacked_resource(self.cluster, self.pod)
            )
        ):
            return refused
        for claim in self.claims.found:
            if claim.is_terminating and claim.status.allocation is None:
                return Cause(
                    code=CauseCode.CLAIM_DELETING,
                    message=f"claim {claim.metadata.name} is being deleted",
                    next_step="wait until it is deleted, then create it again; or its pod, if a template makes it",
                    objects=(f"claim {claim.ref}",),
                )
        return None

    def _report_deletion(self, causes: tuple[Cause, ...]) -> WhyReport:
        return self._report(*verdict_of_deletion(causes), causes)

    def _report_allocated(self, pod: Pod) -> WhyReport:
        held = held_claims(self.claims.found)
        instead: tuple[str, ...] = ()
        if has_started(pod):
            causes = check_running(self.cluster, pod, held, self.claims.found)
        else:
            causes = check_start(self.cluster, pod, held, self.claims.found)
            if any(cause.is_fault for cause in causes):
                instead = self._find_nodes_instead(pod)
                causes = check_start(self.cluster, pod, held, self.claims.found, instead)
        return self._report(*verdict_of_start(pod, causes), causes, (), instead)

    def _report_bound(self, pod: Pod) -> WhyReport:
        """Report that ``pod`` is on a node, and a claim of it is not allocated."""
        unallocated = self._unallocated
        cause = Cause(
            code=CauseCode.BOUND_WITHOUT_ALLOCATION,
            message=f"the pod is bound to node {pod.spec.node_name}, and claim "
            f"{list_names([str(claim.ref) for claim in unallocated])} is not allocated: no scheduler allocates claims "
            "of a pod that was given its node by spec.nodeName or by another scheduler",
            next_step=f"{recreate_step(pod)}, without spec.nodeName; for one node write spec.nodeSelector: "
            f"{{kubernetes.io/hostname: {pod.spec.node_name}}}",
            objects=(f"pod {pod.ref}", *(f"claim {claim.ref}" for claim in unallocated)),
        )
        return self._report(Verdict.BLOCKED, f"it is on node {pod.spec.node_name} without its devices", (cause,))

    def _report_unused(self) -> WhyReport:
        """Report that all claims are allocated, and no pod is in trouble with them."""
        faults = check_running(self.cluster, Pod(), held_claims(self.claims.found), self.claims.found)
        if has_lost_devices(faults):
            return self._report(
                Verdict.DEVICES_FAILED, "all claims are allocated, and their devices have a fault", faults
            )
        return self._report(Verdict.HAS_DEVICES, "all claims have their devices", faults)

    def _report_binding(self, causes: tuple[Cause, ...]) -> WhyReport:
        verdict = Verdict.CANNOT_START if any(cause.is_fault for cause in causes) else Verdict.STARTING
        return self._report(verdict, "its devices are allocated, and it is not bound to a node yet", causes)

    def _find_nodes_instead(self, pod: Pod) -> tuple[str, ...]:
        """Return other nodes on which a pod like ``pod`` would get devices now, if its claims are its own."""
        own = [
            msgspec.structs.replace(claim, status=ResourceClaimStatus())
            for claim in self.claims.found
            if set(pods_of(claim)) <= {pod.ref}
        ]
        if len(own) < len(self.claims.found):
            return ()
        cluster = self.cluster.with_claims(own)
        others = [node for node in cluster.nodes if node.metadata.name != pod.spec.node_name][:_NODES_INSTEAD]
        try:
            checks = [check_node(cluster, pod, own, node) for node in self.track(others, "checking other nodes")]
        except InvalidClaimsError:
            return ()
        return tuple(check.node.metadata.name for check in checks if not check.reasons)

    def _report_nodes(self) -> WhyReport:
        """Report on which nodes the unallocated claims fit."""
        nodes = self.track(self.cluster.nodes, "checking nodes")
        try:
            checks = [check_node(self.cluster, self.pod, self.claims.found, node) for node in nodes]
        except InvalidClaimsError as error:
            return self._report_invalid(str(error))
        if not all(check.reasons for check in checks):
            return self._report_fit(checks)
        if any(reason.obstacle == CauseCode.UNDECIDED for check in checks for reason in check.reasons):
            message = "it may fit on some node: the search there reached its limit; a longer --deadline may decide it"
            return self._report(Verdict.UNDECIDED, message, (), checks)
        return self._report_misfit(checks)

    def _report_invalid(self, message: str) -> WhyReport:
        missing = tuple(find_missing_classes(self.cluster, self._unallocated))
        if missing:
            is_compiled_later = missing[0].code == CauseCode.CLASS_NOT_COMPILED
            return self._report(Verdict.BLOCKED if is_compiled_later else Verdict.INVALID, missing[0].message, missing)
        unknown = [said for name, said in find_unknown_names(self.cluster, self._unallocated) if name in message]
        step = "correct the claim, its template or the class that the message names: no node can evaluate it"
        return self._report_fault_of_claim(unknown[0] if unknown else message, step)

    def _report_fault_of_claim(self, message: str, next_step: str) -> WhyReport:
        objects = tuple(f"claim {claim.ref}" for claim in self._unallocated)
        invalid = Cause(code=CauseCode.CLAIM_INVALID, message=message, next_step=next_step, objects=objects)
        return self._report(Verdict.INVALID, message, (invalid,))

    def _report_fit(self, checks: Sequence[NodeCheck]) -> WhyReport:
        fitting = tuple(check.node.metadata.name for check in checks if not check.reasons)
        others = f" and {len(fitting) - 1} more" if len(fitting) > 1 else ""
        message = f"devices for it are free on {fitting[0]}{others}"
        if self._scheduler_says:
            message += "; it waits for something else, or no longer waits"
        return self._report(Verdict.FITS, message, (self._cause_of_fit(fitting),), checks, fitting)

    def _cause_of_fit(self, fitting: tuple[str, ...]) -> Cause:
        pod, claims = self.pod, tuple(f"claim {claim.ref}" for claim in self.claims.found)
        if pod is None:
            return Cause(
                code=CauseCode.NO_POD,
                message="no pod waits for it: the scheduler allocates claims only for pods that name them",
                next_step="create a pod that names the claim in spec.resourceClaims",
                objects=claims,
                is_fault=False,
            )
        said = f"; it says: {self._scheduler_says}" if self._scheduler_says else ""
        if self._unallocated:
            what = f"devices are free on {list_names(fitting)}: the pod waits for the scheduler{said}"
        elif not claims:
            what = f"what its limits ask for is there on {list_names(fitting)}: it is not bound yet{said}"
        else:
            what = f"its claims are allocated, and {list_names(fitting)} accepts it: it is not bound yet{said}"
        name = pod.spec.scheduler_name or "default-scheduler"
        return Cause(
            code=CauseCode.SCHEDULER if self._unallocated else CauseCode.NOT_BOUND,
            message=what,
            next_step="see what the scheduler says: CPU, memory and other pods count, too"
            if said
            else f"wait some seconds; if nothing changes, check that the scheduler {name} (spec.schedulerName) runs",
            objects=(f"pod {pod.ref}", *claims),
            is_fault=False,
        )

    def _report_misfit(self, checks: Sequence[NodeCheck]) -> WhyReport:
        for message in find_unknown_constraints(self.cluster, self._unallocated) if checks else ():
            step = "correct the attribute in the claim or its template; kerf families NAME lists those of a family"
            return self._report_fault_of_claim(message, step)
        total = len(checks)
        message = f"it fits on none of {total} nodes" if total != 1 else "it does not fit on the only node"
        candidates = [
            Candidate(check.node, tuple(blocked.claims for blocked in check.in_the_way))
            for check in checks
            if check.is_releasable
        ]
        victims, searched = find_victims(self.cluster, self._unallocated, candidates, self.staying, self.track)
        causes = [
            *find_classes_without_devices(self.cluster, self._unallocated),
            *(find_reserved(self.cluster) if self._unallocated else ()),
            *(
                build_drain_cause(drained, "a new pod gets other devices until then")
                for drained in find_drained_cards(self.cluster)
                if drained.card.node in _without_devices(checks)
            ),
            *(
                find_withheld_cards(self.cluster, _without_devices(checks))
                if may_want_own_devices(self.cluster, self._unallocated)
                else ()
            ),
        ]
        return self._report(
            Verdict.DOES_NOT_FIT,
            message if total else "the cluster has no node",
            (*misfit_causes(group_nodes(checks), victims, self._drivers), *causes) if total else (_NO_NODE,),
            checks,
            (),
            victims,
            searched,
        )

    @property
    def _unallocated(self) -> tuple[ResourceClaim, ...]:
        return tuple(claim for claim in self.claims.found if claim.status.allocation is None)

    @property
    def _drivers(self) -> set[str]:
        return {pool.driver for pool in self.cluster.slices.by_pool}

    @property
    def _scheduler_says(self) -> str:
        return scheduler_message(self.pod) if self.pod else ""

    def _report(
        self,
        verdict: Verdict,
        message: str,
        causes: Sequence[Cause] = (),
        checks: Sequence[NodeCheck] = (),
        fitting: tuple[str, ...] = (),
        victims: tuple[Victims, ...] = (),
        searched: int = 0,
    ) -> WhyReport:
        groups = group_nodes(check for check in checks if check.reasons)
        return WhyReport(
            subject=self.subject,
            verdict=verdict,
            message=message,
            causes=merge_causes(causes or misfit_causes(groups, victims, self._drivers)),
            scheduler_says=self._scheduler_says,
            claims=self.claims.states,
            nodes=len(self.cluster.nodes),
            fitting_nodes=fitting,
            groups=groups,
            remedies=victims,
            remedies_searched=searched,
            warnings=tuple(self._find_warnings()),
            notes=(*self._find_notes(), *self._find_preference(verdict, fitting)),
        )

    def _find_preference(self, verdict: Verdict, fitting: tuple[str, ...]) -> Iterator[str]:
        """Yield which node is preferred for a pod that fits, or was for one that has its devices without a fault."""
        if self.pod is not None and self.with_preference and verdict in _WITH_PREFERENCE:
            yield from describe_preferred_node(self.cluster, self.pod, self.claims.found, fitting)

    def _find_notes(self) -> Iterator[str]:
        sizes = self.cluster.published_sizes
        for claim in self.claims.found:
            notes = sizes.find_notes(claim, self.cluster.classes)
            yield from (f"claim {claim.ref}, {text}" for text in notes)
        if self.pod is not None:
            yield from sizes.find_container_notes(self.pod, self._claims_by_entry(self.pod))

    def _claims_by_entry(self, pod: Pod) -> Mapping[str, ResourceClaim]:
        by_name = {claim.metadata.name: claim for claim in self.claims.found}
        return {entry: by_name[name] for entry, name in pod.claim_names().items() if name in by_name}

    def _find_warnings(self) -> Iterator[str]:
        pod, found = self.pod, self.claims.found
        if pod is None:
            for claim in found:
                yield from find_ineffective_configurations(claim.metadata.name, claim, self._drivers)
        elif not pod.is_terminating:
            yield from find_ineffective_fields(pod, self._claims_by_entry(pod), self._drivers)


def _without_devices(checks: Sequence[NodeCheck]) -> frozenset[str]:
    """Return the nodes that lack devices: not those that the pod may not run on."""
    return frozenset(
        check.node.metadata.name
        for check in checks
        if any(isinstance(reason.obstacle, Obstacle) for reason in check.reasons)
    )


_NO_NODE: Final = Cause(
    code=CauseCode.NO_NODE, message="the cluster has no node", next_step="add a node with such devices"
)


def _check_claim_deletion(claim: ResourceClaim) -> tuple[Cause, ...]:
    return check_claim_deletion(claim.metadata, pods_of(claim), is_allocated=claim.status.allocation is not None)
