"""What Kerf's accounts must be allowed to do, and the check of what they are.

The tables are the rules of ``deploy/manifests``, ``deploy/classic`` and ``deploy/reclaim``, which a test compares. RBAC
is asked by SubjectAccessReview, because it alone knows what all roles, groups and webhooks together allow.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.driver.diagnostics.preflight.results import CheckResult, Unread, name_first, ok, problem, unread, warning

CONTROLLER: Final = "kerf-controller"
PLUGIN: Final = "kerf-kubelet-plugin"
"""The service accounts of ``deploy/manifests``."""
RECLAIMER: Final = "kerf-reclaimer"
"""The service account of ``deploy/reclaim``, and the name of its Lease."""
_CHECK: Final = "permissions"
_BINDING: Final = "graded-placement.gpu.kerf.dev"
"""The binding of ``deploy/graded-placement``."""


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource."""

    group: str
    """The API group; empty for the core group."""
    resource: str
    """The plural, with a subresource after a slash."""
    verb: str
    namespace: str = ""
    """Empty: in all namespaces, or the resource has none."""
    name: str = ""
    """The only object; empty: every one."""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {kind}" + (f" in namespace {self.namespace}" if self.namespace else "")


def _rules(group: str, verbs_by_resource: Mapping[str, str], **scope: str) -> list[Permission]:
    return [
        Permission(group, resource, verb, **scope)
        for resource, verbs in verbs_by_resource.items()
        for verb in verbs.split()
    ]


def controller_permissions(namespace: str, lease: str = CONTROLLER, *, is_classic: bool = False) -> list[Permission]:
    """Return what the controller needs, with its Lease in ``namespace``."""
    every = [
        *_rules("kerf.dev", {"resourceclasses": "list watch", "resourceclasses/status": "patch"}),
        *_rules("kerf.dev", {"fpgashells": "list watch", "fpgashells/status": "patch"}),
        *_rules("kerf.dev", {"fpgaimages": "list watch", "fpgaimages/status": "patch"}),
        *_rules("kerf.dev", {"discoveryconfigurations": "list watch", "discovereddevices": "list watch patch delete"}),
        *_rules("kerf.dev", {"discoveryconfigurations/status": "patch", "discovereddevices/status": "patch"}),
        *_rules("resource.k8s.io", {"deviceclasses": "list watch create patch"}),
        *_rules("resource.k8s.io", {"resourceslices": "list watch create patch delete"}),
        *_rules("", {"nodes": "get list watch"}),
        *_rules("admissionregistration.k8s.io", {"mutatingadmissionpolicybindings": "get"}, name=_BINDING),
        *_rules("coordination.k8s.io", {"leases": "create"}, namespace=namespace),
        *_rules("coordination.k8s.io", {"leases": "get update"}, namespace=namespace, name=lease),
        *_rules("", {"events": "create patch"}, namespace="default"),
    ]
    return [*every, *_CONTROLLER_CLASSIC] if is_classic else every


def reclaimer_permissions(namespace: str) -> list[Permission]:
    """Return what the reclaimer needs in every mode, with its Lease in ``namespace``."""
    return [
        *_rules("kerf.dev", {"cardmaintenances": "get list watch patch delete", "cardmaintenances/status": "patch"}),
        *_rules("resource.k8s.io", {"resourceclaims": "list watch", "resourceslices": "list watch"}),
        *_rules("", {"pods": "list", "pods/eviction": "create", "events": "create patch"}),
        *_rules("coordination.k8s.io", {"leases": "create"}, namespace=namespace),
        *_rules("coordination.k8s.io", {"leases": "get update"}, namespace=namespace, name=RECLAIMER),
    ]


def plugin_permissions(drivers: Iterable[str], *, minor: int, is_classic: bool = False) -> list[Permission]:
    """Return what the kubelet plugin needs for ``drivers`` on Kubernetes 1.``minor``."""
    every = [
        *_rules("", {"nodes": "get", "events": "create patch", "pods": "get"}),
        *_rules("resource.k8s.io", {"resourceclaims": "get", "resourceclaims/status": "patch"}),
        *_rules("resource.k8s.io", {"resourceslices": "list watch create update delete"}),
        *_rules("kerf.dev", {"resourceclasses": "list watch"}),
        *_rules("kerf.dev", {"fpgashells": "get list watch", "fpgaimages": "get list watch"}),
        *_rules("kerf.dev", {"discoveryconfigurations": "get list watch"}),
        *_rules("kerf.dev", {"discovereddevices": "get list watch create patch", "cardmaintenances": "list watch"}),
        *_rules("kerf.dev", {"cardmaintenances/status": "patch"}),
    ]
    if minor >= _DRIVER_PERMISSION_SINCE:
        for driver in drivers:
            every += _rules("resource.k8s.io", {"resourceclaims/driver": "associated-node:patch"}, name=driver)
    return [*every, *_PLUGIN_CLASSIC] if is_classic else every


_DRIVER_PERMISSION_SINCE: Final = 36
"""From this release the status of claims takes the permission for resourceclaims/driver as well (KEP-4817)."""
_CONTROLLER_CLASSIC: Final = (
    *_rules("resource.k8s.io", {"resourceclaims": "get list watch patch", "resourceclaims/status": "patch"}),
    *_rules("resource.k8s.io", {"podschedulingcontexts": "list watch", "podschedulingcontexts/status": "patch"}),
    *_rules("resource.k8s.io", {"resourceclasses": "list watch", "deviceclasses": "list watch"}),
    *_rules("kerf.dev", {f"{each}parameters": "list watch" for each in ("gpuclass", "fpgaclass", "gpuclaim")}),
    *_rules("kerf.dev", {"fpgaclaimparameters": "list watch", "nodeinventories": "list watch"}),
    *_rules("", {"pods": "get", "events": "create patch"}),
)
_PLUGIN_CLASSIC: Final = (
    *_rules("kerf.dev", {"nodeinventories": "create patch", "discovereddevices/status": "patch"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountReview:
    """What an account may do of what it needs."""

    account: str
    """``namespace/name`` of the service account; empty: the one that asks."""
    needed: Sequence[Permission]
    denied: frozenset[Permission]


def check_permissions(reviews: Iterable[AccountReview] | Unread) -> Iterator[CheckResult]:
    """Yield a result for each account."""
    if isinstance(reviews, Unread):
        yield unread(_CHECK, "what Kerf's accounts may do", reviews)
        return
    for review in reviews:
        who = f"service account {review.account}" if review.account else "this account"
        if not review.denied:
            yield ok(_CHECK, f"{who} may do all that it needs ({len(review.needed)} permissions)")
        elif len(review.denied) == len(review.needed):
            yield warning(
                _CHECK,
                f"{who} has none of its {len(review.needed)} permissions: it is not installed, or has another name",
                "install Kerf's manifests, or name its namespace with --kerf-namespace",
            )
        else:
            missing = name_first(map(str, review.denied))
            yield problem(
                _CHECK,
                f"{who} may not {missing}",
                "apply the roles of this version again, and look for who changed them",
            )
