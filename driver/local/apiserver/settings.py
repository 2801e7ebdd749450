"""Settings of the embedded API server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

RESOURCE_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Versions of resource.k8s.io that the server can serve, newest first."""
GATED_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "resourceslices": (
        "spec.partitionTypeAttribute",
        "spec.skipNodeOperations",
        "spec.devices[].nodeAllocatableResources",
        "spec.devices[].consumesCounters[].compatibilityGroups",
        *(f"spec.devices[].attributes{{}}.{name}" for name in ("ints", "bools", "strings", "versions")),
    ),
    "resourceclaims": (
        "spec.devices.requests[].exactly.derivedAttributes",
        "spec.devices.requests[].firstAvailable[].derivedAttributes",
        "status.allocation.devices.results[].skipNodeOperations",
    ),
    "resourceclaimtemplates": (
        "spec.spec.devices.requests[].exactly.derivedAttributes",
        "spec.spec.devices.requests[].firstAvailable[].derivedAttributes",
    ),
}
"""Fields whose feature gates are off by default in 1.37: DRAPartitionableDevicesType, DRAOptionalNodeOperations,
DRANodeAllocatableResources, DRADeviceCompatibilityGroups, DRAListTypeAttributes, DRADerivedAttributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerSettings:
    """The settings of one server; the defaults are those of Kubernetes 1.37."""

    kubernetes: tuple[int, int] = (1, 37)
    """The major and minor version that ``/version`` reports."""
    resource_versions: Sequence[str] = RESOURCE_VERSIONS
    """Served versions of resource.k8s.io; ``("v1beta1",)`` imitates 1.32, ``("v1alpha2",)`` alone 1.30."""
    dropped_fields: Mapping[str, Sequence[str]] = field(default_factory=lambda: GATED_FIELDS)
    """By plural, the paths such as ``spec.devices[].taints`` that a write drops silently, as a server does whose
    feature gate is off. Unlike kube-apiserver this one keeps all other unknown fields of built-in kinds."""
    history: int = 10_000
    """Changes kept for each kind; older watches and continue tokens expire. Enough for tens of minutes of a demo."""
    bookmark_interval_s: float = 60.0
    """The time between two bookmarks of an idle watch that asked for them (kube-apiserver: about a minute)."""
    max_watch_s: float = 1800.0
    """The duration of a watch without ``timeoutSeconds`` (kube-apiserver: 30 to 60 minutes)."""
    max_body_bytes: int = 3 * 1024 * 1024
    """The largest request body (kube-apiserver's limit for JSON)."""
