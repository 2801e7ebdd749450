"""The family ``gpu``: GPUs that are cut into partitions, as NVIDIA MIG does."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from kerf_dra.api.kerf.v1alpha1 import GpuConfig
from kerf_dra.api.model.device_attributes import ATTRIBUTE_LOSS_RANK
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.families.base import COMMON_ATTRIBUTES, AttributeDefinition, Family
from kerf_dra.driver.families.gpu.catalog import gpu_figures, gpu_model, gpu_models, gpu_profile_names
from kerf_dra.driver.families.gpu.geometry import KIND, gpu_geometry
from kerf_dra.driver.partitions.geometry import Geometry

_TEXT: Final = Attribute.of("")
_NO: Final = Attribute.of(False)
_VERSION: Final = Attribute(version="0.0.0")


def _geometries() -> Iterator[Geometry]:
    return map(gpu_geometry, gpu_models())


def _resolve_model(name: str) -> str:
    return gpu_model(name).id


GPU: Final = Family(
    name=KIND,
    driver=DriverName("gpu.kerf.dev"),
    attributes=MappingProxyType(
        {
            **COMMON_ATTRIBUTES,
            "profile": AttributeDefinition(
                description="The MIG profile of a partition, such as 1g.10gb; empty for whole cards.", neutral=_TEXT
            ),
            ATTRIBUTE_LOSS_RANK: AttributeDefinition(
                description="The rank of what later claims lose by the placement, among the losses of its profile on "
                "its model: 0 is the least, and an H100's 1g.10gb has 0 to 8. It changes with what is in use there.",
                neutral=Attribute.of(0),
            ),
            "shared": AttributeDefinition(
                description="Whether several claims may each hold a share of the memory (KEP-5075).", neutral=_NO
            ),
            "timeSlicing": AttributeDefinition(
                description="Whether the card does the sharing strategy TimeSlicing.", neutral=_NO
            ),
            "mps": AttributeDefinition(description="Whether the card does the sharing strategy Mps.", neutral=_NO),
            "model": AttributeDefinition(
                description="The GPU model, such as h100-80gb-sxm; unknown for one that Kerf's table does not have.",
                neutral=_TEXT,
            ),
            "architecture": AttributeDefinition(description="The architecture, such as hopper.", neutral=_TEXT),
            "cudaComputeCapability": AttributeDefinition(
                description="The CUDA compute capability, such as 9.0.0.", neutral=_VERSION
            ),
            "driverVersion": AttributeDefinition(
                description="The version of the GPU's kernel driver.", neutral=_VERSION
            ),
            "cudaDriverVersion": AttributeDefinition(
                description="The newest CUDA version that the driver supports.", neutral=_VERSION
            ),
            "uuid": AttributeDefinition(
                description="The UUID of the card; a partition's own does not exist before it is made.", neutral=_TEXT
            ),
        }
    ),
    capacities=MappingProxyType(
        {
            "memory": "The memory in bytes.",
            "computeSlices": "Compute slices, of which MIG's 1g has one.",
            "multiprocessors": "Streaming multiprocessors.",
            "decoders": "Video decoders.",
            "encoders": "Video encoders.",
            "computePercent": "The percentage of the device's multiprocessors: 100, unless a share by MPS takes less.",
            "clients": "The processes that MPS serves on the device at a time; a share takes one unless it names more.",
        }
    ),
    # The brand is the same for all models, and profiles with +me are those with JPEG and optical flow engines.
    retired=frozenset({"brand", "jpegEngines", "ofaEngines"}),
    divided=("memory",),
    minimums=("memory", "computeSlices"),
    class_fields=frozenset({"profile", "minimum", "sharing", "allocation", "config"}),
    configurations=MappingProxyType({"GpuConfig": GpuConfig}),
    default_configuration="GpuConfig",
    geometries=_geometries,
    other_profile_names=gpu_profile_names,
    figures=gpu_figures,
    resolve_model=_resolve_model,
    backends=MappingProxyType({"nvidia": "kerf_dra.driver.kubeletplugin.backends.nvidia:open_backend"}),
    call_timeout_s=120.0,
)
"""The timeout: destroying an instance was seen to take seconds, a look-up by UUID ten (dra-driver-nvidia-gpu)."""
