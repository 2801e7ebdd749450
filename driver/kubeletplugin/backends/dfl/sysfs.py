"""What the kernel says of DFL cards in ``/sys`` (Linux ``Documentation/fpga/dfl.rst``,
``Documentation/ABI/testing/sysfs-platform-dfl-fme``, ``-dfl-port``, ``sysfs-class-fpga-region``, ``-fpga-manager``).

A card is the FPGA region that has a management engine (``dfl-fme.N``). Beside it are its ports (``dfl-port.M``), each
with the one accelerator function that is loaded in its slot. N and M are numbers of the machine and may be others after
a boot; a port's ``id`` is its number on the card.
"""

import errno
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.kernel_files import (
    find_pcie_root,
    read_attribute,
    read_numa_node,
    read_number,
    read_text,
)

_REGIONS: Final = "sys/class/fpga_region"
_PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HEX_UUID: Final = re.compile(r"[0-9a-f]{32}")
_NAMESPACE: Final = uuid.UUID("f3b7e5a4-3c0b-5a0e-9d6e-7c1c2f0a9b11")
"""The namespace of the cards' UUIDs (RFC 9562, version 5)."""
ALL_ONES: Final = 0xFFFF_FFFF_FFFF_FFFF
"""What reads of a register return once the card is off the bus (PCI Express Base Specification, error handling)."""
NO_AFU_IDS: Final = frozenset({"0" * 32, "f" * 32})
"""What a port reports in place of a function's id when there is none, or none that can be read."""

_ALARMS: Final = ("temp*_max_alarm", "temp*_crit_alarm", "temp*_emergency_alarm", "power*_crit_alarm")
"""Alarms of the board's sensors (Linux ``Documentation/hwmon/sysfs-interface.rst``). ``power*_max_alarm`` is left out:
at that threshold the hardware only begins to slow functions down by a half, which ``power_state`` says of each port."""
_SENSORS: Final = ("hwmon/hwmon*", "dfl_dev.*/**/hwmon/hwmon*")
"""Where sensors are below the management engine: its own, and those of the board's controller behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortReading:
    """A port of a card."""

    slot: int
    """Its id on the card."""
    number: int
    """The number of its device node, ``/dev/dfl-port.0``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DflCardReading:
    """A card as the kernel shows it."""

    uuid: str
    """Made of the PCI address: the kernel shows no serial number of a DFL card."""
    pci_address: str
    pcie_root: str
    """The PCIe root complex, such as ``pci0000:00``; empty: unknown."""
    numa_node: int
    region: str
    """The name of its base region, such as ``region0``."""
    fme: int
    """The number of the management engine's device node, ``/dev/dfl-fme.0``."""
    interface_uuid: str
    """The interface that images must be built for; empty: the card has no partial reconfiguration."""
    slots: int
    """The ports that the card has, wherever they are now."""
    ports: tuple[PortReading, ...]
    """The ports that are there, by their slots: one that was given to a virtual function is not."""

    @property
    def number(self) -> int:
        return self.fme

    @property
    def interfaces(self) -> tuple[str, ...]:
        return (self.interface_uuid,) if self.interface_uuid else ()

    def find_port(self, slot: int) -> PortReading | None:
        return next((port for port in self.ports if port.slot == slot), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortCondition:
    """What a port reports of its health."""

    errors: int = 0
    """The errors that the port has logged, as bits (``errors/errors``)."""
    power_state: int = 0
    """0: normal; 1, 2: the function is slowed down by 50 or 90 %; 6: its clock stands still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCondition:
    """What a card reports of its health."""

    errors: Mapping[str, int]
    """The errors of the management engine that are not 0, as bits, by the name of the attribute."""
    alarms: tuple[str, ...]
    """The sensors' alarms that are on, such as ``dfl_fme_thermal temp1_crit_alarm``."""
    ports: Mapping[int, PortCondition]
    """By slot."""


class CardFiles:
    """The files of all cards below a root, ``/`` on a node."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list_cards(self) -> list[DflCardReading]:
        """Return the cards that are there, by the numbers of their management engines."""
        found = (_read_card(region) for region in (self.root / _REGIONS).glob("region*"))
        return sorted((card for card in found if card is not None), key=lambda card: card.fme)

    def read_again(self, card: DflCardReading) -> DflCardReading | None:
        """Return the card as it is now, where it was; None: it is not there any more, or elsewhere."""
        now = _read_card(self.root / _REGIONS / card.region)
        return now if now is not None and now.uuid == card.uuid else None

    def read_afu_id(self, card: DflCardReading, port: PortReading) -> str:
        """Return the id of the function in a port's slot, as a UUID; empty: there is none, or it makes no sense.

        Raises HardwareBusyError while the port is held in reset, as during a load, and CardAbsentError.
        """
        folder = self.find_port_folder(card, port)
        try:
            text = read_text(folder / "afu_id").lower()
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise HardwareBusyError(f"slot {port.slot} of {card.pci_address} is held in reset") from error
            if error.errno == errno.ENOENT and folder.is_dir():
                return ""
            raise CardAbsentError(f"card {card.pci_address} is not there any more: {error.strerror}") from error
        return "" if text in NO_AFU_IDS or not _HEX_UUID.fullmatch(text) else str(uuid.UUID(text))

    def read_load_status(self, card: DflCardReading) -> str:
        """Return what the card's FPGA manager says of the last load, as lines; empty: nothing."""
        for status in self._find_fme_folder(card).glob("dfl-fme-mgr.*/fpga_manager/fpga*/status"):
            return read_attribute(status)
        return ""

    def read_port_errors(self, card: DflCardReading, port: PortReading) -> int:
        """Return the port's logged errors; 0: none, or the card logs none. Raises CardAbsentError."""
        folder = self.find_port_folder(card, port)
        if not folder.is_dir():
            raise CardAbsentError(f"card {card.pci_address} is not there any more")
        errors = read_number(folder / "errors/errors")
        if errors == ALL_ONES:
            raise CardAbsentError(f"card {card.pci_address} answers with ones only: it is off the bus")
        return errors

    def read_condition(self, card: DflCardReading) -> CardCondition:
        """Return what the card reports of its health. Raises CardAbsentError."""
        fme = self._find_fme_folder(card)
        if not fme.is_dir():
            raise CardAbsentError(f"card {card.pci_address} is not there any more")
        errors = {path.name: read_number(path) for path in sorted(fme.glob("errors/*_errors"))}
        errors.pop("inject_errors", None)  # what is injected for tests, which no read of errors is
        if errors and all(value == ALL_ONES for value in errors.values()):
            raise CardAbsentError(f"card {card.pci_address} answers with ones only: it is off the bus")
        ports = {}
        for port in card.ports:
            folder = self.find_port_folder(card, port)
            ports[port.slot] = PortCondition(
                errors=read_number(folder / "errors/errors"), power_state=read_number(folder / "power_state")
            )
        return CardCondition(
            errors={name: value for name, value in errors.items() if value},
            alarms=tuple(_list_alarms(fme)),
            ports=ports,
        )

    def find_port_folder(self, card: DflCardReading, port: PortReading) -> Path:
        return self.root / _REGIONS / card.region / f"dfl-port.{port.number}"

    def find_device_folder(self, card: DflCardReading) -> Path:
        """Return the folder of the card's physical function in ``/sys``."""
        parts = (self.root / _REGIONS / card.region).resolve().parts
        if card.pci_address not in parts:
            raise CardAbsentError(f"card {card.pci_address} is not there any more")
        return Path(*parts[: parts.index(card.pci_address) + 1])

    def find_fme_node(self, card: DflCardReading) -> Path:
        return self.root / f"dev/dfl-fme.{card.fme}"

    def find_port_node(self, port: PortReading) -> Path:
        return self.root / f"dev/dfl-port.{port.number}"

    def _find_fme_folder(self, card: DflCardReading) -> Path:
        return self.root / _REGIONS / card.region / f"dfl-fme.{card.fme}"


def _read_card(region: Path) -> DflCardReading | None:
    """Return the card whose base region this is; None: it is another region, or goes away meanwhile."""
    fme = next(iter(region.glob("dfl-fme.[0-9]*")), None)
    if fme is None:
        return None
    parts = region.resolve().parts
    address = next((part for part in reversed(parts) if _PCI_ADDRESS.fullmatch(part)), "")
    found = (_read_port(folder) for folder in region.glob("dfl-port.[0-9]*"))
    ports = sorted((port for port in found if port is not None), key=lambda port: port.slot)
    if not address:
        return None  # no card on a PCI bus
    return DflCardReading(
        uuid=f"FPGA-{uuid.uuid5(_NAMESPACE, address)}",
        pci_address=address,
        pcie_root=find_pcie_root(region),
        numa_node=read_numa_node(Path(*parts[: parts.index(address) + 1])),
        region=region.name,
        fme=int(fme.name.rpartition(".")[2]),
        interface_uuid=_read_interface(fme),
        slots=read_number(fme / "ports_num"),
        ports=tuple(ports),
    )


def _read_port(folder: Path) -> PortReading | None:
    text = read_attribute(folder / "id")
    return PortReading(slot=int(text), number=int(folder.name.rpartition(".")[2])) if text.isdecimal() else None


def _read_interface(fme: Path) -> str:
    """Read the interface id, which all regions of a card have from its one FPGA manager."""
    for path in sorted(fme.glob("dfl-fme-region.*/fpga_region/region*/compat_id")):
        text = read_attribute(path).lower()
        if _HEX_UUID.fullmatch(text) and text not in NO_AFU_IDS:
            return str(uuid.UUID(text))
    return ""


def _list_alarms(fme: Path) -> Iterator[str]:
    for place in _SENSORS:
        for sensor in sorted(fme.glob(place)):
            for pattern in _ALARMS:
                for path in sorted(sensor.glob(pattern)):
                    if read_number(path) == 1:
                        yield f"{read_attribute(sensor / 'name')} {path.name}".strip()
