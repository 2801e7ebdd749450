"""Workloads: the pods that manifests create, with their claims, as ``kerf plan`` places them.

Pods, objects that create pods from a template, claims and claim templates are read. Classes in the manifests are used
beside those of the cluster, or in their place. A claim or template that no pod of the manifests uses is a workload of
its own. The claims of a PodGroup are shared by its pods.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from kerf_dra.api.core.scheduling import GROUP as SCHEDULING
from kerf_dra.api.core.scheduling import PodGroup, pod_group_kind
from kerf_dra.api.core.v1 import PODS, Node, Pod, PodResourceClaim
from kerf_dra.api.errors import InvalidDocumentError, KerfError, Problem
from kerf_dra.api.kerf.decoder import decode_resource_class
from kerf_dra.api.kerf.v1alpha1 import ClassPlacement, ResourceClass
from kerf_dra.api.manifests.claim_documents import convert_to_v1, is_claim_document
from kerf_dra.api.manifests.documents import find_claim_lists, find_document_problems
from kerf_dra.api.manifests.pod_documents import SPEC_PATHS
from kerf_dra.api.model.base import JsonObject, as_mapping
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim, ResourceClaimTemplate
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.scheduling.extended_resources import expected_claim

T = TypeVar("T")
ClassCompiler: TypeAlias = Callable[
    [Sequence[ResourceClass], Sequence[Node], Sequence[ResourceSlice]], list[DeviceClass]
]
"""A function from ResourceClasses, nodes and slices to the DeviceClasses that Kerf's controller would create."""

_REPLICA_FIELDS: Final = {
    ("apps/v1", "Deployment"): "replicas",
    ("apps/v1", "ReplicaSet"): "replicas",
    ("apps/v1", "StatefulSet"): "replicas",
    ("batch/v1", "Job"): "parallelism",
}
"""Kinds with a pod template, and the field of their spec that has the number of pods at one time."""


_ADD_IT: Final = "add it to the documents"
"""What to do about a claim or a template that neither the documents nor the cluster have, nor one like it."""


@dataclass(frozen=True, slots=True)
class WorkloadClaim:
    """One claim of a workload."""

    claim: ResourceClaim
    is_shared: bool
    """Whether all replicas use this claim; else each replica gets a claim of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A pod, or a claim without a pod, that is to be placed ``replicas`` times."""

    kind: str
    name: ObjectRef
    replicas: int
    pod: Pod | None
    """None for a claim or template that no pod uses."""
    claims: tuple[WorkloadClaim, ...]
    """The claims in the order in which the scheduler allocates them."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """What a pod needs of extended resources that ResourceClasses offer by the device plugin interface."""

    @property
    def takes_more(self) -> bool:
        """Whether one more replica takes devices of its own."""
        return bool(self.resources) or any(not each.is_shared for each in self.claims)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedManifests:
    """The content of manifests."""

    workloads: tuple[Workload, ...]
    classes: tuple[DeviceClass, ...]
    """The classes of the manifests, compiled."""
    placements: Mapping[str, ClassPlacement | None]
    """What ResourceClasses of the manifests ask for, by name; None: nothing."""
    passed_over: tuple[str, ...]
    """Documents of kinds that are not planned."""
    warnings: tuple[str, ...]
    """Claims of documents that are passed over, and what the answer takes for granted of the cluster."""


class _PodTemplate(NamedTuple):
    """The pods of one document."""

    key: tuple[str, str]
    """The document's version and kind."""
    replicas: int
    pod: Pod

    @property
    def kind(self) -> str:
        return self.key[1]

    @property
    def place(self) -> str:
        """The object, and the field that is the pods' spec."""
        name = self.pod.metadata.name or self.pod.metadata.generate_name
        return f"{self.kind} {name}: {'.'.join(SPEC_PATHS[self.key])}"


@dataclass(frozen=True, slots=True)
class _Documents:
    pods: list[_PodTemplate] = field(default_factory=list)
    claims: dict[ObjectRef, ResourceClaim] = field(default_factory=dict)
    templates: dict[ObjectRef, ResourceClaimTemplate] = field(default_factory=dict)
    classes: list[DeviceClass] = field(default_factory=list)
    resource_classes: list[ResourceClass] = field(default_factory=list)
    groups: dict[ObjectRef, PodGroup] = field(default_factory=dict)
    passed_over: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_workloads(
    cluster: ClusterIndex, documents: Sequence[JsonObject], *, namespace: str, compile_classes: ClassCompiler
) -> ParsedManifests:
    """Return the workloads of ``documents``, which belong to ``namespace`` where they name none.

    Raises InvalidDocumentError when a document cannot be read or a class cannot be compiled, and QueryError when a pod
    names a claim or template that neither the documents nor the cluster have.
    """
    found = _Documents()
    for body in documents:
        _read(found, body, namespace)
    compiled = compile_classes(found.resource_classes, cluster.nodes, cluster.state.slices)
    classes = (*found.classes, *compiled)
    known = {**cluster.classes, **{each.metadata.name: each for each in classes}}
    used: set[ObjectRef] = set()
    workloads = [_build_workload(cluster, found, known, each, used) for each in found.pods]
    unused = [("ResourceClaim", ref, claim) for ref, claim in found.claims.items() if ref not in used]
    unused += [
        ("ResourceClaimTemplate", ref, _claim_of(template, ref))
        for ref, template in found.templates.items()
        if ref not in used
    ]
    for kind, ref, claim in unused:
        claims = (WorkloadClaim(claim, is_shared=False),)
        workloads.append(Workload(kind=kind, name=ref, replicas=1, pod=None, claims=claims))
    return ParsedManifests(
        workloads=tuple(workloads),
        classes=classes,
        placements={each.metadata.name: each.spec.placement for each in found.resource_classes},
        passed_over=tuple(found.passed_over),
        warnings=(*found.warnings, *_warn_of_group_claims(found.groups)),
    )


def _warn_of_group_claims(groups: Mapping[ObjectRef, PodGroup]) -> Iterator[str]:
    for ref, group in groups.items():
        if group.spec.resource_claims:
            names = list_names([entry.name for entry in group.spec.resource_claims])
            yield (
                f"PodGroup {ref}: its pods share its claims ({names}) only where the feature gates GenericWorkload and "
                "DRAWorkloadResourceClaims are on; elsewhere each pod gets a claim of its own"
            )


def _read(found: _Documents, body: JsonObject, namespace: str) -> None:
    key = str(body.get("apiVersion", "")), str(body.get("kind", ""))
    group, _, version = key[0].partition("/")
    metadata = as_mapping(body.get("metadata"))
    subject = f"{key[1] or 'document'} {metadata.get('name') or metadata.get('generateName') or '(no name)'}"
    namespaced = {**body, "metadata": {"namespace": namespace, **metadata}}
    if problems := find_document_problems(body):
        raise InvalidDocumentError(subject, problems)
    try:
        if key in _REPLICA_FIELDS:
            found.pods.append(_read_pod_template(namespaced, key))
        elif key == ("v1", "Pod"):
            found.pods.append(_PodTemplate(key, 1, PODS.decode(msgspec.json.encode(namespaced))))
        elif is_claim_document(body):
            _read_claim_document(found, body if key[1] == "DeviceClass" else namespaced)
        elif (group, key[1]) == (SCHEDULING, "PodGroup"):
            pod_group = pod_group_kind(version).decode(msgspec.json.encode(namespaced))
            found.groups[pod_group.ref] = pod_group
        elif key == ("kerf.dev/v1alpha1", "ResourceClass"):
            found.resource_classes.append(decode_resource_class(body))
        else:
            found.passed_over.append(subject)
            lists = find_claim_lists(body.get("spec"), "spec")
            message = f"no {key[1]} is planned, so its claims are not counted"
            found.warnings.extend(f"{subject}: {path}: {message}" for path in lists)
    except InvalidDocumentError:
        raise
    except KerfError as error:
        raise InvalidDocumentError(subject, [Problem("", str(error))]) from error


def _read_claim_document(found: _Documents, body: JsonObject) -> None:
    """Read a document of ``resource.k8s.io`` in any version that the API server converts."""
    converted = convert_to_v1(body)
    data = msgspec.json.encode(converted)
    match converted["kind"]:
        case "ResourceClaim":
            claim = KINDS.resource_claims.decode(data)
            found.claims[claim.ref] = claim
        case "ResourceClaimTemplate":
            template = KINDS.resource_claim_templates.decode(data)
            found.templates[template.ref] = template
        case _:
            found.classes.append(KINDS.device_classes.decode(data))


def _read_pod_template(body: JsonObject, key: tuple[str, str]) -> _PodTemplate:
    spec: Any = body.get("spec") or {}
    template: Any = spec.get("template") or {}
    pod = {"metadata": body["metadata"], "spec": template.get("spec") or {}}
    replicas = spec.get(_REPLICA_FIELDS[key], 1)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        message = f"is {replicas!r}, not a number of pods"
        subject = f"{key[1]} {body['metadata'].get('name')}"
        raise InvalidDocumentError(subject, [Problem(f"spec.{_REPLICA_FIELDS[key]}", message)])
    return _PodTemplate(key, replicas, PODS.decode(msgspec.json.encode(pod)))


def _build_workload(
    cluster: ClusterIndex,
    found: _Documents,
    classes: Mapping[str, DeviceClass],
    template: _PodTemplate,
    used: set[ObjectRef],
) -> Workload:
    """Return the workload of a document with pods; adds to ``used`` the claims and templates that it names."""
    pod = template.pod
    namespace = pod.metadata.namespace
    claims: list[WorkloadClaim] = []
    for index, entry in enumerate(pod.spec.resource_claims):
        where = f"{template.place}.resourceClaims[{index}]"
        if entry.resource_claim_name:
            ref = ObjectRef(namespace, entry.resource_claim_name)
            claim = _look_up(f"{where}.resourceClaimName", "ResourceClaim", ref, {**cluster.claims, **found.claims})
            claims.append(WorkloadClaim(claim, is_shared=True))
        else:
            ref = ObjectRef(namespace, entry.resource_claim_template_name or "")
            known = {**cluster.templates, **found.templates}
            own = _look_up(f"{where}.resourceClaimTemplateName", "ResourceClaimTemplate", ref, known)
            group = _find_group_of(entry, template, found.groups)
            of_group = f"{group}/{entry.name}"  # no claim of the cluster has a slash in its name
            own_name = ObjectRef(namespace, entry.name if group is None else of_group)
            claims.append(WorkloadClaim(_claim_of(own, own_name), is_shared=group is not None))
        used.add(ref)
    extended = expected_claim(pod, classes.values())
    if extended is not None:
        claims.append(WorkloadClaim(extended, is_shared=False))
    name = ObjectRef(namespace, pod.metadata.name or pod.metadata.generate_name)
    return Workload(
        kind=template.kind,
        name=name,
        replicas=template.replicas,
        pod=pod,
        claims=tuple(claims),
        resources=cluster.resource_use.find_wanted(pod),
    )


def _find_group_of(entry: PodResourceClaim, template: _PodTemplate, groups: Mapping[ObjectRef, PodGroup]) -> str | None:
    """Return the PodGroup whose claim a pod's entry stands for: it has one of the same name and template (KEP-5729).

    Raises InvalidDocumentError if it is not known which claims the pod's group has.
    """
    pod, membership = template.pod, template.pod.spec.scheduling_group
    if membership is None or not membership.pod_group_name:
        return None
    group = groups.get(ObjectRef(pod.metadata.namespace, membership.pod_group_name))
    if group is None:
        message = (
            f"no PodGroup {membership.pod_group_name} is in the documents, so whether claim {entry.name} is the "
            "group's or the pod's own is not known: add the PodGroup to the documents"
        )
        subject = f"{template.kind} {pod.metadata.name}"
        raise InvalidDocumentError(subject, [Problem("spec.schedulingGroup.podGroupName", message)])
    shared = {(each.name, each.resource_claim_template_name) for each in group.spec.resource_claims}
    is_shared = (entry.name, entry.resource_claim_template_name) in shared
    return membership.pod_group_name if is_shared else None


def _look_up(where: str, kind: str, ref: ObjectRef, known: Mapping[ObjectRef, T]) -> T:
    """Return the object that a field names. Raises QueryError, which names the field."""
    if ref not in known:
        raise QueryError(f"{where}: {QueryError.unknown(kind, ref, known, _ADD_IT)}")
    return known[ref]


def _claim_of(template: ResourceClaimTemplate, name: ObjectRef) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(name=name.name, namespace=name.namespace), spec=template.spec.spec)
