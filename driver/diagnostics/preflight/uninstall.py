"""What keeps Kerf from being uninstalled: claims that have devices of its drivers, and pods that have some by limits.

Only a plugin can release the devices of a claim, so pods with such claims do not end once it is gone.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.classic import ClassicClaim
from kerf_dra.driver.diagnostics.preflight.results import (
    CheckResult,
    PreflightReport,
    Unread,
    name_first,
    ok,
    problem,
    warning,
)

_CHECK: Final = "claims"
_RESOURCES: Final = "extended-resources"
_MOST: Final = 10
"""Claims that are named of a namespace: enough to begin with, and a line that can be read."""
_PODS: Final = "pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class UninstallFacts:
    """The claims of a cluster."""

    claims: Sequence[ResourceClaim | ClassicClaim] | Unread
    """Of all namespaces and drivers; empty where the cluster serves no DRA."""
    unreadable: Sequence[str] = ()
    """Namespace and name of claims of an unknown shape; Kerf cannot have prepared such a claim."""
    drivers: frozenset[str]
    """The drivers that are to be uninstalled."""
    resources: frozenset[str] = frozenset()
    """The extended resources that classes of these drivers offer by the device plugin interface."""
    pods: Sequence[Pod] | Unread = ()
    """The pods of all namespaces, where there are such resources."""


def check_uninstall(facts: UninstallFacts) -> PreflightReport:
    """Return a problem for each namespace that has claims with devices of the drivers, or pods with their resources.

    What cannot be read is a problem, too: whether there are any is unknown.
    """
    return PreflightReport(subject="uninstall", results=(*_check_claims(facts), *_check_pods(facts)))


def _check_claims(facts: UninstallFacts) -> Iterator[CheckResult]:
    drivers = ", ".join(sorted(facts.drivers))
    if isinstance(facts.claims, Unread):
        yield problem(
            _CHECK,
            f"ResourceClaims cannot be read, and some may have devices of {drivers}: {facts.claims.reason}",
            "run it as an account that may, such as an admin's",
        )
        return
    held: defaultdict[str, list[ResourceClaim | ClassicClaim]] = defaultdict(list)
    for claim in facts.claims:
        if facts.drivers & _list_drivers(claim):
            held[claim.metadata.namespace].append(claim)
    yield from (_describe(namespace, claims) for namespace, claims in sorted(held.items()))
    if facts.unreadable:
        yield warning(
            _CHECK,
            f"claims in a format that Kerf does not know, whose devices it cannot read: {name_first(facts.unreadable)}",
            "look at them: kubectl get resourceclaim NAME -n NAMESPACE -o yaml",
        )
    if not held:
        yield ok(_CHECK, f"no claim has devices of {drivers}")


def _check_pods(facts: UninstallFacts) -> Iterator[CheckResult]:
    """Check whether containers have devices by their limits; nothing is said where no class offers any."""
    if not facts.resources:
        return
    names = ", ".join(sorted(facts.resources))
    if isinstance(facts.pods, Unread):
        yield problem(
            _RESOURCES,
            f"pods cannot be read, and some may have {names}: {facts.pods.reason}",
            "run it as an account that may, such as an admin's",
        )
        return
    held: defaultdict[str, list[str]] = defaultdict(list)
    for pod in facts.pods:
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        wanted = {name for container in containers for name in container.resources.limits}
        if pod.spec.node_name and not pod.is_finished and wanted & facts.resources:
            held[pod.metadata.namespace].append(pod.metadata.name)
    for namespace, pods in sorted(held.items()):
        yield problem(
            _RESOURCES,
            f"namespace {namespace}: {len(pods)} pod{'' if len(pods) == 1 else 's'} with {names}: {name_first(pods)}",
            f"kubectl delete pod -n {namespace} {' '.join(sorted(pods)[:_MOST])}, or what makes them (Deployment, Job) "
            "while Kerf still runs",
        )
    if not held:
        yield ok(_RESOURCES, f"no pod has {names}")


def _list_drivers(claim: ResourceClaim | ClassicClaim) -> frozenset[str]:
    """Return the drivers whose devices a claim has; empty while it is not allocated."""
    allocation = claim.status.allocation
    if allocation is None:
        return frozenset()
    drivers = {str(result.driver) for result in allocation.devices.results}
    if isinstance(claim, ClassicClaim) and claim.status.allocation is not None:
        drivers |= {claim.status.driver_name, *claim.status.allocation.drivers}
    return frozenset(drivers)


def _describe(namespace: str, claims: Sequence[ResourceClaim | ClassicClaim]) -> CheckResult:
    """Return the problem of one namespace, with the pods to delete."""
    pods = {claim.metadata.name: _list_pods(claim) for claim in claims}
    first = " ".join(sorted(pods)[:_MOST])
    named = name_first((f"{claim} ({_name_users(users)})" for claim, users in pods.items()), _MOST)
    users = sorted({pod for users in pods.values() for pod in users})
    if users:
        step = (
            f"kubectl delete pod -n {namespace} {' '.join(users[:_MOST])}, or what makes them (Deployment, Job), while "
            "Kerf still runs"
        )
    else:
        step = f"wait some seconds; if they stay: kubectl delete resourceclaim -n {namespace} {first}"
    count = f"{len(claims)} claim has" if len(claims) == 1 else f"{len(claims)} claims have"
    return problem(_CHECK, f"namespace {namespace}: {count} devices: {named}", step)


def _list_pods(claim: ResourceClaim | ClassicClaim) -> Sequence[str]:
    return sorted(user.name for user in claim.status.reserved_for if user.resource == _PODS)


def _name_users(pods: Sequence[str]) -> str:
    if not pods:
        return "no pod uses it"
    return ("pod " if len(pods) == 1 else "pods ") + name_first(pods)
