"""The Backend protocol over DFL cards."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.fpga.descriptions import DescribedShell
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.kubeletplugin.backends.base import CardSample, Handle, HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.dfl.card import DflCard, DflResources, describe_undriven
from kerf_dra.driver.kubeletplugin.backends.dfl.config import DflConfig
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import (
    DflDriver,
    LinuxSystemCalls,
    PortInResetError,
    SystemCalls,
)
from kerf_dra.driver.kubeletplugin.backends.dfl.gbs import read_gbs_header
from kerf_dra.driver.kubeletplugin.backends.dfl.handles import HANDLES, DflHandle, build_edits
from kerf_dra.driver.kubeletplugin.backends.dfl.health import judge_condition
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import DFL_CARDS, CardFiles, DflCardReading
from kerf_dra.driver.kubeletplugin.backends.dfl.usage import PowerMeter, sample_devices
from kerf_dra.driver.kubeletplugin.backends.dfl.virtual_functions import VirtualFunctions
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.backends.fpga.backend import CatalogBackend
from kerf_dra.driver.kubeletplugin.backends.fpga.images.catalog import ImageCatalog
from kerf_dra.driver.kubeletplugin.backends.polled_backend import Snapshot


class DflBackend(CatalogBackend[DflHandle, DflCardReading]):
    """A Backend of the FPGA cards of this machine that the kernel's DFL driver drives."""

    name = "dfl"
    kernel_driver = "dfl"
    pci_cards = DFL_CARDS

    def __init__(
        self,
        config: DflConfig,
        *,
        calls: SystemCalls | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tests give ``calls`` and ``now``. Raises InvalidKeyError."""
        self._files = CardFiles(Path(config.system_root))
        catalog = ImageCatalog(config, read_gbs_header, only_single="a port of a DFL card takes an image for one")
        driver = DflDriver(self._files, calls or LinuxSystemCalls())
        self._resources = DflResources(
            images=catalog.files,
            now=now,
            is_stand_in=config.is_for_stand_in,
            files=self._files,
            driver=driver,
            functions=VirtualFunctions(self._files, driver),
            gives_functions=config.virtual_functions,
        )
        self._now = now
        self._power = PowerMeter()
        self._hot: set[str] = set()
        """The UUIDs of the cards that were too hot when they were read last."""
        self._in_reset: dict[tuple[str, int], str] = {}
        """The ports that are kept in reset, by card and slot, with the reason."""
        super().__init__(self._files, catalog, HANDLES, poll_s=config.health_poll_seconds)

    def edits(self, handle: Handle) -> ContainerEdits:
        return build_edits(HANDLES.decode(handle))

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        reading = self._cards.find(card_uuid)
        energy_mj = self._power.add(card_uuid, self._files.read_power(reading), self._now())
        known = [HANDLES.decode(handle) for handle in handles]
        return CardSample(energy_mj=energy_mj, devices=sample_devices(self._files.root / "proc", known))

    def _read_snapshot(self, card_uuid: str) -> Snapshot:
        reading = self._cards.find(card_uuid)
        loaded: list[tuple[int, str | None]] = []
        unusable = {slot: describe_undriven(reading, slot) for slot in reading.undriven_slots}
        for port in reading.ports:
            key = card_uuid, port.slot
            try:
                loaded.append((port.slot, self._resources.driver.read_afu_id(reading, port)))
                self._in_reset.pop(key, None)
            except HardwareBusyError as error:
                loaded.append((port.slot, None))
                if isinstance(error, PortInResetError):
                    self._in_reset[key] = str(error)
                if key in self._in_reset:  # also while a load goes on: it may be one into another slot
                    unusable[port.slot] = self._in_reset[key]
        condition = self._files.read_condition(reading, was_hot=card_uuid in self._hot)
        (self._hot.add if condition.is_hot else self._hot.discard)(card_uuid)
        return judge_condition(card_uuid, condition, unusable), tuple(loaded)

    def _find_problem(self, reading: DflCardReading, shell: Shell | None) -> str:
        if not reading.interfaces:
            return "cannot be reconfigured in parts: the kernel shows no compat_id of it"
        if without := [port.slot for port in reading.ports if not port.has_afu_id]:
            return (
                f"shows no afu_id of port {without[0]}: its functions are behind other PCI functions of the card, and "
                "a load could not be confirmed"
            )
        ports = [port.slot for port in reading.ports]
        if len({*ports}) < len(ports) or any(port >= reading.slots for port in ports):
            return f"has the ports {', '.join(map(str, ports))}, but its ports_num is {reading.slots}"
        if shell is not None and reading.slots != (slots := len(shell.slots)):
            return f"has {reading.slots} ports, but its shell {shell.name} is described with {slots}"
        return ""

    def _make_card(self, reading: DflCardReading, described: DescribedShell | None) -> DflCard:
        return DflCard(reading, described, self._resources)


def open_backend(config: Path | None) -> DflBackend:
    """Make a backend of this machine's DFL cards, as the YAML document ``config`` says; None: the defaults.

    Raises InvalidDocumentError when the document is invalid.
    """
    return DflBackend(read_config(config, DflConfig))
