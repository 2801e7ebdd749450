"""The cards that the tests of this folder look at: those of this machine, or stand-ins that differ in MIG mode."""

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from kerf_dra.driver.kubeletplugin.backends.nvidia import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.kubeletplugin.backends.nvidia.mig_mode import MigPolicy
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.session import SONAME
from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.machine import MACHINE_VARIABLE

CONTROL_NODE: Final = Path("/dev/nvidiactl")
"""It is there where a driver of NVIDIA is loaded and may be used."""
REAL: Final = pytest.param(
    "real",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not CONTROL_NODE.exists(), reason=f"there is no NVIDIA card here: no {CONTROL_NODE}"),
    ],
)
"""The parameter of the fixture ``cards`` for the cards of this machine."""
DRIVER_ROOT: Final = Path(os.environ.get("KERF_GPU_DRIVER_ROOT", "/"))
"""Where the driver of this machine has its files: ``/``, ``/run/nvidia/driver``, ``/usr/local/nvidia``."""
_CHANGE: Final = re.compile("Set|Create|Destroy|Reset|Clear")
_OF_THE_PROCESS: Final = "nvmlEventSet"
"""Begins the functions that make something of this process, and nothing of a card."""


class ChangeError(AssertionError):
    """A test would change a card."""


class ReadOnlyLibrary(NvmlLibrary):
    """NVML of which only such functions are called as change no card."""

    def __init__(self, driver_root: Path) -> None:
        super().__init__(driver_root)
        self.calls: list[str] = []
        """The functions of the bindings that were called, until a test clears the list."""

    def _call(self, name: str, *arguments: Any) -> Any:
        self.calls.append(name)
        if _CHANGE.search(name) and not name.startswith(_OF_THE_PROCESS):
            raise ChangeError(f"{name} would change the card")
        return super()._call(name, *arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """Cards, their driver, and the backend that is opened on them."""

    root: Path
    """The root with ``proc``, ``sys`` and ``dev``: ``/`` for real ones."""
    driver_root: Path
    backend: NvidiaBackend
    library: ReadOnlyLibrary

    @property
    def are_real(self) -> bool:
        return self.root == Path("/")

    def describe_modes(self) -> dict[str, object]:
        """Return what of the cards an administrator sets and Kerf could change: modes, and what is on them."""
        library = self.library
        return {
            card.uuid: (
                library.read_mig_mode(card.uuid),
                library.read_compute_mode(card.uuid),
                library.list_gpu_instances(card.uuid),
            )
            for card in library.list_cards()
        }


@contextmanager
def opened(root: Path, driver_root: Path, folder: Path) -> Iterator[Cards]:
    """Open the backend; ``folder`` is the test's own."""
    hook = folder / "nvidia-cdi-hook"
    hook.write_bytes(b"\x7fELF")  # it is named in edits, and not run
    library = ReadOnlyLibrary(driver_root)
    config = NvidiaConfig(
        driver_root=str(driver_root), system_root=str(root), cdi_hook=str(hook), mig_mode=MigPolicy.LEAVE
    )
    with closing(NvidiaBackend(config, library=library)) as backend:
        backend.open()
        yield Cards(root=root, driver_root=driver_root, backend=backend, library=library)


@contextmanager
def stand_ins(folder: Path) -> Iterator[Cards]:
    """Cards without MIG, with MIG off, and with MIG on, of the stand-in."""
    described = (
        CardDescription(model="h100-80gb-sxm", product="NVIDIA L4", is_mig_capable=False),
        CardDescription(model="h100-80gb-sxm"),
        CardDescription(model="a100-40gb", is_mig_on=True),
    )
    machine = NvidiaMachine.create(folder / "machine", MachineDescription(cards=described))
    os.environ[MACHINE_VARIABLE] = str(machine.folder)
    with opened(machine.folder, machine.driver_root, folder) as cards:
        yield cards


def is_of_stand_in(library: str) -> bool:
    """Whether the library is in the driver's files of a stand-in, which are beside the state of its cards."""
    return any((folder / "state").is_file() for folder in Path(library).parents)


@contextmanager
def real_cards(folder: Path) -> Iterator[Cards]:
    """The cards of this machine. A process loads one library: it must not be the stand-in's."""
    with opened(Path("/"), DRIVER_ROOT, folder) as cards:
        loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if SONAME[:-2] in line}
        if not loaded or any(map(is_of_stand_in, loaded)):
            raise AssertionError(f"this process has loaded {loaded}, which is no driver's: run these tests alone")
        yield cards
