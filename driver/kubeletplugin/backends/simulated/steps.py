"""The steps of simulated hardware and how long they take.

GPU steps carry the names of the NVML calls that they stand for, FPGA steps those of the phases of a partial
reconfiguration (Linux ``Documentation/driver-api/fpga/fpga-region.rst``).
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Step(StrEnum):
    """One step; the value is what ``faults.json`` and ``delays`` call it."""

    SET_MIG_MODE = "nvmlDeviceSetMigMode"
    CREATE_GPU_INSTANCE = "nvmlDeviceCreateGpuInstanceWithPlacement"
    CREATE_COMPUTE_INSTANCE = "nvmlGpuInstanceCreateComputeInstance"
    DESTROY_COMPUTE_INSTANCE = "nvmlComputeInstanceDestroy"
    DESTROY_GPU_INSTANCE = "nvmlGpuInstanceDestroy"
    CHECK = "fpga-check"
    """Compare image and slots, and reserve the slots."""
    DISABLE_BRIDGES = "fpga-disable-bridges"
    PROGRAM = "fpga-program"
    ENABLE_BRIDGES = "fpga-enable-bridges"
    READ_BACK = "fpga-read-back"
    """Ask the slots which function they run."""
    KEEP = "fpga-keep"
    """Give the slots back with the function in them."""
    BLANK = "fpga-blank"
    """Give the slots back empty."""


# GPUs: 0.16 s to create and 0.10 s to destroy an instance with its compute instance, as measured on an A30 by
# artecs-group/FAR_MIG_scheduler (README); how the two steps share it is a guess. Switching MIG mode on a Hopper GPU is
# immediate. FPGAs: bridges and registers are sub-millisecond; PROGRAM takes what the function's maker states, blanking
# as long as the smallest functions take.
DELAYS_S: Final[Mapping[Step, float]] = MappingProxyType(
    {
        Step.CREATE_GPU_INSTANCE: 0.12,
        Step.CREATE_COMPUTE_INSTANCE: 0.04,
        Step.DESTROY_COMPUTE_INSTANCE: 0.03,
        Step.DESTROY_GPU_INSTANCE: 0.07,
        Step.BLANK: 0.2,
    }
)
"""Seconds for each step; none named: none."""
