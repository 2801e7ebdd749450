"""What the kernel says of NVIDIA cards in ``/proc`` and ``/sys``: NUMA nodes, PCIe roots, numbers of device nodes, and
the processes that hold them.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.kernel_files import (
    FIRST_PID_NAMESPACE,
    find_openers,
    find_pcie_root,
    read_numa_node,
    read_process_name,
)
from kerf_dra.driver.kubeletplugin.backends.pci_devices import DriverFault, PciCardKind

_MINOR: Final = re.compile(r"^DeviceFileMinor: *(\d+)$", re.MULTILINE)
"""The line of an ``access`` file with the minor number of the capability's device node."""
_OPEN_DRIVER: Final = "exclude it from the boot (modprobe.blacklist={0}), install NVIDIA's driver, and boot again"
NVIDIA_GPUS: Final = PciCardKind(
    vendor=0x10DE,
    classes=frozenset({0x0300, 0x0302}),
    drivers=("nvidia",),
    next_step="install NVIDIA's driver and load it (modprobe nvidia)",
    faults={
        driver: DriverFault(f"{driver} has it in place of NVIDIA's driver", _OPEN_DRIVER.format(driver))
        for driver in ("nouveau", "nova_core", "NovaCore")
    },
)
"""NVIDIA's devices of the classes VGA and 3D controller (PCI Code and ID Assignment, class 03h). ``nouveau`` is loaded
by most distributions where NVIDIA's driver is not installed; ``nova_core`` is its successor in Rust."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFiles:
    """The files below a root, ``/`` on a node."""

    root: Path

    def read_numa_node(self, pci_address: str) -> int:
        """Return the NUMA node of the card at a PCI address; 0: the machine has one node, or does not say."""
        return read_numa_node(self._device(pci_address))

    def find_pcie_root(self, pci_address: str) -> str:
        """Return the PCIe root complex of the card, such as ``pci0000:00``; empty: unknown."""
        return find_pcie_root(self._device(pci_address))

    def find_capabilities(self, minor: int, gpu_instance: int, compute_instance: int) -> tuple[int, int] | None:
        """Return the minor numbers of the capability nodes of a GPU instance and its compute instance; None: there are
        none.
        """
        folder = self._capabilities(minor, gpu_instance)
        found = [_read_minor(one / "access") for one in (folder, folder / f"ci{compute_instance}")]
        return None if found[0] is None or found[1] is None else (found[0], found[1])

    def list_capabilities(self, minor: int, gpu_instance: int) -> set[int]:
        """Return the minor numbers of the nodes of a GPU instance and of all its compute instances that there are."""
        folder = self._capabilities(minor, gpu_instance)
        found = (_read_minor(access) for access in (folder / "access", *folder.glob("ci*/access")))
        return {number for number in found if number is not None}

    def read_process_name(self, pid: int) -> str:
        """Return the name of a process of this machine; empty: it is gone, or another PID namespace hides it."""
        return read_process_name(self._proc, pid) if self.sees_processes() else ""

    def find_openers(self, capabilities: Collection[int]) -> list[int]:
        """Return the processes that have capability nodes with these minor numbers open, as far as we may see that."""
        if not capabilities or not self.sees_processes():
            return []
        nodes = {f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in capabilities}
        return sorted({pid for pids in find_openers(self._proc, nodes).values() for pid in pids})

    def find_card_openers(self, minor: int) -> dict[int, str]:
        """Return the processes that have the node of the card with this minor number open, with their names, as far as
        we may see that. Raises UnreadableFilesError.
        """
        if not self.sees_processes():
            return {}
        node = f"/dev/nvidia{minor}" if self.root == Path("/") else f"{self.root}/dev/nvidia{minor}"
        # What has a stand-in's nodes open are processes of this machine.
        proc = self._proc if (self._proc / "self").exists() else Path("/proc")
        openers = find_openers(proc, {node}).get(node, [])
        return {pid: read_process_name(proc, pid) for pid in openers}

    def sees_processes(self) -> bool:
        """Whether this process, and NVML in it, sees those of the whole machine: a stand-in has all of them."""
        try:
            return str((self._proc / "self/ns/pid").readlink()) == FIRST_PID_NAMESPACE
        except OSError:  # a stand-in's
            return True

    @property
    def _proc(self) -> Path:
        return self.root / "proc"

    def _capabilities(self, minor: int, gpu_instance: int) -> Path:
        return self.root / "proc/driver/nvidia/capabilities" / f"gpu{minor}/mig/gi{gpu_instance}"

    def _device(self, pci_address: str) -> Path:
        return self.root / "sys/bus/pci/devices" / pci_address


def _read_minor(access: Path) -> int | None:
    try:
        found = _MINOR.search(access.read_text())
    except OSError:
        return None
    return int(found[1]) if found else None
