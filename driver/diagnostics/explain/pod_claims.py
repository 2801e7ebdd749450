"""The claims of a pod with their states, and why a claim is missing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.core.v1 import Pod, PodResourceClaim
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.pod_status import events_about
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode, ClaimState
from kerf_dra.driver.scheduling.extended_resources import expected_claim

_CREATION_FAILED: Final = "FailedResourceClaimCreation"
"""The reason of kube-controller-manager's event about a claim that it cannot create."""
_QUOTA: Final = re.compile(r"exceeded quota: ([^,]+), (.+)")
"""How the API server refuses what a ResourceQuota does not allow: its name, and what is requested, used and limited."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims that a pod refers to."""

    states: tuple[ClaimState, ...]
    """The states of all claims, in the order of the pod."""
    found: tuple[ResourceClaim, ...]
    """The claims that exist."""
    missing: Cause | None = None
    """Why the first other claim does not exist; None when all do."""


def find_pod_claims(cluster: ClusterIndex, pod: Pod) -> PodClaims:
    """Return the claims of ``pod``, including the one that the scheduler has or would create for extended resources."""
    states: list[ClaimState] = []
    found: list[ResourceClaim] = []
    missing: Cause | None = None
    for entry, name in _needed(pod):
        claim = cluster.claims.get(ObjectRef(pod.metadata.namespace, name)) if name else None
        if claim is not None:
            states.append(describe_claim(claim))
            found.append(claim)
        else:
            states.append(ClaimState(name=name or entry.name, state="missing"))
            missing = missing or _why_missing(cluster, pod, entry)
    created = pod.extended_claim_name
    if created is not None:
        extended = cluster.claims.get(ObjectRef(pod.metadata.namespace, created))
    else:
        extended = None if pod.spec.node_name else expected_claim(pod, cluster.classes.values())
    if extended is not None:
        states.append(describe_claim(extended))
        found.append(extended)
    return PodClaims(tuple(states), tuple(found), missing)


def find_pod_blocker(pod: Pod) -> Cause | None:
    """Return what of the pod itself has to change before its claims matter; None when nothing has to."""
    if pod.is_finished:
        return Cause(
            code=CauseCode.POD_FINISHED,
            message="the pod is finished: it gets no more devices",
            next_step="nothing; create a new pod to run it again",
            objects=(f"pod {pod.ref}",),
        )
    if pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        return Cause(
            code=CauseCode.SCHEDULING_GATE,
            message=f"the pod waits for its scheduling gate {gates} (spec.schedulingGates)",
            next_step="see why the quota or queue system that set the gate, for example Kueue, keeps the pod waiting: "
            "it must remove the gate",
            objects=(f"pod {pod.ref}",),
        )
    return None


def describe_claim(claim: ResourceClaim) -> ClaimState:
    """Return the state of ``claim`` with its devices and the binding conditions it waits for."""
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


def find_waiting_pod(cluster: ClusterIndex, claim: ResourceClaim) -> Pod | None:
    """Return the first pod by name that waits for ``claim``, one that is bound only where no other pod does."""
    users = [
        pod
        for ref, pod in sorted(cluster.pods.items())
        if ref.namespace == claim.metadata.namespace
        and claim.metadata.name in pod.claim_names().values()
        and not (pod.is_finished or pod.is_terminating)
    ]
    return min(users, key=lambda pod: bool(pod.spec.node_name), default=None)


def _needed(pod: Pod) -> Iterator[tuple[PodResourceClaim, str | None]]:
    """Yield the pod's entries that need a claim, each with the name of its claim or None."""
    names = pod.claim_names()
    none_needed = {each.name for each in pod.status.resource_claim_statuses if each.resource_claim_name is None}
    return ((entry, names.get(entry.name)) for entry in pod.spec.resource_claims if entry.name not in none_needed)


def _why_missing(cluster: ClusterIndex, pod: Pod, entry: PodResourceClaim) -> Cause:
    template = entry.template_name
    has_template = template is not None and ObjectRef(pod.metadata.namespace, template) in cluster.templates
    return missing_claim(cluster, pod, entry, has_template=has_template)


def missing_claim(cluster: ClusterIndex, pod: Pod, entry: PodResourceClaim, *, has_template: bool) -> Cause:
    """Return why ``entry`` of ``pod`` has no claim; ``has_template``: whether the template that it names exists."""
    namespace, claim, template = pod.metadata.namespace, entry.claim_name, entry.template_name
    path = f"spec.resourceClaims[{pod.spec.resource_claims.index(entry)}]"
    if template is None:
        return Cause(
            code=CauseCode.CLAIM_MISSING,
            message=f"claim {namespace}/{claim} does not exist ({path}.resourceClaimName)",
            next_step="create the claim, or correct the name and create the pod again",
            objects=(f"claim {namespace}/{claim}", f"pod {pod.ref}"),
        )
    if not has_template:
        elsewhere = sorted(ref.namespace for ref in cluster.templates if ref.name == template)
        there = f"; namespace {list_names(elsewhere)} has one of this name" if elsewhere else ""
        return Cause(
            code=CauseCode.TEMPLATE_MISSING,
            message=f"ResourceClaimTemplate {namespace}/{template} does not exist ({path}.resourceClaimTemplateName)"
            f"{there}",
            next_step="create the template, or correct the name and create the pod again; if the API server has "
            "refused it (an admission policy, such as Kerf's for parameters, a webhook or a quota), no object says so: "
            "kubectl apply --dry-run=server -f FILE repeats the reason",
            objects=(f"resourceclaimtemplate {namespace}/{template}", f"pod {pod.ref}"),
        )
    for event in events_about(cluster, pod, _CREATION_FAILED):
        if f"PodResourceClaim {entry.name}:" in event.message:
            return _refused_claim(pod, template, event.message)
    return Cause(
        code=CauseCode.CLAIM_NOT_CREATED,
        message=f"no claim has been created from ResourceClaimTemplate {namespace}/{template} yet ({path})",
        next_step="wait some seconds: kube-controller-manager creates it; if nothing changes, kubectl describe pod "
        f"{pod.metadata.name} -n {namespace}, and check that kube-controller-manager runs",
        objects=(f"resourceclaimtemplate {namespace}/{template}", f"pod {pod.ref}"),
    )


def _refused_claim(pod: Pod, template: str, message: str) -> Cause:
    """Return that the API server has refused a claim of ``template``; kube-controller-manager tries again by itself."""
    namespace = pod.metadata.namespace
    objects = f"resourceclaimtemplate {namespace}/{template}", f"pod {pod.ref}"
    if (quota := _QUOTA.search(message)) is None:
        return Cause(
            code=CauseCode.CLAIM_REFUSED,
            message=f"the API server refuses the claim of ResourceClaimTemplate {namespace}/{template}: {message}",
            next_step="correct the template, then create the pod again",
            objects=objects,
        )
    name, amounts = quota.groups()
    return Cause(
        code=CauseCode.QUOTA_EXCEEDED,
        message=f"ResourceQuota {namespace}/{name} does not allow the claim of ResourceClaimTemplate "
        f"{namespace}/{template}: {amounts}",
        next_step=f"wait until claims of namespace {namespace} end, or have the quota raised: kubectl describe "
        f"resourcequota {name} -n {namespace}",
        objects=(*objects, f"resourcequota {namespace}/{name}"),
    )
