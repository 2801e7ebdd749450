"""The CDI spec of a claim: what the container runtime does to containers that use the claim. Pure.

All edits belong to devices, none to the spec: a container may use two claims, and edits of the spec would be applied
once for each file. What a request needs beside its devices, such as one variable with the tiles of all of them (oneAPI
Level Zero), is one more device of the spec, whose id the request's first device carries: a container gets all devices
of a request or none. Names begin with a letter, because runtimes before CDI 0.5.0 accept no other.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.names import ClaimRef, DeviceId, ObjectRef
from kerf_dra.api.model.prepared import PreparedDevice
from kerf_dra.cdi import ContainerEdits, Device, Kind, QualifiedName, Spec, transient_name
from kerf_dra.driver.kubeletplugin.backends.base import Handle
from kerf_dra.driver.kubeletplugin.backends.device_edits import SHARE_AMOUNTS

_OWN_PREFIX: Final = "KERF_"
"""The beginning of the names of Kerf's own variables: those of others' libraries cannot have other names."""


class ConflictingRequestsError(PermanentError):
    """A variable is made for the devices of one request, and another request of the claim has devices of the same
    backend: a container that uses the claim sees both, and would use devices that are not its own.
    """

    def __init__(self, variable: str, requests: Sequence[str]) -> None:
        super().__init__(
            f"requests {' and '.join(requests)} have devices for which a container gets one variable {variable} alone, "
            "which is made for one request: make one request of several devices, or a claim for each container"
        )


class ConflictingClaimsError(PermanentError):
    """The same of two claims that one container uses: the runtime keeps the variable of one of them without a word."""

    def __init__(self, variable: str, pod: ObjectRef, container: str, claims: Sequence[str]) -> None:
        super().__init__(
            f"container {container} of pod {pod} uses the claims {' and '.join(claims)}, whose devices share the "
            f"variable {variable}, of which a container has only one: make one claim with one request of several "
            "devices, or let different containers use them"
        )


def cdi_kind(driver: str) -> Kind:
    """Return the CDI kind of claims. Its vendor contains the driver's name, so that no other driver has the same."""
    return Kind(vendor=f"k8s.{driver}", class_name="claim")


def file_name(driver: str, claim_uid: str) -> str:
    """Return the name of a claim's file, without extension."""
    return transient_name(cdi_kind(driver), claim_uid)


def file_prefix(driver: str) -> str:
    """Return the prefix of the names of all claims' files, which no other driver's files have."""
    return file_name(driver, "")


def device_name(claim: ClaimRef, device: PreparedDevice) -> str:
    share = f"-{device.share.share}" if device.share.share is not None else ""
    return f"claim-{claim.uid}-{device.share.id.device}{share}"


def request_name(claim: ClaimRef, request: str) -> str:
    return f"request-{claim.uid}-{request}"


def build_request_edits(
    devices: Iterable[PreparedDevice], build: Callable[[str, Sequence[Handle]], ContainerEdits]
) -> dict[str, ContainerEdits]:
    """Build what containers get once for all devices of a request, by request, without sub-request.

    ``build`` returns those of a backend, by its name, for the handles of a request's devices. Raises
    ConflictingRequestsError.
    """
    handles: dict[str, dict[str, list[Handle]]] = {}
    for device in devices:
        for request in device.requests:
            handles.setdefault(request, {}).setdefault(device.backend, []).append(device.handle or {})
    edits = {
        request: {backend: build(backend, found) for backend, found in of_request.items()}
        for request, of_request in handles.items()
    }
    for backend in sorted({backend for of_request in edits.values() for backend in of_request}):
        of_backend = {request: found[backend] for request, found in edits.items() if backend in found}
        variable = first_variable(of_backend.values())
        if variable and len(of_backend) > 1:
            raise ConflictingRequestsError(variable, [*of_backend])
    found = {request: sum(of_request.values(), ContainerEdits()) for request, of_request in edits.items()}
    return {request: edit for request, edit in found.items() if edit}


def first_variable(edits: Iterable[ContainerEdits]) -> str:
    """Return the name of the first variable that ``edits`` set; empty: there is none."""
    return next((entry.partition("=")[0] for edit in edits for entry in edit.env), "")


def number_variables(devices: Sequence[PreparedDevice], edits: Iterable[ContainerEdits]) -> tuple[ContainerEdits, ...]:
    """Return the ``edits`` of ``devices``, with a number in the variables of a claim's further shares of a device.

    A claim may have several shares of one device (KEP-5075), each with a limit of its own. A container that gets some
    of them would have one variable for all, of which runtimes keep the last: the second share's has ``_2`` behind its
    name, the third one's ``_3``. Amounts have numbers also where they are equal; what is the same otherwise keeps its
    name.
    """
    values: dict[tuple[DeviceId, str], str] = {}
    numbers: dict[DeviceId, int] = {}

    def number(device: DeviceId, entry: str) -> str:
        name, _, value = entry.partition("=")
        is_first = numbers[device] == 1
        is_same = values.setdefault((device, name), value) == value and not name.startswith(SHARE_AMOUNTS)
        is_own = name.startswith(_OWN_PREFIX)
        return entry if is_first or is_same or not is_own else f"{name}_{numbers[device]}={value}"

    numbered: list[ContainerEdits] = []
    for device, edit in zip(devices, edits, strict=True):
        of_device = device.share.id
        numbers[of_device] = numbers.get(of_device, 0) + 1
        numbered.append(dataclasses.replace(edit, env=tuple(number(of_device, entry) for entry in edit.env)))
    return tuple(numbered)


def check_containers(pod: Pod, claim: str, other: str, variable: str) -> None:
    """Raise ConflictingClaimsError if a container of ``pod`` uses both claims, whose devices share ``variable``."""
    names = pod.claim_names()
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        used = {names.get(each.name) for each in container.resources.claims}
        if {claim, other} <= used:
            raise ConflictingClaimsError(variable, pod.ref, container.name, sorted((claim, other)))


def build_spec(
    driver: str,
    claim: ClaimRef,
    devices: Sequence[PreparedDevice],
    edits: Iterable[ContainerEdits],
    request_edits: Mapping[str, ContainerEdits],
) -> Spec | None:
    """Build the spec with the edits of each device; None when there are no edits: CDI forbids devices without any.

    ``request_edits`` are what a request needs beside its devices, by request.
    """
    named = [(device_name(claim, device), edit) for device, edit in zip(devices, edits, strict=True)]
    named += [(request_name(claim, request), edit) for request, edit in request_edits.items()]
    members = tuple(Device(name=name, container_edits=edit) for name, edit in named if edit)
    return Spec(kind=cdi_kind(driver), devices=members) if members else None


def add_cdi_ids(claim: ClaimRef, devices: Iterable[PreparedDevice], spec: Spec | None) -> tuple[PreparedDevice, ...]:
    """Return ``devices`` with the qualified names for the runtime; a device without edits has none."""
    ids = (
        {member.name: str(QualifiedName(kind=spec.kind, device=member.name)) for member in spec.devices} if spec else {}
    )

    def take_ids(device: PreparedDevice) -> tuple[str, ...]:
        names = [device_name(claim, device), *(request_name(claim, request) for request in device.requests)]
        found = tuple(ids[name] for name in names if name in ids)
        for request in device.requests:
            ids.pop(request_name(claim, request), None)
        return found

    return tuple(replace(device, cdi_ids=take_ids(device)) for device in devices)
