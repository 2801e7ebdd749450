"""The Backend protocol over Alveo cards."""

import time
from collections.abc import Callable
from pathlib import Path

from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.fpga.descriptions import DescribedShell
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.kubeletplugin.backends.base import Handle
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.backends.fpga.backend import CatalogBackend
from kerf_dra.driver.kubeletplugin.backends.fpga.images.catalog import ImageCatalog
from kerf_dra.driver.kubeletplugin.backends.polled_backend import Snapshot
from kerf_dra.driver.kubeletplugin.backends.xrt.card import XrtCard, XrtResources
from kerf_dra.driver.kubeletplugin.backends.xrt.config import XrtConfig
from kerf_dra.driver.kubeletplugin.backends.xrt.handles import HANDLES, XrtHandle, build_edits
from kerf_dra.driver.kubeletplugin.backends.xrt.health import judge_condition
from kerf_dra.driver.kubeletplugin.backends.xrt.library import Loader, XrtLibrary
from kerf_dra.driver.kubeletplugin.backends.xrt.sysfs import ALVEO_CARDS, XrtCardReading, XrtFiles
from kerf_dra.driver.kubeletplugin.backends.xrt.xclbin import read_xclbin_header


class XrtBackend(CatalogBackend[XrtHandle, XrtCardReading]):
    """A Backend of the Alveo cards of this machine."""

    name = "xrt"
    kernel_driver = "xocl"
    pci_cards = ALVEO_CARDS
    interfaces_noun = "interfaces"

    def __init__(
        self,
        config: XrtConfig,
        *,
        loader: Loader | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tests give ``loader`` and ``now``. Raises InvalidKeyError."""
        self._files = XrtFiles(Path(config.system_root))
        catalog = ImageCatalog(config, read_xclbin_header)
        self._resources = XrtResources(
            images=catalog.files,
            now=now,
            is_stand_in=config.is_for_stand_in,
            files=self._files,
            loader=loader or XrtLibrary(Path(config.xrt_folder)),
        )
        super().__init__(self._files, catalog, HANDLES, poll_s=config.health_poll_seconds)

    def edits(self, handle: Handle) -> ContainerEdits:
        return build_edits(HANDLES.decode(handle))

    def _read_snapshot(self, card_uuid: str) -> Snapshot:
        reading = self._cards.find(card_uuid)
        state = judge_condition(self._files.read_condition(reading))
        return ({} if state is None else {None: state}), self._files.read_loaded(reading)

    def _find_problem(self, reading: XrtCardReading, shell: Shell | None) -> str:
        if not reading.interfaces:
            return "has a shell without interfaces (interface_uuids): flash one of XRT 2.5 or later"
        if shell is not None and (slots := len(shell.slots)) != 1:
            return f"has one region, but its shell {shell.name} is described with {slots} slots"
        return ""

    def _make_card(self, reading: XrtCardReading, described: DescribedShell | None) -> XrtCard:
        return XrtCard(reading, described, self._resources)


def open_backend(config: Path | None) -> XrtBackend:
    """Make a backend of this machine's Alveo cards, as the YAML document ``config`` says; None: the defaults.

    Raises InvalidDocumentError when the document is invalid.
    """
    return XrtBackend(read_config(config, XrtConfig))
