"""What the kernel says of Intel's GPUs in ``/sys/class/drm`` (Linux ``Documentation/gpu``).

A card is a device ``cardN`` of the vendor Intel whose kernel driver is ``i915`` or ``xe``; beside it is its render node
``renderDN``. Both numbers may be others after a boot. With SR-IOV the virtual functions are cards of their own, and the
physical one is none while it has some: they have its memory.
"""

import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.families.gpu_intel.catalog import find_tiles
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError
from kerf_dra.driver.kubeletplugin.backends.kernel_files import (
    UnreadableFilesError,
    find_pcie_root,
    list_folder,
    read_count,
    read_numa_node,
    read_number,
    read_optional,
)
from kerf_dra.driver.kubeletplugin.backends.pci_devices import PciCardKind

_CLASS: Final = "sys/class/drm"
_CARD: Final = re.compile(r"card([0-9]+)")
_RENDER: Final = re.compile(r"renderD([0-9]+)")
_TILE: Final = re.compile(r"tile[0-9]+")
_PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_VENDOR: Final = 0x8086
"""Intel's PCI vendor id."""
_DRIVERS: Final = frozenset({"i915", "xe"})
INTEL_GPUS: Final = PciCardKind(
    vendor=_VENDOR,
    classes=frozenset({0x0300, 0x0302, 0x0380}),
    drivers=("xe", "i915"),
    next_step="load its driver (modprobe xe, or i915), with a kernel and firmware that know the card (docs/intel.md)",
)
"""Intel's devices of the class display controller (PCI Code and ID Assignment, class 03h): VGA, 3D, other."""
_MILLI: Final = 1000
"""Sensors are in thousandths of a degree."""
_NAMESPACE: Final = uuid.UUID("5c1d2f0e-0d8b-5c55-8f0a-3a2c9c7e4b10")
"""The namespace of the cards' UUIDs (RFC 9562, version 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelCardReading:
    """A card as the kernel shows it."""

    uuid: str
    """Made of PCI address and device id: the kernel shows no serial number."""
    number: int
    """The number of its device node, ``/dev/dri/card0``."""
    render: int | None
    """The number of its render node, ``/dev/dri/renderD128``; None: it has none."""
    pci_address: str
    pcie_root: str
    """The PCIe root complex, such as ``pci0000:00``; empty: unknown."""
    numa_node: int
    pci_device_id: int
    driver: str
    """``i915`` or ``xe``."""
    tiles: int
    is_virtual_function: bool
    local_memory_bytes: int
    """The memory that ``lmem_total_bytes`` states (Intel's own build of i915); 0: the file is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature:
    """A sensor of a card, in degrees Celsius (Linux ``Documentation/hwmon/sysfs-interface.rst``)."""

    name: str
    """Its label, such as ``pkg`` or ``vram``; its number where it has none."""
    value: float
    critical: float | None
    """At this the hardware is about to slow down or to stop; None: not said."""
    emergency: float | None
    """At this it shuts itself off; None: not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelCardCondition:
    """What the kernel says of a card's health."""

    survivability: str
    """What ``survivability_mode`` of ``xe`` says: where it is, the driver does not serve the card until its firmware is
    flashed; empty: the driver serves it."""
    temperatures: tuple[Temperature, ...]
    fatal_errors: tuple[tuple[str, int], ...]
    """The counters of fatal errors that are not zero, such as ``gt0/fatal_guc``, ``gt0/sgunit_fatal`` and
    ``gt0/soc_fatal_punit`` (RAS; Intel's own build of ``i915``). They begin at 0 when the driver is loaded."""


def read_survivability(device: Path) -> str:
    """Return what the survivability mode of a PCI device says, by its folder; empty: it is in none.

    A card that boots in this mode has no folder in ``/sys/class/drm``; one that gets into it later keeps its own (Linux
    ``xe_survivability_mode.c``).
    """
    file = device / "survivability_mode"
    return read_optional(file) or ("it cannot be read" if file.exists() else "")


def read_condition(root: Path, card: IntelCardReading) -> IntelCardCondition:
    """Read the health of a card; what the driver does not show is left out."""
    entry = root / _CLASS / f"card{card.number}"
    return IntelCardCondition(
        survivability=read_survivability(entry / "device"),
        temperatures=tuple(
            _read_temperature(file) for file in sorted((entry / "device").glob("hwmon/hwmon*/temp*_input"))
        ),
        fatal_errors=tuple(
            (f"{file.parent.parent.name}/{file.name}", count)
            for file in sorted(entry.glob("gt/gt*/error_counter/*fatal*"))
            if "fatal" in file.name.split("_") and (count := read_number(file))  # and not nonfatal
        ),
    )


def _read_temperature(file: Path) -> Temperature:
    stem = file.name.removesuffix("_input")

    def limit(name: str) -> float | None:
        value = read_number(file.with_name(f"{stem}_{name}"))
        return value / _MILLI if value > 0 else None

    return Temperature(
        name=read_optional(file.with_name(f"{stem}_label")) or stem,
        value=read_number(file) / _MILLI,
        critical=limit("crit"),
        emergency=limit("emergency"),
    )


class IntelFiles:
    """The files of all cards below a root, ``/`` on a node."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list_cards(self, problems: list[KerfError]) -> list[IntelCardReading]:
        """Return the cards that can be read, by PCI address: programs enumerate them in this order.

        Why others cannot goes to ``problems``. Raises UnreadableFilesError when it is not known which are there.
        """
        found: list[IntelCardReading] = []
        for name in list_folder(self.root, self.root / _CLASS):
            try:
                card = _read_card(self.root, name)
            except (CardAbsentError, UnreadableFilesError) as error:
                problems.append(error)
                continue
            found += [] if card is None else [card]
        return sorted(found, key=lambda card: card.pci_address)

    def read_again(self, card: IntelCardReading) -> IntelCardReading | None:
        """Return the card as it is now, where it was; None: it is not there any more, or elsewhere.

        Raises CardAbsentError and UnreadableFilesError.
        """
        now = _read_card(self.root, f"card{card.number}")
        return now if now is not None and now.uuid == card.uuid else None


def _read_card(root: Path, name: str) -> IntelCardReading | None:
    """Return the card; None: it is none of Intel's, or has given its memory to virtual functions.

    Raises CardAbsentError and UnreadableFilesError.
    """
    match = _CARD.fullmatch(name)
    entry = root / _CLASS / name
    device = entry / "device"
    if match is None or read_count(root, device / "vendor") != _VENDOR or read_count(root, device / "sriov_numvfs"):
        return None
    driver = (device / "driver").resolve().name
    address = device.resolve().name
    if driver not in _DRIVERS or not _PCI_ADDRESS.fullmatch(address):
        return None
    device_id = read_count(root, device / "device")
    return IntelCardReading(
        uuid=f"INTEL-{uuid.uuid5(_NAMESPACE, f'{address} {device_id:#06x}')}",
        number=int(match[1]),
        render=_find_render(device),
        pci_address=address,
        pcie_root=find_pcie_root(device),
        numa_node=read_numa_node(device),
        pci_device_id=device_id,
        driver=driver,
        tiles=_count_tiles(device, device_id),
        is_virtual_function=(device / "physfn").exists(),
        local_memory_bytes=read_number(entry / "lmem_total_bytes"),
    )


def _find_render(device: Path) -> int | None:
    numbers = [int(match[1]) for one in (device / "drm").glob("renderD*") if (match := _RENDER.fullmatch(one.name))]
    return min(numbers, default=None)


def _count_tiles(device: Path, device_id: int) -> int:
    """Count the tiles that ``xe`` shows; ``i915`` shows engines for media as tiles (``gt1``), so the product
    decides.
    """
    shown = sum(1 for one in device.glob("tile*") if _TILE.fullmatch(one.name))
    return shown or find_tiles(device_id)
