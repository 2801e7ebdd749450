"""The Backend protocol over the one FPGA of a board that dfx-mgrd loads."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    Handle,
    HardwareBusyError,
    HealthState,
    UnhealthyState,
)
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.backends.fpga.backend import FpgaBackend
from kerf_dra.driver.kubeletplugin.backends.fpga.descriptions import (
    DescriptionReader,
    summarize_refusals,
)
from kerf_dra.driver.kubeletplugin.backends.fpga.images.signatures import KeyRing
from kerf_dra.driver.kubeletplugin.backends.kernel_files import check_absent, read_numa_node, read_optional
from kerf_dra.driver.kubeletplugin.backends.polled_backend import Snapshot
from kerf_dra.driver.kubeletplugin.backends.slots.board import SlotsBoard
from kerf_dra.driver.kubeletplugin.backends.slots.config import SlotsConfig
from kerf_dra.driver.kubeletplugin.backends.slots.daemon import DfxDaemon, Exchange
from kerf_dra.driver.kubeletplugin.backends.slots.handles import HANDLES, SlotsHandle, build_edits
from kerf_dra.driver.kubeletplugin.backends.slots.images import PackageImages
from kerf_dra.driver.kubeletplugin.backends.slots.layouts import BoardLayout, BoardLayouts, choose_layouts
from kerf_dra.driver.kubeletplugin.backends.slots.overlays import read_overlays
from kerf_dra.driver.kubeletplugin.backends.slots.packages import BaseDesign, InvalidPackageError, find_base_folders
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement

_MANAGER: Final = "sys/class/fpga_manager/fpga0"
"""The FPGA manager that the daemon uses (Linux ``Documentation/ABI/testing/sysfs-class-fpga-manager``)."""
_NAMESPACE: Final = uuid.UUID("0b6a1d52-5d0c-5b6f-8f5e-3f1f6f0e4a77")
"""The namespace of the cards' UUIDs (RFC 9562, version 5)."""
_USABLE: Final = frozenset({"operating", "unknown"})
"""States in which the daemon takes the FPGA for usable."""


class SlotsBackend(FpgaBackend[SlotsHandle]):
    """A Backend of the FPGA of this board, which the daemon dfx-mgrd loads."""

    name = "slots"

    def __init__(self, config: SlotsConfig, *, exchange: Exchange | None = None) -> None:
        """Tests give ``exchange``. Raises InvalidKeyError."""
        self._config = config
        self._system = Path(config.system_root)
        self._firmware = Path(config.firmware_folder)
        self._overlays = Path(config.overlay_folder)
        self._images = PackageImages(self._firmware, KeyRing(config.keys))
        self._daemon = DfxDaemon(config.socket, exchange)
        self._reader = DescriptionReader(Path(config.description_folder))
        self._layouts: BoardLayouts | None = None
        self._seen = ""
        """The UUID of the card that was discovered; empty: none was yet."""
        self._last: object = None
        """What was loaded when the daemon said it last."""
        super().__init__(HANDLES, poll_s=config.health_poll_seconds)

    def edits(self, handle: Handle) -> ContainerEdits:
        return build_edits(HANDLES.decode(handle))

    def describe(self, documents: Sequence[JsonObject]) -> None:
        """Take the shells and images of the cluster; what files of this node say counts first."""
        self._reader.describe(documents)

    def _find_cards(self, problems: list[str]) -> Sequence[Card]:
        """Return the card, if the daemon runs and the shell of its base designs is described."""
        descriptions, found = self._reader.read()
        problems += found
        try:
            card_uuid = self._find_uuid()
            bases = self._read_bases(problems)
            self._layouts = choose_layouts(bases, descriptions, self._images, self._config.description_folder, problems)
            self._seen = card_uuid
            if self._layouts is not None:
                return [self._build_card(card_uuid, self._layouts)]
        except KerfError as error:
            problems.append(str(error))
        return []

    def _list_seen(self) -> Sequence[str]:
        return [self._seen] if self._seen else []

    def _read_snapshot(self, card_uuid: str) -> Snapshot:
        if self._find_uuid() != card_uuid:
            raise CardAbsentError(f"card {card_uuid} is not on this board")
        state = read_optional(self._system / _MANAGER / "state")
        reasons: list[str] = [] if state in _USABLE else [f"its FPGA manager is in the state {state!r}"]
        try:
            self._last = (self._daemon.read_listing().loaded, read_overlays(self._overlays, ()))
        except HardwareBusyError:  # a load goes on; it ends
            pass
        except KerfError as error:
            reasons.append(str(error))
        states: dict[Partition | None, UnhealthyState] = {}
        if reasons:
            states[None] = UnhealthyState(HealthState.UNHEALTHY, "; ".join(reasons))
        return states, self._last

    def _find_uuid(self) -> str:
        """Return the UUID of the card. Raises CardAbsentError: this machine has none; and UnreadableFilesError."""
        try:
            place = (self._system / _MANAGER).resolve(strict=True).relative_to(self._system.resolve())
        except (OSError, ValueError, RuntimeError) as error:
            if not isinstance(error, ValueError):  # RuntimeError: its links go in a circle
                check_absent(self._system, self._system / _MANAGER)
            raise CardAbsentError(f"there is no FPGA manager: {self._system / _MANAGER} is not there") from error
        return f"FPGA-{uuid.uuid5(_NAMESPACE, str(place))}"

    def _find_card(self, card_uuid: str, handle: SlotsHandle | None) -> SlotsBoard:
        """Return the board, with the base design of ``handle`` also where it is described no more."""
        if self._layouts is None:
            self.discover()
        if self._find_uuid() != card_uuid:
            raise CardAbsentError(f"card {card_uuid} is not on this board")
        if handle is not None and all(one.base.path != handle.base for one in self._list_layouts()):
            return self._make_board(card_uuid, None, {"": self._restore_layout(handle)})
        shell = None if self._layouts is None else self._layouts.shell
        return self._make_board(card_uuid, shell, {one.name: one for one in self._list_layouts()})

    def _list_layouts(self) -> Sequence[BoardLayout]:
        return () if self._layouts is None else tuple(self._layouts.layouts.values())

    def _restore_layout(self, handle: SlotsHandle) -> BoardLayout:
        """Return the layout that ``handle`` was prepared in, as far as its files are there."""
        try:
            base = self._images.read_base(self._firmware / handle.base)
        except (OSError, InvalidPackageError):
            is_flat = any(one.image is not None and one.image.file == handle.base for one in handle.slots)
            base = BaseDesign(path=handle.base, interface_uuid="", slots=0, uid=0, is_flat=is_flat)
        return BoardLayout(base=base, described=None)

    def _make_board(self, card_uuid: str, shell: Shell | None, layouts: Mapping[str, BoardLayout]) -> SlotsBoard:
        return SlotsBoard(
            card_uuid=card_uuid,
            shell=shell,
            layouts=layouts,
            root=self._system,
            overlays=self._overlays,
            images=self._images,
            daemon=self._daemon,
            is_stand_in=self._config.is_for_stand_in,
        )

    def _read_bases(self, problems: list[str]) -> list[BaseDesign]:
        """Read the base designs that may be used; what is wrong with others goes into ``problems``."""
        found: list[BaseDesign] = []
        known = len(problems)
        for folder in find_base_folders(self._firmware):
            if self._config.base and folder != self._firmware / self._config.base:
                continue
            try:
                found.append(self._images.read_base(folder))
            except (OSError, InvalidPackageError) as error:
                problems.append(f"base design {folder}: {error}")
        if not found and len(problems) == known:
            problems.append(f"there is no base design (shell.json) in {self._firmware / self._config.base}")
        return found

    def _build_card(self, card_uuid: str, layouts: BoardLayouts) -> Card:
        """Return the card. Raises CardAbsentError where the daemon does not run."""
        layout, loaded = "", dict[Placement, str]()
        with suppress(HardwareBusyError):  # a load goes on
            layout, loaded = self._make_board(card_uuid, layouts.shell, layouts.layouts).find_loaded()
        return Card(
            uuid=card_uuid,
            index=0,  # a board has one FPGA manager for its programmable logic
            geometry=fpga_geometry(layouts.shell),
            numa_node=read_numa_node(self._system / _MANAGER / "device"),
            driver_version=read_optional(self._system / "proc/sys/kernel/osrelease"),
            layout=layout,
            loaded=loaded,
            attributes={"refusedImages": Attribute.of(summarize_refusals(layouts.refused, layouts.names))},
        )


def open_backend(config: Path | None) -> SlotsBackend:
    """Make a backend of this board, as the YAML document ``config`` says; None: the defaults.

    Raises InvalidDocumentError when the document is invalid.
    """
    return SlotsBackend(read_config(config, SlotsConfig))
