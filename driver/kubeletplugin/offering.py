"""What administrators offer in shares: from ResourceClasses to what this node publishes (docs/shared-partitions.md).

Which models and nodes a class wants is left to its selector: a device in shares that no class selects is of no harm.
"""

from collections.abc import Iterable

from api.errors import InvalidDocumentError
from api.kerf.decoding import decode_resource_class_object
from api.kerf.v1alpha1 import ResourceClassObject, ResourceClassSpec
from driver.partitions.sharing import Shareable


def shareable(classes: Iterable[ResourceClassObject]) -> Shareable:
    """What ``classes`` offer in shares. One that cannot be understood offers nothing: its status says why."""
    return frozenset(
        None if spec.cut == "Whole" else spec.profile
        for held in classes
        if (spec := _spec(held)) is not None and spec.allocation == "Shared"
    )


def _spec(held: ResourceClassObject) -> ResourceClassSpec | None:
    try:
        return decode_resource_class_object(held).spec
    except InvalidDocumentError:
        return None
