"""The manifests of a demo, read from files and checked before anything is applied.

Core kinds are checked by the official client's models, which know every field; kerf.dev kinds and the opaque parameters
meant for Kerf by ``kerf_dra.api.kerf``. Every problem of every document is found, each with file, document, kind, name
and path.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kerf_dra.api.errors import InvalidDocumentError, KerfError, Problem, UnsupportedError
from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from kerf_dra.api.kerf.decoder import decode_device_config, decode_resource_class
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.names import is_dns_subdomain
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.families.class_validation import check_class
from kerf_dra.driver.families.registry import installed_families
from kerf_dra.driver.runtime.documents.input_file import describe_read_error, read_file
from kerf_dra.driver.runtime.yaml_file import NotYamlError, parse_manifests

Check = Callable[[JsonObject], Iterable[Problem]]
Checks = Mapping[tuple[str, str], Check]
"""The check of each kind that there may be, by version and kind."""

_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""Suffixes of manifests in a directory, as for ``kubectl apply -f DIR``."""
_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "overhead", "capacity"})
"""Maps of quantities, in which a bare number is allowed; the client's models require strings."""
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})
"""Fields that are a quantity."""
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
_NAME: Final = "metadata.name"
_WORKLOADS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "Job"})
"""Kinds that make pods from a template."""


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
    def name(self) -> str:
        return str(_mapping(self.body.get("metadata")).get("name", ""))

    @property
    def namespace(self) -> str:
        return str(_mapping(self.body.get("metadata")).get("namespace", "") or "default")

    @property
    def pods(self) -> int:
        """The number of pods that it stands for."""
        spec = _mapping(self.body.get("spec"))
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
    for manifest in manifests:
        lines += [f"{manifest}: {problem}" for problem in find_problems(manifest.body, checks)]
    lines += _find_duplicates(manifests)
    if checks is None:
        lines += _find_dangling_references(manifests)
    if not manifests and not lines:
        lines.append(f"no manifest in {', '.join(str(path) for path in paths)}")
    if lines:
        raise BadManifestsError(lines)
    return sorted(manifests, key=lambda manifest: _ORDER.index(manifest.kind))


def find_problems(body: JsonObject, checks: "Checks | None" = None) -> list[Problem]:
    """Find the problems of one document; none: it can be applied. ``checks``: see ``load_manifests``."""
    checks = _CHECKS if checks is None else checks
    kind, api_version = body.get("kind"), body.get("apiVersion")
    check = checks.get((str(api_version), str(kind)))
    if check is None:
        known = ", ".join(f"{version} {name}" for version, name in checks)
        return [Problem("kind", f"{api_version} {kind} is not known here; known are {known}")]
    found = list(check(body))
    if not any(problem.path == _NAME for problem in found):
        name = _mapping(body.get("metadata")).get("name")
        if not name:
            found.append(Problem(_NAME, "is required"))
        elif not (isinstance(name, str) and is_dns_subdomain(name)):
            found.append(Problem(_NAME, "must be a DNS subdomain (RFC 1123): lower case letters, digits, - and ."))
    return found


def _files(path: Path, lines: list[str]) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    elif path.exists():
        yield path
    else:
        lines.append(f"{path}: there is no such file or directory")


def _documents(file: Path, lines: list[str]) -> Iterator[Manifest]:
    try:
        documents = parse_manifests(read_file(file))
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
        return _list(document.get("items"))
    return (document,)


def _find_duplicates(manifests: Sequence[Manifest]) -> Iterator[str]:
    seen: dict[tuple[str, str, str], Manifest] = {}
    for manifest in manifests:
        first = seen.setdefault((manifest.kind, manifest.namespace, manifest.name), manifest)
        if first is not manifest:
            yield f"{manifest}: is given twice; the first is {first.file}: document {first.document}"


def _find_dangling_references(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield problems for names that no document defines: a pod would wait for them for ever.

    The DeviceClasses of the installed families are there without one.
    """
    made = {(manifest.kind, manifest.namespace, manifest.name) for manifest in manifests}
    classes = {manifest.name for manifest in manifests if manifest.kind in {"ResourceClass", "DeviceClass"}}
    classes |= {family.driver for family in installed_families().values()}
    for manifest in manifests:
        for path, kind, name in _named_claims(manifest.body):
            if (kind, manifest.namespace, name) not in made:
                yield f"{manifest}: {path}: no {kind} {name} in namespace {manifest.namespace} is given"
        yield from (f"{manifest}: {problem}" for problem in _find_unknown_container_claims(manifest.body))
        for path, name in named_classes(manifest.body):
            if name not in classes:
                yield f"{manifest}: {path}: no ResourceClass or DeviceClass {name} is given"


def _find_unknown_container_claims(body: JsonObject) -> Iterator[str]:
    """Yield a problem for each container that names a claim which its pod does not have: the API server refuses it."""
    spec, path = _find_pod_spec(body)
    entries = [str(_mapping(entry).get("name")) for entry in _list(spec.get("resourceClaims"))]
    for field in ("initContainers", "containers"):
        for number, container in enumerate(_list(spec.get(field))):
            claims = _list(_mapping(_mapping(container).get("resources")).get("claims"))
            for index, claim in enumerate(claims):
                if (name := _mapping(claim).get("name")) not in entries:
                    known = f"the pod has {', '.join(entries)}" if entries else "the pod has none"
                    where = f"{path}.{field}[{number}].resources.claims[{index}].name"
                    yield f"{where}: no claim {name} is in {path}.resourceClaims; {known}"


def find_ineffective_objects(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Yield a sentence for each claim and template that no pod uses, and each resource that no node offers here."""
    used = {(kind, each.namespace, name) for each in manifests for _, kind, name in _named_claims(each.body)}
    for manifest in manifests:
        if manifest.kind in _CLAIM_FIELDS.values() and (manifest.kind, manifest.namespace, manifest.name) not in used:
            yield f"{manifest}: no pod uses it, so nothing gets its devices"
        offer = _mapping(_mapping(manifest.body.get("spec")).get("devicePlugin"))
        if manifest.kind == "ResourceClass" and offer:
            yield (
                f"{manifest}: spec.devicePlugin: the kubelets here have no device plugin interface, so no node offers "
                f"{offer.get('resource')}"
            )


def _find_pod_spec(body: JsonObject) -> tuple[Mapping[str, Any], str]:
    """Return the spec of the pods that a document stands for, and its path; empty: it stands for none."""
    spec = _mapping(body.get("spec"))
    if body.get("kind") in _WORKLOADS:
        return _mapping(_mapping(spec.get("template")).get("spec")), "spec.template.spec"
    return (spec if body.get("kind") == "Pod" else {}), "spec"


def _named_claims(body: JsonObject) -> Iterator[tuple[str, str, str]]:
    """Yield path, kind and name of every claim and template that a pod refers to."""
    spec, path = _find_pod_spec(body)
    for index, entry in enumerate(_list(spec.get("resourceClaims"))):
        source = _mapping(_mapping(entry).get("source"))  # has the names until Kubernetes 1.30
        for field, kind in _CLAIM_FIELDS.items():
            name = _mapping(entry).get(field, source.get(field))
            if isinstance(name, str):
                yield f"{path}.resourceClaims[{index}].{field}", kind, name


def named_classes(body: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield path and name of every class that a claim or template refers to."""
    spec, path = _mapping(body.get("spec")), "spec"
    if body.get("kind") == "ResourceClaimTemplate":
        spec, path = _mapping(spec.get("spec")), "spec.spec"
    for index, request in enumerate(_list(_mapping(spec.get("devices")).get("requests"))):
        at = f"{path}.devices.requests[{index}]"
        choices = [(f"{at}.exactly", _mapping(request).get("exactly"))]
        alternatives = _list(_mapping(request).get("firstAvailable"))
        choices += [(f"{at}.firstAvailable[{number}]", choice) for number, choice in enumerate(alternatives)]
        for where, choice in choices:
            name = _mapping(choice).get("deviceClassName")
            if isinstance(name, str):
                yield f"{where}.deviceClassName", name


_CLAIM_FIELDS: Final = {
    "resourceClaimTemplateName": "ResourceClaimTemplate",
    "resourceClaimName": "ResourceClaim",
}


def _check_class(body: JsonObject) -> Iterator[Problem]:
    try:
        decoded = decode_resource_class(body)
        check_class(f'ResourceClass "{decoded.metadata.name}"', decoded.spec, installed_families())
    except InvalidDocumentError as error:
        yield from error.problems


def _check_core(model: str, *configs: tuple[str, ...]) -> Check:
    """Check against a model of the official client, and Kerf's parameters in the lists that ``configs`` lead to."""

    def check(body: JsonObject) -> Iterator[Problem]:
        try:
            import kubernetes.client
            from pydantic import ValidationError
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                "manifests of core kinds are checked with the Python package kubernetes, which Kerf's image does not "
                "have: run the demo where Kerf is installed with pip"
            ) from error
        try:
            getattr(kubernetes.client, model).model_validate(body)
        except ValidationError as error:
            for found in error.errors():
                if not _is_number_as_quantity(found):
                    yield Problem(_path(found["loc"]), _describe(found))
        for keys in configs:
            yield from _check_parameters(body, keys)

    return check


def _check_parameters(body: JsonObject, keys: tuple[str, ...]) -> Iterator[Problem]:
    by_driver: dict[object, Mapping[str, type[DeviceConfigBase]]] = {
        family.driver: family.configurations for family in installed_families().values()
    }
    value: object = body
    for key in keys:
        value = _mapping(value).get(key)
    for index, entry in enumerate(_list(value)):
        opaque = _mapping(_mapping(entry).get("opaque"))
        parameters = opaque.get("parameters")
        if isinstance(parameters, dict) and (configurations := by_driver.get(opaque.get("driver"))) is not None:
            try:
                path = f"{'.'.join(keys)}[{index}].opaque.parameters"
                decode_device_config(parameters, path, configurations)
            except InvalidDocumentError as error:
                yield from error.problems


def _is_number_as_quantity(found: Mapping[str, Any]) -> bool:
    location, given = found["loc"], found["input"]
    is_quantity = location[-1] in _QUANTITIES or (len(location) > 1 and location[-2] in _QUANTITY_MAPS)
    return (
        is_quantity
        and found["type"] == "string_type"
        and isinstance(given, int | float)
        and not isinstance(given, bool)
    )


def _path(location: Iterable[str | int]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _describe(found: Mapping[str, Any]) -> str:
    match found["type"]:
        case "extra_forbidden":
            return "unknown field"
        case "missing":
            return "is required"
        case _:
            return f"{str(found['msg']).removeprefix('Input ')}, not {found['input']!r}"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _check_nothing(_body: JsonObject) -> Iterator[Problem]:
    """Leave the check to the API server: the official client's models do not know the kind as it was."""
    yield from ()


_CHECKS: Final[Checks] = {
    ("kerf.dev/v1alpha1", "ResourceClass"): _check_class,
    ("resource.k8s.io/v1", "DeviceClass"): _check_core("V1DeviceClass", ("spec", "config")),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): _check_core(
        "V1ResourceClaimTemplate", ("spec", "spec", "devices", "config")
    ),
    ("resource.k8s.io/v1", "ResourceClaim"): _check_core("ResourceV1ResourceClaim", ("spec", "devices", "config")),
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
}
"""The kinds that a demo can apply, and their checks."""

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
