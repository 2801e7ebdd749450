"""Faults of what claims name: a class that is not there, not compiled, or matches no device, and attributes and
capacities that no device has.

Kerf's controller compiles a ResourceClass to a DeviceClass of the same name, and says in the conditions of the
ResourceClass why it does not.
"""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.claims import DeviceSelector, ResourceClaim
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.allocation.semantics.matching import selector_expressions
from kerf_dra.driver.cel.attribute_references import Map, Read, analyze_expression
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode
from kerf_dra.driver.families.registry import installed_families
from kerf_dra.driver.scheduling.extended_resources import classes_by_resource

_ALIKE: Final = 0.75
"""How similar two names must be for one to be suggested for the other: "card" is not meant to be "shared" (0.6)."""
_CONDITIONS: Final = ("Accepted", "Ready")
"""The conditions that say why there is no DeviceClass, the cause before its consequence."""
_MATCHING: Final = "Matching"
"""The condition that says why no published device matches."""


def find_missing_classes(cluster: ClusterIndex, claims: Sequence[ResourceClaim]) -> Iterator[Cause]:
    """Yield a cause for each class that ``claims`` name and that does not exist."""
    for claim, path, name in _named_classes(claims):
        if name in cluster.classes:
            continue
        where = f"claim {claim.ref}, {path}.deviceClassName: "
        objects = f"claim {claim.ref}", f"deviceclass {name}"
        source = _resource_class(cluster, name)
        if source is not None:
            why, step = _why_not_compiled(source)
            yield Cause(
                code=CauseCode.CLASS_NOT_COMPILED,
                message=f"{where}ResourceClass {name} has no DeviceClass: {why}",
                next_step=step,
                objects=(*objects, f"resourceclass {name}"),
            )
        else:
            near = get_close_matches(name, cluster.classes, n=3)
            yield Cause(
                code=CauseCode.CLASS_MISSING,
                message=f"{where}device class {name} does not exist"
                + (f"; there is {', '.join(near)}" if near else ""),
                next_step="create the class, or correct the name in the claim or its template; kubectl get "
                "deviceclasses lists what there is",
                objects=objects,
            )


def find_classes_without_devices(cluster: ClusterIndex, claims: Sequence[ResourceClaim]) -> Iterator[Cause]:
    """Yield a cause for each class of ``claims`` of which Kerf's controller says that no device matches."""
    for name in dict.fromkeys(name for _, _, name in _named_classes(claims)):
        source = _resource_class(cluster, name)
        condition = (
            next((each for each in source.status.conditions if each.type == _MATCHING), None) if source else None
        )
        if condition is not None and condition.status != "True" and condition.message:
            yield Cause(
                code=CauseCode.CLASS_MATCHES_NOTHING,
                message=f"ResourceClass {name}: {condition.message}",
                next_step="change the class, or add a node with such devices",
                objects=(f"resourceclass {name}",),
            )


def may_want_own_devices(cluster: ClusterIndex, claims: Sequence[ResourceClaim]) -> bool:
    """Whether a class of ``claims`` may select devices of Kerf's drivers, by the drivers that its CEL names."""
    own = [family.driver for family in installed_families().values()]
    for name in dict.fromkeys(name for _, _, name in _named_classes(claims)):
        class_ = cluster.classes.get(name)
        text = " ".join(selector_expressions(class_.spec.selectors)) if class_ is not None else ""
        if "device.driver" not in text or any(driver in text for driver in own):
            return True
    return False


def find_refused_resource(cluster: ClusterIndex, pod: Pod) -> Cause | None:
    """Return that ``pod`` asks for an extended resource that no node offers, because its class may not."""
    refused = cluster.resource_use.find_refused(pod)
    if refused is None:
        return None
    return Cause(
        code=CauseCode.EXTENDED_RESOURCE_REFUSED,
        message=f"ResourceClass {refused.class_name}: {refused.refusal}",
        next_step=f"correct the class, or what the message names: kubectl describe resourceclass {refused.class_name}",
        objects=(f"resourceclass {refused.class_name}", f"pod {pod.ref}"),
    )


def find_unbacked_resource(cluster: ClusterIndex, pod: Pod) -> Cause | None:
    """Return that ``pod`` asks by extended resources for discovered devices that no plugin gives by them."""
    if cluster.state.classic is not None:
        return None
    backed = classes_by_resource(cluster.classes.values())
    use = cluster.discovered_use
    for name in sorted(use.find_wanted(pod).keys() - backed.keys()):
        class_name = use.find_class(name)
        if class_name is None:
            return Cause(
                code=CauseCode.DISCOVERED_DEVICE_UNSEEN,
                message=f"{name}: there is no DiscoveredDevice {name.partition('/')[2]}",
                next_step="correct the name in limits: kubectl get discovereddevices",
                objects=(f"pod {pod.ref}",),
            )
        if class_name in cluster.classes:
            return Cause(
                code=CauseCode.EXTENDED_RESOURCE_REFUSED,
                message=f"{name}: limits give no discovered devices here, because DeviceClass {class_name} has no "
                "extendedResourceName: the API server keeps it from Kubernetes 1.34 on, with the feature gate "
                "DRAExtendedResource (on from 1.36)",
                next_step=f"have the pod name a claim of the class {class_name} (docs/discovered-devices.md)",
                objects=(f"pod {pod.ref}", f"deviceclass {class_name}"),
            )
    return None


def find_reserved(cluster: ClusterIndex) -> Iterator[Cause]:
    """Yield a cause for each extended resource for which nodes keep free placements: claims cannot have them."""
    use = cluster.resource_use
    for resource in use.resources:
        nodes = [node for node in sorted(resource.allocatable) if use.count_free(resource.name, node)]
        free = sum(use.count_free(resource.name, node) for node in nodes)
        if free:
            kept = sum(resource.allocatable[node] for node in nodes)
            yield Cause(
                code=CauseCode.RESERVED,
                message=f"{list_names(nodes)}: {kept} placements of ResourceClass {resource.class_name} are kept for "
                f"{resource.name}, {free} of them free: claims cannot have them",
                next_step=f"lower devicePlugin.perNode of ResourceClass {resource.class_name}, if claims should have "
                "them: what no container has is returned at once",
                objects=(f"resourceclass {resource.class_name}", *(f"node {node}" for node in nodes)),
                is_fault=False,
            )


def find_unknown_names(cluster: ClusterIndex, claims: Sequence[ResourceClaim]) -> Iterator[tuple[str, str]]:
    """Yield each attribute or capacity that a selector of ``claims`` or of their classes reads and no device has.

    It is a short name, and a sentence that says where it is read and what is probably meant.
    """
    published = _published_names(cluster)
    for where, selectors in _selectors(cluster, claims):
        for index, expression in enumerate(selector_expressions(selectors)):
            for read in analyze_expression(expression).reads:
                if read.id is None or read in published:
                    continue
                meant = _suggest(read, published)
                yield read.id, f"{where}.selectors[{index}]: no device has {_path(read)}{meant}"


def find_unknown_constraints(cluster: ClusterIndex, claims: Sequence[ResourceClaim]) -> Iterator[str]:
    """Yield a sentence for each constraint of ``claims`` on an attribute that no device has: it can hold for none."""
    published = _published_names(cluster)
    for claim in claims:
        for index, constraint in enumerate(claim.spec.devices.constraints):
            kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
            name = constraint.match_attribute or constraint.distinct_attribute or ""
            domain, _, short = name.rpartition("/")
            if Read("attributes", domain, short) in published:
                continue
            by_id = {  # of several drivers that have an attribute the one that is named comes last, and counts
                read.id or "": f"{read.domain}/{read.id}"
                for read in sorted(published, key=lambda known: (known.domain == domain, known.domain))
                if read.map == "attributes"
            }
            near = get_close_matches(short, sorted(by_id), n=1, cutoff=_ALIKE)
            meant = f"; did you mean {by_id[near[0]]}?" if near else ""
            where = f"claim {claim.ref}, spec.devices.constraints[{index}].{kind}"
            yield f"{where}: no device has the attribute {name}{meant}"


def _published_names(cluster: ClusterIndex) -> frozenset[Read]:
    """Return what selectors can read of some published device; names without a domain belong to the driver's."""
    named: set[tuple[Map, str, str]] = set()
    for spec in cluster.slices.contents:
        for device in spec.devices:
            named.update(("attributes", spec.driver, name) for name in device.attributes)
            named.update(("capacity", spec.driver, name) for name in device.capacity)
    parts = ((map_, driver, *name.rpartition("/")) for map_, driver, name in named)
    return frozenset(Read(map_, domain or driver, short) for map_, driver, domain, _, short in parts)


def _selectors(
    cluster: ClusterIndex, claims: Sequence[ResourceClaim]
) -> Iterator[tuple[str, tuple[DeviceSelector, ...]]]:
    """Yield the selectors of the classes that ``claims`` name, and of all their requests, with the path above them."""
    for name in dict.fromkeys(name for _, _, name in _named_classes(claims)):
        if (device_class := cluster.classes.get(name)) is not None:
            yield f"deviceclass {name}, spec", device_class.spec.selectors
    for claim in claims:
        for index, request in enumerate(claim.spec.devices.requests):
            path = f"claim {claim.ref}, spec.devices.requests[{index}]"
            if request.exactly is not None:
                yield f"{path}.exactly", request.exactly.selectors
            for number, alternative in enumerate(request.first_available):
                yield f"{path}.firstAvailable[{number}]", alternative.selectors


def _suggest(read: Read, published: Collection[Read]) -> str:
    """Return what is meant: the most similar name of the most similar domain, or the same name of any domain."""
    domain = get_close_matches(read.domain, sorted({known.domain for known in published}), n=1)
    by_id = {
        known.id or "": known
        for known in sorted(published, key=lambda known: known.map == read.map)
        if known.domain in domain
    }
    if near := get_close_matches(read.id or "", by_id, n=1):
        return f"; did you mean {_path(by_id[near[0]])}?"
    domains = sorted(known.domain for known in published if (known.map, known.id) == (read.map, read.id))
    if not domains:
        return ""
    closest = get_close_matches(read.domain, domains, n=1, cutoff=0)[0]
    return f"; devices of {list_names(domains)} have it: write {_path(read._replace(domain=closest))}"


def _path(read: Read) -> str:
    return f'device.{read.map}["{read.domain}"].{read.id}'


def _why_not_compiled(source: ResourceClassObject) -> tuple[str, str]:
    name, status = source.metadata.name, source.status
    if (status.observed_generation or 0) < source.metadata.generation or not status.conditions:
        return (
            f"the controller has not looked at generation {source.metadata.generation} of it",
            "check that Kerf's controller runs: kubectl get pods -A shows it",
        )
    by_type = {condition.type: condition for condition in status.conditions}
    for type_ in _CONDITIONS:
        condition = by_type.get(type_)
        if condition is not None and condition.status == "False":
            step = f"correct the field: kubectl edit resourceclass {name}" if type_ == "Accepted" else ""
            return (
                f"condition {type_} is False, {condition.reason}: {condition.message}",
                step or f"see the condition and act on it: kubectl describe resourceclass {name}",
            )
    return "it was deleted", "wait some seconds: Kerf's controller creates it again; if nothing changes, see its log"


def _resource_class(cluster: ClusterIndex, name: str) -> ResourceClassObject | None:
    return next((each for each in cluster.state.resource_classes if each.metadata.name == name), None)


def _named_classes(claims: Sequence[ResourceClaim]) -> Iterator[tuple[ResourceClaim, str, str]]:
    """Yield claim, path of the request and name of the class, for each request and alternative of ``claims``."""
    for claim in claims:
        for index, request in enumerate(claim.spec.devices.requests):
            path = f"spec.devices.requests[{index}]"
            if request.exactly is not None:
                yield claim, f"{path}.exactly", request.exactly.device_class_name
            for number, alternative in enumerate(request.first_available):
                yield claim, f"{path}.firstAvailable[{number}]", alternative.device_class_name
