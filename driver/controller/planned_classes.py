"""The DeviceClasses that Kerf's controller would make of ResourceClasses that exist in manifests only."""

from collections.abc import Sequence

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.kerf.v1alpha1 import ResourceClass
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.controller.device_types import device_type_of, known_device_types
from kerf_dra.driver.controller.structured.class_compiler import compile_class
from kerf_dra.driver.families.registry import installed_families


def compile_classes(
    resource_classes: Sequence[ResourceClass], nodes: Sequence[Node], slices: Sequence[ResourceSlice]
) -> list[DeviceClass]:
    """Compile the DeviceClasses that Kerf's controller would make. Raises InvalidDocumentError for a wrong class."""
    if not resource_classes:
        return []
    families = installed_families()
    by_driver = {family.driver: family for family in families.values()}
    published = frozenset(
        device_type_of(device, family)
        for slice_ in slices
        if (family := by_driver.get(DriverName(slice_.spec.driver))) is not None
        for device in slice_.spec.devices
    )
    device_types = known_device_types(published)
    return [
        compile_class(each, families=families, nodes=nodes, device_types=device_types).device_class
        for each in resource_classes
    ]
