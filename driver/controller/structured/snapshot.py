"""What one pass over a class decides on."""

from dataclasses import dataclass

from api.core.v1 import Node
from api.kerf.v1alpha1 import ResourceClassObject
from api.model.claims import DeviceClass
from driver.controller.device_types import DeviceType


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The last write of a DeviceClass, not long ago: what was asked for, and what the server made of it."""

    desired: DeviceClass
    answer: DeviceClass
    at: float
    """Monotonic time, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a pass over one class may look at."""

    resource_class: ResourceClassObject
    device_class: DeviceClass | None
    """The one of the class's name, whoever made it."""
    written: Written | None
    nodes: tuple[Node, ...]
    device_types: frozenset[DeviceType]
    """All that can exist."""
