"""The manifests of a demo, read from files and checked before anything is applied.

Core kinds are checked by the official client's models, which know every field; those of ``resource.k8s.io``, which are
converted to v1, by ``kerf_dra.api.manifests``; kerf.dev kinds and the opaque parameters meant for Kerf by
``kerf_dra.api.kerf``. Every problem of every document is found, each with file, document, kind, name
and path.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from kerf_dra.api.core.scheduling import GROUP as SCHEDULING
from kerf_dra.api.core.scheduling import VERSIONS as SCHEDULING_VERSIONS
from kerf_dra.api.errors import InvalidDocumentError, KerfError, Problem
from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from kerf_dra.api.kerf.decoder import (
    decode_device_config,
    decode_discovery_document,
    decode_fpga_object,
)
from kerf_dra.api.kerf.discovery_objects import DIGEST_BYTES, DISCOVERY_CONFIGURATIONS
from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.kerf.validation import show_name
from kerf_dra.api.manifests.claim_documents import convert_to_v1, find_claim_spec
from kerf_dra.api.manifests.documents import find_document_problems
from kerf_dra.api.model.base import JsonObject, as_list, as_mapping
from kerf_dra.api.model.device_attributes import ATTRIBUTE_UUID
from kerf_dra.api.model.names import is_dns_subdomain, list_names
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.api.resource.registry import VERSIONS
from kerf_dra.driver.demo.hardware import HARDWARE_KINDS
from kerf_dra.driver.demo.unsupported_manifests import ManifestKind, find_missing_programs, find_other_release
from kerf_dra.driver.families.class_validation import find_class_problems
from kerf_dra.driver.families.registry import installed_families
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.families.shared.objects import name_class
from kerf_dra.driver.kube.client_models import find_model_problems
from kerf_dra.driver.kubeletplugin.discovery_handlers.built_in_handlers import find_details_fault, is_built_in
from kerf_dra.driver.local.apiserver.http.server import NAMESPACES
from kerf_dra.driver.runtime.documents.input_file import describe_read_error, read_file, read_standard_input
from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError, parse_manifests
from kerf_dra.driver.scheduling.selector_problems import find_selector_problems

Check = Callable[[JsonObject], Iterable[Problem]]
Checks = Mapping[tuple[str, str], Check]
"""The check of each kind that there may be, by version and kind."""

_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""Suffixes of manifests in a directory, as for ``kubectl apply -f DIR``."""
_ORDER: Final = (
    "Namespace",
    "ServiceAccount",
    "ConfigMap",
    "Secret",
    "Service",
    "GpuClassParameters",
    "FpgaClassParameters",
    "GpuClaimParameters",
    "FpgaClaimParameters",
    *HARDWARE_KINDS,
    "ResourceClass",
    "DeviceClass",
    "ResourceClaimTemplate",
    "ResourceClaim",
    "Pod",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "Job",
)
"""Kinds in the order of application: referenced ones first."""
STANDARD_INPUT: Final = Path("-")
"""What stands for standard input, as for kubectl."""
_NAME: Final = "metadata.name"
_ALIKE: Final = 0.8
"""How alike a misspelt kind is to the right one (``difflib``): DaemonSet is not meant as StatefulSet."""
_MOST_CLASSES: Final = 8
"""Names of classes in a message: twice as many as Kerf's families have."""
_UNIQUE: Final = f"{SHARED.driver}/{ATTRIBUTE_UUID}"
"""The attribute that is another one for each discovered device."""
_WORKLOADS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "Job"})
"""Kinds that make pods from a template."""
_SCHEDULER: Final = "default-scheduler"
"""The name of the cluster's scheduler, which a pod has that names none."""
_NAMESPACED: Final = _WORKLOADS | frozenset(
    ("Pod", "ResourceClaim", "ResourceClaimTemplate", "ConfigMap", "Secret", "Service", "ServiceAccount")
)
"""Kinds whose objects are in a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One document of one file."""

    file: Path
    document: int
    """1-based within the file."""
    body: JsonObject

    @property
    def kind(self) -> str:
        return str(self.body.get("kind", ""))

    @property
    def kind_in_file(self) -> ManifestKind:
        return ManifestKind(self.file, str(self.body.get("apiVersion")), self.kind)

    @property
    def name(self) -> str:
        return str(as_mapping(self.body.get("metadata")).get("name", ""))

    @property
    def namespace(self) -> str:
        return str(as_mapping(self.body.get("metadata")).get("namespace", "") or "default")

    @property
    def pods(self) -> int:
        """The number of pods that it stands for."""
        spec = as_mapping(self.body.get("spec"))
        if self.kind == "Job":
            at_once = spec.get("parallelism", 1)
            return 0 if spec.get("suspend") else min(at_once, spec.get("completions", at_once))
        if self.kind in _WORKLOADS:
            return int(spec.get("replicas", 1))
        return int(self.kind == "Pod")

    def __str__(self) -> str:
        what = f"{self.kind or 'no kind'} {self.name or 'without name'}"
        return f"{self.file}: document {self.document}: {what}"


class BadManifestsError(KerfError):
    """Manifests cannot be used. ``lines`` has one line for each problem."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(map(to_one_line, lines))  # names may be anything, and go to terminals
        super().__init__("\n".join(self.lines))


def load_manifests(paths: Iterable[Path], checks: "Checks | None" = None) -> list[Manifest]:
    """Load every manifest of the files and directories, in the order in which to apply them.

    ``checks`` are the kinds that there may be, None: those of a cluster whose scheduler allocates.

    Raises BadManifestsError with all problems of all files.
    """
    manifests: list[Manifest] = []
    lines: list[str] = []
    for path in paths:
        for file in _files(path, lines):
            manifests += _documents(file, lines)
    kinds = [manifest.kind_in_file for manifest in manifests]
    is_classic = checks is not None
    elsewhere = _CHECKS if is_classic else CLASSIC_CHECKS
    if misplaced := find_other_release(kinds, checks or _CHECKS, elsewhere, is_classic=is_classic):
        raise BadManifestsError([misplaced])
    lines += filter(None, [find_missing_programs(kinds)])
    for manifest in manifests:
        if not manifest.kind_in_file.needs_other_program:
            lines += [f"{manifest}: {problem}" for problem in find_problems(manifest.body, checks)]
    lines += _find_duplicates(manifests)
    lines += _find_missing_namespaces(manifests)
    if checks is None:
        lines += _find_dangling_references(manifests)
        lines += _find_repeated_devices(manifests)
    if not manifests and not lines:
        lines.append(f"no manifest in {', '.join(str(path) for path in paths)}")
    if lines:
        raise BadManifestsError(lines)
    converted = (replace(manifest, body=convert_to_v1(manifest.body)) for manifest in manifests)
    return sorted(converted, key=lambda manifest: _ORDER.index(manifest.kind))


def find_problems(body: JsonObject, checks: "Checks | None" = None) -> list[Problem]:
    """Find the problems of one document; none: it can be applied. ``checks``: see ``load_manifests``."""
    checks = _CHECKS if checks is None else checks
    kind, api_version = body.get("kind"), body.get("apiVersion")
    check = checks.get((str(api_version), str(kind)))
    if check is None:
        found = find_document_problems(body) if checks is _CHECKS else []
        return found or [_describe_unknown_kind(str(api_version), str(kind), checks)]
    found = list(check(body))
    if not any(problem.path == _NAME for problem in found):
        name = as_mapping(body.get("metadata")).get("name")
        if not name:
            found.append(Problem(_NAME, "is required"))
        elif not (isinstance(name, str) and is_dns_subdomain(name)):
            found.append(Problem(_NAME, "must be a DNS subdomain (RFC 1123): lower case letters, digits, - and ."))
    return found


def _describe_unknown_kind(api_version: str, kind: str, checks: Checks) -> Problem:
    if versions := [version for version, name in checks if name == kind]:
        return Problem("apiVersion", f"{show_name(api_version)} has no {kind} that is known here; write {versions[0]}")
    known = list(dict.fromkeys(name for _, name in checks))
    close = get_close_matches(kind, known, n=1, cutoff=_ALIKE)
    advice = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
    return Problem("kind", f"{show_name(api_version)} {show_name(kind)} is not known here; {advice}")


def _files(path: Path, lines: list[str]) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    elif path == STANDARD_INPUT or path.exists():
        yield path
    else:
        lines.append(f"{path}: there is no such file or directory")


def _documents(file: Path, lines: list[str]) -> Iterator[Manifest]:
    try:
        documents = parse_manifests(read_standard_input() if file == STANDARD_INPUT else read_file(file))
    except (NotYamlError, OSError) as error:
        lines.append(f"{file}: cannot be read: {describe_read_error(error)}")
        return
    for number, document in enumerate(documents, start=1):
        for body in _items(document):
            if isinstance(body, dict):
                yield Manifest(file=file, document=number, body=body)
            elif body is not None:
                lines.append(f"{file}: document {number}: is a {type(body).__name__}, not an object")


def _items(document: object) -> Sequence[object]:
    """Return the objects of a List, as ``kubectl get -o yaml`` writes it; else the document itself."""
    if isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) == ("v1", "List"):
        return as_list(document.get("items"))
    return (document,)


def _find_duplicates(manifests: Sequence[Manifest]) -> Iterator[str]:
    seen: dict[tuple[str, str, str], Manifest] = {}
    for manifest in manifests:
        first = seen.setdefault((manifest.kind, manifest.namespace, manifest.name), manifest)
        if first is not manifest:
            yield f"{manifest}: is given twice; the first is {first.file}: document {first.document}"


def _find_missing_namespaces(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield a problem for each object in a namespace that no document makes: the API server refuses it."""
    made = {manifest.name for manifest in manifests if manifest.kind == "Namespace"}
    for manifest in manifests:
        if manifest.kind in _NAMESPACED and manifest.namespace not in {*made, *NAMESPACES}:
            there = ", ".join(NAMESPACES)
            yield (
                f"{manifest}: metadata.namespace: no Namespace {manifest.namespace} is given, and the cluster has only "
                f"{there}: add a document that makes it"
            )


def _find_dangling_references(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield problems for names that no document defines: a pod would wait for them for ever.

    The DeviceClasses of the installed families, and those of discovered devices, are there without one.
    """
    made = {(manifest.kind, manifest.namespace, manifest.name) for manifest in manifests}
    classes = {manifest.name for manifest in manifests if manifest.kind in {"ResourceClass", "DeviceClass"}}
    classes |= {family.driver for family in installed_families().values()}
    discovered = _DiscoveredClasses(manifests)
    for manifest in manifests:
        for path, kind, name in _named_claims(manifest.body):
            if (kind, manifest.namespace, name) not in made:
                missing = f"no {kind} {name} in namespace {manifest.namespace} is given"
                yield f"{manifest}: {path}: {missing}; {_advise(kind, manifest.namespace, name, made)}"
        yield from (f"{manifest}: {problem}" for problem in _find_unknown_container_claims(manifest.body))
        spec, path = _find_pod_spec(manifest.body)
        if (scheduler := spec.get("schedulerName") or _SCHEDULER) != _SCHEDULER:
            yield f"{manifest}: {path}.schedulerName: no scheduler {scheduler} runs here: leave it out"
        for path, name in named_classes(manifest.body):
            if name not in classes and name not in discovered:
                close = get_close_matches(name, classes, n=1)
                known = f"there is {list_names(sorted(classes), _MOST_CLASSES)}: name one of them, or add the class"
                advice = f"did you mean {close[0]}?" if close else known
                yield f"{manifest}: {path}: no ResourceClass or DeviceClass {name} is given; {advice}"


def _advise(kind: str, namespace: str, name: str, made: Collection[tuple[str, str, str]]) -> str:
    """Return what to do about an object that no document defines."""
    if elsewhere := sorted(other for each, other, same in made if (each, same) == (kind, name)):
        return f"there is one in namespace {elsewhere[0]}, and pods use those of their own: write one namespace in both"
    names = [each for found, other, each in made if (found, other) == (kind, namespace)]
    close = get_close_matches(name, names, n=1) or names[:1]
    return f"did you mean {close[0]}?" if close else "add it to the documents"


class _DiscoveredClasses:
    """The names of the DeviceClasses that the controller makes for DiscoveryConfigurations, and for their devices."""

    def __init__(self, manifests: Iterable[Manifest]) -> None:
        names = [re.escape(one.name) for one in manifests if one.kind == DISCOVERY_CONFIGURATIONS.kind]
        of_any = rf"({'|'.join(names)})(-[0-9a-f]{{{2 * DIGEST_BYTES}}})?" if names else "(?!)"
        self._pattern = re.compile(of_any + re.escape(name_class("")))

    def __contains__(self, name: str) -> bool:
        return self._pattern.fullmatch(name) is not None


def _find_repeated_devices(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield problems for what could get one device of a DiscoveryConfiguration several times, which a cluster refuses.

    The policy ``kerf-unique-devices`` refuses such claims, those among them that the scheduler makes for ``limits``.
    """
    for configuration in manifests:
        spec = as_mapping(configuration.body.get("spec"))
        if configuration.kind != DISCOVERY_CONFIGURATIONS.kind or not spec.get("uniqueDevices", True):
            continue
        resource = f"{spec.get('extendedResourceDomain')}/{configuration.name}"
        must = f"several devices of {configuration.name} must be different (uniqueDevices)"
        for manifest in manifests:
            for path in _find_multiple_limits(manifest.body, resource):
                yield f"{manifest}: {path}: {must}, and limits cannot say this: ask for 1, or by a claim"
            if path := _find_multiple_requests(manifest.body, name_class(configuration.name)):
                yield f"{manifest}: {path}: {must}: add the constraint distinctAttribute: {_UNIQUE}"


def _find_multiple_limits(body: JsonObject, resource: str) -> Iterator[str]:
    """Yield the path of each limit of a pod's container for more than one of an extended resource."""
    spec, path = _find_pod_spec(body)
    for field in ("initContainers", "containers"):
        for number, container in enumerate(as_list(spec.get(field))):
            limits = as_mapping(as_mapping(as_mapping(container).get("resources")).get("limits"))
            if str(limits.get(resource, "1")) not in {"0", "1"}:
                yield f"{path}.{field}[{number}].resources.limits[{resource}]"


def _find_multiple_requests(body: JsonObject, class_name: str) -> str:
    """Return the path of a claim's requests for several devices of a class that may be the same one; empty: none."""
    spec, path = find_claim_spec(body)
    devices = as_mapping(spec.get("devices"))
    choices = [as_mapping(as_mapping(request).get("exactly")) for request in as_list(devices.get("requests"))]
    own = [choice for choice in choices if choice.get("deviceClassName") == class_name]
    is_one = len(own) < 2 and all(
        one.get("allocationMode", "ExactCount") == "ExactCount" and one.get("count", 1) == 1 for one in own
    )
    is_distinct = any(
        as_mapping(one).get("distinctAttribute") == _UNIQUE for one in as_list(devices.get("constraints"))
    )
    return "" if is_one or is_distinct else f"{path}.devices.requests"


def _find_unknown_container_claims(body: JsonObject) -> Iterator[str]:
    """Yield a problem for each container that names a claim which its pod does not have: the API server refuses it."""
    spec, path = _find_pod_spec(body)
    entries = [str(as_mapping(entry).get("name")) for entry in as_list(spec.get("resourceClaims"))]
    for field in ("initContainers", "containers"):
        for number, container in enumerate(as_list(spec.get(field))):
            claims = as_list(as_mapping(as_mapping(container).get("resources")).get("claims"))
            for index, claim in enumerate(claims):
                if (name := as_mapping(claim).get("name")) not in entries:
                    known = f"the pod has {', '.join(entries)}" if entries else "the pod has none"
                    where = f"{path}.{field}[{number}].resources.claims[{index}].name"
                    yield f"{where}: no claim {name} is in {path}.resourceClaims; {known}"


def find_ineffective_objects(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield a sentence for each claim and template that no pod uses, and for what no node finds here."""
    used = {(kind, each.namespace, name) for each in manifests for _, kind, name in _named_claims(each.body)}
    for manifest in manifests:
        if manifest.kind in _CLAIM_FIELDS.values() and (manifest.kind, manifest.namespace, manifest.name) not in used:
            yield f"{manifest}: no pod uses it, so nothing gets its devices"
        handler = str(as_mapping(as_mapping(manifest.body.get("spec")).get("discoveryHandler")).get("name"))
        if manifest.kind == DISCOVERY_CONFIGURATIONS.kind and not is_built_in(handler):
            yield (
                f"{manifest}: spec.discoveryHandler.name: no program registers here as {handler}, so no device is "
                "found: start yours with --keep (docs/write-a-discovery-handler.md), or use static or debugEcho"
            )


def find_offers(manifests: Iterable[Manifest]) -> dict[str, int]:
    """Return the extended resources that ResourceClasses offer by the device plugin interface, each with its number on
    a node.
    """
    offers = [
        as_mapping(as_mapping(one.body.get("spec")).get("devicePlugin"))
        for one in manifests
        if one.kind == "ResourceClass"
    ]
    return {offer["resource"]: int(offer["perNode"]) for offer in offers if offer}


def _find_pod_spec(body: JsonObject) -> tuple[Mapping[str, Any], str]:
    """Return the spec of the pods that a document stands for, and its path; empty: it stands for none."""
    spec = as_mapping(body.get("spec"))
    if body.get("kind") in _WORKLOADS:
        return as_mapping(as_mapping(spec.get("template")).get("spec")), "spec.template.spec"
    return (spec if body.get("kind") == "Pod" else {}), "spec"


def _named_claims(body: JsonObject) -> Iterator[tuple[str, str, str]]:
    """Yield path, kind and name of every claim and template that a pod refers to."""
    spec, path = _find_pod_spec(body)
    for index, entry in enumerate(as_list(spec.get("resourceClaims"))):
        source = as_mapping(as_mapping(entry).get("source"))  # has the names until Kubernetes 1.30
        for field, kind in _CLAIM_FIELDS.items():
            name = as_mapping(entry).get(field, source.get(field))
            if isinstance(name, str):
                yield f"{path}.resourceClaims[{index}].{field}", kind, name


def named_classes(body: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield path and name of every class that a claim or template refers to."""
    spec, path = find_claim_spec(body)
    for index, request in enumerate(as_list(as_mapping(spec.get("devices")).get("requests"))):
        at = f"{path}.devices.requests[{index}]"
        choices = [
            (at, request),
            (f"{at}.exactly", as_mapping(request).get("exactly")),
        ]  # v1beta1 has it in the request
        alternatives = as_list(as_mapping(request).get("firstAvailable"))
        choices += [(f"{at}.firstAvailable[{number}]", choice) for number, choice in enumerate(alternatives)]
        for where, choice in choices:
            name = as_mapping(choice).get("deviceClassName")
            if isinstance(name, str):
                yield f"{where}.deviceClassName", name


_CLAIM_FIELDS: Final = {
    "resourceClaimTemplateName": "ResourceClaimTemplate",
    "resourceClaimName": "ResourceClaim",
}


def _check_class(body: JsonObject) -> Iterable[Problem]:
    return find_class_problems(body, installed_families())


def _check_fpga_object(body: JsonObject) -> Iterator[Problem]:
    try:
        decode_fpga_object(body)
    except InvalidDocumentError as error:
        yield from error.problems


def _check_discovery(body: JsonObject) -> Iterator[Problem]:
    try:
        handler = decode_discovery_document(body).spec.discovery_handler
    except InvalidDocumentError as error:
        yield from error.problems
        return
    if fault := find_details_fault(handler.name, handler.details):
        yield Problem("spec.discoveryHandler.details", fault)


def _check_core(model: str) -> Check:
    """Check against a model of the official client."""

    def check(body: JsonObject) -> Iterator[Problem]:
        own = list(find_document_problems(body))
        spec, path = _find_pod_spec(body)
        if "schedulingGroup" in spec:
            own.append(Problem(f"{path}.schedulingGroup", "the demo's scheduler places each pod alone: leave it out"))
        paths = {problem.path for problem in own}
        yield from own
        yield from (problem for problem in find_model_problems(body, model) if problem.path not in paths)

    return check


def _check_claims(*keys: str) -> Check:
    """Check a document of ``resource.k8s.io``, and Kerf's parameters in the list that ``keys`` lead to."""

    def check(body: JsonObject) -> Iterator[Problem]:
        yield from find_document_problems(body)
        yield from find_selector_problems(body)
        yield from _check_parameters(body, keys)

    return check


def _check_group(_body: JsonObject) -> Iterator[Problem]:
    yield Problem("kind", "PodGroup is not known here: the demo's scheduler places each pod alone, so leave groups out")


def _check_parameters(body: JsonObject, keys: tuple[str, ...]) -> Iterator[Problem]:
    by_driver: dict[object, Mapping[str, type[DeviceConfigBase]]] = {
        family.driver: family.configurations for family in installed_families().values()
    }
    value: object = body
    for key in keys:
        value = as_mapping(value).get(key)
    for index, entry in enumerate(as_list(value)):
        opaque = as_mapping(as_mapping(entry).get("opaque"))
        parameters = opaque.get("parameters")
        if isinstance(parameters, dict) and (configurations := by_driver.get(opaque.get("driver"))) is not None:
            try:
                path = f"{'.'.join(keys)}[{index}].opaque.parameters"
                decode_device_config(parameters, path, configurations)
            except InvalidDocumentError as error:
                yield from error.problems


def _check_nothing(_body: JsonObject) -> Iterator[Problem]:
    """Leave the check to the API server: the official client's models do not know the kind as it was."""
    yield from ()


_CLAIM_CHECKS: Final[Mapping[str, Check]] = {
    "DeviceClass": _check_claims("spec", "config"),
    "ResourceClaimTemplate": _check_claims("spec", "spec", "devices", "config"),
    "ResourceClaim": _check_claims("spec", "devices", "config"),
}
_CHECKS: Final[Checks] = {
    ("kerf.dev/v1alpha1", "ResourceClass"): _check_class,
    ("kerf.dev/v1alpha1", FPGA_SHELLS.kind): _check_fpga_object,
    ("kerf.dev/v1alpha1", FPGA_IMAGES.kind): _check_fpga_object,
    ("kerf.dev/v1alpha1", DISCOVERY_CONFIGURATIONS.kind): _check_discovery,
    **{(f"resource.k8s.io/{version}", kind): check for version in VERSIONS for kind, check in _CLAIM_CHECKS.items()},
    ("v1", "Pod"): _check_core("V1Pod"),
    ("v1", "Namespace"): _check_core("V1Namespace"),
    ("v1", "ConfigMap"): _check_core("V1ConfigMap"),
    ("v1", "Secret"): _check_core("V1Secret"),
    ("v1", "Service"): _check_core("V1Service"),
    ("v1", "ServiceAccount"): _check_core("V1ServiceAccount"),
    ("apps/v1", "Deployment"): _check_core("V1Deployment"),
    ("apps/v1", "ReplicaSet"): _check_core("V1ReplicaSet"),
    ("apps/v1", "StatefulSet"): _check_core("V1StatefulSet"),
    ("batch/v1", "Job"): _check_core("V1Job"),
    **{(f"{SCHEDULING}/{version}", "PodGroup"): _check_group for version in SCHEDULING_VERSIONS},
}
"""The kinds that a demo can apply, and their checks; and PodGroups, which it refuses."""

_CLASSIC_KINDS: Final = (
    *(("resource.k8s.io/v1alpha2", kind) for kind in ("ResourceClass", "ResourceClaimTemplate", "ResourceClaim")),
    *(("kerf.dev/v1alpha1", kind.kind) for kind in (*CLASS_PARAMETERS, *CLAIM_PARAMETERS)),
    ("v1", "Pod"),
)
CLASSIC_CHECKS: Final[Checks] = {
    **dict.fromkeys(_CLASSIC_KINDS, _check_nothing),
    ("v1", "Namespace"): _check_core("V1Namespace"),
    ("v1", "ConfigMap"): _check_core("V1ConfigMap"),
}
"""The kinds of a cluster where Kerf's controller allocates, Kubernetes 1.30."""
