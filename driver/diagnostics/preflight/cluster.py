"""What Kerf needs of a cluster: the facts, and the checks over them."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kerf_dra.api.core.v1 import CustomResourceDefinition, NodeSetup, Pod
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.api.model.devices import DeviceTaintRule, ResourceSlice
from kerf_dra.api.resource.registry import VERSIONS
from kerf_dra.driver.diagnostics.extended_resources.offered_resources import find_offered
from kerf_dra.driver.diagnostics.preflight.allocations import CHECK as ALLOCATIONS
from kerf_dra.driver.diagnostics.preflight.allocations import check_allocations
from kerf_dra.driver.diagnostics.preflight.class_placements import check_class_placements
from kerf_dra.driver.diagnostics.preflight.container_runtime import CHECK as RUNTIME
from kerf_dra.driver.diagnostics.preflight.container_runtime import check_versions
from kerf_dra.driver.diagnostics.preflight.memory import CHECK as MEMORY
from kerf_dra.driver.diagnostics.preflight.memory import check_memory
from kerf_dra.driver.diagnostics.preflight.other_drivers import PLUGINS, check_device_plugins, check_drivers
from kerf_dra.driver.diagnostics.preflight.permissions import AccountReview, check_permissions
from kerf_dra.driver.diagnostics.preflight.reclaimer import CHECK as RECLAIMER
from kerf_dra.driver.diagnostics.preflight.reclaimer import check_reclaimer
from kerf_dra.driver.diagnostics.preflight.results import (
    CheckResult,
    PreflightReport,
    Unread,
    name_first,
    ok,
    problem,
    unread,
    warning,
)
from kerf_dra.driver.diagnostics.preflight.retired_attributes import CHECK as RETIRED
from kerf_dra.driver.diagnostics.preflight.retired_attributes import check_retired_attributes
from kerf_dra.driver.diagnostics.preflight.taint_rules import CHECK as TAINT_RULES
from kerf_dra.driver.diagnostics.preflight.taint_rules import check_taint_rules

OLDEST: Final = 27
"""The oldest minor version of Kubernetes with DRA that Kerf knows (classic)."""
STRUCTURED: Final = 32
"""The first one where the scheduler allocates (KEP-4381)."""
_SURGE: Final = 33
"""The first kubelet that two plugins of one driver can register with (KEP-4381, rolling updates)."""
STRUCTURED_KINDS: Final = (
    "resourceclasses.kerf.dev",
    "fpgashells.kerf.dev",
    "fpgaimages.kerf.dev",
    "discoveryconfigurations.kerf.dev",
    "discovereddevices.kerf.dev",
    "cardmaintenances.kerf.dev",
)
CLASSIC_KINDS: Final = (
    *STRUCTURED_KINDS,
    "nodeinventories.kerf.dev",
    "gpuclassparameters.kerf.dev",
    "gpuclaimparameters.kerf.dev",
    "fpgaclassparameters.kerf.dev",
    "fpgaclaimparameters.kerf.dev",
)
_KIND_VERSION: Final = "v1alpha1"
"""The version of ``kerf.dev`` that this Kerf reads and writes."""
_RESOURCES: Final = "extended-resources"
_SKEW_WARNING_S: Final = 5.0
"""A difference that NTP never leaves; the header Date has whole seconds, and an answer takes some."""
_SKEW_PROBLEM_S: Final = 60.0
"""Tokens and certificates that were just made are not valid yet for a clock that is a minute behind."""


class _Gate(NamedTuple):
    """A feature gate of Kubernetes that Kerf has a use for."""

    name: str
    first: int
    """The minor version from which the API server knows it."""
    default_on: int | None
    """The minor version from which it is on by default; None: it is not."""
    without: str
    """What does not work without it, as a clause."""
    is_vital: bool = False


_DEPENDENCIES: Final[Mapping[str, str]] = {
    "DRADeviceBindingConditions": "DRAResourceClaimDeviceStatus",
    "DRADeviceTaintRules": "DRADeviceTaints",
}
"""The gate of DRA that each of these needs (``defaultKubernetesFeatureGateDependencies``); all need the first below."""

_GATES: Final = (
    _Gate("DynamicResourceAllocation", 26, 34, "there are no claims at all", is_vital=True),
    _Gate("DRAPartitionableDevices", 33, 36, "cards are available whole only, not in partitions"),
    _Gate("DRAPrioritizedList", 33, 34, "requests with alternatives (firstAvailable) are refused"),
    _Gate("DRAResourceClaimDeviceStatus", 32, 33, "the status of claims does not show their devices (status.devices)"),
    _Gate("DRAAdminAccess", 32, 34, "there is no admin access to cards in use"),
    _Gate("DRADeviceTaints", 33, 36, "unhealthy devices are withdrawn, not tainted"),
    _Gate("DRADeviceBindingConditions", 34, 36, "functions are loaded at a pod's start, not before it is bound"),
    _Gate("DRAConsumableCapacity", 34, 36, "there are no shares of partitions"),
    _Gate("DRAExtendedResource", 34, 36, "pods cannot ask for devices by an extended resource"),
)
"""With the release notes of Kubernetes 1.26 to 1.37 (``pkg/features/kube_features.go``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What was read of a cluster. Unread stands for what could not be."""

    kubernetes: tuple[int, int]
    """Major and minor version of the API server."""
    release: str
    """Its version as it calls itself, such as ``v1.37.0``."""
    served: frozenset[str]
    """The served versions of resource.k8s.io."""
    is_classic: bool
    """Whether it serves classic DRA, where drivers allocate."""
    gates: Mapping[str, bool] | Unread
    """The API server's feature gates, as its metrics have them."""
    definitions: Mapping[str, CustomResourceDefinition | None] | Unread
    """Kerf's kinds by name; None: it does not exist."""
    reviews: Sequence[AccountReview] | Unread
    reclaimer: AccountReview | Unread | None
    """What the reclaimer's account may do; None: it does not work here, because drivers allocate."""
    nodes: Sequence[NodeSetup] | Unread
    slices: Sequence[ResourceSlice] | Unread
    """Those of all drivers."""
    claims: Sequence[ResourceClaim] | Unread
    """Those of all namespaces; empty where drivers allocate."""
    classes: Sequence[ResourceClassObject] | Unread
    """Kerf's ResourceClasses."""
    device_classes: Sequence[DeviceClass] | Unread
    """All of them; empty where drivers allocate."""
    taint_rules: Sequence[DeviceTaintRule] | Unread
    """Those of all drivers; empty where the API server has none."""
    pods: Sequence[Pod] | Unread
    """Those of Kerf's programs."""
    own_drivers: frozenset[str]
    """The drivers of the installed families."""
    retired: Mapping[str, frozenset[str]]
    """The attributes and capacities that devices of an installed family no longer have, by its driver."""
    skew_s: float | None
    """By how many seconds the API server's clock is ahead of this machine's; None: it did not say."""


_GATE_METRIC: Final = re.compile(r'^kubernetes_feature_enabled\{name="(\w+)",[^}]*\} ([01])$', re.MULTILINE)
"""How Kubernetes' programs report their feature gates (KEP-3136)."""


def parse_feature_gates(text: str) -> Mapping[str, bool] | Unread:
    """Return the feature gates in ``text``, the metrics of an API server."""
    gates = {name: value == "1" for name, value in _GATE_METRIC.findall(text)}
    return gates or Unread(reason="its metrics have none")


def check_cluster(facts: ClusterFacts) -> PreflightReport:
    """Return all results, in the order of ``_CHECKS``."""
    results = tuple(result for check in _CHECKS for result in check(facts))
    return PreflightReport(subject="cluster", results=results)


def _check_version(facts: ClusterFacts) -> Iterator[CheckResult]:
    major, minor = facts.kubernetes
    if (major, minor) < (1, OLDEST):
        yield problem(
            "version",
            f"the API server is {facts.release}: Kerf needs 1.{OLDEST} or later",
            "update the cluster, best to 1.36 or later, where partitions need no feature gates",
        )
    elif facts.is_classic:
        yield ok("version", f"the API server is {facts.release}, where Kerf's controller allocates (classic DRA)")
    else:
        yield ok("version", f"the API server is {facts.release}, where kube-scheduler allocates")


def _check_api(facts: ClusterFacts) -> Iterator[CheckResult]:
    chosen = next((version for version in VERSIONS if version in facts.served), None)
    if chosen is not None:
        yield ok("dra-api", f"resource.k8s.io/{chosen} is served")
    elif facts.is_classic:
        yield ok("dra-api", "resource.k8s.io is served, with the kinds of classic DRA")
    else:
        served = ", ".join(sorted(facts.served)) or "none"
        older = facts.kubernetes[1] < _GATES[0].default_on if _GATES[0].default_on else False
        yield problem(
            "dra-api",
            f"the API server serves no version of resource.k8s.io that Kerf knows (served: {served}; known: "
            f"{', '.join(VERSIONS)})",
            "enable the gate DynamicResourceAllocation on all components, and on the API server "
            "--runtime-config=resource.k8s.io/v1beta1=true"
            if older
            else "remove resource.k8s.io from --runtime-config of the API server, which disables it",
        )


def _check_gates(facts: ClusterFacts) -> Iterator[CheckResult]:
    if facts.is_classic:
        return
    if isinstance(facts.gates, Unread):
        yield warning(
            "feature-gates",
            f"the feature gates cannot be read ({facts.gates.reason}); what follows are the defaults of "
            f"{facts.release}",
            "read /metrics of the API server as an admin to know them",
        )
    minor = facts.kubernetes[1]
    off = [gate for gate in _GATES if not _is_on(gate, minor, facts.gates)]
    for gate in off:
        say = problem if gate.is_vital else warning
        if minor < gate.first:
            yield say(
                "feature-gates",
                f"{facts.release} does not have {gate.name}: {gate.without}",
                f"update the cluster to 1.{gate.default_on or gate.first} or later",
            )
        else:
            yield say(
                "feature-gates",
                f"{gate.name} is off: {gate.without}",
                "enable it on the API server, the scheduler, the controller manager and the kubelets",
            )
    yield from _check_dependencies(facts.gates)
    if not off:
        by_default = " by default" if isinstance(facts.gates, Unread) else ""
        yield ok("feature-gates", f"all {len(_GATES)} feature gates that Kerf uses are on{by_default}")


def _check_dependencies(gates: Mapping[str, bool] | Unread) -> Iterator[CheckResult]:
    """Yield the gates that contradict each other: releases before the check of dependencies start with them."""
    if isinstance(gates, Unread):
        return
    for gate, needed in _DEPENDENCIES.items():
        if gates.get(gate) and gates.get(needed) is False:
            yield warning(
                "feature-gates",
                f"{gate} is on, and {needed}, which it needs, is off: it has no effect, and later releases of "
                "Kubernetes do not start so",
                f"switch {needed} on as well, or {gate} off, on all components",
            )


def _is_on(gate: _Gate, minor: int, gates: Mapping[str, bool] | Unread) -> bool:
    """Whether a gate is on: as the server says, else by its version. One that has gone was made unconditional."""
    if isinstance(gates, Unread) or gate.name not in gates:
        return gate.default_on is not None and minor >= gate.default_on
    return gates[gate.name]


def _check_definitions(facts: ClusterFacts) -> Iterator[CheckResult]:
    if isinstance(facts.definitions, Unread):
        yield unread("definitions", "CustomResourceDefinitions", facts.definitions)
        return
    missing = [name for name, found in facts.definitions.items() if found is None]
    step = "kubectl apply -f deploy/crds, or install the chart"
    if len(missing) == len(facts.definitions):
        yield warning("definitions", f"Kerf's kinds are not installed: {name_first(missing)}", step)
        return
    if missing:
        yield problem("definitions", f"some of Kerf's kinds are not installed: {name_first(missing)}", step)
    for name, found in facts.definitions.items():
        if found is None:
            continue
        versions = [version.name for version in found.spec.versions if version.served]
        if _KIND_VERSION not in versions:
            yield problem(
                "definitions",
                f"{name} serves {', '.join(versions) or 'no version'}, and this Kerf needs {_KIND_VERSION}",
                f"apply the definitions of this version: {step}",
            )
        elif not found.is_established:
            yield problem(
                "definitions",
                f"{name} is not established: the API server has not accepted it",
                f"read its conditions: kubectl describe crd {name}",
            )
        else:
            yield ok("definitions", f"{name} serves {_KIND_VERSION}")


def _check_permissions(facts: ClusterFacts) -> Iterator[CheckResult]:
    yield from check_permissions(facts.reviews)


def _check_reclaimer(facts: ClusterFacts) -> Iterator[CheckResult]:
    if facts.reclaimer is None:
        return
    for found, what in ((facts.reclaimer, "what the reclaimer may do"), (facts.pods, "pods of Kerf")):
        if isinstance(found, Unread):
            yield unread(RECLAIMER, what, found)
            return
    if not isinstance(facts.reclaimer, Unread) and not isinstance(facts.pods, Unread):
        yield from check_reclaimer(facts.pods, facts.reclaimer)


def _check_nodes(facts: ClusterFacts) -> Iterator[CheckResult]:
    if isinstance(facts.nodes, Unread):
        yield unread(RUNTIME, "nodes", facts.nodes)
        return
    runtimes: defaultdict[str, list[str]] = defaultdict(list)
    kubelets: defaultdict[str, list[str]] = defaultdict(list)
    for node in facts.nodes:
        runtimes[node.status.node_info.container_runtime_version].append(node.metadata.name)
        kubelets[node.status.node_info.kubelet_version].append(node.metadata.name)
    yield from check_versions({version: name_first(names) for version, names in runtimes.items()})
    for version, names in sorted(kubelets.items()):
        yield check_kubelet(name_first(names), version, is_classic=facts.is_classic)
    if not facts.nodes:
        yield warning(RUNTIME, "the cluster has no node", "add nodes, and check again")


def check_kubelet(where: str, version: str, *, is_classic: bool) -> CheckResult:
    """Check the version that a kubelet reports, such as ``v1.37.0``."""
    number = version.removeprefix("v").split(".")[1:2]
    minor = int(number[0]) if number and number[0].isdecimal() else None
    if minor is None:
        return warning("kubelet-version", f"{where}: {version!r} is not a version of a kubelet", "look at the node")
    if not is_classic and minor < STRUCTURED:
        return problem(
            "kubelet-version",
            f"{where}: kubelet {version} cannot prepare the claims of this cluster",
            f"update it to 1.{STRUCTURED} or later",
        )
    if minor < _SURGE:
        return warning(
            "kubelet-version",
            f"{where}: kubelet {version} lets no two plugins overlap, so that a rolling update has a gap",
            "set maxSurge 0 and maxUnavailable 1 in the DaemonSet, as docs/rolling-update.md says",
        )
    return ok("kubelet-version", f"{where}: kubelet {version}")


def _check_other_drivers(facts: ClusterFacts) -> Iterator[CheckResult]:
    if facts.is_classic:
        return
    if isinstance(facts.slices, Unread):
        yield unread("other-drivers", "ResourceSlices", facts.slices)
        return
    yield from check_drivers(facts.slices, facts.own_drivers)
    if isinstance(facts.nodes, Unread):
        yield unread(PLUGINS, "nodes", facts.nodes)
        return
    published: defaultdict[str, set[str]] = defaultdict(set)
    for slice_ in facts.slices:
        if slice_.spec.driver in facts.own_drivers and slice_.spec.node_name:
            published[slice_.spec.node_name].add(slice_.spec.driver)
    yield from check_device_plugins(facts.nodes, published)


def _check_allocations(facts: ClusterFacts) -> Iterator[CheckResult]:
    if facts.is_classic or isinstance(facts.slices, Unread):
        return  # slices that cannot be read are said by the check of other drivers
    if isinstance(facts.claims, Unread):
        yield unread(ALLOCATIONS, "ResourceClaims", facts.claims)
        return
    yield from check_allocations(facts.claims, facts.slices)


def _check_taint_rules(facts: ClusterFacts) -> Iterator[CheckResult]:
    if facts.is_classic:
        return
    if isinstance(facts.taint_rules, Unread):
        yield unread(TAINT_RULES, "DeviceTaintRules", facts.taint_rules)
        return
    yield from check_taint_rules(facts.taint_rules, facts.own_drivers)


def _check_retired_attributes(facts: ClusterFacts) -> Iterator[CheckResult]:
    if facts.is_classic or isinstance(facts.claims, Unread):
        return  # claims that cannot be read are said by the check of allocations
    if isinstance(facts.device_classes, Unread):
        yield unread(RETIRED, "DeviceClasses", facts.device_classes)
        return
    yield from check_retired_attributes(facts.device_classes, facts.claims, facts.retired)


def _check_memory(facts: ClusterFacts) -> Iterator[CheckResult]:
    if facts.is_classic or isinstance(facts.slices, Unread):
        return  # without slices the number of devices is unknown
    if isinstance(facts.pods, Unread):
        yield unread(MEMORY, "pods of Kerf", facts.pods)
        return
    devices = sum(len(slice_.spec.devices) for slice_ in facts.slices if slice_.spec.driver in facts.own_drivers)
    yield from check_memory(facts.pods, devices)


def _check_extended_resources(facts: ClusterFacts) -> Iterator[CheckResult]:
    if isinstance(facts.classes, Unread):
        yield unread(_RESOURCES, "ResourceClasses", facts.classes)
        return
    if isinstance(facts.nodes, Unread):
        return  # said by the checks of nodes
    offered = list(find_offered(facts.classes, facts.nodes))
    for each in offered:
        listed = each.allocatable
        few = [node for node, amount in listed.items() if amount < each.per_node]
        if facts.is_classic or each.refusal:
            yield warning(
                _RESOURCES,
                f"no node offers {each.name} of ResourceClass {each.class_name}: "
                + (each.refusal or "drivers allocate in this cluster (classic DRA)"),
                f"see its conditions: kubectl describe resourceclass {each.class_name}",
            )
        elif not listed or few:
            where = f"only {name_first(listed)} list it, and {name_first(few)} fewer" if listed else "no node lists it"
            yield warning(
                _RESOURCES,
                f"ResourceClass {each.class_name} wants {each.per_node} of {each.name} on each of its nodes: {where}",
                "see the events ResourceNotOffered of the nodes: claims or others have the placements, or the plugin "
                "lacks the kubelet's folder (devicePlugin: true in its profile) or the permission to list claims "
                "(earlyLoading.enabled)",
            )
        else:
            yield ok(_RESOURCES, f"{name_first(listed)} list {each.name}, at least {each.per_node} each")
    if not offered:
        yield ok(_RESOURCES, "no ResourceClass offers an extended resource by the device plugin interface")


def _check_class_placements(facts: ClusterFacts) -> Iterator[CheckResult]:
    if not isinstance(facts.classes, Unread):  # said by the check of extended resources
        yield from check_class_placements(facts.classes, is_classic=facts.is_classic)


def check_clock(skew_s: float | None) -> CheckResult:
    """Check the difference between the API server's clock and this machine's."""
    if skew_s is None:
        return warning("clock", "the API server's answers have no time", "compare the clocks of the machines yourself")
    apart = f"the API server's clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's"
    step = "synchronize both with NTP, such as by chrony"
    if abs(skew_s) >= _SKEW_PROBLEM_S:
        return problem(
            "clock", f"{apart}: tokens and certificates may not be valid, and times in reports are wrong", step
        )
    if abs(skew_s) >= _SKEW_WARNING_S:
        return warning("clock", f"{apart}: times in reports are wrong", step)
    return ok("clock", f"the API server's clock and this machine's are within {_SKEW_WARNING_S:g} s")


def _check_clock(facts: ClusterFacts) -> Iterator[CheckResult]:
    yield check_clock(facts.skew_s)


_CHECKS: Final[Sequence[Callable[[ClusterFacts], Iterator[CheckResult]]]] = (
    _check_version,
    _check_api,
    _check_gates,
    _check_definitions,
    _check_permissions,
    _check_reclaimer,
    _check_nodes,
    _check_other_drivers,
    _check_allocations,
    _check_taint_rules,
    _check_retired_attributes,
    _check_memory,
    _check_extended_resources,
    _check_class_placements,
    _check_clock,
)
