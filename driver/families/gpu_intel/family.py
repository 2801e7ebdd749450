"""The family ``gpu-intel``: Intel's GPUs, whole, by tiles, and in shares of memory and millicores."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from kerf_dra.api.kerf.v1alpha1 import IntelGpuConfig
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.families.base import COMMON_ATTRIBUTES, AttributeDefinition, Family
from kerf_dra.driver.families.gpu_intel.catalog import intel_gpu_figures, intel_gpus, resolve_intel_gpu
from kerf_dra.driver.families.gpu_intel.geometry import KIND, intel_geometry
from kerf_dra.driver.partitions.geometry import Geometry

_TEXT: Final = Attribute.of("")
_NO: Final = Attribute.of(False)


def _geometries() -> Iterator[Geometry]:
    return map(intel_geometry, intel_gpus())


GPU_INTEL: Final = Family(
    name=KIND,
    driver=DriverName("gpu-intel.kerf.dev"),
    attributes=MappingProxyType(
        {
            **COMMON_ATTRIBUTES,
            "profile": AttributeDefinition(
                description="1t for one tile of a card that has several; empty for whole cards.", neutral=_TEXT
            ),
            "shared": AttributeDefinition(
                description="Whether several claims may each hold a share of memory and millicores (KEP-5075).",
                neutral=_NO,
            ),
            "model": AttributeDefinition(
                description="The product, such as max-1550; the PCI device id of one that is not known.", neutral=_TEXT
            ),
            "series": AttributeDefinition(description="The series, such as Data Center GPU Max.", neutral=_TEXT),
            "kernelDriver": AttributeDefinition(description="The card's kernel driver: i915 or xe.", neutral=_TEXT),
            "virtualFunction": AttributeDefinition(
                description="Whether the card is a virtual function (SR-IOV) of another one.", neutral=_NO
            ),
        }
    ),
    capacities=MappingProxyType(
        {
            "memory": "The memory in bytes; 0 for graphics that use the machine's.",
            "millicores": "Thousandths of a card's time: 1000 for a whole card, unless a share takes less.",
            "tiles": "Tiles (stacks) of the card.",
        }
    ),
    divided=("memory", "millicores"),
    minimums=("memory", "tiles"),
    class_fields=frozenset({"profile", "minimum", "allocation", "config"}),
    configurations=MappingProxyType({"IntelGpuConfig": IntelGpuConfig}),
    default_configuration="IntelGpuConfig",
    geometries=_geometries,
    figures=intel_gpu_figures,
    resolve_model=resolve_intel_gpu,
    backends=MappingProxyType({"intel": "kerf_dra.driver.kubeletplugin.backends.intel:open_backend"}),
    call_timeout_s=30.0,
)
"""The timeout: nothing is done to the card; only a read of ``/sys`` beside a card in reset takes seconds."""
