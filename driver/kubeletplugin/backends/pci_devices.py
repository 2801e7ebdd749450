"""PCI devices in ``/sys/bus/pci/devices`` (Linux ``Documentation/PCI/sysfs-pci.rst``): which of them are cards of a
backend's kind that it does not list, which driver has each, and what to do. Only reading touches files.

Virtual functions are left out: a machine may have hundreds of them, and most are for virtual machines.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, UnlistedCard
from kerf_dra.driver.kubeletplugin.backends.kernel_files import (
    UnreadableFilesError,
    list_folder,
    read_count,
)

_DEVICES: Final = "sys/bus/pci/devices"
_ADDRESS: Final = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([01]?[0-9a-f])\.([0-7])", re.IGNORECASE)
"""Domain, bus, device and function; lspci omits the domain 0000, and NVML writes it with eight digits."""
_STUBS: Final = frozenset({"vfio-pci", "pci-stub", "pciback"})
"""Drivers that keep a device for virtual machines (Linux ``Documentation/driver-api/vfio.rst``; Xen's pciback). Those
of vendors, such as ``nvidia-vgpu-vfio``, have vfio in their names, too."""


class DriverFault(NamedTuple):
    """What it means that a certain driver has a card, or a function of it."""

    problem: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PciCardKind:
    """The PCI devices that are cards of one backend, and the drivers that these need."""

    vendor: int
    """The PCI vendor id."""
    classes: frozenset[int] = frozenset()
    """The PCI classes with sub-class, such as 0x0302; empty: the ids say which devices are cards."""
    ids: frozenset[tuple[int, int]] = frozenset()
    """The ids of vendor and device; empty: the vendor's devices of ``classes`` are cards."""
    drivers: tuple[str, ...]
    """The drivers of which the backend lists the cards."""
    next_step: str
    """How a card gets one of these drivers."""
    faults: Mapping[str, DriverFault] = field(default_factory=dict)
    """What other drivers mean, by their names."""
    is_multifunction: bool = False
    """Whether all functions at one bus and device number are one card."""

    @property
    def vendors(self) -> frozenset[int]:
        return frozenset({self.vendor, *(vendor for vendor, _ in self.ids)})

    def includes(self, device: "PciDevice") -> bool:
        if self.ids:
            return (device.vendor, device.device) in self.ids
        return device.vendor == self.vendor and device.pci_class in self.classes


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """A PCI function that is not virtual."""

    address: str
    vendor: int
    device: int
    pci_class: int
    """The class with sub-class, such as 0x0302."""
    driver: str
    """The driver that has it; empty: none."""
    virtual_functions: int = 0
    """The number of virtual functions that it has now."""

    @property
    def slot(self) -> str:
        """The address without the function."""
        return self.address.rpartition(".")[0]


def normalize_pci_address(text: str) -> str:
    """Return a PCI address as the kernel writes it; empty: ``text`` is none.

    >>> normalize_pci_address("00000000:3B:00.0"), normalize_pci_address("3b:0.0"), normalize_pci_address("0")
    ('0000:3b:00.0', '0000:3b:00.0', '')
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return ""
    domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def list_unlisted_cards(
    root: Path, kind: PciCardKind, listed: Iterable[str], problems: Collection[str] = ()
) -> Sequence[UnlistedCard]:
    """Return the cards of ``kind`` below ``root`` that are none of the addresses ``listed``, in order of address.

    ``problems`` are what the backend has said of cards; one that names an address says why it does not list the card.
    Raises UnreadableFilesError when it is not known which devices there are.
    """
    return find_unlisted_cards(read_pci_devices(root, kind.vendors), kind, listed, problems)


def read_pci_devices(root: Path, vendors: Collection[int]) -> list[PciDevice]:
    """Return the PCI functions of ``vendors`` below ``root``. One that cannot be read is left out.

    Raises UnreadableFilesError when it is not known which there are.
    """
    found: list[PciDevice] = []
    for address in list_folder(root, root / _DEVICES):
        folder = root / _DEVICES / address
        try:
            vendor = read_count(root, folder / "vendor")
            if vendor in vendors and not (folder / "physfn").exists():
                found.append(_read_device(root, folder, vendor))
        except (CardAbsentError, UnreadableFilesError):
            continue
    return found


def _read_device(root: Path, folder: Path, vendor: int) -> PciDevice:
    return PciDevice(
        address=normalize_pci_address(folder.name) or folder.name,
        vendor=vendor,
        device=read_count(root, folder / "device"),
        pci_class=read_count(root, folder / "class") >> 8,
        driver=_read_driver(folder),
        virtual_functions=read_count(root, folder / "sriov_numvfs"),
    )


def _read_driver(folder: Path) -> str:
    try:
        return (folder / "driver").readlink().name
    except OSError:
        return ""


def find_unlisted_cards(
    devices: Iterable[PciDevice], kind: PciCardKind, listed: Iterable[str], problems: Collection[str] = ()
) -> tuple[UnlistedCard, ...]:
    """Return what of ``devices`` is a card of ``kind`` and not ``listed``, as ``list_unlisted_cards`` does. Pure."""
    known = {normalize_pci_address(address) or address for address in listed}
    return tuple(
        _describe(functions, kind, problems)
        for functions in _group_functions(filter(kind.includes, devices), kind)
        if known.isdisjoint(function.address for function in functions)
    )


def _group_functions(devices: Iterable[PciDevice], kind: PciCardKind) -> Iterator[list[PciDevice]]:
    """Yield the functions of each card, of which the first is the one that programs use, if it is there."""
    ordered = sorted(devices, key=lambda each: each.address)
    for _, functions in groupby(ordered, key=lambda each: each.slot if kind.is_multifunction else each.address):
        yield sorted(functions, key=lambda each: each.driver in kind.faults)


def _describe(functions: Sequence[PciDevice], kind: PciCardKind, problems: Collection[str]) -> UnlistedCard:
    device = functions[0]
    names = " or ".join(kind.drivers)
    said = [each for each in problems if device.address in each]
    is_expected = False
    if device.driver in kind.faults:
        problem, next_step = kind.faults[device.driver]
    elif device.driver in _STUBS or "vfio" in device.driver:
        is_expected = True
        problem = f"{device.driver} has it, so it may be meant for a virtual machine"
        next_step = f"leave it as it is, or bind it to {names} if containers are to have it"
    elif device.driver in kind.drivers and device.virtual_functions:
        is_expected = True
        problem = f"its {device.virtual_functions} virtual functions have what it has"
        next_step = "leave it as it is, or write 0 to its sriov_numvfs if containers are to have it whole"
    elif device.driver in kind.drivers or (said and not device.driver):  # it was read, whatever its link says
        problem = "; ".join(said) or f"its driver {device.driver} has it, and yet the backend does not list it"
        next_step = "resolve what the message says" if said else "read what the kernel's log (dmesg) says of it"
    else:
        problem = f"{device.driver} has it in place of {names}" if device.driver else "no driver has it"
        next_step = kind.next_step
    return UnlistedCard(
        pci_address=device.address,
        pci_id=f"{device.vendor:04x}:{device.device:04x}",
        driver=device.driver,
        problem=problem,
        next_step=next_step,
        is_expected=is_expected,
    )
