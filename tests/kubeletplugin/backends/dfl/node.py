"""A plugin on a machine with stand-ins of DFL cards, for tests of the backend ``dfl``."""

from pathlib import Path

from tests.kubeletplugin.backends.dfl.machine import DflMachineUnderTest
from tests.kubeletplugin.backends.fpga_node import FpgaNode, SteppedClock


class DflNode(FpgaNode):
    """A node with DFL cards."""

    def __init__(self, folder: Path) -> None:
        self.clock = SteppedClock()
        self.machine = DflMachineUnderTest(folder / "machine", now=self.clock.now)
        self.hardware = self.machine.hardware
        super().__init__(self.machine)

    def loaded(self) -> list[str]:
        """What the ports of the first card report."""
        return [self.hardware.read_afu_id(port) for port in range(4)]
