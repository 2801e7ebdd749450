"""Converts pods that count devices in ``limits`` to claims: of Kerf's resources, NVIDIA's, Intel's and Akri's. Pure.

Each container gets a claim of its own, made from a template, as it had devices of its own. What Intel's scheduler
extender (GAS) wrote into annotations is left out, because kube-scheduler decides it; what users wrote there, to steer
the extender, becomes a remark where a claim says it in another way.
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kerf_dra.api.errors import InvalidQuantityError
from kerf_dra.api.kerf.v1alpha1 import API_VERSION
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.device_attributes import ATTRIBUTE_UUID
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.families.counted_resources import (
    INTEL,
    INTEL_CARDS,
    INTEL_PARTS,
    find_mig_profile,
    is_convertible,
)
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.families.shared.objects import name_class
from kerf_dra.driver.migration.akri import DOMAIN, find_configuration, name_of
from kerf_dra.driver.migration.classic import REQUEST, V1, MigrationResult, leave_out
from kerf_dra.driver.migration.extended_resources import (
    describe_unconverted,
    find_extended_resources,
    is_independent,
    is_known_profile,
)

_TEMPLATES: Final[Mapping[str, Sequence[str]]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "PodTemplate": ("template",),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Where the pod is in objects of a kind."""
WORKLOADS: Final = tuple(_TEMPLATES)
"""The kinds whose pods are converted."""
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
"""The variable by which NVIDIA's container runtime adds cards."""
_LABELS: Final = ("nvidia.com/", "gpu.intel.com/", "akri.sh/")
"""The labels of nodes that the systems set which Kerf takes the place of."""
_GAS: Final = "gas-"
_GAS_DECISIONS: Final = frozenset({"gas-ts", "gas-container-cards", "gas-container-tiles"})
"""What the extender itself wrote: the scheduler decides it again."""
_OTHER_SCHEDULERS: Final = re.compile(
    r"(nvidia\.com|hami\.io|volcano\.sh|nos\.nebuly\.com)/.*|gpu-(fraction|memory)(-.*)?"
)
"""Annotations of pods by which users of HAMi, Volcano, nos and KAI choose cards or parts of them."""
_GAS_WISHES: Final[Mapping[str, str]] = {
    "gas-allow": 'name the cards by a selector, such as device.attributes["resource.kubernetes.io"].pciBusID',
    "gas-deny": 'leave the cards out by a selector, such as device.attributes["resource.kubernetes.io"].pciBusID',
    "gas-same-gpu": "let the containers use one claim: write its name into the resources.claims of all of them",
    "gas-allocate-xelink": "links between cards are not published; keep devices together by a constraint with "
    "matchAttribute: gpu-intel.kerf.dev/numaNode",
    "gas-allocate-single-numa": "add a constraint with matchAttribute: gpu-intel.kerf.dev/numaNode",
}


class _Shape(msgspec.Struct, rename="camel"):
    """The shape of what is read and written of a workload; other fields are left as they are."""


class _Resources(_Shape):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None
    claims: list[JsonObject] = []


class _Container(_Shape):
    name: str
    resources: _Resources | None = None


class _PodSpec(_Shape):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    resource_claims: list[JsonObject] = []


class _Metadata(_Shape):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Pod(_Shape):
    """A pod, or the template of one."""

    spec: _PodSpec
    metadata: _Metadata | None = None


@dataclass(frozen=True, slots=True)
class _Wish:
    """A request for devices of one container."""

    class_name: str
    count: int
    capacity: JsonObject = field(default_factory=dict)
    distinct: str = ""
    """The attribute in which the devices must differ; empty: none."""


@dataclass(slots=True)
class _Conversion:
    """One workload while it is converted."""

    subject: str
    offered: Mapping[str, str]
    configurations: frozenset[str]
    by_dra: Mapping[str, str]
    classes: dict[str, JsonObject] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def want(self, name: str, count: int, capacity: JsonObject | None = None, **spec: str) -> _Wish:
        """Return a request for devices of a class, which is made."""
        self.classes[name] = {
            "apiVersion": API_VERSION,
            "kind": "ResourceClass",
            "metadata": {"name": name},
            "spec": spec,
        }
        return _Wish(name, count, capacity or {})


def find_offered(documents: Sequence[JsonObject]) -> Mapping[str, str]:
    """Return the ResourceClass of each extended resource that one of ``documents`` offers (``devicePlugin``)."""
    found: dict[str, str] = {}
    for document in documents:
        spec = document.get("spec")
        offer = spec.get("devicePlugin") if document.get("kind") == "ResourceClass" and isinstance(spec, dict) else None
        if isinstance(offer, dict) and isinstance(offer.get("resource"), str):
            found[offer["resource"]] = name_of(document)
    return found


def find_offered_by_dra(documents: Sequence[JsonObject]) -> Mapping[str, str]:
    """Return the class of each extended resource for which Kubernetes itself makes claims (KEP-5004)."""
    found: dict[str, str] = {}
    for document in documents:
        spec = document.get("spec")
        if document.get("kind") in ("ResourceClass", "DeviceClass") and isinstance(spec, dict):
            found[str(spec.get("extendedResourceName"))] = f"{document['kind']} {name_of(document)}"
    return found


def migrate_workload(
    document: JsonObject,
    offered: Mapping[str, str],
    configurations: frozenset[str] = frozenset(),
    by_dra: Mapping[str, str] = MappingProxyType({}),
) -> MigrationResult | None:
    """Return the classes, the templates and the workload with claims in place of its ``limits`` of devices.

    ``offered`` are the classes that offer resources of their own, ``configurations`` the known Configurations of Akri
    and those that were made of them, ``by_dra`` the classes for whose resources Kubernetes makes claims. A container
    with a resource that cannot be converted stays as it is. None: the document is no pod and has none. A workload that
    cannot be read, or that has nothing to convert, is left out.
    """
    workload = copy.deepcopy(document)
    pod = _find_pod(workload)
    if pod is None:
        return None
    subject = f"{document.get('kind')} {name_of(document)}"
    try:
        own = msgspec.convert(workload.get("metadata") or {}, _Metadata)
        msgspec.convert(pod, _Pod)
    except msgspec.ValidationError as error:
        return leave_out(subject, str(error))
    name = own.name or own.generate_name.rstrip("-")
    conversion = _Conversion(f"{document.get('kind')} {name}", offered, configurations, by_dra)
    spec: JsonObject = pod["spec"]
    templates: list[JsonObject] = []
    for container in _containers(spec):
        if wishes := list(_take_limits(container, conversion)):
            template = f"{name}-{container['name']}"
            templates.append(_template(template, own.namespace, wishes))
            _name_claim(spec, container, template)
    conversion.left += (
        f"{conversion.subject}: {path}: left as it is: {describe_unconverted(resource)}"
        for path, resource in find_extended_resources(_without_containers(workload, pod))
    )
    metadata: JsonObject = workload.get("metadata") or {}
    for held in {id(each): each for each in (metadata, pod.get("metadata") or {})}.values():
        _take_annotations(held, conversion)
    left, remarks = tuple(conversion.left), tuple(conversion.remarks)
    if not templates:
        why = "none of its containers is converted" if left else "its containers have no limits of devices"
        return MigrationResult(documents=(), left=(*left, f"{subject}: left out: {why}{_describe_claims(spec)}"))
    if not name:
        return leave_out(subject, "metadata.name: is required, because the claim template is named by it")
    remarks += tuple(f"{conversion.subject}: {remark}" for remark in _scheduling_remarks(spec))
    documents = (*conversion.classes.values(), *templates, workload)
    return MigrationResult(documents=documents, remarks=remarks, left=left)


def _find_pod(workload: JsonObject) -> JsonObject | None:
    """Return the pod, or the template of one, of a document of a known kind that has a spec for it."""
    kind = str(workload.get("kind"))
    if kind not in _TEMPLATES:
        return None
    pod: Any = workload
    for step in _TEMPLATES[kind]:
        pod = pod.get(step) if isinstance(pod, dict) else None
    return pod if isinstance(pod, dict) and isinstance(pod.get("spec"), dict) else None


def _containers(spec: JsonObject) -> Iterator[JsonObject]:
    """Yield the containers of a pod that may have devices; those that ``kubectl debug`` adds may not."""
    yield from (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))


def _without_containers(workload: JsonObject, pod: JsonObject) -> JsonObject:
    """Return ``workload`` with all that may count devices but the containers of its ``pod``."""
    rest = {key: value for key, value in pod["spec"].items() if key not in ("containers", "initContainers")}
    outer: JsonObject = {key: value for key, value in workload.items() if key not in ("spec", "template")}
    return {**outer, "spec": rest}


def _name_claim(spec: JsonObject, container: JsonObject, template: str) -> None:
    """Have ``container`` use a claim of ``template``, by a name that no other claim of the pod has."""
    claims = spec.get("resourceClaims") or []
    taken = {each.get("name") for each in claims}
    name = container["name"]
    while name in taken:
        name += "-device"
    spec["resourceClaims"] = [*claims, {"name": name, "resourceClaimTemplateName": template}]
    container["resources"]["claims"] = [*(container["resources"].get("claims") or ()), {"name": name}]


def _describe_claims(spec: JsonObject) -> str:
    names = [str(each.get("name")) for each in spec.get("resourceClaims") or ()]
    return f", and it names claims already: {', '.join(names)}" if names else ""


def _scheduling_remarks(spec: JsonObject) -> Iterator[str]:
    """Yield what else in a pod may keep it from its claims, or give it more than they do."""
    scheduler = spec.get("schedulerName")
    if scheduler not in (None, "default-scheduler"):
        yield f"schedulerName: {scheduler}: must allocate claims as kube-scheduler does, or leave it out"
    selected = spec.get("nodeSelector")
    for label in sorted(map(str, selected)) if isinstance(selected, dict) else ():
        if label.startswith(_LABELS):
            yield f"nodeSelector: {label}: keep what sets this label, or choose models by the class (spec.models)"
    for container in _containers(spec):
        variables = container.get("env")
        for variable in variables if isinstance(variables, list) else ():
            if isinstance(variable, dict) and variable.get("name") == _VISIBLE:
                yield (
                    f"container {container['name']}: env {_VISIBLE}: NVIDIA's container runtime adds the cards that it "
                    "names to those of the claim: remove it"
                )


def _take_limits(container: JsonObject, conversion: _Conversion) -> Iterator[_Wish]:
    """Yield what a container counts of devices, and remove it; nothing of a container that stays as it is."""
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return
    where = f"{conversion.subject}, container {container['name']}"
    limits: JsonObject = resources.get("limits") or {}
    names = [name for _, name in find_extended_resources(resources)]
    faults = {name: fault for name in names if (fault := _find_fault(name, limits, conversion))}
    blocking = [name for name in faults if not is_independent(name) and name not in conversion.by_dra]
    taken = [] if blocking else [name for name in names if name not in faults]
    for name in names:
        if name not in taken:
            why = faults.get(name, f"a container is converted as a whole, and {', '.join(blocking)} is not")
            conversion.left.append(f"{where}: resources.limits.{name}: left as it is: {why}")
    amounts = {name: Quantity(str(limits[name])) for name in taken}
    for name in taken:
        if name not in (*INTEL_CARDS, *INTEL_PARTS):
            yield _want(name, int(amounts[name]), where, conversion)
    intel = {name: amounts[name] for name in taken if name in (*INTEL_CARDS, *INTEL_PARTS)}
    yield from _want_intel(intel, where, conversion)
    for field_ in ("limits", "requests") if taken else ():
        if isinstance(resources.get(field_), dict):
            resources[field_] = {name: amount for name, amount in resources[field_].items() if name not in taken}
            if not resources[field_]:
                del resources[field_]


def _find_fault(name: str, limits: JsonObject, conversion: _Conversion) -> str | None:
    """Return why an extended resource of a container is not converted; None: it can be."""
    if name in conversion.by_dra:
        return f"Kubernetes makes a claim of it, by extendedResourceName of {conversion.by_dra[name]}"
    profile = find_mig_profile(name)
    is_known = name in conversion.offered or (is_convertible(name) and (profile is None or is_known_profile(profile)))
    if not is_known:
        return describe_unconverted(name)
    if name not in limits:
        return "requests has it, and limits does not: Kubernetes refuses such a pod"
    try:
        amount = Quantity(str(limits[name]))
    except InvalidQuantityError as error:
        return str(error)
    if not amount.is_integer or amount < Quantity(1):
        return f"{limits[name]} is no number of devices: write a whole number from 1 on, or remove it"
    return None


def _want(name: str, count: int, where: str, conversion: _Conversion) -> _Wish:
    """Return the request for devices that an extended resource counts."""
    if name in conversion.offered:
        class_name = conversion.offered[name]
        conversion.remarks.append(
            f"{where}: {name}: remove devicePlugin from ResourceClass {class_name} once no pod asks for it any more"
        )
        return _Wish(class_name, count)
    if name.startswith(f"{DOMAIN}/"):
        return _want_discovered(name, count, where, conversion)
    profile = find_mig_profile(name)
    if profile is None:
        return conversion.want("gpu-whole", count, device="gpu", cut="Whole")
    suffix = profile.translate({ord(each): "-" for each in ".+"})
    return conversion.want(f"gpu-{suffix}", count, device="gpu", profile=profile)


def _want_discovered(resource: str, count: int, where: str, conversion: _Conversion) -> _Wish:
    """Return the request for any device of a Configuration of Akri, or for the device of an Instance.

    The DeviceClass of either is made of the DiscoveryConfiguration. Akri gives a container different devices of a
    Configuration, and several slots of the one device of an Instance.
    """
    name = resource.removeprefix(f"{DOMAIN}/")
    instance_of = find_configuration(name, conversion.configurations)
    if instance_of is not None:
        conversion.remarks.append(
            f"{where}: {resource}: names one device: kubectl get discovereddevices says whether it is found as {name}"
        )
    if (configuration := instance_of or name) not in conversion.configurations:
        conversion.remarks.append(
            f"{where}: {resource}: the pod waits until there is a DiscoveryConfiguration {configuration}, which these "
            "files do not have"
        )
    distinct = f"{SHARED.driver}/{ATTRIBUTE_UUID}" if count > 1 and instance_of is None else ""
    return _Wish(name_class(name), count, distinct=distinct)


def _want_intel(limits: Mapping[str, Quantity], where: str, conversion: _Conversion) -> Iterator[_Wish]:
    """Yield the request for Intel's cards, tiles or shares: amounts were sums over the cards that were counted."""
    if not limits:
        return
    cards = sum(int(limits[name]) for name in INTEL_CARDS if name in limits) or 1
    tiles = int(limits.get(f"{INTEL}tiles", Quantity(0)))
    memory = limits.get(f"{INTEL}memory.max")
    millicores = limits.get(f"{INTEL}millicores")
    if tiles:
        if memory is not None or millicores is not None:
            conversion.remarks.append(
                f"{where}: of tiles, memory and millicores the tiles are kept: a tile has its part"
            )
        yield conversion.want("intel-tile", tiles, device="gpu-intel", profile="1t")
    elif memory is None and millicores is None:
        yield conversion.want("intel-card", cards, device="gpu-intel", cut="Whole")
    else:
        each: JsonObject = {}
        if memory is not None:
            each["memory"] = str(to_builtins(Quantity.of_bytes(-(-int(memory) // cards))))
        if millicores is not None:
            each["millicores"] = str(-(-int(millicores) // cards))
        yield conversion.want(
            "intel-share", cards, {"requests": each}, device="gpu-intel", cut="Whole", allocation="Shared"
        )


def _take_annotations(metadata: JsonObject, conversion: _Conversion) -> None:
    """Remove the annotations of Intel's scheduler extender; name what users wrote there and for other schedulers."""
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict):
        return
    for name in sorted(map(str, annotations)):
        value = annotations[name]
        if name.startswith(_GAS):
            del annotations[name]
            if name not in _GAS_DECISIONS:
                step = _GAS_WISHES.get(name, "it has no equivalent that is known")
                conversion.left.append(f"{conversion.subject}: annotation {name}: {value}: left out: {step}")
        elif _OTHER_SCHEDULERS.fullmatch(name):
            conversion.left.append(
                f"{conversion.subject}: annotation {name}: {value}: left as it is: the scheduler of another project "
                "reads it, and no claim does: have the claim say it (docs/asking-for-devices.md)"
            )
    if not annotations:
        del metadata["annotations"]


def _template(name: str, namespace: str, wishes: Sequence[_Wish]) -> JsonObject:
    requests: list[JsonObject] = []
    constraints: list[JsonObject] = []
    for number, wish in enumerate(wishes):
        exactly: JsonObject = {"deviceClassName": wish.class_name}
        if wish.count != 1:
            exactly["count"] = wish.count
        if wish.capacity:
            exactly["capacity"] = wish.capacity
        request = REQUEST if len(wishes) == 1 else f"{REQUEST}-{number}"
        requests.append({"name": request, "exactly": exactly})
        if wish.distinct:
            constraints.append({"requests": [request], "distinctAttribute": wish.distinct})
    return {
        "apiVersion": V1,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {"spec": {"devices": {"requests": requests, **({"constraints": constraints} if constraints else {})}}},
    }
