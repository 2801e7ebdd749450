"""Fields of pods and claims that change nothing: a claim that reaches no container, and the like.

The scheduler allocates every claim of a pod, and the kubelet gives each container the devices of the claims and
requests that its ``resources.claims`` name (KEP-4381); a configuration reaches the driver that it names, if that driver
gives devices for its requests. The rest is legal, and mostly a mistake.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kerf_dra.api.core.v1 import Container, Pod
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import RequestName, list_names


def find_ineffective_fields(
    pod: Pod, claims: Mapping[str, ResourceClaim], drivers: Collection[str] = ()
) -> Iterator[str]:
    """Yield a sentence for each field of ``pod`` and its ``claims`` that has no effect.

    ``claims`` are those that exist, by the name of their entry in ``spec.resourceClaims``; ``drivers`` publish devices.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    yield from _find_unused_claims(pod, containers)
    for container in containers:
        yield from _find_unknown_requests(container, pod, claims)
    for entry, claim in claims.items():
        yield from find_ineffective_configurations(entry, claim, drivers)


def find_ineffective_configurations(name: str, claim: ResourceClaim, drivers: Collection[str] = ()) -> Iterator[str]:
    """Yield a sentence for each configuration of ``claim`` that is for a driver which gives it no device.

    The sentences call the claim ``name``: one that was made from a template is known by its entry of the pod.
    Several configurations for the same requests may be for different drivers, of which one gives the devices.
    """
    configurations = [*_list_configurations(claim)]
    for each in configurations:
        giving = _find_giving_drivers(claim, each.requests)
        others = {other.driver for other in configurations if other.requests == each.requests}
        if each.driver in giving:
            continue
        if drivers and each.driver not in drivers:
            why = f"driver {each.driver}, of which no node publishes a device"
        elif giving and not giving & others and not _has_alternatives(claim, each.requests):
            why = f"driver {each.driver}, and {list_names(sorted(giving))} gives the devices"
        else:
            continue
        step = f"write driver: {min(giving)}, if they are for it, or remove" if giving else "remove"
        yield f"claim {name}, {each.path}: the parameters are for {why}: they have no effect; {step} the entry"


class _Configuration(NamedTuple):
    """The parameters for one driver, of a claim or of the class of a request."""

    path: str
    requests: frozenset[str]
    """The names of the requests; empty: all."""
    driver: str


def _list_configurations(claim: ResourceClaim) -> Iterator[_Configuration]:
    for index, each in enumerate(claim.spec.devices.config):
        if each.opaque is not None:
            yield _Configuration(f"spec.devices.config[{index}]", _base_names(each.requests), each.opaque.driver)
    allocation = claim.status.allocation
    for one in allocation.devices.config if allocation else ():
        if one.source == "FromClass" and one.opaque is not None:
            path = f"class of request {list_names(one.requests)}"
            yield _Configuration(path, _base_names(one.requests), one.opaque.driver)


def _find_giving_drivers(claim: ResourceClaim, requests: Collection[str]) -> set[str]:
    """Return the drivers of the devices that are allocated for ``requests``, or for all."""
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    return {each.driver for each in results if not requests or RequestName.parse(each.request).request in requests}


def _has_alternatives(claim: ResourceClaim, requests: Collection[str]) -> bool:
    """Whether parameters may be for alternatives of a request that were not chosen (KEP-4816)."""
    return any(each.first_available for each in claim.spec.devices.requests if not requests or each.name in requests)


def _base_names(requests: Iterable[str]) -> frozenset[str]:
    return frozenset(RequestName.parse(name).request for name in requests)


def _find_unused_claims(pod: Pod, containers: Sequence[Container]) -> Iterator[str]:
    used = {wanted.name for container in containers for wanted in container.resources.claims}
    for index, entry in enumerate(pod.spec.resource_claims):
        if entry.name not in used:
            names = list_names([container.name for container in containers])
            yield (
                f"spec.resourceClaims[{index}]: no container uses claim {entry.name}, so none gets its devices: name "
                f"it in resources.claims of {names or 'a container'}"
            )


def _find_unknown_requests(container: Container, pod: Pod, claims: Mapping[str, ResourceClaim]) -> Iterator[str]:
    entries = [entry.name for entry in pod.spec.resource_claims]
    for index, wanted in enumerate(container.resources.claims):
        where = f"container {container.name}, resources.claims[{index}]"
        claim = claims.get(wanted.name)
        if wanted.name not in entries:
            yield (
                f"{where}.name: the pod has no claim {wanted.name}, only {list_names(entries) or 'none'}: the API "
                "server refuses such a pod"
            )
        elif claim is not None and wanted.request:
            known = [request.name for request in claim.spec.devices.requests]
            if wanted.request not in known:
                yield (
                    f"{where}.request: claim {wanted.name} has no request {wanted.request}, so the container gets none "
                    f"of its devices; there is {list_names(known)}"
                )
