"""The functions of NVML that the backend for NVIDIA cards calls, by their names in the library, and NVML's error codes.

Bindings have other names for some: ``nvmlDeviceGetCount`` calls ``nvmlDeviceGetCount_v2``. A fault for a name that the
stand-in does not have would never strike.
"""

from collections.abc import Mapping
from typing import Final

import pynvml

DESTROYS: Final = ("nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy")
"""The functions that remove partitions."""
CHANGES: Final = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    *DESTROYS,
)
"""The functions that make and remove partitions."""
SHARING_CHANGES: Final = ("nvmlDeviceSetComputeMode",)
"""The functions that change who may use a card."""
INSTANCE_READS: Final = (
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetGpuInstances",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlGpuInstanceGetInfo",
    "nvmlGpuInstanceGetComputeInstances",
    "nvmlGpuInstanceGetComputeInstanceById",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "nvmlComputeInstanceGetInfo_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
)
"""The functions that say what is on a card and who uses it."""
CARD_READS: Final = (
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetDriverVersion",
)
"""The functions that say which cards there are, and what each is."""
EVENT_READS: Final = (
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetCreate",
    "nvmlEventSetWait_v2",
)
"""The functions that say how healthy a card is."""
USAGE_READS: Final = (
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetUtilizationRates",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
)
"""The functions that only samples of use call, beside those for memory and processes."""
READS: Final = (*INSTANCE_READS, *CARD_READS, *EVENT_READS)
ERRORS: Final[Mapping[str, int]] = {
    name.removeprefix("NVML_ERROR_"): value
    for name, value in sorted(vars(pynvml).items(), key=lambda item: str(item[1]))
    if name.startswith("NVML_ERROR_")
}
"""All error codes that the bindings name, by name."""
