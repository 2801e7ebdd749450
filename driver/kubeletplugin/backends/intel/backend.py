"""The Backend protocol over Intel's GPUs.

Cards have no partitions that could be made: prepare and unprepare change nothing, and a survey finds nothing.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, IntelGpuConfig
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.gpu_intel.catalog import describe_card
from kerf_dra.driver.families.gpu_intel.geometry import intel_geometry
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardSample,
    CardSurvey,
    DeviceSample,
    FoundPartition,
    Handle,
    HardwareRefusedError,
    Journal,
    UnlistedCard,
)
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.backends.intel.config import IntelConfig
from kerf_dra.driver.kubeletplugin.backends.intel.drm import DrmCalls, LinuxDrmCalls, UnknownMemoryError, read_memory
from kerf_dra.driver.kubeletplugin.backends.intel.handles import HANDLES, IntelHandle, build_edits, build_request_edits
from kerf_dra.driver.kubeletplugin.backends.intel.health import is_hot, judge_condition
from kerf_dra.driver.kubeletplugin.backends.intel.sysfs import (
    INTEL_GPUS,
    IntelCardReading,
    IntelFiles,
    read_condition,
    read_survivability,
)
from kerf_dra.driver.kubeletplugin.backends.intel.usage import ClientUsage, read_energy
from kerf_dra.driver.kubeletplugin.backends.kernel_files import CardNumbers, KnownCards, read_driver_version
from kerf_dra.driver.kubeletplugin.backends.pci_devices import list_unlisted_cards
from kerf_dra.driver.kubeletplugin.backends.polled_backend import PolledBackend, Snapshot
from kerf_dra.driver.partitions.geometry import Card

_log = logging.getLogger(__name__)


class IntelBackend(PolledBackend):
    """A Backend of the Intel GPUs of this machine."""

    name = "intel"

    def __init__(
        self,
        config: IntelConfig,
        *,
        calls: DrmCalls | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tests give ``calls`` and ``now``."""
        self._now = now
        self._root = Path(config.system_root)
        self._is_stand_in = config.is_for_stand_in
        self._calls = calls or LinuxDrmCalls()
        self._numbers = CardNumbers()
        self._cards = KnownCards(IntelFiles(self._root))
        self._memory: dict[str, int] = {}
        self._usage = ClientUsage(self._root)
        self._hot: set[str] = set()
        """Those that were too hot when they were read last."""
        super().__init__(config.health_poll_seconds)

    def discover(self) -> Sequence[Card]:
        return [self._build_card(reading) for reading in self._cards.list_present()]

    def list_unlisted(self, cards: Sequence[Card]) -> Sequence[UnlistedCard]:
        listed = [card.pci_bus_id for card in cards]
        return [*map(self._explain, list_unlisted_cards(self._root, INTEL_GPUS, listed, self._cards.problems))]

    def survey(self, card_uuid: str) -> CardSurvey:
        return CardSurvey(card_uuid=self._cards.find(card_uuid).uuid, partitions=())

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        del journal, found
        card = self._cards.find(device.partition.card_uuid)
        placement = device.partition.placement
        if placement is not None and placement.start >= card.tiles:
            raise HardwareRefusedError(f"card {card.pci_address} has {card.tiles} tiles, and none {placement.start}")
        is_share = device.partition.shared
        handle = IntelHandle(
            card=card.uuid,
            device=device.share.id.device,
            pci_address=card.pci_address,
            number=card.number,
            render=card.render,
            tiles=card.tiles,
            tile=None if placement is None else placement.start,
            hierarchy=config.hierarchy if isinstance(config, IntelGpuConfig) else "Flat",
            memory_bytes=_find_amount(device, v.CAPACITY_MEMORY) if is_share else None,
            millicores=_find_amount(device, v.CAPACITY_MILLICORES) if is_share else None,
            is_admin=device.admin_access,
            is_stand_in=self._is_stand_in,
        )
        return HANDLES.encode(handle)

    def unprepare(self, handle: Handle) -> None:
        self._cards.find(HANDLES.decode(handle).card)

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        del journal, found
        self._cards.find(device.partition.card_uuid)

    def edits(self, handle: Handle) -> ContainerEdits:
        return build_edits(HANDLES.decode(handle))

    def request_edits(self, handles: Sequence[Handle]) -> ContainerEdits:
        return build_request_edits([HANDLES.decode(handle) for handle in handles])

    def renumber(self, handle: Handle) -> Handle:
        known = HANDLES.decode(handle)
        card = self._cards.find(known.card)
        return HANDLES.encode(replace(known, number=card.number, render=card.render))

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        card = self._cards.find(card_uuid)
        known = [HANDLES.decode(handle) for handle in handles]
        whole = self._usage.sample(card, self._now()) if known else DeviceSample()
        if len(known) != 1 or known[0].tile is not None:  # which of them a process uses is not said
            whole = DeviceSample(processes=0) if whole.processes == 0 else DeviceSample()
        return CardSample(energy_mj=read_energy(self._root, card), devices=(whole,) * len(known))

    def _list_seen(self) -> Sequence[str]:
        return self._cards.list_seen()

    def _read_snapshot(self, card_uuid: str) -> Snapshot:
        """Return the health of a card; nothing is ever on it. Raises CardAbsentError."""
        condition = read_condition(self._root, self._cards.find(card_uuid))
        was_hot = card_uuid in self._hot
        state = judge_condition(condition, was_hot=was_hot)
        (self._hot.add if is_hot(condition, was_hot=was_hot) else self._hot.discard)(card_uuid)
        return ({} if state is None else {None: state}), None

    def _explain(self, card: UnlistedCard) -> UnlistedCard:
        """Return what is known of a card that is not listed, which may have booted in survivability mode."""
        mode = read_survivability(self._root / "sys/bus/pci/devices" / card.pci_address)
        if not mode:
            return card
        problem = f"its driver {card.driver} serves it only for its firmware to be flashed: {' '.join(mode.split())}"
        return dataclasses.replace(card, problem=problem, next_step="flash its firmware (fwupdmgr), and boot")

    def _build_card(self, reading: IntelCardReading) -> Card:
        gpu = describe_card(reading.pci_device_id, self._read_memory(reading), reading.tiles)
        return Card(
            uuid=reading.uuid,
            index=self._numbers.find(reading.uuid, reading.number),
            geometry=intel_geometry(gpu),
            pci_bus_id=reading.pci_address,
            pcie_root=reading.pcie_root,
            numa_node=reading.numa_node,
            driver_version=read_driver_version(self._root, reading.driver),
            attributes={
                "kernelDriver": Attribute.of(reading.driver),
                "virtualFunction": Attribute.of(reading.is_virtual_function),
            },
        )

    def _read_memory(self, card: IntelCardReading) -> int:
        """Return the card's memory, asked for once; 0: it has none of its own, or does not say."""
        if card.uuid not in self._memory:
            try:
                self._memory[card.uuid] = read_memory(
                    self._calls, self._root / f"dev/dri/card{card.number}", card.driver
                )
            except UnknownMemoryError as error:
                if card.local_memory_bytes:
                    return card.local_memory_bytes * card.tiles
                _log.warning("card %s has no memory to ask for by size: %s", card.pci_address, error)
                return 0
        return self._memory[card.uuid]


def _find_amount(device: AllocatedDevice, capacity: str) -> int | None:
    """Return a share's part of a capacity; None: nothing is said of it, or no limit."""
    amount = device.consumed(capacity)
    return int(amount) if amount else None


def open_backend(config: Path | None) -> IntelBackend:
    """Make a backend of this machine's Intel GPUs, as the YAML document ``config`` says; None: the defaults.

    Raises InvalidDocumentError when the document is invalid.
    """
    return IntelBackend(read_config(config, IntelConfig))
