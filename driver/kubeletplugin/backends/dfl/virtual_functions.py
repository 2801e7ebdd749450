"""Cards whose ports are given to virtual functions, for containers that use them by VFIO (SR-IOV).

The management engine stays on the physical function, and only its ports can be loaded. So a function is loaded first;
then each port is released, ``sriov_numvfs`` makes a virtual function for each, and ``vfio-pci`` is bound to these
(Linux ``Documentation/fpga/dfl.rst``, "FPGA virtualization - PCIe SRIOV"). Their number can change only when there is
none. So a card is given as a whole.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import DflDriver
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import CardFiles, DflCardReading
from kerf_dra.driver.kubeletplugin.backends.kernel_files import list_folder, read_count

_DRIVER: Final = "vfio-pci"
_FUNCTION: Final = re.compile(r"virtfn([0-9]+)")
"""The link of a physical function to a virtual one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualFunction:
    """A virtual function of a card."""

    address: str
    """Its PCI address."""
    driver: str
    """The driver that is bound to it; empty: none."""
    group: str
    """The number of its IOMMU group; empty: it has none."""

    @property
    def node(self) -> str:
        return f"/dev/vfio/{self.group}"


class VirtualFunctions:
    """The virtual functions of all cards; the methods raise as those of DflDriver."""

    def __init__(self, files: CardFiles, driver: DflDriver) -> None:
        self._files = files
        self._driver = driver

    def list_functions(self, card: DflCardReading) -> list[VirtualFunction]:
        """Return the virtual functions that are there, by their numbers. Raises UnreadableFilesError."""
        folder = self._files.find_device_folder(card)
        found = (_FUNCTION.fullmatch(name) for name in list_folder(self._files.root, folder))
        numbers = sorted(int(match[1]) for match in found if match is not None)
        return [_read_function((folder / f"virtfn{number}").resolve()) for number in numbers]

    def make(self, card: DflCardReading, slots: Sequence[int]) -> list[VirtualFunction]:
        """Release the ports of ``slots``, and make a virtual function for each that VFIO has.

        Raises HardwareRefusedError where a function cannot be allocated by itself.
        """
        device = self._files.find_device_folder(card)
        for slot in slots:
            if card.find_port(slot) is not None:
                self._driver.release_port(card, slot)
        self._write(card, device / "sriov_drivers_autoprobe", "0")  # no other driver is bound in between
        self._write(card, device / "sriov_numvfs", str(len(slots)))
        for found in self.list_functions(card):
            folder = device.parent / found.address
            self._write(card, folder / "driver_override", _DRIVER)
            if found.driver not in ("", _DRIVER):
                self._write(card, folder / "driver/unbind", found.address)
            if found.driver != _DRIVER:
                self._write(card, self._files.root / "sys/bus/pci/drivers_probe", found.address)
        made = self.list_functions(card)
        self._check(card, made, len(slots))
        return made

    def undo(self, card: DflCardReading) -> bool:
        """Remove all virtual functions, and give the ports back; returns whether there was something to do."""
        device = self._files.find_device_folder(card)
        missing = [slot for slot in range(card.slots) if card.find_port(slot) is None]
        is_made = read_count(self._files.root, device / "sriov_numvfs") != 0
        if is_made:
            self._write(card, device / "sriov_numvfs", "0")
        for slot in missing:
            try:
                self._driver.assign_port(card, slot)
            except HardwareBusyError:
                if not card.without_driver:  # else it may be one that is there already, without a driver
                    raise
        return is_made or card.released > 0

    def _check(self, card: DflCardReading, made: Sequence[VirtualFunction], count: int) -> None:
        name = card.pci_address
        if len(made) != count:
            raise HardwareBusyError(f"card {name} has {len(made)} virtual functions instead of {count}")
        for one in made:
            if one.driver != _DRIVER:
                raise HardwareRefusedError(f"{_DRIVER} is not bound to {one.address}: the kernel needs its module")
            if not one.group:
                raise HardwareRefusedError(f"{one.address} has no IOMMU group: the machine needs an IOMMU that is on")
            group = self._files.root / "sys/kernel/iommu_groups" / one.group / "devices"
            others = sorted({entry.name for entry in group.glob("*")} - {one.address})
            if others:
                raise HardwareRefusedError(
                    f"{one.address} shares its IOMMU group with {', '.join(others)}: it cannot be given by itself"
                )

    def _write(self, card: DflCardReading, path: Path, text: str) -> None:
        self._driver.write_attribute(card, path, text)


def _read_function(folder: Path) -> VirtualFunction:
    driver, group = folder / "driver", folder / "iommu_group"
    return VirtualFunction(
        address=folder.name,
        driver=driver.resolve().name if driver.exists() else "",
        group=group.resolve().name if group.exists() else "",
    )
