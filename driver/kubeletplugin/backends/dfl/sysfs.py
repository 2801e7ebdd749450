"""What the kernel says of DFL cards in ``/sys`` (Linux ``Documentation/fpga/dfl.rst``,
``Documentation/ABI/testing/sysfs-platform-dfl-fme``, ``-dfl-port``, ``sysfs-class-fpga-region``, ``-fpga-manager``).

A card is the FPGA region that has a management engine (``dfl-fme.N``). Beside it are its ports (``dfl-port.M``), each
with the one accelerator function that is loaded in its slot. N and M are numbers of the machine and may be others after
a boot; a port's ``id`` is its number on the card.
"""

import re
import uuid
from collections.abc import Iterator, Mapping
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
    read_count,
    read_numa_node,
    read_number,
    read_optional,
)
from kerf_dra.driver.kubeletplugin.backends.pci_devices import DriverFault, PciCardKind

_REGIONS: Final = "sys/class/fpga_region"
_PCI_ADDRESS: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_FME: Final = re.compile(r"dfl-fme\.([0-9]+)")
_PORT: Final = re.compile(r"dfl-port\.[0-9]+")
_HEX_UUID: Final = re.compile(r"[0-9a-f]{32}")
_NAMESPACE: Final = uuid.UUID("f3b7e5a4-3c0b-5a0e-9d6e-7c1c2f0a9b11")
"""The namespace of the cards' UUIDs (RFC 9562, version 5)."""
ALL_ONES: Final = 0xFFFF_FFFF_FFFF_FFFF
"""What reads of a register return once the card is off the bus (PCI Express Base Specification, error handling)."""
_NO_IDS: Final = frozenset({"0" * 32, "f" * 32})
"""What a port reports in place of a function's id when there is none, or none that can be read."""
_SETTLED: Final = frozenset({"operating", "unknown"})
_FAILED: Final = " error"
"""States of an FPGA manager in which no load goes on (Linux ``drivers/fpga/fpga-mgr.c``, ``state_str``): it has ended,
there was none since the driver was bound, or it failed, which the end of the state's name says of each step."""

_ALARMS: Final = ("temp*_max_alarm", "temp*_crit_alarm", "temp*_emergency_alarm", "power*_crit_alarm")
"""Alarms of the board's sensors (Linux ``Documentation/hwmon/sysfs-interface.rst``). ``power*_max_alarm`` is left out:
at that threshold the hardware only begins to slow functions down by a half, which ``power_state`` says of each port."""
_MILLI: Final = 1000
"""Sensors are in thousandths of a degree."""
_LIMITS: Final = ("max", "crit", "emergency")
"""Limits of a temperature. Where a driver shows one without its alarm, as those of boards do (``intel-m10bmc-hwmon``),
the temperature is compared with it."""
_PLAUSIBLE: Final = range(40_000, 200_001)
"""Limits, in thousandths of a degree, that are believed; no higher temperature is. Recorded cards have a limit of 1.5 C
for a processor, and the temperature 4294710 C of a die: no claim waits for such a sensor."""
_COOLED_BY: Final = 5_000
"""Thousandths of a degree by which a temperature must fall below its limit before a card that was too hot is not any
more: at the limit it would come and go with each reading."""
_SENSORS: Final = ("hwmon/hwmon*", "dfl_dev.*/**/hwmon/hwmon*", "dfl-fme.*.*/**/hwmon/hwmon*")
"""Where sensors are below the management engine: its own, and those of the board's controller behind it, whose folder
is ``dfl-fme.0.10`` with drivers before Linux 5.10."""
_POWER_SENSOR: Final = "dfl_fme_power"
"""The name of the management engine's sensor of power (Linux ``sysfs-platform-dfl-fme``)."""
_INTEL: Final = 0x8086
_SILICOM: Final = 0x1C2C
DFL_CARDS: Final = PciCardKind(
    vendor=_INTEL,
    ids=frozenset(
        {
            *((_INTEL, device) for device in (0x09C4, 0x0B2B, 0x0B30, 0xBCBD, 0xBCC0, 0xBCCE)),
            *((_SILICOM, device) for device in (0x1000, 0x1001)),
        }
    ),
    drivers=("dfl-pci",),
    next_step="load the kernel's driver: modprobe dfl-pci (docs/fpga.md)",
    faults={
        "intel-fpga-pci": DriverFault(
            "intel-fpga-pci, a driver outside of the kernel, has it in place of dfl-pci",
            "remove that driver (OPAE 1.x: modprobe -r intel-fpga-pci), and load the kernel's: modprobe dfl-pci",
        )
    },
    is_multifunction=True,  # OFS cards have up to five physical functions, of which one has the management engine
)
"""The physical functions that the kernel's driver knows (Linux ``drivers/fpga/dfl-pci.c``, ``cci_pcie_id_tbl``). By
their class, 1200h, they cannot be distinguished from Intel's other accelerators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortReading:
    """A port of a card."""

    slot: int
    """Its id on the card."""
    number: int
    """The number of its device node, ``/dev/dfl-port.0``."""
    has_afu_id: bool = True
    """Whether it says which function is behind it. Ports of OFS cards do not: functions are behind other PCI functions
    there."""


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
    without_driver: int = 0
    """The number of ports that are there without a driver, which do not say which slot is theirs: Linux 6.12 leaves
    those so that were given back by virtual functions."""

    @property
    def released(self) -> int:
        """The number of ports that were given away, to virtual functions or to be."""
        return self.slots - len(self.ports) - self.without_driver

    @property
    def undriven_slots(self) -> tuple[int, ...]:
        """The slots without a port that has a driver, if any port has none: the kernel does not show which that is."""
        there = {port.slot for port in self.ports}
        return tuple(slot for slot in range(self.slots) if slot not in there) if self.without_driver else ()

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
class SensorAlarm:
    """A sensor that is at a limit."""

    limit: str
    """Which, such as ``temp1_crit``."""
    reason: str
    """What the sensor says, such as ``dfl_fme_thermal temp1_crit_alarm is on``."""
    is_compared: bool = False
    """Whether Kerf has compared temperature and limit, as there is no alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCondition:
    """What a card reports of its health."""

    errors: Mapping[str, int]
    """The errors of the management engine that are not 0, as bits, by the name of the attribute."""
    alarms: tuple[SensorAlarm, ...]
    ports: Mapping[int, PortCondition]
    """By slot."""

    @property
    def is_hot(self) -> bool:
        """Whether a temperature is at a limit that has no alarm."""
        return any(alarm.is_compared for alarm in self.alarms)


class CardFiles:
    """The files of all cards below a root, ``/`` on a node."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list_cards(self, problems: list[KerfError]) -> list[DflCardReading]:
        """Return the cards that can be read, by the numbers of their management engines.

        Why others cannot goes to ``problems``. Raises UnreadableFilesError when it is not known which are there.
        """
        found: list[DflCardReading] = []
        for name in list_folder(self.root, self.root / _REGIONS):
            try:
                card = self._read_card(name) if name.startswith("region") else None
            except (CardAbsentError, UnreadableFilesError) as error:
                problems.append(error)
                continue
            found += [] if card is None else [card]
        return sorted(found, key=lambda card: card.fme)

    def read_again(self, card: DflCardReading) -> DflCardReading | None:
        """Return the card as it is now, where it was; None: it is not there any more, or elsewhere.

        Raises UnreadableFilesError.
        """
        now = self._read_card(card.region)
        return now if now is not None and now.uuid == card.uuid else None

    def read_load_status(self, card: DflCardReading) -> str:
        """Return what the card's FPGA manager says of the last load, as lines; empty: nothing."""
        for status in self._find_fme_folder(card).glob("dfl-fme-mgr.*/fpga_manager/fpga*/status"):
            return read_optional(status)
        return ""

    def is_settled(self, card: DflCardReading) -> bool:
        """Whether the card's FPGA manager reports that no load goes on; False, too, where it reports nothing."""
        for file in self._find_fme_folder(card).glob("dfl-fme-mgr.*/fpga_manager/fpga*/state"):
            state = read_optional(file)
            return state in _SETTLED or state.endswith(_FAILED)
        return False

    def read_port_errors(self, card: DflCardReading, port: PortReading) -> int:
        """Return the port's logged errors; 0: none, or the card logs none.

        Raises CardAbsentError and UnreadableFilesError.
        """
        self.check_port(card, port)
        errors = read_count(self.root, self.find_port_folder(card, port) / "errors/errors")
        if errors == ALL_ONES:
            raise CardAbsentError(f"card {card.pci_address} answers with ones only: it is off the bus")
        return errors

    def read_condition(self, card: DflCardReading, *, was_hot: bool = False) -> CardCondition:
        """Return what the card reports of its health; ``was_hot``: ``is_hot`` was true at the last reading.

        Raises CardAbsentError and UnreadableFilesError.
        """
        fme = self._find_fme_folder(card)
        if not list_folder(self.root, fme):
            raise CardAbsentError(f"card {card.pci_address} is not there any more")
        names = (name for name in list_folder(self.root, fme / "errors") if name.endswith("_errors"))
        errors = {name: read_count(self.root, fme / "errors" / name) for name in names}
        errors.pop("inject_errors", None)  # what is injected for tests, which no read of errors is
        if errors and all(value == ALL_ONES for value in errors.values()):
            raise CardAbsentError(f"card {card.pci_address} answers with ones only: it is off the bus")
        ports = {}
        for port in card.ports:
            folder = self.find_port_folder(card, port)
            ports[port.slot] = PortCondition(
                errors=read_count(self.root, folder / "errors/errors"),
                power_state=read_count(self.root, folder / "power_state"),
            )
        return CardCondition(
            errors={name: value for name, value in errors.items() if value},
            alarms=tuple(_list_alarms(fme, _COOLED_BY if was_hot else 0)),
            ports=ports,
        )

    def read_power(self, card: DflCardReading) -> int | None:
        """Return the microwatts that the FPGA uses now; None: the card does not measure them."""
        for sensor in sorted(self._find_fme_folder(card).glob("hwmon/hwmon*")):
            if read_optional(sensor / "name") == _POWER_SENSOR and (text := read_optional(sensor / "power1_input")):
                power = parse_number(text, -1)
                return power if power >= 0 else None
        return None

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

    def check_port(self, card: DflCardReading, port: PortReading) -> None:
        """Raise CardAbsentError when the port is not there any more, and UnreadableFilesError."""
        if not list_folder(self.root, self.find_port_folder(card, port)):
            raise CardAbsentError(f"card {card.pci_address} is not there any more")

    def _read_card(self, region: str) -> DflCardReading | None:
        """Return the card whose base region this is; None: it is another region, or not there (any more).

        Raises CardAbsentError and UnreadableFilesError.
        """
        folder = self.root / _REGIONS / region
        names = list_folder(self.root, folder)
        fme = next((match for name in names if (match := _FME.fullmatch(name))), None)
        parts = folder.resolve().parts
        address = next((part for part in reversed(parts) if _PCI_ADDRESS.fullmatch(part)), "")
        if fme is None or not address:
            return None  # not the base region of a card on a PCI bus
        found = [self._read_port(folder / name) for name in names if _PORT.fullmatch(name)]
        ports = [port for port in found if port is not None]
        return DflCardReading(
            uuid=f"FPGA-{uuid.uuid5(_NAMESPACE, address)}",
            pci_address=address,
            pcie_root=find_pcie_root(folder),
            numa_node=read_numa_node(Path(*parts[: parts.index(address) + 1])),
            region=region,
            fme=int(fme[1]),
            interface_uuid=self._read_interface(folder / fme[0]),
            slots=read_count(self.root, folder / fme[0] / "ports_num"),
            ports=tuple(sorted(ports, key=lambda port: port.slot)),
            without_driver=len(found) - len(ports),
        )

    def _read_port(self, folder: Path) -> PortReading | None:
        """Return a port; None: it has no driver, which makes all of its attributes."""
        text = read_attribute(self.root, folder / "id")
        if text is None:
            return None
        if not text.isdecimal():
            raise UnreadableFilesError(f"{folder} does not say which port it is: {text!r:.80}")
        number = int(folder.name.rpartition(".")[2])
        return PortReading(slot=int(text), number=number, has_afu_id="afu_id" in list_folder(self.root, folder))

    def _read_interface(self, fme: Path) -> str:
        """Return the interface id, which all regions of a card have from its one FPGA manager; empty: there is none."""
        for manager in list_folder(self.root, fme):
            regions = fme / manager / "fpga_region"
            for region in list_folder(self.root, regions) if manager.startswith("dfl-fme-region.") else ():
                if found := parse_id(read_attribute(self.root, regions / region / "compat_id") or ""):
                    return found
        return ""


def parse_id(text: str) -> str:
    """Return the id of a function or an interface as a UUID; empty: there is none, or it makes no sense."""
    text = text.lower()
    return "" if text in _NO_IDS or not _HEX_UUID.fullmatch(text) else str(uuid.UUID(text))


def _list_alarms(fme: Path, margin: int) -> Iterator[SensorAlarm]:
    for place in _SENSORS:
        for sensor in sorted(fme.glob(place)):
            name = read_optional(sensor / "name")
            for pattern in _ALARMS:
                for path in sorted(sensor.glob(pattern)):
                    if read_number(path) == 1:
                        limit = path.name.removesuffix("_alarm")
                        yield SensorAlarm(limit=limit, reason=f"{name} {path.name} is on".strip())
            for path in sorted(sensor.glob("temp*_input")):
                yield from _compare_temperature(path, name, margin)


def _compare_temperature(file: Path, name: str, margin: int) -> Iterator[SensorAlarm]:
    """Yield the limits without an alarm that a temperature is at, or not more than ``margin`` below."""
    stem = file.name.removesuffix("_input")
    for limit in _LIMITS:
        highest = read_number(file.with_name(f"{stem}_{limit}"))
        if highest not in _PLAUSIBLE or file.with_name(f"{stem}_{limit}_alarm").exists():
            continue
        if highest - margin <= (value := read_number(file)) < _PLAUSIBLE.stop:
            label = read_optional(file.with_name(f"{stem}_label")) or stem
            reason = f"{name} {label}: {value / _MILLI:g} C, and {limit} is {highest / _MILLI:g} C".strip()
            yield SensorAlarm(limit=f"{stem}_{limit}", reason=reason, is_compared=True)
