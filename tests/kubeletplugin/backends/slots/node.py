"""A plugin on a board with a stand-in for dfx-mgrd, for tests of the backend ``slots``."""

from pathlib import Path

from tests.kubeletplugin.backends.fpga_node import FpgaNode
from tests.kubeletplugin.backends.slots.machine import SlotsMachineUnderTest


class SlotsNode(FpgaNode):
    """A board, whose card is ``card``."""

    def __init__(self, folder: Path, *, has_layouts: bool = False) -> None:
        self.machine = SlotsMachineUnderTest(folder / "machine", has_layouts=has_layouts)
        self.hardware = self.machine.hardware
        self.daemon = self.machine.daemon
        super().__init__(self.machine)

    def loaded(self) -> dict[int, str]:
        """The packages that are loaded, by slot."""
        return {int(slot): package for slot, (package, _) in sorted(self.daemon.read_state()["slots"].items())}

    def left(self) -> dict[int, str]:
        """What the slots' logic was made into last."""
        return {int(slot): package for slot, package in sorted(self.daemon.read_state()["fabric"].items())}
