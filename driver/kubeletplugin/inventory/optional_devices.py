"""What nodes publish only because a ResourceClass asks for it: partitions in shares, cards to look at.

Clusters without such classes search nothing more than before (docs/shared-partitions.md, docs/admin-access.md). Which
models and nodes a class wants is left to its selector: a device that no class selects is of no harm.
"""

from collections.abc import Iterable
from typing import NamedTuple

from api.errors import InvalidDocumentError
from api.kerf.decoder import decode_resource_class_object
from api.kerf.v1alpha1 import ResourceClassObject, ResourceClassSpec
from driver.partitions.geometry import DeviceKind
from driver.partitions.shared_devices import ShareableProfiles


class Offers(NamedTuple):
    """What is asked for."""

    shareable: ShareableProfiles = frozenset()
    """What several claims may share (KEP-5075)."""
    monitors: frozenset[DeviceKind] = frozenset()
    """Kinds of cards to look at with admin access (KEP-5018)."""


def offers(classes: Iterable[ResourceClassObject]) -> Offers:
    """What ``classes`` ask for. One that cannot be understood asks for nothing: its status says why."""
    specs = [spec for held in classes if (spec := _spec(held)) is not None]
    return Offers(
        shareable=frozenset(
            None if spec.cut == "Whole" else spec.profile for spec in specs if spec.allocation == "Shared"
        ),
        monitors=frozenset(DeviceKind(spec.device) for spec in specs if spec.cut == "Monitor"),
    )


def together(one: Offers, other: Offers) -> Offers:
    return Offers(shareable=one.shareable | other.shareable, monitors=one.monitors | other.monitors)


def _spec(held: ResourceClassObject) -> ResourceClassSpec | None:
    try:
        return decode_resource_class_object(held).spec
    except InvalidDocumentError:
        return None
