"""A plugin on a board with a stand-in for dfx-mgrd, for tests of the backend ``slots``."""

from pathlib import Path
from typing import Any

from api.kerf.v1alpha1 import FpgaConfig
from cdi import DeviceNode
from driver.families.fpga import FPGA
from driver.kubeletplugin.backends.slots import SlotsBackend
from driver.partitions.geometry import Card, Partition, Placement
from driver.testing.plugin import DeviceRecord, PluginStandIn
from tests.kubeletplugin.backends.slots_machine import SlotsMachineUnderTest


class Node:
    """A plugin on a board, whose card is ``card``."""

    def __init__(self, folder: Path) -> None:
        self.machine = SlotsMachineUnderTest(folder / "machine")
        self.hardware = self.machine.hardware
        self.daemon = self.machine.daemon
        self.plugin = PluginStandIn(self.machine, FPGA)

    @property
    def backend(self) -> SlotsBackend:
        assert isinstance(self.plugin.backend, SlotsBackend)
        return self.plugin.backend

    @property
    def card(self) -> Card:
        return self.plugin.cards[0]

    def part(self, start: int = 0, size: int = 1, function: str | None = None) -> Partition:
        return Partition(kind="fpga", card_uuid=self.card.uuid, placement=Placement(start, size), function=function)

    def allocate(self, partition: Partition, **config: Any) -> DeviceRecord:
        """Allocate the device; its claim has a FpgaConfig only with parameters."""
        record = self.plugin.allocate(partition, f"claim-{len(self.plugin.records)}")
        record.config = FpgaConfig(api_version="kerf.dev/v1alpha1", **config) if config else None
        return record

    def prepare(self, partition: Partition, **config: Any) -> DeviceRecord:
        record = self.allocate(partition, **config)
        self.plugin.prepare(record)
        return record

    def edits(self, record: DeviceRecord) -> tuple[set[str], tuple[DeviceNode, ...]]:
        assert record.handle is not None
        found = self.backend.edits(record.handle)
        return {*found.env}, found.device_nodes

    def loaded(self) -> dict[int, str]:
        """The packages that are loaded, by slot."""
        return {int(slot): package for slot, (package, _) in sorted(self.daemon.read_state()["slots"].items())}

    def left(self) -> dict[int, str]:
        """What the slots' logic was made into last."""
        return {int(slot): package for slot, package in sorted(self.daemon.read_state()["fabric"].items())}
