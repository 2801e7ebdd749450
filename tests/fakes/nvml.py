"""NVML of a stand-in machine in this process.

The bindings load one library for the life of a process, so a machine is chosen by the environment each time that NVML
is opened.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pynvml
import pytest

from kerf_dra.driver.testing.nvml import NvidiaMachine
from kerf_dra.driver.testing.nvml.library import SONAME
from kerf_dra.driver.testing.nvml.machine import MACHINE_VARIABLE

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for NVML needs a C compiler (cc)")


@contextmanager
def open_nvml(machine: NvidiaMachine) -> Iterator[None]:
    """Use NVML of the machine for a while."""
    ctypes.CDLL(str(machine.library_folder / SONAME))  # the bindings find it by its soname
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MACHINE_VARIABLE, str(machine.folder))
        pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def run_smi(machine: NvidiaMachine, *arguments: str) -> tuple[int, str]:
    """Run nvidia-smi of the machine, and return its exit code and what it prints."""
    program = machine.driver_root / "usr/bin/nvidia-smi"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def end_sessions() -> None:
    """End all uses of NVML in this process, as the end of their processes does."""
    with suppress(pynvml.NVMLError_Uninitialized, pynvml.NVMLError_LibraryNotFound):
        while True:
            pynvml.nvmlShutdown()
