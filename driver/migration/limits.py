"""Converts pods that count devices in ``limits`` to claims: of Kerf's resources, NVIDIA's, Intel's and Akri's. Pure.

Each container gets a claim of its own, made from a template, as it had devices of its own. What Intel's scheduler
extender (GAS) wrote into annotations is left out, because kube-scheduler decides it; what users wrote there, to steer
the extender, becomes a remark where a claim says it in another way.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kerf_dra.api.errors import InvalidQuantityError
from kerf_dra.api.kerf.v1alpha1 import API_VERSION
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.device_attributes import ATTRIBUTE_UUID
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.families.counted_resources import INTEL, NVIDIA_GPU, NVIDIA_MIG
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.families.shared.objects import name_class
from kerf_dra.driver.migration.akri import DOMAIN, find_configuration, name_of
from kerf_dra.driver.migration.classic import REQUEST, V1, MigrationResult, leave_out

_TEMPLATES: Final[Mapping[str, Sequence[str]]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Where the pod is in objects of a kind."""
_INTEL_CARDS: Final = (f"{INTEL}i915", f"{INTEL}xe")
_INTEL_PARTS: Final = (f"{INTEL}millicores", f"{INTEL}memory.max", f"{INTEL}tiles")
_MONITORING: Final = (f"{INTEL}i915_monitoring", f"{INTEL}xe_monitoring")
_GAS: Final = "gas-"
_GAS_DECISIONS: Final = frozenset({"gas-ts", "gas-container-cards", "gas-container-tiles"})
"""What the extender itself wrote: the scheduler decides it anew."""
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
    classes: dict[str, JsonObject] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

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


def migrate_workload(
    document: JsonObject, offered: Mapping[str, str], configurations: frozenset[str] = frozenset()
) -> MigrationResult | None:
    """Return the classes, the templates and the workload with claims in place of its ``limits`` of devices.

    ``offered`` are the classes that offer resources of their own, ``configurations`` the known Configurations of Akri
    and those that were made of them. None: it has no such limits. A workload that cannot be read is left out.
    """
    kind = str(document.get("kind"))
    if kind not in _TEMPLATES:
        return None
    workload = copy.deepcopy(document)
    pod: Any = workload
    for step in _TEMPLATES[kind]:
        pod = pod.get(step) if isinstance(pod, dict) else None
    spec = pod.get("spec") if isinstance(pod, dict) else None
    if not isinstance(spec, dict):
        return None
    subject = f"{kind} {name_of(document)}"
    try:
        own = msgspec.convert(workload.get("metadata") or {}, _Metadata)
        msgspec.convert(pod, _Pod)
    except msgspec.ValidationError as error:
        return leave_out(subject, str(error))
    metadata: JsonObject = workload.get("metadata") or {}
    name = own.name or own.generate_name.rstrip("-")
    conversion = _Conversion(f"{kind} {name}", offered, configurations)
    templates: list[JsonObject] = []
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        try:
            wishes = list(_take_limits(container, conversion))
        except InvalidQuantityError as error:
            return leave_out(subject, f"container {container['name']}: {error}")
        if not wishes:
            continue
        template = f"{name}-{container['name']}"
        templates.append(_template(template, own.namespace, wishes))
        entry = {"name": container["name"], "resourceClaimTemplateName": template}
        spec.setdefault("resourceClaims", []).append(entry)
        container["resources"].setdefault("claims", []).append({"name": container["name"]})
    for held in {id(each): each for each in (metadata, pod.get("metadata") or {})}.values():
        _take_annotations(held, conversion)
    if not templates and not conversion.remarks:
        return None
    documents = (*conversion.classes.values(), *templates, workload) if templates else ()
    return MigrationResult(documents=documents, remarks=tuple(conversion.remarks))


def _take_limits(container: JsonObject, conversion: _Conversion) -> Iterator[_Wish]:
    """Yield what a container counts of devices, and remove it."""
    resources = container.get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    if not isinstance(resources, dict) or not isinstance(limits, dict):
        return
    where = f"{conversion.subject}, container {container.get('name')}"
    intel = {name: Quantity(str(limits[name])) for name in (*_INTEL_CARDS, *_INTEL_PARTS) if name in limits}
    taken = set(intel)
    for name, amount in limits.items():
        count = int(Quantity(str(amount))) if "/" in name and name not in intel else 0
        if name in conversion.offered:
            class_name = conversion.offered[name]
            conversion.remarks.append(
                f"{where}: {name}: remove devicePlugin from ResourceClass {class_name} once no pod asks for it any more"
            )
            yield _Wish(class_name, count)
        elif name == NVIDIA_GPU:
            yield conversion.want("gpu-whole", count, device="gpu", cut="Whole")
        elif match := NVIDIA_MIG.fullmatch(name):
            profile = match[1].replace(".me", "+me")
            class_name = f"gpu-{match[1].replace('.', '-')}"
            yield conversion.want(class_name, count, device="gpu", profile=profile)
        elif name.startswith(f"{DOMAIN}/"):
            yield _want_discovered(name, count, where, conversion)
        elif name in _MONITORING:
            conversion.remarks.append(
                f"{where}: {name}: make a class with cut: Monitor; its claims need adminAccess, in a namespace that is "
                "labeled for it (docs/admin-access.md)"
            )
        else:
            continue
        taken.add(name)
    yield from _want_intel(intel, where, conversion)
    for kept in ("limits", "requests"):
        amounts = resources.get(kept)
        if isinstance(amounts, dict):
            resources[kept] = {name: amount for name, amount in amounts.items() if name not in taken}
            if not resources[kept]:
                del resources[kept]


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
    cards = sum(int(limits[name]) for name in _INTEL_CARDS if name in limits) or 1
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
    """Remove the annotations of the scheduler extender, with a remark for each that a user wrote."""
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict):
        return
    for name in sorted(each for each in annotations if str(each).startswith(_GAS)):
        value = annotations.pop(name)
        if name not in _GAS_DECISIONS:
            step = _GAS_WISHES.get(name, "it has no equivalent that is known")
            conversion.remarks.append(f"{conversion.subject}: annotation {name}: {value}: left out: {step}")
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
