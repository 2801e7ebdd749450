"""What the kernel says of Alveo cards in ``/sys`` (Xilinx/XRT, ``src/runtime_src/core/pcie/driver/linux/xocl``).

A card has two PCI functions. The user function, of the driver ``xocl``, is what programs open: its render node
``/dev/dri/renderDN``. The management function, of the driver ``xclmgmt``, is its neighbor on the bus and may be out of
sight, in a virtual machine; of it only the trips of the AXI firewalls are read here.
"""

import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError
from kerf_dra.driver.kubeletplugin.backends.kernel_files import (
    UnreadableFilesError,
    find_pcie_root,
    list_folder,
    parse_number,
    read_attribute,
    read_numa_node,
    read_number,
)
from kerf_dra.driver.kubeletplugin.backends.pci_devices import DriverFault, PciCardKind

_DRIVER: Final = "sys/bus/pci/drivers/xocl"
_DEVICES: Final = "sys/bus/pci/devices"
_FIRST_RENDER: Final = 128
"""The first number of render nodes (Linux ``Documentation/gpu/drm-uapi.rst``)."""
_PCI_ADDRESS: Final = re.compile(r"([0-9a-f]{4,}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_RENDER: Final = re.compile(r"renderD([0-9]+)")
_UUID: Final = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}")
_PID: Final = re.compile(r"\s+([0-9]+)")
_NAMESPACE: Final = uuid.UUID("0a6f3c52-58a8-5d0b-9a3f-1d3e9cf2b7a4")
"""The namespace of the cards' UUIDs (RFC 9562, version 5)."""
_NO_UUID: Final = uuid.UUID(int=0)
_ONLY_MANAGEMENT: Final = DriverFault(
    "only its management function is there: the card was never flashed, or has its golden image",
    "flash a shell (xbmgmt program --base --device ADDRESS), then switch the machine off and on",
)
ALVEO_CARDS: Final = PciCardKind(
    vendor=0x10EE,
    classes=frozenset({0x1200}),
    drivers=("xocl",),
    next_step="install XRT with its drivers and load the one of the user function: modprobe xocl (docs/fpga.md)",
    faults={"xclmgmt": _ONLY_MANAGEMENT, "xmgmt": _ONLY_MANAGEMENT},
    is_multifunction=True,
)
"""Xilinx's devices of the class processing accelerator (PCI Code and ID Assignment, class 12h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XrtCardReading:
    """A card as the kernel shows it."""

    uuid: str
    """Made of the PCI address: not every card shows a serial number to its user function."""
    pci_address: str
    """The address of its user function."""
    pcie_root: str
    """The PCIe root complex, such as ``pci0000:00``; empty: unknown."""
    numa_node: int
    render: int
    """The number of its device node, ``/dev/dri/renderD128``."""
    queues: tuple[str, ...]
    """Further device nodes of the user function, such as ``/dev/xfpga/dma.qdma.u15104.0``, which some shells have."""
    interfaces: tuple[str, ...]
    """The UUIDs of the interfaces that its shell offers; images are built for one of them."""

    @property
    def number(self) -> int:
        return self.render - _FIRST_RENDER


@dataclass(frozen=True, slots=True, kw_only=True)
class XrtCondition:
    """What a card reports of its health."""

    is_ready: bool
    """Whether the driver of the user function reaches that of the management function."""
    is_offline: bool
    """Whether the driver has taken the card out of service, as in a reset."""
    is_stuck: bool
    """Whether the driver says that the card needs a reset: a compute unit did not end."""
    firewall_level: int
    """The AXI firewall that has tripped; 0: none, or the management function is not seen from here."""


class XrtFiles:
    """The files of all cards below a root, ``/`` on a node."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list_cards(self, problems: list[KerfError]) -> list[XrtCardReading]:
        """Return the cards that can be read, by PCI address.

        Why others cannot goes to ``problems``. Raises UnreadableFilesError when it is not known which are there.
        """
        found: list[XrtCardReading] = []
        for name in list_folder(self.root, self.root / _DRIVER):
            try:
                card = self._read_card(name)
            except (CardAbsentError, UnreadableFilesError) as error:
                problems.append(error)
                continue
            found += [] if card is None else [card]
        return sorted(found, key=lambda card: card.pci_address)

    def read_again(self, card: XrtCardReading) -> XrtCardReading | None:
        """Return the card as it is now; None: it is not there any more. Raises UnreadableFilesError."""
        return self._read_card(card.pci_address)

    def read_loaded(self, card: XrtCardReading) -> frozenset[str]:
        """Return the UUIDs of the images that are loaded. Raises CardAbsentError."""
        found = (_parse_uuid(line) for line in self._read(card, "xclbinuuid").splitlines())
        return frozenset(one for one in found if one)

    def read_users(self, card: XrtCardReading) -> frozenset[int]:
        """Return the processes that have compute units of the card open, by their ids on the host.

        The driver counts them, so that they are seen from any PID namespace. Raises CardAbsentError.
        """
        lines = self._read(card, "kdsstat").partition("client pid:")[2].splitlines()
        return frozenset(int(match[1]) for line in lines if (match := _PID.fullmatch(line)))

    def read_condition(self, card: XrtCardReading) -> XrtCondition:
        """Return what the card reports of its health. Raises CardAbsentError."""
        return XrtCondition(
            is_ready=parse_number(self._read(card, "ready"), 1) != 0,
            is_offline=parse_number(self._read(card, "dev_offline"), 0) != 0,
            is_stuck=parse_number(self._read(card, "device_bad_state"), 0) != 0,
            firewall_level=max(self._read_firewalls(card), default=0),
        )

    def _read_card(self, address: str) -> XrtCardReading | None:
        """Return the card with this user function; None: it is none, or not there (any more).

        Raises CardAbsentError and UnreadableFilesError.
        """
        match = _PCI_ADDRESS.fullmatch(address)
        if match is None:
            return None
        entry = self.root / _DRIVER / address
        names = list_folder(self.root, entry / "drm")
        numbers = [int(found[1]) for name in names if (found := _RENDER.fullmatch(name))]
        if not numbers:
            return None
        domain, bus, device, function = (int(part, 16) for part in match.groups())
        number = (domain << 16) + (bus << 8) + (device << 3) + function
        nodes = sorted(node.name for node in (self.root / "dev/xfpga").glob(f"*.u{number}.*"))
        lines = (read_attribute(self.root, entry / "interface_uuids") or "").splitlines()
        interfaces = (_parse_uuid(line) for line in lines)
        return XrtCardReading(
            uuid=f"FPGA-{uuid.uuid5(_NAMESPACE, address)}",
            pci_address=address,
            pcie_root=find_pcie_root(entry),
            numa_node=read_numa_node(entry),
            render=min(numbers),
            queues=tuple(f"/dev/xfpga/{name}" for name in nodes),
            interfaces=tuple(dict.fromkeys(filter(None, interfaces))),
        )

    def _read(self, card: XrtCardReading, name: str) -> str:
        """Return an attribute; empty: the driver has none of this name.

        Raises CardAbsentError and UnreadableFilesError.
        """
        folder = self.root / _DRIVER / card.pci_address
        text = read_attribute(self.root, folder / name)
        if text is None and not list_folder(self.root, folder):
            raise CardAbsentError(f"card {card.pci_address} is not there any more, or its driver is not loaded")
        return text or ""

    def _read_firewalls(self, card: XrtCardReading) -> list[int]:
        """Return the levels of the firewalls of the card's management function: it is function 0 of the same card."""
        folder = self.root / _DEVICES / f"{card.pci_address.rpartition('.')[0]}.0"
        return [read_number(path) for path in folder.glob("firewall.m.*/level")]


def _parse_uuid(text: str) -> str:
    """Return a UUID with dashes and in lower case; empty: the text is none, or a UUID of zeros."""
    text = text.strip().lower()
    if not _UUID.fullmatch(text) or uuid.UUID(text) == _NO_UUID:
        return ""
    return str(uuid.UUID(text))
