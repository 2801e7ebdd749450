"""A stand-in for NVIDIA's management library (NVML), for tests and demonstrations without a GPU.

``libnvidia-ml.so.1`` is a C library (``source``) that programs load in place of NVIDIA's, with unmodified bindings. Its
cards are a file that all processes map under a lock (``layout``): several processes see the same cards, and one that is
killed leaves what a driver would leave. The file is made from Kerf's table of models (``description``); beside it lie
the driver's ``/proc``, ``/dev`` and root (``driver_tree``). ``library`` compiles; ``machine`` makes a machine and has
what befalls one: faults, delays, processes, use, errors, cards that go, reboots. ``mps_control`` and ``smi`` are
programs of the driver's root. See docs/testing-without-gpus.md.
"""

from kerf_dra.driver.testing.nvml.description import CardDescription, MachineDescription, UnsuitableDescriptionError
from kerf_dra.driver.testing.nvml.layout import NVSWITCH
from kerf_dra.driver.testing.nvml.library import NoCompilerError, build_library
from kerf_dra.driver.testing.nvml.machine import Death, GpmActivity, InstanceOnCard, NvidiaMachine

__all__ = [
    "NVSWITCH",
    "CardDescription",
    "Death",
    "GpmActivity",
    "InstanceOnCard",
    "MachineDescription",
    "NoCompilerError",
    "NvidiaMachine",
    "UnsuitableDescriptionError",
    "build_library",
]
