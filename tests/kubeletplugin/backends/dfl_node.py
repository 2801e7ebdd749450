"""A plugin on a machine with stand-ins of DFL cards, for tests of the backend ``dfl``."""

from pathlib import Path
from typing import Any

from api.kerf.v1alpha1 import FpgaConfig
from cdi import DeviceNode
from driver.families.fpga import FPGA
from driver.kubeletplugin.backends.dfl import DflBackend
from driver.partitions.geometry import Card, Partition, Placement
from driver.testing.plugin import DeviceRecord, PluginStandIn
from tests.kubeletplugin.backends.dfl_machine import DflMachineUnderTest


class Clock:
    """A clock of which each reading is ``step_s`` later."""

    def __init__(self, step_s: float = 0.1) -> None:
        self.step_s = step_s
        self._at = 0.0

    def now(self) -> float:
        self._at += self.step_s
        return self._at


class Node:
    """A plugin on a machine whose first card is ``card``."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.machine = DflMachineUnderTest(folder / "machine", now=self.clock.now)
        self.hardware = self.machine.hardware
        self.plugin = PluginStandIn(self.machine, FPGA)

    @property
    def backend(self) -> DflBackend:
        assert isinstance(self.plugin.backend, DflBackend)
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

    def loaded(self) -> list[str]:
        """What the ports of the first card report."""
        return [self.hardware.read_afu_id(port) for port in range(4)]
