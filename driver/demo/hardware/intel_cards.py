"""Stand-ins of Intel's GPUs: the files by which the kernel shows them, which the backend ``intel`` reads unchanged.

They are as Intel's own build of ``i915`` has them, which states a card's memory in a file: no driver answers here.
"""

import os
from pathlib import Path
from typing import Final

from kerf_dra.api.model.base import JsonObject

CARDS: Final = 2
"""The cards of a node, so that one may have shares while tiles of the other are given."""
MODEL: Final = "max-1550"
_VENDOR: Final = "0x8086"
_MAX_1550: Final = "0x0bd5"
"""A PCI device id of the Max 1550, which has two tiles (``kerf_dra.driver.families.gpu_intel.catalog``)."""
_TILE_BYTES: Final = 64 * 2**30
"""The memory of each of its tiles."""
_ROOT_COMPLEXES: Final = ("pci0000:00", "pci0000:80")
"""The PCIe root complex of each card; one is at each NUMA node."""
_FIRST_BUS: Final = 3
"""The PCI bus of the first card: behind a bridge, as cards are."""
_FIRST_RENDER: Final = 128
"""The number of the first render node (Linux ``drivers/gpu/drm/drm_drv.c``)."""


def write_intel_cards(root: Path) -> JsonObject:
    """Write the files of a node's cards below ``root``; returns the configuration of the backend ``intel``."""
    release = root / "proc/sys/kernel/osrelease"
    release.parent.mkdir(parents=True)
    release.write_text("6.12.0\n")
    (root / "sys/bus/pci/drivers/i915").mkdir(parents=True)
    (root / "sys/class/drm").mkdir(parents=True)
    for number in range(CARDS):
        _write_card(root, number)
    return {"systemRoot": str(root)}


def _write_card(root: Path, number: int) -> None:
    device = root / "sys/devices" / _ROOT_COMPLEXES[number] / f"0000:{_FIRST_BUS + number:02x}:00.0"
    card = device / "drm" / f"card{number}"
    card.mkdir(parents=True)
    (device / "drm" / f"renderD{_FIRST_RENDER + number}").mkdir()
    _link(card / "device", device)
    _link(device / "driver", root / "sys/bus/pci/drivers/i915")
    _link(root / "sys/class/drm" / card.name, card)
    (card / "lmem_total_bytes").write_text(f"{_TILE_BYTES}\n")
    for name, text in {"vendor": _VENDOR, "device": _MAX_1550, "numa_node": str(number)}.items():
        (device / name).write_text(f"{text}\n")


def _link(link: Path, target: Path) -> None:
    link.symlink_to(os.path.relpath(target, link.parent))
