"""Why a pod or claim waits where drivers' controllers allocate (classic DRA, Kubernetes 1.27 to 1.31).

The allocator cannot be asked there: each driver decides for itself. What objects show is the negotiation of a node (a
PodSchedulingContext: the scheduler's potential nodes and selected node, the drivers' unsuitable nodes), the claim's
status, its class and parameters, and the events of the driver's controller, which say what it refuses.

====================  ============================================================
claim                 waits for
====================  ============================================================
no class, parameters  who creates or corrects them
no scheduling context the scheduler
no unsuitable nodes   the driver's controller
all nodes unsuitable  devices, of any of the potential nodes
a selected node       the allocation by the driver's controller
deallocation          the driver's controller, once no pod uses the claim
====================  ============================================================
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.core.v1 import Pod, PodResourceClaim
from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_parameters, decode_parameters_object
from kerf_dra.api.kerf.v1alpha1 import GROUP
from kerf_dra.api.model.classic import ClassicClaim, ClassicClass, ParametersReference, PodSchedulingContext
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClassicState
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.explain.deletion import check_claim_deletion, check_pod_deletion, verdict_of_deletion
from kerf_dra.driver.diagnostics.explain.next_steps import merge_causes, misfit_causes
from kerf_dra.driver.diagnostics.explain.node_check import check_node, group_nodes
from kerf_dra.driver.diagnostics.explain.pod_claims import find_pod_blocker, missing_claim
from kerf_dra.driver.diagnostics.explain.pod_start import check_running, check_start, verdict_of_start
from kerf_dra.driver.diagnostics.explain.pod_status import has_started, held_classic_claims, scheduler_message
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode, ClaimState, Subject, Verdict, WhyReport
from kerf_dra.driver.diagnostics.times import format_seconds, seconds_between
from kerf_dra.driver.scheduling.ineffective_fields import find_ineffective_fields

_PATIENCE_S: Final = 60.0
"""Seconds after which a controller that has not answered counts as silent: it answers within some."""
_CONTROLLER_REASON: Final = "Failed"
"""The reason of the events of drivers' controllers (upstream's controller has the same)."""
_RECENT_S: Final = 300.0
"""Seconds for which an event counts: a controller repeats what still holds at least that often."""
_CONTRADICTION: Final = re.compile(r"its resource handle|it has |\d+ pods use it")
"""How the events of Kerf's controller about allocated claims begin; others are about an earlier state."""
_SET_DOMAIN: Final = "set extendedResourceDomain of its DiscoveryConfiguration, and have the pod ask for it by limits"
_REFUSED: Final = frozenset(
    {CauseCode.CLASS_MISSING, CauseCode.PARAMETERS_MISSING, CauseCode.PARAMETERS_REFUSED, CauseCode.CLAIM_CONTRADICTION}
)
"""The causes that a person has to correct in an object."""


def explain_classic_pod(cluster: ClusterIndex, state: ClassicState, pod: Pod, subject: Subject) -> WhyReport:
    """Return why ``pod`` waits, on a cluster where drivers' controllers allocate."""
    return _ClassicExplainer(cluster, state, subject, pod).explain_pod(pod)


def explain_classic_claim(cluster: ClusterIndex, state: ClassicState, subject: Subject) -> WhyReport:
    """Return why the claim ``subject`` waits. Raises QueryError when there is no such claim."""
    ref = ObjectRef(subject.namespace, subject.name)
    claims = {claim.ref: claim for claim in state.claims}
    if ref not in claims:
        raise QueryError.unknown("ResourceClaim", ref, claims)
    return _ClassicExplainer(cluster, state, subject, None).explain_claim(claims[ref])


@dataclass(frozen=True, slots=True)
class _ClassicExplainer:
    cluster: ClusterIndex
    state: ClassicState
    subject: Subject
    pod: Pod | None

    def explain_pod(self, pod: Pod) -> WhyReport:
        entries = [(entry, self._claim_of(pod, entry)) for entry in pod.spec.resource_claims]
        found = [claim for _, claim in entries if claim is not None]
        held = held_classic_claims(found)
        if pod.is_terminating:
            causes = check_pod_deletion(self.cluster, pod, held)
            return self._report(*verdict_of_deletion(causes), causes, found)
        missing = [entry for entry, claim in entries if claim is None and self._is_needed(pod, entry)]
        templates = {template.ref for template in self.state.templates}
        blockers = [find_pod_blocker(pod)] + [
            missing_claim(
                self.cluster,
                pod,
                entry,
                has_template=ObjectRef(pod.metadata.namespace, entry.template_name or "") in templates,
            )
            for entry in missing
        ]
        if blocked := merge_causes(each for each in blockers if each is not None):
            return self._report(Verdict.BLOCKED, blocked[0].message, blocked, found)
        if len(held) == len(found) and pod.spec.node_name:
            checks = check_running if has_started(pod) else check_start
            causes = checks(self.cluster, pod, held, ())
            return self._report(*verdict_of_start(pod, causes), causes, found)
        causes = merge_causes(
            [cause for entry, claim in entries if claim is not None for cause in self._check_claim(claim, pod, entry)]
            + [*self._check_limits(pod)]
        )
        return self._report_waiting(causes or (_waits_for_scheduler(pod),), found)

    def explain_claim(self, claim: ClassicClaim) -> WhyReport:
        users = [ObjectRef(claim.metadata.namespace, user.name) for user in claim.status.reserved_for]
        is_allocated = claim.status.allocation is not None
        if claim.is_terminating:
            causes = check_claim_deletion(claim.metadata, users, is_allocated=is_allocated)
            return self._report(*verdict_of_deletion(causes), causes, [claim])
        pod, entry = self._find_waiting_pod(claim)
        causes = merge_causes(self._check_claim(claim, pod, entry))
        if is_allocated and not causes:
            return self._report(Verdict.HAS_DEVICES, "the claim has its devices", (), [claim])
        return self._report_waiting(causes or (_no_pod(claim),), [claim])

    def _report_waiting(self, causes: tuple[Cause, ...], found: Sequence[ClassicClaim]) -> WhyReport:
        codes = {cause.code for cause in causes if cause.is_fault}
        if codes & _REFUSED:
            verdict, message = Verdict.INVALID, causes[0].message
        elif CauseCode.NO_SUITABLE_NODE in codes:
            verdict, message = Verdict.DOES_NOT_FIT, "its driver reports every node as unsuitable"
        elif codes:
            verdict, message = Verdict.BLOCKED, causes[0].message
        else:
            verdict, message = Verdict.WAITING, causes[0].message
        return self._report(verdict, message, causes, found)

    def _claim_of(self, pod: Pod, entry: PodResourceClaim) -> ClassicClaim | None:
        generated = f"{pod.metadata.name}-{entry.name}"  # until 1.27; later versions write the name into the status
        name = pod.claim_names().get(entry.name) or (generated if entry.template_name else "")
        ref = ObjectRef(pod.metadata.namespace, name)
        return next((claim for claim in self.state.claims if claim.ref == ref), None)

    def _find_waiting_pod(self, claim: ClassicClaim) -> tuple[Pod, PodResourceClaim] | tuple[None, None]:
        """Return the first pod, by name, that waits for ``claim``, with its entry for it."""
        for _, pod in sorted(self.cluster.pods.items()):
            if pod.metadata.namespace != claim.metadata.namespace or pod.is_terminating or pod.spec.node_name:
                continue
            for entry in pod.spec.resource_claims:
                if self._claim_of(pod, entry) is claim:
                    return pod, entry
        return None, None

    def _is_needed(self, pod: Pod, entry: PodResourceClaim) -> bool:
        statuses = pod.status.resource_claim_statuses
        return not any(each.name == entry.name and each.resource_claim_name is None for each in statuses)

    def _check_claim(self, claim: ClassicClaim, pod: Pod | None, entry: PodResourceClaim | None) -> Iterator[Cause]:
        allocation, name = claim.status.allocation, f"claim {claim.ref}"
        if claim.is_terminating:
            yield Cause(
                code=CauseCode.CLAIM_DELETING,
                message=f"{name} is being deleted",
                next_step="wait until it is deleted, then create it again; or its pod, if a template makes it",
                objects=(name,),
            )
        elif claim.status.deallocation_requested:
            yield _deallocation(claim)
        elif allocation is not None:
            yield from self._check_allocated(claim, pod)
        else:
            refused = tuple(self._check_objects(claim))
            yield from refused or self._check_negotiation(claim, pod, entry)

    def _check_allocated(self, claim: ClassicClaim, pod: Pod | None) -> Iterator[Cause]:
        allocation, name = claim.status.allocation, f"claim {claim.ref}"
        said = self._controller_says(claim.metadata.uid)
        problems = [said] if _CONTRADICTION.match(said) else []
        problems += [
            f"the handle of driver {driver} cannot be read: {why}"
            for driver, why in (allocation.unreadable.items() if allocation else ())
        ]
        for problem in problems[:1]:
            yield Cause(
                code=CauseCode.CLAIM_CONTRADICTION,
                message=f"{name}: {problem}",
                next_step="delete the pods that use the claim, so that it is allocated again, and see the log of the "
                "driver's controller",
                objects=(name,),
            )
        users = {user.uid for user in claim.status.reserved_for}
        if pod is not None and claim.is_full and pod.metadata.uid not in users:
            names = list_names([user.name for user in claim.status.reserved_for])
            yield Cause(
                code=CauseCode.CLAIM_FULL,
                message=f"{name} is full: {names} may use it (status.reservedFor), and its class allows no more",
                next_step="wait until one of them ends, or let the class allow more pods (maxPods of its parameters)",
                objects=(name, f"pod {pod.ref}"),
            )

    def _check_objects(self, claim: ClassicClaim) -> Iterator[Cause]:
        """Yield what is wrong with the class and the parameters of a claim."""
        for request in claim.spec.requests:
            class_ = next((each for each in self.state.classes if each.metadata.name == request.class_name), None)
            where = f"claim {claim.ref}" + (f", request {request.name}" if request.name else "")
            if class_ is None:
                yield self._find_discovered_class(claim, request.class_name, where) or Cause(
                    code=CauseCode.CLASS_MISSING,
                    message=f"{where}: class {request.class_name} does not exist",
                    next_step="create the class, or correct the name in the claim or its template",
                    objects=(f"claim {claim.ref}", f"class {request.class_name}"),
                )
                continue
            driver = claim.spec.controller or class_.driver_name
            references = (
                (class_.parameters_ref, "", f"class {class_.metadata.name}"),
                (request.parameters_ref, claim.metadata.namespace, f"claim {claim.ref}"),
            )
            for reference, namespace, subject in references:
                if reference is not None:
                    yield from self._check_reference(reference, namespace, subject)
            opaque = (
                (class_.parameters.get(driver), f"class {class_.metadata.name}", "spec.config"),
                (request.parameters[-1] if request.parameters else None, f"claim {claim.ref}", "spec.devices.config"),
            )
            for parameters, subject, path in opaque:
                if parameters is not None:
                    try:
                        decode_parameters(parameters, f"{path}.opaque.parameters")
                    except InvalidDocumentError as error:
                        yield _refused(subject, error)

    def _find_discovered_class(self, claim: ClassicClaim, name: str, where: str) -> Cause | None:
        """Return that claims cannot have what a class of discovered devices would give them."""
        resource = self.cluster.discovered_use.find_class_resource(name)
        if resource is None:
            return None
        have = f"have the pod ask for it by limits: {resource}" if resource else _SET_DOMAIN
        return Cause(
            code=CauseCode.CLASS_MISSING,
            message=f"{where}: there is no class {name}: claims cannot have discovered devices before Kubernetes 1.32",
            next_step=f"{have} (docs/discovered-devices.md#kubernetes-129-to-131)",
            objects=(f"claim {claim.ref}", f"class {name}"),
        )

    def _check_limits(self, pod: Pod) -> Sequence[Cause]:
        """Return why no node has the discovered devices that ``pod`` asks for by extended resources, if none has."""
        if pod.spec.node_name or not self.cluster.discovered_use.find_wanted(pod):
            return ()
        checks = [check_node(self.cluster, pod, (), node) for node in self.cluster.nodes]
        return misfit_causes(group_nodes(checks), (), ()) if all(check.reasons for check in checks) else ()

    def _check_reference(self, reference: ParametersReference, namespace: str, subject: str) -> Iterator[Cause]:
        kind = reference.kind
        if reference.api_group.partition("/")[0] != GROUP or kind.lower() in self.cluster.state.forbidden_lists:
            return  # another vendor's, or not readable: the events of its controller say it
        ref = ObjectRef(namespace, reference.name)
        found = next((each for each in self.state.parameters.get(kind, ()) if each.ref == ref), None)
        if found is None:
            yield Cause(
                code=CauseCode.PARAMETERS_MISSING,
                message=f"{subject}: parametersRef: there is no {kind} {str(ref).removeprefix('/')}",
                next_step="create the parameters, or correct the reference",
                objects=(subject, f"{kind.lower()} {ref}"),
            )
            return
        try:
            decode_parameters_object(kind, found)
        except InvalidDocumentError as error:
            yield _refused(subject, error)

    def _check_negotiation(
        self, claim: ClassicClaim, pod: Pod | None, entry: PodResourceClaim | None
    ) -> Iterator[Cause]:
        """Yield what the allocation of a claim waits for, whose class and parameters are in order."""
        drivers = self._drivers(claim)
        name = f"claim {claim.ref}"
        objects: tuple[str, ...] = (name,)
        if claim.spec.immediate or pod is None or entry is None:
            said = self._controller_says(claim.metadata.uid)
            if claim.spec.immediate or said:
                yield Cause(
                    code=CauseCode.ALLOCATION_PENDING,
                    message=f"{name} waits for the controller of {drivers}" + (f", which says: {said}" if said else ""),
                    next_step="correct what the message names"
                    if said
                    else f"check that the controller of {drivers} runs",
                    objects=objects,
                    is_fault=bool(said),
                )
            return
        objects = (*objects, f"pod {pod.ref}")
        context = next((each for each in self.state.contexts if each.ref == pod.ref), None)
        if context is None or not (context.spec.potential_nodes or context.spec.selected_node):
            yield _waits_for_scheduler(pod, "it has not proposed nodes (PodSchedulingContext)")
            return
        said = self._controller_says(context.metadata.uid) or self._controller_says(pod.metadata.uid)
        says = f"; the controller of {drivers} says: {said}" if said else ""
        answer = next((each for each in context.status.resource_claims if each.name == entry.name), None)
        unsuitable = set(answer.unsuitable_nodes) if answer else set()
        potential, selected = context.spec.potential_nodes, context.spec.selected_node
        waited_s = seconds_between(context.metadata.creation_timestamp, self.cluster.state.gathered_at) or 0.0
        if answer is None and (not selected or waited_s > _PATIENCE_S):
            yield Cause(
                code=CauseCode.CONTROLLER_SILENT,
                message=f"{name}: the controller of {drivers} has not said which of {len(potential)} nodes do not suit"
                f", {format_seconds(waited_s)} after the scheduler asked (status.resourceClaims of "
                f"PodSchedulingContext {pod.ref}){says}",
                next_step="correct what the message names"
                if said
                else f"check that the controller of {drivers} runs (kubectl get pods -A), and read its log",
                objects=objects,
                is_fault=bool(said) or waited_s > _PATIENCE_S,
            )
        elif potential and unsuitable.issuperset(potential):
            yield Cause(
                code=CauseCode.NO_SUITABLE_NODE,
                message=f"{name}: none of {len(potential)} potential nodes suits, {list_names(potential)}{says}",
                next_step="wait until a claim gives its devices back, delete the pod of one, or ask for less",
                objects=(*objects, *(f"node {node}" for node in potential)),
            )
        elif selected:
            yield _waits_for_allocation(claim, context, drivers, says, is_unsuitable=selected in unsuitable)
        else:
            suits = [node for node in potential if node not in unsuitable]
            yield _waits_for_scheduler(pod, f"{list_names(suits)} suits for {name}, and no node is selected yet")

    def _drivers(self, claim: ClassicClaim) -> str:
        classes: dict[str, ClassicClass] = {each.metadata.name: each for each in self.state.classes}
        names = [claim.spec.controller or classes[request.class_name].driver_name for request in claim.spec.requests]
        return list_names(list(dict.fromkeys(names)))

    def _controller_says(self, uid: str) -> str:
        """Return the newest message of a driver's controller about an object; empty without a recent one."""
        about = [
            event
            for event in self.cluster.state.events
            if event.involved_object.uid == uid and event.reason == _CONTROLLER_REASON
        ]
        newest = max(about, key=lambda event: event.last_timestamp or "", default=None)
        if newest is None:
            return ""
        age_s = seconds_between(newest.last_timestamp, self.cluster.state.gathered_at)
        return newest.message if age_s is None or age_s < _RECENT_S else ""

    def _report(
        self, verdict: Verdict, message: str, causes: tuple[Cause, ...], found: Sequence[ClassicClaim]
    ) -> WhyReport:
        return WhyReport(
            subject=self.subject,
            verdict=verdict,
            message=message,
            causes=causes,
            scheduler_says=scheduler_message(self.pod) if self.pod else "",
            claims=tuple(map(_describe, found)),
            nodes=len(self.cluster.nodes),
            fitting_nodes=(),
            groups=(),
            remedies=(),
            remedies_searched=0,
            warnings=tuple(find_ineffective_fields(self.pod, {}) if self.pod and not self.pod.is_terminating else ()),
        )


def _describe(claim: ClassicClaim) -> ClaimState:
    allocation = claim.status.allocation
    if allocation is None:
        return ClaimState(name=claim.metadata.name, state="deleting" if claim.is_terminating else "pending")
    devices = tuple(str(result.id) for result in allocation.devices.results)
    return ClaimState(name=claim.metadata.name, state="allocated", devices=devices)


def _deallocation(claim: ClassicClaim) -> Cause:
    name, driver = f"claim {claim.ref}", claim.status.driver_name or "its driver"
    users = [user.name for user in claim.status.reserved_for]
    return Cause(
        code=CauseCode.DEALLOCATION_REQUESTED,
        message=f"{name} is being deallocated (status.deallocationRequested): "
        + (f"pod {list_names(users)} still uses it" if users else f"the controller of {driver} clears its allocation"),
        next_step="wait until the pod ends"
        if users
        else f"wait; if nothing changes, check that the controller of {driver} runs",
        objects=(name,),
        is_fault=False,
    )


def _refused(subject: str, error: InvalidDocumentError) -> Cause:
    return Cause(
        code=CauseCode.PARAMETERS_REFUSED,
        message=f"{subject}: {error}",
        next_step="correct the field: the controller tries again by itself",
        objects=(subject,),
    )


def _waits_for_scheduler(pod: Pod, why: str = "") -> Cause:
    said = scheduler_message(pod)
    message = "the pod waits for the scheduler" + (f": {why}" if why else "") + (f"; it says: {said}" if said else "")
    name = pod.spec.scheduler_name or "default-scheduler"
    return Cause(
        code=CauseCode.SCHEDULER,
        message=message,
        next_step=f"wait some seconds; if nothing changes, check that the scheduler {name} (spec.schedulerName) runs",
        objects=(f"pod {pod.ref}",),
        is_fault=False,
    )


def _waits_for_allocation(
    claim: ClassicClaim, context: PodSchedulingContext, drivers: str, says: str, *, is_unsuitable: bool
) -> Cause:
    selected = context.spec.selected_node
    what = "does not suit, and the scheduler selects another" if is_unsuitable else "is selected"
    next_step = f"wait some seconds; if nothing changes, check that the controller of {drivers} runs, and read its log"
    return Cause(
        code=CauseCode.ALLOCATION_PENDING,
        message=f"claim {claim.ref}: node {selected} {what}"
        + (says or f"; the controller of {drivers} allocates next"),
        next_step="correct what the message names" if says else next_step,
        objects=(f"claim {claim.ref}", f"node {selected}"),
        is_fault=bool(says),
    )


def _no_pod(claim: ClassicClaim) -> Cause:
    return Cause(
        code=CauseCode.NO_POD,
        message="the claim is allocated for the first pod that names it; kerf why pod NAME says what that waits for",
        next_step="create a pod that names the claim in spec.resourceClaims, or ask about its pod",
        objects=(f"claim {claim.ref}",),
        is_fault=False,
    )
