"""One CDI spec for each claim: what the container runtime does to containers that use it.

All edits belong to devices, none to the spec: a container may use two claims, and edits of the spec would be applied
once for each file. What a request needs beside its devices is a further device of the spec, which the first of them
brings along: a container gets all devices of a request or none. Names begin with a letter, so that runtimes from before
CDI 0.5.0 take them.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from api.model.names import ClaimRef
from api.model.prepared import PreparedDevice
from cdi import ContainerEdits, Device, Kind, QualifiedName, Spec, transient_name

_NOTHING: Final[Mapping[str, ContainerEdits]] = MappingProxyType({})


def kind_of(driver: str) -> Kind:
    """CDI kind of the claims of ``driver``: the vendor carries the driver's name, so nobody else's files collide."""
    return Kind(vendor=f"k8s.{driver}", class_name="claim")


def file_name(driver: str, claim_uid: str) -> str:
    """Name of a claim's file, without extension."""
    return transient_name(kind_of(driver), claim_uid)


def file_prefix(driver: str) -> str:
    """How the names of all claims' files begin, and nobody else's."""
    return file_name(driver, "")


def device_name(claim: ClaimRef, device: PreparedDevice) -> str:
    share = f"-{device.share.share}" if device.share.share is not None else ""
    return f"claim-{claim.uid}-{device.share.id.device}{share}"


def request_name(claim: ClaimRef, request: str) -> str:
    return f"request-{claim.uid}-{request}"


def spec(
    driver: str,
    claim: ClaimRef,
    devices: Sequence[PreparedDevice],
    edits: Iterable[ContainerEdits],
    of_requests: Mapping[str, ContainerEdits] = _NOTHING,
) -> Spec | None:
    """The spec with each device's edits, or None when nothing needs any: a device without edits would be invalid.

    ``of_requests``: by request, what it needs beside the edits of its devices.
    """
    named = [(device_name(claim, device), edit) for device, edit in zip(devices, edits, strict=True)]
    named += [(request_name(claim, request), edit) for request, edit in of_requests.items()]
    members = tuple(Device(name=name, container_edits=edit) for name, edit in named if edit)
    return Spec(kind=kind_of(driver), devices=members) if members else None


def with_ids(claim: ClaimRef, devices: Iterable[PreparedDevice], spec: Spec | None) -> tuple[PreparedDevice, ...]:
    """``devices`` with what the kubelet hands to the runtime: qualified names, none where a device needs no edits."""
    ids = (
        {member.name: str(QualifiedName(kind=spec.kind, device=member.name)) for member in spec.devices} if spec else {}
    )

    def taken(device: PreparedDevice) -> tuple[str, ...]:
        names = [device_name(claim, device), *(request_name(claim, request) for request in device.requests)]
        found = tuple(ids[name] for name in names if name in ids)
        for request in device.requests:
            ids.pop(request_name(claim, request), None)
        return found

    return tuple(replace(device, cdi_ids=taken(device)) for device in devices)
