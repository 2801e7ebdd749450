"""Calls of NVML as other programs make them, with NVIDIA's unmodified bindings; nothing of Kerf is imported."""

import ctypes
from typing import Any

import pynvml


def placements(card: Any, profile_id: int) -> list[tuple[int, int]]:
    """Return start and size of each placement of a profile."""
    count = ctypes.c_uint(0)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(card, profile_id, None, ctypes.byref(count))
    rows = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(card, profile_id, rows, ctypes.byref(count))
    return [(row.start, row.size) for row in rows]


def create_gpu_instance(card: Any, profile_id: int, start: int, size: int) -> Any:
    """Create a GPU instance at a placement, and return its handle."""
    place = pynvml.c_nvmlGpuInstancePlacement_t(start=start, size=size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(card, profile_id, ctypes.byref(place))


def compute_profiles(instance: Any) -> list[Any]:
    """Return the compute-instance profiles of a GPU instance; the one that fills it is the last."""
    found = []
    for enum in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            found.append(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, enum, 0))
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
    return sorted(found, key=lambda profile: int(profile.sliceCount))


def fill_gpu_instance(instance: Any) -> Any:
    """Create the compute instance that fills a GPU instance, and return its handle. Raises NVMLError."""
    profiles = compute_profiles(instance)
    if not profiles:  # each call for one was answered with an error
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return pynvml.nvmlGpuInstanceCreateComputeInstance(instance, profiles[-1].id)


def destroy_gpu_instance(card: Any, instance_id: int) -> None:
    """Destroy a GPU instance with its first compute instance."""
    instance = pynvml.nvmlDeviceGetGpuInstanceById(card, instance_id)
    pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0))
    pynvml.nvmlGpuInstanceDestroy(instance)


def list_gpu_instances(card: Any) -> dict[int, tuple[int, int, int]]:
    """Return profile id, start and size of each GPU instance, by its id."""
    found = {}
    for enum in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(card, enum)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
        count = ctypes.c_uint(0)
        rows = (pynvml.c_nvmlGpuInstance_t * profile.instanceCount)()
        pynvml.nvmlDeviceGetGpuInstances(card, profile.id, rows, ctypes.byref(count))
        for row in rows[: count.value]:
            info = pynvml.nvmlGpuInstanceGetInfo(row)
            found[int(info.id)] = (int(info.profileId), int(info.placement.start), int(info.placement.size))
    return found
