"""The Backend protocol over the one FPGA of a board that dfx-mgrd loads."""

import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.fpga.descriptions import Description, build_descriptions
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardAbsentError,
    CardChange,
    CardSurvey,
    DiscoveryChange,
    FoundPartition,
    Handle,
    HardwareBusyError,
    HealthChange,
    HealthState,
    Journal,
    UnhealthyState,
)
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.backends.fpga.descriptions import (
    read_description_files,
    summarize_refusals,
)
from kerf_dra.driver.kubeletplugin.backends.fpga.images.signatures import KeyRing
from kerf_dra.driver.kubeletplugin.backends.health_watcher import HealthWatcher, Snapshot
from kerf_dra.driver.kubeletplugin.backends.kernel_files import read_numa_node
from kerf_dra.driver.kubeletplugin.backends.slots.board import SlotsBoard
from kerf_dra.driver.kubeletplugin.backends.slots.config import SlotsConfig
from kerf_dra.driver.kubeletplugin.backends.slots.daemon import DfxDaemon, Exchange
from kerf_dra.driver.kubeletplugin.backends.slots.handles import HANDLES, SlotsHandle, build_edits
from kerf_dra.driver.kubeletplugin.backends.slots.images import PackageImages
from kerf_dra.driver.kubeletplugin.backends.slots.layouts import BoardLayout, BoardLayouts, choose_layouts
from kerf_dra.driver.kubeletplugin.backends.slots.overlays import read_overlays
from kerf_dra.driver.kubeletplugin.backends.slots.packages import BaseDesign, InvalidPackageError, find_base_folders
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)

_MANAGER: Final = "sys/class/fpga_manager/fpga0"
"""The FPGA manager that the daemon uses (Linux ``Documentation/ABI/testing/sysfs-class-fpga-manager``)."""
_NAMESPACE: Final = uuid.UUID("0b6a1d52-5d0c-5b6f-8f5e-3f1f6f0e4a77")
"""The namespace of the cards' UUIDs (RFC 9562, version 5)."""
_USABLE: Final = frozenset({"operating", "unknown"})
"""States in which the daemon takes the FPGA for usable."""
_MAX_STATE: Final = 256
"""Bytes of an attribute of the FPGA manager that are read."""


class SlotsBackend:
    """A Backend of the FPGA of this board, which the daemon dfx-mgrd loads.

    Nothing is remembered but what the daemon and the files say each time: what is loaded, base designs, descriptions.
    """

    name = "slots"

    def __init__(self, config: SlotsConfig, *, exchange: Exchange | None = None) -> None:
        """Tests give ``exchange``. Raises InvalidKeyError."""
        self._config = config
        self._system = Path(config.system_root)
        self._firmware = Path(config.firmware_folder)
        self._overlays = Path(config.overlay_folder)
        self._images = PackageImages(self._firmware, KeyRing(config.keys))
        self._daemon = DfxDaemon(config.socket, exchange)
        self._descriptions: tuple[Description, ...] = ()
        self._layouts: BoardLayouts | None = None
        self._seen = ""
        """The UUID of the card that was discovered; empty: none was yet."""
        self._last: object = None
        """What was loaded when the daemon said it last."""
        self._problems = ProblemLog(_log)
        self._watcher = HealthWatcher(
            list_cards=lambda: [self._seen] if self._seen else [],
            read=self._read_snapshot,
            poll_s=self._config.health_poll_seconds,
        )

    def open(self) -> None:
        """Begin anew: the first wait for events reports everything that is not healthy."""
        self._watcher.open()

    def close(self) -> None:
        self._watcher.close()

    def discover(self) -> Sequence[Card]:
        """Return the card, if the daemon runs and the shell of its base designs is described.

        What keeps it or a function from being offered is logged once.
        """
        found_files, problems = read_description_files(Path(self._config.description_folder))
        descriptions = build_descriptions([*found_files, *self._descriptions])
        problems += descriptions.problems
        cards: list[Card] = []
        try:
            card_uuid = self._find_uuid()
            bases = self._read_bases(problems)
            self._layouts = choose_layouts(bases, descriptions, self._images, self._config.description_folder, problems)
            self._seen = card_uuid
            if self._layouts is not None:
                cards.append(self._build_card(card_uuid, self._layouts))
        except KerfError as error:
            problems.append(str(error))
        self._problems.replace(problems)
        return cards

    def survey(self, card_uuid: str) -> CardSurvey:
        return self._find_board(card_uuid).survey()

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        del found  # what an interrupted load left in slots is no object: it is found again, or loaded over
        board = self._find_board(device.partition.card_uuid)
        return HANDLES.encode(board.prepare(device, config, journal, is_stand_in=self._config.is_for_stand_in))

    def unprepare(self, handle: Handle) -> None:
        known = HANDLES.decode(handle)
        self._find_board(known.card, known).unprepare(known)

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        del found
        self._find_board(device.partition.card_uuid).abandon(device, journal)

    def edits(self, handle: Handle) -> ContainerEdits:
        return build_edits(HANDLES.decode(handle))

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange | DiscoveryChange]:
        return self._watcher.wait(timeout_s)

    def describe(self, documents: Sequence[JsonObject]) -> None:
        """Take the shells and images of the cluster; what files of this node say counts first."""
        named = [Description(f"{one['kind']} {one['metadata']['name']}", one) for one in documents]
        self._descriptions = tuple(sorted(named, key=lambda description: description.source))

    def _read_snapshot(self, card_uuid: str) -> Snapshot:
        """Return the card's health, and what is loaded. Raises CardAbsentError: there is no such card."""
        if self._find_uuid() != card_uuid:
            raise CardAbsentError(f"card {card_uuid} is not on this board")
        state = self._read_manager("state")
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
        """Return the UUID of the card. Raises CardAbsentError: this machine has none."""
        try:
            place = (self._system / _MANAGER).resolve(strict=True).relative_to(self._system.resolve())
        except (OSError, ValueError, RuntimeError) as error:
            raise CardAbsentError(f"there is no FPGA manager: {self._system / _MANAGER} is not there") from error
        return f"FPGA-{uuid.uuid5(_NAMESPACE, str(place))}"

    def _find_board(self, card_uuid: str, handle: SlotsHandle | None = None) -> SlotsBoard:
        """Return the board, with the base design of ``handle`` also where it is described no more.

        Raises CardAbsentError.
        """
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
            driver_version=self._read_text(self._system / "proc/sys/kernel/osrelease"),
            layout=layout,
            loaded=loaded,
            attributes={"refusedImages": Attribute.of(summarize_refusals(layouts.refused, layouts.names))},
        )

    def _read_manager(self, name: str) -> str:
        return self._read_text(self._system / _MANAGER / name)

    @staticmethod
    def _read_text(path: Path) -> str:
        """Return an attribute; empty: it is not there, or cannot be read now."""
        try:
            with path.open("rb") as stream:
                return stream.read(_MAX_STATE).decode(errors="replace").strip()
        except OSError:
            return ""


def open_backend(config: Path | None) -> SlotsBackend:
    """Make a backend of this board, as the YAML document ``config`` says; None: the defaults.

    Raises InvalidDocumentError when the document is invalid.
    """
    return SlotsBackend(read_config(config, SlotsConfig))
