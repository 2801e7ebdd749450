"""A plugin on a machine with stand-ins of Alveo cards, for tests of the backend ``xrt``."""

from pathlib import Path

from kerf_dra.driver.kubeletplugin.backends.xrt.card import REGION
from kerf_dra.driver.partitions.geometry import Partition
from tests.kubeletplugin.backends.fpga_node import FpgaNode, SteppedClock
from tests.kubeletplugin.backends.xrt.machine import XrtMachineUnderTest


class XrtNode(FpgaNode):
    """A node with Alveo cards."""

    def __init__(self, folder: Path) -> None:
        self.clock = SteppedClock()
        self.machine = XrtMachineUnderTest(folder / "machine", now=self.clock.now)
        self.hardware = self.machine.hardware
        super().__init__(self.machine)

    def region(self, function: str | None = None, card: int = 0) -> Partition:
        """The region of a card, which is its only slot."""
        return Partition(kind="fpga", card_uuid=self.plugin.cards[card].uuid, placement=REGION, function=function)
