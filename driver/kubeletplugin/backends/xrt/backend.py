"""The Backend protocol over Alveo cards."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.fpga.descriptions import DescribedShell
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardChange,
    CardSurvey,
    DiscoveryChange,
    FoundPartition,
    Handle,
    HealthChange,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.backends.fpga.images.catalog import ImageCatalog
from kerf_dra.driver.kubeletplugin.backends.health_watcher import HealthWatcher, Snapshot
from kerf_dra.driver.kubeletplugin.backends.kernel_files import CardNumbers, KnownCards
from kerf_dra.driver.kubeletplugin.backends.xrt.card import XrtCard
from kerf_dra.driver.kubeletplugin.backends.xrt.config import XrtConfig
from kerf_dra.driver.kubeletplugin.backends.xrt.handles import HANDLES, build_edits
from kerf_dra.driver.kubeletplugin.backends.xrt.health import judge_condition
from kerf_dra.driver.kubeletplugin.backends.xrt.library import Loader, XrtLibrary
from kerf_dra.driver.kubeletplugin.backends.xrt.sysfs import XrtCardReading, XrtFiles
from kerf_dra.driver.kubeletplugin.backends.xrt.xclbin import read_xclbin_header
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)
_FIRST_RENDER = 128
"""The first number of render nodes (Linux ``Documentation/gpu/drm-uapi.rst``)."""


class XrtBackend:
    """A Backend of the Alveo cards of this machine.

    Nothing is remembered but what the files say each time: cards, descriptions, images.
    """

    name = "xrt"

    def __init__(
        self,
        config: XrtConfig,
        *,
        loader: Loader | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tests give ``loader`` and ``now``. Raises InvalidKeyError."""
        self._config = config
        self._files = XrtFiles(Path(config.system_root))
        self._catalog = ImageCatalog(config, read_xclbin_header)
        self._loader = loader or XrtLibrary(Path(config.xrt_folder))
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
            described = self._find_shell(reading)
            if problem := self._find_problem(reading, described):
                problems.append(problem)
            elif described is not None:
                found.append(self._build_card(reading, described))
        self._problems.replace(problems)
        return found

    def survey(self, card_uuid: str) -> CardSurvey:
        return self._find_card(card_uuid).survey()

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        card = self._find_card(device.partition.card_uuid)
        return HANDLES.encode(card.prepare(device, config, journal, found, is_stand_in=self._config.is_for_stand_in))

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
        """Return the card's health, and what is loaded in it. Raises CardAbsentError."""
        reading = self._cards.find(card_uuid)
        state = judge_condition(self._files.read_condition(reading))
        return ({} if state is None else {None: state}), self._files.read_loaded(reading)

    def _find_card(self, card_uuid: str) -> XrtCard:
        if not self._catalog.shells:
            self.discover()
        reading = self._cards.find(card_uuid)
        return self._make_card(reading, self._find_shell(reading))

    def _make_card(self, reading: XrtCardReading, described: DescribedShell | None) -> XrtCard:
        return XrtCard(
            reading=reading,
            described=described,
            files=self._files,
            images=self._catalog.files,
            loader=self._loader,
            now=self._now,
        )

    def _find_shell(self, reading: XrtCardReading) -> DescribedShell | None:
        """Return the described shell of the first of the card's interfaces that has one: images are for the last
        stage of a shell, which an administrator describes, and not for those below it.
        """
        shells = self._catalog.shells
        return next((shells[interface] for interface in reading.interfaces if interface in shells), None)

    def _find_problem(self, reading: XrtCardReading, described: DescribedShell | None) -> str:
        """Return why a card cannot be offered; empty: it can."""
        name = f"card {reading.pci_address}"
        if not reading.interfaces:
            return f"{name} has a shell without interfaces (interface_uuids): flash one of XRT 2.5 or later"
        if described is None:
            interfaces = " and ".join(reading.interfaces)
            folder = self._config.description_folder
            return (
                f"{name} has the interfaces {interfaces}, of which neither {folder} nor a FpgaShell of the cluster has "
                "a shell"
            )
        if (slots := len(described.shell.slots)) != 1:
            return f"{name} has one region, but its shell {described.shell.name} is described with {slots} slots"
        return ""

    def _build_card(self, reading: XrtCardReading, described: DescribedShell) -> Card:
        return Card(
            uuid=reading.uuid,
            index=self._numbers.find(reading.uuid, reading.render - _FIRST_RENDER),
            geometry=fpga_geometry(described.shell),
            pci_bus_id=reading.pci_address,
            pcie_root=reading.pcie_root,
            numa_node=reading.numa_node,
            driver_version=self._files.read_driver_version(),
            loaded=self._make_card(reading, described).find_loaded(),
            attributes={"refusedImages": Attribute.of(self._catalog.format_refused(described.shell.uuid))},
        )


def open_backend(config: Path | None) -> XrtBackend:
    """Make a backend of this machine's Alveo cards, as the YAML document ``config`` says; None: the defaults.

    Raises InvalidDocumentError when the document is invalid.
    """
    return XrtBackend(read_config(config, XrtConfig))
