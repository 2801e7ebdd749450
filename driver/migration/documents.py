"""Converts all documents of some files, and accounts for each of them: converted, or left with a reason. Pure.

A document that stays as it is, because it requests nothing in an older way, is left out as well: what is printed takes
the place of documents of the files. Of two results that would make documents of one name, the second is left.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.families.counted_resources import is_convertible
from kerf_dra.driver.migration.akri import (
    FindFault,
    find_configurations,
    is_akris,
    migrate_akri_objects,
    name_of,
    subject_of,
)
from kerf_dra.driver.migration.classic import MigrationResult, leave_out
from kerf_dra.driver.migration.extended_resources import describe_unconverted, find_extended_resources
from kerf_dra.driver.migration.limits import WORKLOADS, find_offered, find_offered_by_dra, migrate_workload

_KERF: Final = "kerf.dev"
_DRA: Final = "resource.k8s.io"
_CLASSIC: Final = frozenset(
    {"ResourceClass", "ResourceClassParameters", "ResourceClaimParameters", "PodSchedulingContext"}
)
"""Kinds of ``resource.k8s.io`` that classic DRA alone had; of its version v1alpha2 it is all."""
_PARAMETERS: Final = frozenset(kind.kind for kind in (*CLASS_PARAMETERS, *CLAIM_PARAMETERS))
_CONVERT_CLASSIC: Final = "it belongs to classic DRA: `kerf migrate` without -f converts what is in a cluster"
_GROUPS: Final = (
    ("nvidia.com", "configures NVIDIA's software: remove that before Kerf has the same cards"),
    ("deviceplugin.intel.com", "installs a device plugin of Intel: remove that before Kerf has the same cards"),
    ("fpga.intel.com", "names a function or a region of Intel's FPGA plugin: register its image (docs/fpga.md)"),
)
"""API groups, or their ends, of the systems that Kerf takes the place of, with what becomes of their objects."""


_ASK_KERF: Final = "`--profile PROFILE` or `--memory AMOUNT` writes such a claim for Kerf"
_NO_COUNTERPART: Final = "is of NVIDIA's DRA driver, and Kerf has nothing like it"
_FOREIGN_CLASSES: Final[Mapping[str, str]] = {
    "gpu.nvidia.com": f"is of NVIDIA's DRA driver: `kerf claim gpu` with {_ASK_KERF}",
    "mig.nvidia.com": f"is of NVIDIA's DRA driver: `kerf claim gpu` with {_ASK_KERF}",
    "vfio.gpu.nvidia.com": f"{_NO_COUNTERPART}: its cards are for virtual machines",
    "imex.nvidia.com": _NO_COUNTERPART,
    "compute-domain-daemon.nvidia.com": _NO_COUNTERPART,
    "compute-domain-default-channel.nvidia.com": _NO_COUNTERPART,
    "gpu.intel.com": "is of Intel's DRA driver: `kerf claim gpu-intel` writes such a claim for Kerf",
}
"""DeviceClasses of other DRA drivers, with what becomes of their claims."""
_MADE: Final = ("ResourceClass", "ResourceClaimTemplate", "DiscoveryConfiguration")
"""Kinds of documents that are made, whose names could be those of others."""


def migrate_documents(documents: Sequence[JsonObject], find_fault: FindFault) -> Iterator[MigrationResult]:
    """Yield what becomes of ``documents``: of each its conversion, or the reason for which it is left."""
    offered, configurations = find_offered(documents), find_configurations(documents)
    by_dra = find_offered_by_dra(documents)
    named = {key: each for each in documents if (key := _find_key(each)) is not None}
    for result in migrate_akri_objects(documents, find_fault):
        yield _keep_apart(result, named)
    for document in documents:
        if not is_akris(document):
            found = migrate_workload(document, offered, configurations, by_dra)
            yield _keep_apart(found or _leave(document), named)


_Key = tuple[str, str, str]


def _find_key(document: JsonObject) -> _Key | None:
    """Return what a document is known by in the cluster; None: nothing that is made could have the name."""
    kind, group = str(document.get("kind")), str(document.get("apiVersion")).partition("/")[0]
    if kind not in _MADE or group != (_DRA if kind == "ResourceClaimTemplate" else _KERF):
        return None
    namespace = "" if group == _KERF else _namespace_of(document)
    return kind, namespace, name_of(document)


def _namespace_of(document: JsonObject) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("namespace") or "default") if isinstance(metadata, dict) else "default"


def _keep_apart(result: MigrationResult, named: dict[_Key, JsonObject]) -> MigrationResult:
    """Return ``result``, or what says that another document has the name of one of its, and other content."""
    keys = {key: each for each in result.documents if (key := _find_key(each)) is not None}
    for key, document in keys.items():
        if key in named and named[key].get("spec") != document.get("spec"):
            subject = subject_of(result.documents[-1])
            reason = f"it needs a {key[0]} {key[2]}, and there is another one of this name: rename one of the two"
            left = leave_out(subject, reason).left
            return MigrationResult(documents=(), left=(*result.left, *left))
    named.update(keys)
    return result


def _leave(document: JsonObject) -> MigrationResult:
    """Return why a document is left that is neither Akri's nor has a pod that is known how to convert."""
    subject = subject_of(document)
    is_claim = str(document.get("apiVersion")).startswith(f"{_DRA}/")  # whose requests are capacities of devices
    fields = [] if is_claim else list(find_extended_resources(document))
    left = tuple(f"{subject}: {path}: left as it is: {_describe_resource(document, name)}" for path, name in fields)
    return MigrationResult(documents=(), left=(*left, f"{subject}: left out: {_find_reason(document, bool(fields))}"))


def _describe_resource(document: JsonObject, name: str) -> str:
    if document.get("kind") == "ResourceQuota" and is_convertible(name):
        return "claims are counted by class: write <class>.deviceclass.resource.k8s.io/devices (docs/quota.md)"
    if is_convertible(name):
        return "take the pod out of this object, convert it as a Pod, and put it back"
    return describe_unconverted(name)


def _find_reason(document: JsonObject, has_resources: bool) -> str:
    kind, version = str(document.get("kind")), str(document.get("apiVersion"))
    group = version.partition("/")[0] if "/" in version else ""
    if kind in _PARAMETERS or (group == _DRA and (kind in _CLASSIC or version.endswith("/v1alpha2"))):
        return _CONVERT_CLASSIC
    if group == _KERF:
        return "it is an object of Kerf already: apply it as it is"
    if group == _DRA:
        return _describe_dra(document, kind)
    for domain, reason in _GROUPS:
        if group == domain or group.endswith(f".{domain}"):
            return f"it {reason}"
    if kind in WORKLOADS:
        return f"it has no pod where a {kind} of Kubernetes has it"
    if has_resources:
        return f"only pods of these kinds are converted: {', '.join(WORKLOADS)}"
    if not document.get("kind"):
        return "kind: is required"
    return "it requests no devices: apply it as it is"


def _describe_dra(document: JsonObject, kind: str) -> str:
    """Return why an object of structured DRA is left: its class selects the devices of one driver."""
    if kind == "DeviceClass":
        return "it selects devices of a driver: write a ResourceClass, of which Kerf's controller makes a DeviceClass"
    if not kind.startswith("ResourceClaim"):
        return "it requests no devices"
    classes = sorted(set(_find_classes(document.get("spec"))))
    for name in classes:
        if (reason := _FOREIGN_CLASSES.get(name)) is not None:
            return f"deviceClassName: {name}: {reason}"
    named = f" (deviceClassName: {', '.join(classes)})" if classes else ""
    return f"it is a claim already{named}: if its class is of another driver, `kerf claim` writes one for Kerf"


def _find_classes(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _find_classes(each)
    elif isinstance(value, dict):
        if isinstance(name := value.get("deviceClassName"), str):
            yield name
        for each in value.values():
            yield from _find_classes(each)
