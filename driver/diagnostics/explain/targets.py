"""What a question is about: a pod's claims as they are now, and why some are not there."""

from collections.abc import Iterator
from dataclasses import dataclass

from api.core.v1 import Pod, PodResourceClaim
from api.model.claims import ResourceClaim
from api.model.names import ObjectRef
from driver.diagnostics.cluster_index import Cluster
from driver.diagnostics.explain.report import ClaimState
from driver.scheduling.extended_resources import expected_claim


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims that a pod needs."""

    states: tuple[ClaimState, ...]
    """Of all, in the order of the pod."""
    found: tuple[ResourceClaim, ...]
    """Those that there are."""
    missing: str = ""
    """Why the first of the others is not there."""


def claims_of(cluster: Cluster, pod: Pod) -> PodClaims:
    """The claims of ``pod``, with the one that the scheduler would make for extended resources."""
    states: list[ClaimState] = []
    found: list[ResourceClaim] = []
    missing = ""
    for entry, name in _needed(pod):
        claim = cluster.claims.get(ObjectRef(pod.metadata.namespace, name)) if name else None
        if claim is not None:
            states.append(state_of(claim))
            found.append(claim)
        else:
            states.append(ClaimState(name=name or entry.name, state="missing"))
            missing = missing or _why_missing(cluster, pod, entry)
    extended = None if pod.spec.node_name else expected_claim(pod, cluster.classes.values())
    if extended is not None:
        states.append(state_of(extended))
        found.append(extended)
    return PodClaims(tuple(states), tuple(found), missing)


def state_of(claim: ResourceClaim) -> ClaimState:
    """What the claim has, and what it still waits for."""
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


def waiting_pod(cluster: Cluster, claim: ResourceClaim) -> Pod | None:
    """The first pod, by name, that waits for the claim."""
    users = (
        pod
        for ref, pod in sorted(cluster.pods.items())
        if ref.namespace == claim.metadata.namespace
        and claim.metadata.name in pod.claim_names().values()
        and not (pod.spec.node_name or pod.is_finished or pod.is_terminating)
    )
    return next(users, None)


def _needed(pod: Pod) -> Iterator[tuple[PodResourceClaim, str | None]]:
    """The pod's entries with the name of each one's claim, if it has one; those that need none are passed over."""
    names = pod.claim_names()
    none_needed = {each.name for each in pod.status.resource_claim_statuses if each.resource_claim_name is None}
    return ((entry, names.get(entry.name)) for entry in pod.spec.resource_claims if entry.name not in none_needed)


def _why_missing(cluster: Cluster, pod: Pod, entry: PodResourceClaim) -> str:
    namespace, template = pod.metadata.namespace, entry.resource_claim_template_name
    if template is None:
        return f"claim {namespace}/{entry.resource_claim_name} does not exist; create it, or correct resourceClaimName"
    if ObjectRef(namespace, template) not in cluster.templates:
        return f"ResourceClaimTemplate {namespace}/{template} does not exist; create it, or correct the pod"
    return f"no claim has been made from ResourceClaimTemplate {namespace}/{template} yet: kube-controller-manager does"
