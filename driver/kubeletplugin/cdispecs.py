"""One CDI spec for each claim: what the container runtime does to containers that use it.

All edits belong to devices, none to the spec: a container may use two claims, and edits of the spec would be applied
once for each file. Names begin with a letter, so that runtimes from before CDI 0.5.0 take them.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from api.model.names import ClaimRef
from api.model.prepared import PreparedDevice
from cdi import ContainerEdits, Device, Kind, QualifiedName, Spec, transient_name


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


def spec(
    driver: str, claim: ClaimRef, devices: Sequence[PreparedDevice], edits: Iterable[ContainerEdits]
) -> Spec | None:
    """The spec with each device's edits, or None when no device needs any: a device without edits would be invalid."""
    members = tuple(
        Device(name=device_name(claim, device), container_edits=edit)
        for device, edit in zip(devices, edits, strict=True)
        if edit
    )
    return Spec(kind=kind_of(driver), devices=members) if members else None


def with_ids(claim: ClaimRef, devices: Iterable[PreparedDevice], spec: Spec | None) -> tuple[PreparedDevice, ...]:
    """``devices`` with what the kubelet hands to the runtime: qualified names, none where a device needs no edits."""
    ids = (
        {member.name: str(QualifiedName(kind=spec.kind, device=member.name)) for member in spec.devices} if spec else {}
    )

    def own(device: PreparedDevice) -> tuple[str, ...]:
        name = device_name(claim, device)
        return (ids[name],) if name in ids else ()

    return tuple(replace(device, cdi_ids=own(device)) for device in devices)
