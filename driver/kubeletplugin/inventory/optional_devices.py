"""Devices that nodes publish only because a ResourceClass needs them: shared partitions, monitor devices.

A cluster without such classes has no more devices to search than before (docs/shared-partitions.md,
docs/admin-access.md). Which models and nodes a class wants is left to its selector: a device that no class selects does
no harm.
"""

from collections.abc import Iterable
from typing import NamedTuple

from api.errors import InvalidDocumentError
from api.kerf.decoder import decode_resource_class_object
from api.kerf.v1alpha1 import ResourceClassObject, ResourceClassSpec
from driver.partitions.shared_devices import ShareableProfiles


class OptionalDevices(NamedTuple):
    """The optional devices that the cluster's ResourceClasses need."""

    shareable: ShareableProfiles = frozenset()
    """The profiles that several claims may share (KEP-5075); None among them: whole cards."""
    monitors: frozenset[str] = frozenset()
    """The families whose cards have monitor devices, for admin access (KEP-5018)."""

    def union(self, other: "OptionalDevices") -> "OptionalDevices":
        return OptionalDevices(self.shareable | other.shareable, self.monitors | other.monitors)


def find_optional_devices(classes: Iterable[ResourceClassObject]) -> OptionalDevices:
    """Return what ``classes`` need. An invalid class needs nothing; its status says why it is invalid."""
    specs = [spec for held in classes if (spec := _decode(held)) is not None]
    return OptionalDevices(
        shareable=frozenset(
            None if spec.cut == "Whole" else spec.profile for spec in specs if spec.allocation == "Shared"
        ),
        monitors=frozenset(spec.device for spec in specs if spec.cut == "Monitor"),
    )


def _decode(held: ResourceClassObject) -> ResourceClassSpec | None:
    try:
        return decode_resource_class_object(held).spec
    except InvalidDocumentError:
        return None
