"""Plans the DeviceClass of one ResourceClass. Pure.

The states of a DeviceClass, in the order in which they are checked, and the action for each:

| state | action |
|---|---|
| the ResourceClass is not accepted | none; a DeviceClass compiled before stays, because pods may wait for it |
| it does not exist | create it |
| it was not compiled from this ResourceClass | none: it is never changed |
| it is being deleted | none, until it no longer exists |
| it equals the compiled one | none |
| it is the stored form of the same write, made recently | none: the server drops fields of disabled features |
| it differs | update our fields; fields of others stay |

Invariant: only a DeviceClass with an owner reference to a ResourceClass of its name is ever updated. Source: KEP-4381.

Example: a user edits the compiled selector of the DeviceClass "small". It differs from what "small" compiles to, so
the selector is written back, and an annotation that was added with it stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_resource_class_object
from kerf_dra.api.kerf.v1alpha1 import GROUP, ResourceClass, ResourceClassObject, ResourceClassSpec
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.driver.controller.device_types import DeviceType
from kerf_dra.driver.controller.structured.class_compiler import (
    OWN_LABELS,
    PLACEMENT_LABEL,
    CompiledClass,
    compile_class,
)
from kerf_dra.driver.controller.structured.placement_verdict import (
    ExtenderState,
    PlacementFacts,
    PlacementVerdict,
    judge_placement,
)
from kerf_dra.driver.controller.structured.resource_names import DevicePluginVerdict, ResourceNames, judge_device_plugin
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.class_validation import FamilyNotInstalledError

NOT_ACCEPTED: Final = "NotAccepted"
"""The reason of the condition Ready of a class that is not accepted; its condition Accepted has the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRecord:
    """A recent write of a DeviceClass: the desired object, and the object that the server stored."""

    desired: DeviceClass
    answer: DeviceClass
    at: float
    """Monotonic time, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSnapshot:
    """The state on which a plan for one class depends."""

    resource_class: ResourceClassObject
    device_class: DeviceClass | None
    """The DeviceClass of the class's name, regardless of its creator; None: it does not exist."""
    written: WriteRecord | None
    """The last write of the DeviceClass, if it was recent."""
    nodes: tuple[Node, ...]
    """All nodes of the cluster."""
    device_types: frozenset[DeviceType]
    """All device types that can exist."""
    resource_names: ResourceNames = ResourceNames()  # noqa: RUF009  (frozen)
    """The extended resources of the cluster's classes."""
    extender: ExtenderState = ExtenderState.DISABLED
    """Whether schedulers ask the scheduler extender."""
    is_grading_enabled: bool = False
    """Whether the policy of graded placement is in force in the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDeviceClass:
    """Create the DeviceClass, or update our fields of it."""

    desired: DeviceClass
    current: DeviceClass | None
    """The DeviceClass to update; None: it is to be created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpToDate:
    """The DeviceClass is as desired, except for ``dropped``, the paths of fields that the server does not keep."""

    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotInPlace:
    """The DeviceClass cannot be as desired; ``reason`` and ``message`` are those of the condition Ready."""

    reason: str
    message: str


Action: TypeAlias = WriteDeviceClass | UpToDate | NotInPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlan:
    """The compiled class and the action on its DeviceClass; either ``compiled`` or ``refusal`` is None."""

    resource_class: ResourceClass | None
    """The decoded class; None: the object cannot be decoded."""
    compiled: CompiledClass | None
    refusal: InvalidDocumentError | None
    action: Action
    device_plugin: DevicePluginVerdict | None = None
    """Whether nodes may offer the class's extended resource; None: it has none, or is not accepted."""
    placement: PlacementVerdict | None = None
    """Whether the placement of the class is in effect; None: it has none, or is not accepted."""


def plan_class(snapshot: ClassSnapshot, families: Mapping[str, Family]) -> ClassPlan:
    """Plan the class of ``snapshot``; ``families`` are the installed ones by name."""
    held = snapshot.resource_class
    resource_class = None
    try:
        resource_class = decode_resource_class_object(held)
        compiled = compile_class(
            resource_class, families=families, nodes=snapshot.nodes, device_types=snapshot.device_types
        )
    except InvalidDocumentError as refusal:
        stays = snapshot.device_class is not None and owns(held.metadata, snapshot.device_class)
        message = "its DeviceClass stays as it was compiled before" if stays else "there is no DeviceClass of it"
        reason = refusal.reason if isinstance(refusal, FamilyNotInstalledError) else NOT_ACCEPTED
        action = NotInPlace(reason=reason, message=f"the class is not accepted; {message}")
        return ClassPlan(resource_class=resource_class, compiled=None, refusal=refusal, action=action)
    chosen = _choose_action(held.metadata, compiled.device_class, snapshot.device_class, snapshot.written)
    return ClassPlan(
        resource_class=resource_class,
        compiled=compiled,
        refusal=None,
        action=chosen,
        device_plugin=judge_device_plugin(resource_class, snapshot.resource_names),
        placement=_judge_placement(resource_class.spec, families, _find_placement_facts(snapshot, compiled)),
    )


def _find_placement_facts(snapshot: ClassSnapshot, compiled: CompiledClass) -> PlacementFacts:
    """Return what can put the placement into effect: a DeviceClass of another program counts as without the label."""
    current = snapshot.device_class
    is_ours = current is None or owns(snapshot.resource_class.metadata, current)
    return PlacementFacts(
        extender=snapshot.extender,
        is_grading_enabled=snapshot.is_grading_enabled,
        has_label=is_ours and PLACEMENT_LABEL in compiled.device_class.metadata.labels,
    )


def _judge_placement(
    spec: ResourceClassSpec, families: Mapping[str, Family], facts: PlacementFacts
) -> PlacementVerdict | None:
    """Return whether the placement is in effect; devices that take nothing from others, or of no node, have none."""
    if spec.cut == "Monitor" or families[spec.device].is_network_attached:
        return None
    return judge_placement(spec.placement, facts)


def owns(resource_class: ObjectMeta, device_class: DeviceClass) -> bool:
    """Whether a DeviceClass was compiled from a ResourceClass of this name, the present one or an earlier one."""
    return any(_is_of(resource_class.name, owner) for owner in device_class.metadata.owner_references)


def dropped_fields(desired: DeviceClass, answer: DeviceClass) -> tuple[str, ...]:
    """The fields of a write that the server did not keep: it silently drops those of disabled features."""
    fields = (("selectors", "selectors"), ("config", "config"), ("extended_resource_name", "extendedResourceName"))
    return tuple(
        f"spec.{name}" for field, name in fields if getattr(desired.spec, field) != getattr(answer.spec, field)
    )


def owners_after(current: DeviceClass, desired: DeviceClass) -> tuple[OwnerReference, ...]:
    """The owner references after an update: others' stay, one to an earlier class of the same name is removed."""
    name = desired.metadata.name
    others = (owner for owner in current.metadata.owner_references if not _is_of(name, owner))
    return (*others, *desired.metadata.owner_references)


def _choose_action(
    owner: ObjectMeta, desired: DeviceClass, current: DeviceClass | None, written: WriteRecord | None
) -> Action:
    if current is None:
        return WriteDeviceClass(desired=desired, current=None)
    if not owns(owner, current):
        message = (
            f'a DeviceClass "{owner.name}" exists that was not made from this class; it is left alone: '
            "rename this class, or delete the DeviceClass"
        )
        return NotInPlace(reason="NameTaken", message=message)
    if current.is_terminating:
        return NotInPlace(
            reason="Deleting", message="the DeviceClass is being deleted; Kerf creates it again after that"
        )
    if _has(current, desired):
        return UpToDate()
    if written is not None and _has(written.desired, desired) and written.answer == current:
        return UpToDate(dropped=dropped_fields(desired, current))
    return WriteDeviceClass(desired=desired, current=current)


def _has(current: DeviceClass, desired: DeviceClass) -> bool:
    labels = current.metadata.labels
    return (
        current.spec == desired.spec
        and all(labels.get(name) == desired.metadata.labels.get(name) for name in OWN_LABELS)
        and set(desired.metadata.owner_references) <= set(current.metadata.owner_references)
    )


def _is_of(name: str, owner: OwnerReference) -> bool:
    return owner.kind == "ResourceClass" and owner.name == name and owner.api_version.partition("/")[0] == GROUP
