"""Decides what to do about one class's DeviceClass. Pure."""

from dataclasses import dataclass
from typing import TypeAlias

from api.errors import InvalidDocumentError
from api.kerf.decoder import decode_resource_class_object
from api.kerf.v1alpha1 import GROUP, ResourceClass
from api.model.claims import DeviceClass
from api.model.metadata import ObjectMeta, OwnerReference
from driver.controller.structured.class_compiler import CompiledClass, compile_class
from driver.controller.structured.snapshot import Snapshot, Written


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Make the DeviceClass."""

    desired: DeviceClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Bring our fields of the DeviceClass to what they should be; others' fields stay."""

    current: DeviceClass
    desired: DeviceClass


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """The DeviceClass is as it should be, but for ``dropped``: fields that the server does not keep."""

    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The DeviceClass cannot be as it should be: why, as a condition's reason and message."""

    reason: str
    message: str


Step: TypeAlias = Create | Change | InPlace | Obstacle


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a class means and what to do about it. Either ``compiled`` or ``refusal`` is set."""

    resource_class: ResourceClass | None
    """None: it cannot be decoded."""
    compiled: CompiledClass | None
    refusal: InvalidDocumentError | None
    step: Step


def plan(snapshot: Snapshot, *, driver: str) -> Plan:
    """What to do about the class of ``snapshot`` for the driver of this name.

    A DeviceClass that is not the class's own is never touched. One that was compiled before stays when the class
    becomes wrong: pods may wait for it.
    """
    held = snapshot.resource_class
    resource_class = None
    try:
        resource_class = decode_resource_class_object(held)
        compiled = compile_class(
            resource_class, driver=driver, nodes=snapshot.nodes, device_types=snapshot.device_types
        )
    except InvalidDocumentError as refusal:
        stays = snapshot.device_class is not None and owns(held.metadata, snapshot.device_class)
        message = "its DeviceClass stays as it was compiled before" if stays else "there is no DeviceClass of it"
        obstacle = Obstacle(reason="NotAccepted", message=f"the class is not accepted; {message}")
        return Plan(resource_class=resource_class, compiled=None, refusal=refusal, step=obstacle)
    step = _step(held.metadata, compiled.device_class, snapshot.device_class, snapshot.written)
    return Plan(resource_class=resource_class, compiled=compiled, refusal=None, step=step)


def owns(resource_class: ObjectMeta, device_class: DeviceClass) -> bool:
    """Whether a DeviceClass was compiled from a ResourceClass of this name, this one or one before it."""
    return any(_is_of(resource_class.name, owner) for owner in device_class.metadata.owner_references)


def dropped_fields(desired: DeviceClass, answer: DeviceClass) -> tuple[str, ...]:
    """What the server did not keep of a write: it drops fields of features that are off without a word."""
    fields = (("selectors", "selectors"), ("config", "config"), ("extended_resource_name", "extendedResourceName"))
    return tuple(
        f"spec.{name}" for field, name in fields if getattr(desired.spec, field) != getattr(answer.spec, field)
    )


def _step(owner: ObjectMeta, desired: DeviceClass, current: DeviceClass | None, written: Written | None) -> Step:
    if current is None:
        return Create(desired=desired)
    if not owns(owner, current):
        message = (
            f'a DeviceClass "{owner.name}" exists that was not made from this class; it is left alone: '
            "rename this class, or delete the DeviceClass"
        )
        return Obstacle(reason="NameTaken", message=message)
    if current.is_terminating:
        return Obstacle(reason="Deleting", message="the DeviceClass is being deleted; it is made anew once it is gone")
    if _has(current, desired):
        return InPlace()
    if written is not None and _has(written.desired, desired) and written.answer == current:
        return InPlace(dropped=dropped_fields(desired, current))  # asking again would change nothing
    return Change(current=current, desired=desired)


def _has(current: DeviceClass, desired: DeviceClass) -> bool:
    labels = current.metadata.labels
    return (
        current.spec == desired.spec
        and all(labels.get(name) == value for name, value in desired.metadata.labels.items())
        and set(desired.metadata.owner_references) <= set(current.metadata.owner_references)
    )


def _is_of(name: str, owner: OwnerReference) -> bool:
    return owner.kind == "ResourceClass" and owner.name == name and owner.api_version.partition("/")[0] == GROUP


def owners_after(current: DeviceClass, desired: DeviceClass) -> tuple[OwnerReference, ...]:
    """Others' references stay; one to an earlier class of the same name goes."""
    name = desired.metadata.name
    others = (owner for owner in current.metadata.owner_references if not _is_of(name, owner))
    return (*others, *desired.metadata.owner_references)
