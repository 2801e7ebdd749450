"""The Backend protocol over DFL cards."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardChange,
    CardSurvey,
    DiscoveryChange,
    FoundPartition,
    Handle,
    HardwareBusyError,
    HealthChange,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.dfl.card import DflCard
from kerf_dra.driver.kubeletplugin.backends.dfl.config import DflConfig
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import DflDriver, LinuxSystemCalls, SystemCalls
from kerf_dra.driver.kubeletplugin.backends.dfl.gbs import read_gbs_header
from kerf_dra.driver.kubeletplugin.backends.dfl.handles import HANDLES, build_edits
from kerf_dra.driver.kubeletplugin.backends.dfl.health import judge_condition
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import CardFiles, DflCardReading
from kerf_dra.driver.kubeletplugin.backends.dfl.virtual_functions import VirtualFunctions
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.backends.fpga.images.catalog import ImageCatalog
from kerf_dra.driver.kubeletplugin.backends.health_watcher import HealthWatcher, Snapshot
from kerf_dra.driver.kubeletplugin.backends.kernel_files import CardNumbers, KnownCards
from kerf_dra.driver.partitions.geometry import Card, Placement
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)


class DflBackend:
    """A Backend of the FPGA cards of this machine that the kernel's DFL driver drives.

    Nothing is remembered but what the files say each time: cards, descriptions, images.
    """

    name = "dfl"

    def __init__(
        self,
        config: DflConfig,
        *,
        calls: SystemCalls | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tests give ``calls`` and ``now``. Raises InvalidKeyError."""
        self._config = config
        self._files = CardFiles(Path(config.system_root))
        self._catalog = ImageCatalog(config, read_gbs_header, find_misfit=_find_misfit)
        self._driver = DflDriver(self._files, calls or LinuxSystemCalls())
        self._functions = VirtualFunctions(self._files, self._driver)
        self._now = now
        self._cards = KnownCards(self._files)
        self._numbers = CardNumbers()
        self._problems = ProblemLog(_log)
        self._watcher = HealthWatcher(
            list_cards=self._cards.list_seen,
            read=self._read_snapshot,
            poll_s=self._config.health_poll_seconds,
            has_news=self._catalog.take_news,
        )

    def open(self) -> None:
        """Begin anew: the first wait for events reports everything that is not healthy."""
        self._watcher.open()

    def close(self) -> None:
        self._catalog.stop_fetching()
        self._watcher.close()

    def discover(self) -> Sequence[Card]:
        """Return the cards with a described shell, with the functions whose images are as they were described.

        What keeps a card or a function from being offered is logged once.
        """
        problems = self._catalog.refresh()
        found: list[Card] = []
        for reading in self._cards.list_present():
            if problem := self._find_problem(reading):
                problems.append(problem)
            else:
                found.append(self._build_card(reading))
        self._problems.replace(problems)
        return found

    def survey(self, card_uuid: str) -> CardSurvey:
        return self._find_card(card_uuid).survey()

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        del found  # slots are no objects: what an interrupted load left in them is loaded over
        card = self._find_card(device.partition.card_uuid)
        return HANDLES.encode(card.prepare(device, config, journal, is_stand_in=self._config.is_for_stand_in))

    def unprepare(self, handle: Handle) -> None:
        known = HANDLES.decode(handle)
        self._find_card(known.card).unprepare(known)

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        del found
        self._find_card(device.partition.card_uuid).abandon(device, journal)

    def edits(self, handle: Handle) -> ContainerEdits:
        return build_edits(HANDLES.decode(handle))

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange | DiscoveryChange]:
        self._catalog.start_fetching()
        return self._watcher.wait(timeout_s)

    def describe(self, documents: Sequence[JsonObject]) -> None:
        """Take the shells and images of the cluster; what files of this node say counts first."""
        self._catalog.describe(documents)

    def _read_snapshot(self, card_uuid: str) -> Snapshot:
        """Return the card's health, and what is loaded in its slots. Raises CardAbsentError."""
        reading = self._cards.find(card_uuid)
        loaded: list[tuple[int, str | None]] = []
        for port in reading.ports:
            try:
                loaded.append((port.slot, self._files.read_afu_id(reading, port)))
            except HardwareBusyError:  # a load goes on
                loaded.append((port.slot, None))
        return judge_condition(card_uuid, self._files.read_condition(reading)), tuple(loaded)

    def _find_card(self, card_uuid: str) -> DflCard:
        if not self._catalog.shells:
            self.discover()
        reading = self._cards.find(card_uuid)
        return self._make_card(reading)

    def _make_card(self, reading: DflCardReading) -> DflCard:
        return DflCard(
            reading=reading,
            described=self._catalog.shells.get(reading.interface_uuid),
            files=self._files,
            images=self._catalog.files,
            driver=self._driver,
            functions=self._functions,
            has_functions=self._config.virtual_functions,
            now=self._now,
        )

    def _find_problem(self, reading: DflCardReading) -> str:
        """Return why a card cannot be offered; empty: it can."""
        name = f"card {reading.pci_address}"
        if not reading.interface_uuid:
            return f"{name} cannot be reconfigured in parts: the kernel shows no compat_id of it"
        described = self._catalog.shells.get(reading.interface_uuid)
        if described is None:
            folder = self._config.description_folder
            return (
                f"{name} has the interface {reading.interface_uuid}, of which neither {folder} nor a FpgaShell of the "
                "cluster has a shell"
            )
        slots = len(described.shell.slots)
        if reading.slots != slots:
            return f"{name} has {reading.slots} ports, but its shell {described.shell.name} is described with {slots}"
        return ""

    def _build_card(self, reading: DflCardReading) -> Card:
        return Card(
            uuid=reading.uuid,
            index=self._numbers.find(reading.uuid, reading.fme),
            geometry=fpga_geometry(self._catalog.shells[reading.interface_uuid].shell),
            pci_bus_id=reading.pci_address,
            pcie_root=reading.pcie_root,
            numa_node=reading.numa_node,
            driver_version=self._files.read_driver_version(),
            loaded=self._make_card(reading).find_loaded(),
            attributes={"refusedImages": Attribute.of(self._catalog.format_refused(reading.interface_uuid))},
        )


def _find_misfit(slots: Placement, image: ImageReference) -> ImageRefusal | None:
    if slots.size == 1:
        return None
    message = f"image {image.name} is for several slots at once: a port of a DFL card takes an image for one"
    return ImageRefusal("SeveralSlots", message)


def open_backend(config: Path | None) -> DflBackend:
    """Make a backend of this machine's DFL cards, as the YAML document ``config`` says; None: the defaults.

    Raises InvalidDocumentError when the document is invalid.
    """
    return DflBackend(read_config(config, DflConfig))
