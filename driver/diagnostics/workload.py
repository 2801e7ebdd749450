"""What documents ask for: pods with their claims, from manifests and from what the cluster has already.

Understood are pods, everything that makes pods from a template, claims and claim templates; classes in the documents
stand beside those of the cluster. Claims and templates that no pod of the documents uses are asked for by themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from api.core.v1 import PODS, Pod
from api.errors import InvalidDocumentError, KerfError, Problem
from api.kerf.decoder import decode_resource_class
from api.kerf.v1alpha1 import ResourceClass
from api.model.base import JsonObject
from api.model.claims import DeviceClass, ResourceClaim, ResourceClaimTemplate
from api.model.metadata import ObjectMeta
from api.model.names import KERF_DRIVER, ObjectRef
from api.resource.v1 import KINDS
from driver.controller.device_types import device_type_of, known_device_types
from driver.controller.structured.class_compiler import compile_class
from driver.diagnostics.cluster_index import Cluster
from driver.diagnostics.errors import QuestionError
from driver.scheduling.extended_resources import expected_claim

_COPIES: Final = {
    ("apps/v1", "Deployment"): "replicas",
    ("apps/v1", "ReplicaSet"): "replicas",
    ("apps/v1", "StatefulSet"): "replicas",
    ("batch/v1", "Job"): "parallelism",
}
"""Kinds with a pod template, and the field of their spec that says how many pods there are at once."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One claim of a demand."""

    claim: ResourceClaim
    is_shared: bool
    """All replicas use this very claim; else each gets one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Something to place, once or several times."""

    kind: str
    name: ObjectRef
    replicas: int
    pod: Pod | None
    claims: tuple[Asked, ...]
    """In the order in which the scheduler allocates them."""

    @property
    def takes_more(self) -> bool:
        """Whether one more replica takes devices of its own."""
        return any(not asked.is_shared for asked in self.claims)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """All that documents ask for."""

    demands: tuple[Demand, ...]
    classes: tuple[DeviceClass, ...]
    """Those of the documents."""
    passed_over: tuple[str, ...]
    """Documents of kinds that have nothing to do with devices."""


class _Pods(NamedTuple):
    """Pods of one document."""

    kind: str
    replicas: int
    pod: Pod


@dataclass(frozen=True, slots=True)
class _Documents:
    pods: list[_Pods] = field(default_factory=list)
    claims: dict[ObjectRef, ResourceClaim] = field(default_factory=dict)
    templates: dict[ObjectRef, ResourceClaimTemplate] = field(default_factory=dict)
    classes: list[DeviceClass] = field(default_factory=list)
    resource_classes: list[ResourceClass] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)


def read_demands(cluster: Cluster, documents: Sequence[JsonObject], *, namespace: str) -> Demands:
    """What ``documents`` ask of ``cluster``; ``namespace`` is theirs where they name none.

    Raises InvalidDocumentError for documents that cannot be read, and QuestionError for names that neither they nor the
    cluster have.
    """
    found = _Documents()
    for body in documents:
        _read(found, body, namespace)
    classes = (*found.classes, *_compiled(cluster, found.resource_classes))
    known = {**cluster.classes, **{each.metadata.name: each for each in classes}}
    used: set[ObjectRef] = set()
    demands = [_of_pod(cluster, found, known, each, used) for each in found.pods]
    for ref, claim in found.claims.items():
        if ref not in used:
            demands.append(
                Demand(kind="ResourceClaim", name=ref, replicas=1, pod=None, claims=(Asked(claim, is_shared=False),))
            )
    for ref, template in found.templates.items():
        if ref not in used:
            own = (Asked(_claim_of(template, ref), is_shared=False),)
            demands.append(Demand(kind="ResourceClaimTemplate", name=ref, replicas=1, pod=None, claims=own))
    return Demands(
        demands=tuple(demands),
        classes=classes,
        passed_over=tuple(found.passed_over),
    )


def _read(found: _Documents, body: JsonObject, namespace: str) -> None:
    key = str(body.get("apiVersion", "")), str(body.get("kind", ""))
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    subject = f"{key[1] or 'document'} {metadata.get('name') or metadata.get('generateName') or '(no name)'}"
    namespaced = {**body, "metadata": {"namespace": namespace, **metadata}}
    try:
        if key in _COPIES:
            found.pods.append(_templated(namespaced, key))
        elif key == ("v1", "Pod"):
            found.pods.append(_Pods("Pod", 1, PODS.decode(msgspec.json.encode(namespaced))))
        elif key == ("resource.k8s.io/v1", "ResourceClaim"):
            claim = KINDS.resource_claims.decode(msgspec.json.encode(namespaced))
            found.claims[claim.ref] = claim
        elif key == ("resource.k8s.io/v1", "ResourceClaimTemplate"):
            template = KINDS.resource_claim_templates.decode(msgspec.json.encode(namespaced))
            found.templates[template.ref] = template
        elif key == ("resource.k8s.io/v1", "DeviceClass"):
            found.classes.append(KINDS.device_classes.decode(msgspec.json.encode(body)))
        elif key == ("kerf.dev/v1alpha1", "ResourceClass"):
            found.resource_classes.append(decode_resource_class(body))
        elif key[0].startswith("resource.k8s.io/"):
            raise InvalidDocumentError(subject, [Problem("apiVersion", f"is {key[0]}; write resource.k8s.io/v1")])
        else:
            found.passed_over.append(subject)
    except InvalidDocumentError:
        raise
    except KerfError as error:
        raise InvalidDocumentError(subject, [Problem("", str(error))]) from error


def _templated(body: JsonObject, key: tuple[str, str]) -> _Pods:
    spec: Any = body.get("spec") or {}
    template: Any = spec.get("template") or {}
    pod = {"metadata": body["metadata"], "spec": template.get("spec") or {}}
    replicas = spec.get(_COPIES[key], 1)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        message = f"is {replicas!r}, not a number of pods"
        raise InvalidDocumentError(
            f"{key[1]} {body['metadata'].get('name')}", [Problem(f"spec.{_COPIES[key]}", message)]
        )
    return _Pods(key[1], replicas, PODS.decode(msgspec.json.encode(pod)))


def _of_pod(
    cluster: Cluster, found: _Documents, classes: Mapping[str, DeviceClass], pods: _Pods, used: set[ObjectRef]
) -> Demand:
    pod = pods.pod
    asked: list[Asked] = []
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name:
            ref = ObjectRef(pod.metadata.namespace, entry.resource_claim_name)
            claims = {**cluster.claims, **found.claims}
            if ref not in claims:
                raise QuestionError.unknown("ResourceClaim", ref, claims)
            asked.append(Asked(claims[ref], is_shared=True))
        else:
            ref = ObjectRef(pod.metadata.namespace, entry.resource_claim_template_name or "")
            known = {**cluster.templates, **found.templates}
            if ref not in known:
                raise QuestionError.unknown("ResourceClaimTemplate", ref, known)
            asked.append(Asked(_claim_of(known[ref], ObjectRef(ref.namespace, entry.name)), is_shared=False))
        used.add(ref)
    extended = expected_claim(pod, classes.values())
    if extended is not None:
        asked.append(Asked(extended, is_shared=False))
    name = pod.metadata.name or pod.metadata.generate_name
    return Demand(
        kind=pods.kind,
        name=ObjectRef(pod.metadata.namespace, name),
        replicas=pods.replicas,
        pod=pod,
        claims=tuple(asked),
    )


def _claim_of(template: ResourceClaimTemplate, name: ObjectRef) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(name=name.name, namespace=name.namespace), spec=template.spec.spec)


def _compiled(cluster: Cluster, resource_classes: Sequence[ResourceClass]) -> list[DeviceClass]:
    """The DeviceClasses that the controller would make. Raises UnsatisfiableError."""
    if not resource_classes:
        return []
    published = (device for slice_ in cluster.state.slices for device in slice_.spec.devices)
    device_types = known_device_types(frozenset(map(device_type_of, published)))
    return [
        compile_class(each, driver=KERF_DRIVER, nodes=cluster.nodes, device_types=device_types).device_class
        for each in resource_classes
    ]
