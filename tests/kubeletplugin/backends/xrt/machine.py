"""A machine with stand-ins of Alveo cards, for the contract of backends, and for plugins, of which some are killed.

``python -m tests.kubeletplugin.backends.xrt.machine ROOT prepare|unprepare`` is a plugin for one call, which loads the
stand-in's libxrt.
"""

import sys
import time
from collections.abc import Callable, Collection, Hashable
from pathlib import Path

import anyio

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import ImageBits
from kerf_dra.driver.kubeletplugin.backends.xrt import XrtBackend
from kerf_dra.driver.kubeletplugin.backends.xrt.card import REGION
from kerf_dra.driver.kubeletplugin.backends.xrt.config import XrtConfig
from kerf_dra.driver.kubeletplugin.backends.xrt.library import XrtLibrary
from kerf_dra.driver.kubeletplugin.backends.xrt.sysfs import XrtFiles
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.testing import MachineUnderTest, ProcessKilled
from tests.fakes.claims import claim
from tests.fakes.xrt import XrtMachine
from tests.fakes.xrt.machine import BLANK_ID
from tests.kubeletplugin.backends.fpga.node import FpgaNode, SteppedClock
from tests.kubeletplugin.backends.one_call import call_plugin

CLAIM = claim("fpga", "fpga-0-aes-at-0")
"""What a process is called for."""


class KillableLibrary(XrtLibrary):
    """The library, with ``at_change`` called before and after each change."""

    def __init__(self, folder: Path, at_change: Callable[[], None]) -> None:
        super().__init__(folder)
        self._at_change = at_change

    def load(self, pci_address: str, bits: ImageBits, limit_s: float | None) -> None:
        self._at_change()
        super().load(pci_address, bits, limit_s)
        self._at_change()


class XrtMachineUnderTest(MachineUnderTest):
    """Two cards."""

    lists_idle = False

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        self.hardware = XrtMachine.create(folder)
        self.hardware.describe()
        self.document = build_config(self.hardware)
        self._now = now
        self._points_left: int | None = None
        self._loader = KillableLibrary(self.hardware.xrt, self._pass_point)

    def open_backend(self) -> XrtBackend:
        return XrtBackend(self.document, loader=self._loader, now=self._now)

    def config(self, partition: Partition) -> DeviceConfigBase | None:
        """A card gets a function, as nothing is left to see of a blank one."""
        if partition.function is not None:
            return None
        return FpgaConfig(api_version="kerf.dev/v1alpha1", function="aes")

    def idle(self, card_uuid: str) -> Collection[Hashable]:
        found = self.hardware.read_loaded(self.number(card_uuid))
        return [found] if found != BLANK_ID else []

    def kill_at(self, point: int | None) -> None:
        self._points_left = point

    def cut_by_hand(self, partition: Partition) -> None:
        self.hardware.use(self.number(partition.card_uuid))

    def remove_by_hand(self, partition: Partition) -> None:
        self.hardware.stop_using(self.number(partition.card_uuid))

    def use(self, partition: Partition) -> None:
        self.hardware.open_node(self.number(partition.card_uuid), "/dev/dri/renderD128")

    def stop_using(self, partition: Partition) -> None:
        self.hardware.stop_using(self.number(partition.card_uuid))

    def take_away(self, card_uuid: str) -> None:
        self.hardware.take_away(self.number(card_uuid))

    def bring_back(self, card_uuid: str) -> None:
        self.hardware.bring_back(0)

    def make_unhealthy(self, card_uuid: str) -> None:
        self.hardware.set_state(self.number(card_uuid), "ready", "0x0\n")

    def number(self, card_uuid: str) -> int:
        """Return which card it is, from 0."""
        cards = XrtFiles(self.hardware.folder).list_cards([])
        return next(at for at, card in enumerate(cards) if card.uuid == card_uuid)

    def _pass_point(self) -> None:
        if self._points_left is not None:
            self._points_left -= 1
            if self._points_left == 0:
                raise ProcessKilled


def build_config(hardware: XrtMachine) -> XrtConfig:
    return XrtConfig(
        description_folder=str(hardware.descriptions),
        image_folder=str(hardware.images),
        cache_folder=str(hardware.folder / "cache"),
        xrt_folder=str(hardware.xrt),
        system_root=str(hardware.folder),
        health_poll_seconds=0.01,
    )


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


def machine(root: Path) -> XrtMachine:
    return XrtMachine(root / "machine")


def hardware(root: Path) -> XrtBackend:
    """A backend of the cards whose machine lies below ``root``, opened."""
    backend = XrtBackend(build_config(machine(root)))
    backend.open()
    return backend


async def call(root: Path, operation: str) -> None:
    await call_plugin(root, CLAIM, operation, hardware(root))


if __name__ == "__main__":
    anyio.run(call, Path(sys.argv[1]), sys.argv[2])
