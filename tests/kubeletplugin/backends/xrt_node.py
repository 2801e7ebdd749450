"""A plugin on a machine with stand-ins of Alveo cards, for tests of the backend ``xrt``."""

from pathlib import Path
from typing import Any

from api.kerf.v1alpha1 import FpgaConfig
from driver.families.fpga import FPGA
from driver.kubeletplugin.backends.xrt import XrtBackend
from driver.kubeletplugin.backends.xrt.card import REGION
from driver.partitions.geometry import Card, Partition
from driver.testing.plugin import DeviceRecord, PluginStandIn
from tests.kubeletplugin.backends.dfl_node import Clock
from tests.kubeletplugin.backends.xrt_machine import XrtMachineUnderTest


class XrtNode:
    """A plugin on a machine whose first card is ``card``."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.machine = XrtMachineUnderTest(folder / "machine", now=self.clock.now)
        self.hardware = self.machine.hardware
        self.plugin = PluginStandIn(self.machine, FPGA)

    @property
    def backend(self) -> XrtBackend:
        assert isinstance(self.plugin.backend, XrtBackend)
        return self.plugin.backend

    @property
    def card(self) -> Card:
        return self.plugin.cards[0]

    def part(self, function: str | None = None, card: int = 0) -> Partition:
        """The region of a card, which is its only slot."""
        return Partition(kind="fpga", card_uuid=self.plugin.cards[card].uuid, placement=REGION, function=function)

    def whole(self) -> Partition:
        return Partition(kind="fpga", card_uuid=self.card.uuid)

    def allocate(self, partition: Partition, **config: Any) -> DeviceRecord:
        """Allocate the device; its claim has a FpgaConfig only with parameters."""
        record = self.plugin.allocate(partition, f"claim-{len(self.plugin.records)}")
        record.config = FpgaConfig(api_version="kerf.dev/v1alpha1", **config) if config else None
        return record

    def prepare(self, partition: Partition, **config: Any) -> DeviceRecord:
        record = self.allocate(partition, **config)
        self.plugin.prepare(record)
        return record

    def variables(self, record: DeviceRecord) -> set[str]:
        assert record.handle is not None
        return {*self.backend.edits(record.handle).env}

    def nodes(self, record: DeviceRecord) -> list[str]:
        assert record.handle is not None
        return [node.path for node in self.backend.edits(record.handle).device_nodes]
