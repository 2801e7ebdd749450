"""What nodes publish only because a ResourceClass needs it: shared partitions, monitor devices, binding conditions,
ranks of losses.

A cluster without such classes has no more devices to search than before (docs/shared-partitions.md,
docs/admin-access.md). Which models and nodes a class wants is left to its selector: a device that no class selects does
no harm. Binding conditions make every claim on a device wait for its preparation (docs/early-loading.md), so only the
devices that the class selects get them; its choice of nodes is left out. Ranks change with what is in use, so they have
slices written several times as often (docs/placement.md).
"""

from collections.abc import Iterable
from typing import NamedTuple

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_resource_class_object
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject, ResourceClassSpec
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.model.semver import version_numbers
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.class_validation import FamilyClass, check_class
from kerf_dra.driver.families.model_names import UnknownModelError
from kerf_dra.driver.partitions.shared_devices import ShareableProfiles


class DeviceSelection(NamedTuple):
    """The devices that a class selects, on whatever node."""

    kind: str
    cuts: frozenset[str]
    """The accepted values of the attribute ``cut``."""
    is_shared: bool
    profile: str | None
    function: str | None
    models: frozenset[str]
    """The models, as devices spell them; empty: all."""
    minimum: tuple[tuple[str, Quantity], ...]
    """The least amounts, by capacity."""
    driver_version: tuple[int, ...]
    """The oldest accepted driver; empty: any."""
    abilities: frozenset[str]
    """The boolean attributes that are true."""

    def selects(self, kind: str, device: Device) -> bool:
        """Whether the class selects ``device``, which is of ``kind``."""

        def value(name: str) -> object:
            attribute = device.attributes.get(name)
            return attribute.value if attribute is not None else ""

        return (
            self.kind == kind
            and value(v.ATTRIBUTE_CUT) in self.cuts
            and bool(value(v.ATTRIBUTE_SHARED)) is self.is_shared
            and self.profile in (None, value(v.ATTRIBUTE_PROFILE))
            and value(v.ATTRIBUTE_FUNCTION) == (self.function or "")
            and (not self.models or value(v.ATTRIBUTE_MODEL) in self.models)
            and version_numbers(str(value(v.ATTRIBUTE_DRIVER_VERSION))) >= self.driver_version
            and all(value(name) is True for name in self.abilities)
            and all(name in device.capacity and device.capacity[name].value >= least for name, least in self.minimum)
        )


class OptionalDevices(NamedTuple):
    """The optional devices that the cluster's ResourceClasses need."""

    shareable: ShareableProfiles = frozenset()
    """The profiles or functions that several claims may share (KEP-5075); None among them: whole cards."""
    monitors: frozenset[str] = frozenset()
    """The families whose cards have monitor devices, for admin access (KEP-5018)."""
    early: frozenset[DeviceSelection] = frozenset()
    """The devices that are prepared before their pods are bound (KEP-5007)."""
    ranked: frozenset[str] = frozenset()
    """The families whose devices say the rank of what later claims lose by them; those of others say 0."""

    def union(self, other: "OptionalDevices") -> "OptionalDevices":
        return OptionalDevices(
            self.shareable | other.shareable,
            self.monitors | other.monitors,
            self.early | other.early,
            self.ranked | other.ranked,
        )

    def is_early(self, kind: str, device: Device) -> bool:
        """Whether a class has ``device``, which is of ``kind``, prepared before its pod is bound."""
        return any(selection.selects(kind, device) for selection in self.early)


def find_optional_devices(classes: Iterable[ResourceClassObject], family: Family) -> OptionalDevices:
    """Return what the ``classes`` of ``family`` need.

    An invalid class needs nothing; its status says why it is invalid.
    """
    found = [one for held in classes if (one := _decode(held, family)) is not None]
    specs = [spec for spec, _ in found]
    return OptionalDevices(
        shareable=frozenset(
            None if spec.cut == "Whole" else spec.profile or spec.function
            for spec in specs
            if spec.allocation == "Shared"
        ),
        monitors=frozenset(spec.device for spec in specs if spec.cut == "Monitor"),
        early=frozenset(select_devices(spec, checked) for spec, checked in found if spec.prepare == "BeforeBinding"),
        ranked=frozenset(spec.device for spec in specs if spec.placement == "Packed"),
    )


def select_devices(spec: ResourceClassSpec, checked: FamilyClass) -> DeviceSelection:
    return DeviceSelection(
        kind=spec.device,
        cuts=frozenset({spec.cut.lower(), "whole"} if spec.or_whole else {spec.cut.lower()}),
        is_shared=spec.allocation == "Shared",
        profile=spec.profile,
        function=spec.function,
        models=frozenset(_resolve_model(name, checked.family) for name in spec.models),
        minimum=tuple(sorted((spec.minimum or {}).items())),
        driver_version=version_numbers(spec.minimum_driver_version or ""),
        abilities=frozenset(checked.required_attributes),
    )


def _resolve_model(name: str, family: Family) -> str:
    """Return the model as devices spell it; a name that the family does not know may be that of a card of this node."""
    try:
        return family.resolve_model(name)
    except UnknownModelError:
        return name


def _decode(held: ResourceClassObject, family: Family) -> tuple[ResourceClassSpec, FamilyClass] | None:
    """Return a class of ``family``, decoded and checked; None: it is another family's, or invalid."""
    try:
        spec = decode_resource_class_object(held).spec
        if spec.device != family.name:
            return None
        return spec, check_class(f'ResourceClass "{held.metadata.name}"', spec, {family.name: family})
    except InvalidDocumentError:
        return None
