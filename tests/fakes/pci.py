"""PCI devices of a machine that is a folder, as Linux shows them in ``/sys/bus/pci`` (6.12)."""

import os
from pathlib import Path


def add_pci_device(
    root: Path,
    address: str,
    ids: tuple[int, int],
    pci_class: int,
    driver: str = "",
    *,
    physical_function: str = "",
    virtual_functions: int = 0,
) -> Path:
    """Add a device with the ``ids`` of vendor and device, and return its folder; ``driver`` is empty for none."""
    device = root / "sys/devices/pci0000:00" / address
    device.mkdir(parents=True, exist_ok=True)
    texts = {"vendor": f"{ids[0]:#06x}", "device": f"{ids[1]:#06x}", "class": f"{pci_class << 8:#08x}"}
    for name, text in {**texts, "sriov_numvfs": str(virtual_functions)}.items():
        (device / name).write_text(f"{text}\n")
    _link(root / "sys/bus/pci/devices" / address, device)
    if driver:
        drivers = root / "sys/bus/pci/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        _link(device / "driver", drivers)
    if physical_function:
        _link(device / "physfn", device.parent / physical_function)
    return device


def _link(path: Path, to: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(to, path.parent))
