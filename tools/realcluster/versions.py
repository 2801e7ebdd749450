"""The Kubernetes releases that can be built and run, and the differences between them.

Releases are those whose modules, with all staging modules, the Go module proxy serves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kerf_dra.driver.partitions.slice_limits import SliceLayout

CONTAINERD: Final = "2.4.2"
"""One containerd for every release: CDI is always on in it."""
EXAMPLE_DRIVER: Final = "0.4.0"
"""The release of kubernetes-sigs/dra-example-driver, which the benchmark runs beside Kerf."""
NVIDIA_DRIVER: Final = "0.5.0"
"""The release of kubernetes-sigs/dra-driver-nvidia-gpu whose slices and instances are compared with Kerf's."""
KUEUE: Final = "0.19.0"
"""The first release that counts quota by counters of partitionable devices by default (KEP-2941). ``kube/kueue.mod``
names it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesVersion:
    """One release."""

    release: str
    """``1.37.0``"""
    resource_versions: tuple[str, ...]
    """Versions of resource.k8s.io to serve, the newest first: what ``--runtime-config`` switches on."""
    resource_version: str
    """The one that Kerf must choose: the newest that has slices, claims and classes."""
    slice_layout: SliceLayout | None
    """Where counters of partitions stand in slices; None: the release has no shared counters, whole cards only."""
    taint_rule_version: str = ""
    """Where DeviceTaintRule is; empty: the release has none."""
    feature_gates: tuple[str, ...] = ()
    """Switched on in every part, beyond the release's defaults."""
    build_tags: str = ""
    """For differences of its Go functions (``kube/*.go``)."""
    kubelet_options: Mapping[str, object]
    """Fields of KubeletConfiguration that not every release knows."""

    @property
    def minor(self) -> str:
        """``1.37``"""
        return self.release.rpartition(".")[0]

    @property
    def module_file(self) -> str:
        """The file with its Go modules, in ``kube/``."""
        return "go.mod" if self is NEWEST else f"{self.release}.mod"


_ON_CGROUP_V1: Final = {"failCgroupV1": False}
"""Machines with cgroup v1 are still good enough for tests; the field came with 1.31."""

_STRUCTURED: Final = ("v1", "v1beta2", "v1beta1", "v1alpha3")

NEWEST: Final = KubernetesVersion(
    release="1.37.0",
    resource_versions=_STRUCTURED,
    resource_version="v1",
    slice_layout=SliceLayout.SPLIT,
    taint_rule_version="v1",
    kubelet_options=_ON_CGROUP_V1,
)

VERSIONS: Final = (
    NEWEST,
    KubernetesVersion(
        release="1.36.3",
        resource_versions=_STRUCTURED,
        resource_version="v1",
        slice_layout=SliceLayout.SPLIT,
        taint_rule_version="v1beta2",
        feature_gates=("DRADeviceTaintRules",),  # beta, off
        kubelet_options=_ON_CGROUP_V1,
    ),
    KubernetesVersion(
        release="1.34.4",
        resource_versions=_STRUCTURED,
        resource_version="v1",
        slice_layout=SliceLayout.COMBINED,
        taint_rule_version="v1alpha3",
        # All alpha there.
        feature_gates=(
            "DRAPartitionableDevices",
            "DRAConsumableCapacity",
            "DRADeviceBindingConditions",
            "DRADeviceTaints",
            "DRAExtendedResource",
            "ResourceHealthStatus",
        ),
        kubelet_options=_ON_CGROUP_V1,
    ),
    KubernetesVersion(
        release="1.32.2",
        resource_versions=("v1beta1", "v1alpha3"),
        resource_version="v1beta1",
        slice_layout=None,
        feature_gates=("DynamicResourceAllocation", "DRAAdminAccess"),
        build_tags="kubelet_without_context",
        kubelet_options=_ON_CGROUP_V1,
    ),
    KubernetesVersion(
        release="1.31.0",  # of later patches the proxy lacks staging modules
        resource_versions=("v1alpha3",),
        resource_version="v1alpha3",
        slice_layout=None,
        feature_gates=("DynamicResourceAllocation", "DRAControlPlaneController"),
        build_tags="kubelet_without_context",
        kubelet_options=_ON_CGROUP_V1,
    ),
    KubernetesVersion(
        release="1.30.14",
        resource_versions=("v1alpha2",),
        resource_version="v1alpha2",
        slice_layout=None,
        feature_gates=("DynamicResourceAllocation",),
        build_tags="kubelet_without_context",
        kubelet_options={},
    ),
)
"""The newest first. In 1.31 and 1.30 a controller of ours may allocate (KEP-3063)."""


class UnknownVersionError(ValueError):
    """There is no such release in the table."""

    def __init__(self, wanted: str) -> None:
        known = ", ".join(version.release for version in VERSIONS)
        super().__init__(f"no Kubernetes {wanted} here; there is {known}")


def find(wanted: str) -> KubernetesVersion:
    """The release of that name, or of that minor version (``1.37``). Raises UnknownVersionError."""
    for version in VERSIONS:
        if wanted in (version.release, version.minor):
            return version
    raise UnknownVersionError(wanted)
