"""What the kernel says of NVIDIA cards in ``/proc`` and ``/sys``: NUMA nodes, PCIe roots, numbers of device nodes, and
the processes that hold them.
"""

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MINOR: Final = re.compile(r"^DeviceFileMinor: *(\d+)$", re.MULTILINE)
"""The line of an ``access`` file with the minor number of the capability's device node."""
_CAPABILITY: Final = re.compile(r"/dev/nvidia-caps/nvidia-cap(\d+)")
"""A capability's device node, as an open file of a process."""
_FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""The machine's own PID namespace (Linux, ``PROC_PID_INIT_INO``). NVML numbers processes as the machine does, so in
another namespace the same number is another process."""
_PCIE_ROOT: Final = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFiles:
    """The files below a root, ``/`` on a node."""

    root: Path

    def read_numa_node(self, pci_address: str) -> int:
        """Return the NUMA node of the card at a PCI address; 0: the machine has one node, or does not say."""
        try:
            return max(0, int((self._device(pci_address) / "numa_node").read_text()))
        except (OSError, ValueError):
            return 0

    def find_pcie_root(self, pci_address: str) -> str:
        """Return the PCIe root complex of the card, such as ``pci0000:00``; empty: unknown."""
        parts = self._device(pci_address).resolve().parts
        return next((part for part in parts if _PCIE_ROOT.fullmatch(part)), "")

    def find_capabilities(self, minor: int, gpu_instance: int, compute_instance: int) -> tuple[int, int] | None:
        """Return the minor numbers of the capability nodes of a GPU instance and its compute instance; None: there are
        none.
        """
        folder = self.root / "proc/driver/nvidia/capabilities" / f"gpu{minor}/mig/gi{gpu_instance}"
        found = [_read_minor(one / "access") for one in (folder, folder / f"ci{compute_instance}")]
        return None if found[0] is None or found[1] is None else (found[0], found[1])

    def read_process_name(self, pid: int) -> str:
        """Return the name of a process of this machine; empty: it is gone, or another PID namespace hides it."""
        if not self._sees_processes():
            return ""
        try:
            return (self._proc / f"{pid}" / "comm").read_text(errors="replace").strip()
        except OSError:
            return ""

    def find_openers(self, capabilities: Collection[int]) -> list[int]:
        """Return the processes that have capability nodes with these minor numbers open, as far as we may see that."""
        if not capabilities or not self._sees_processes():
            return []
        with suppress(OSError):
            processes = [entry for entry in self._proc.iterdir() if entry.name.isdecimal()]
            return sorted(int(entry.name) for entry in processes if _opens(entry, capabilities))
        return []

    def _sees_processes(self) -> bool:
        try:
            return str((self._proc / "self/ns/pid").readlink()) == _FIRST_PID_NAMESPACE
        except OSError:  # a stand-in's
            return True

    @property
    def _proc(self) -> Path:
        return self.root / "proc"

    def _device(self, pci_address: str) -> Path:
        return self.root / "sys/bus/pci/devices" / pci_address


def _read_minor(access: Path) -> int | None:
    try:
        found = _MINOR.search(access.read_text())
    except OSError:
        return None
    return int(found[1]) if found else None


def _opens(process: Path, capabilities: Collection[int]) -> bool:
    with suppress(OSError):  # it ends meanwhile, or is another user's
        for file in (process / "fd").iterdir():
            with suppress(OSError):
                found = _CAPABILITY.fullmatch(str(file.readlink()))
                if found and int(found[1]) in capabilities:
                    return True
    return False
