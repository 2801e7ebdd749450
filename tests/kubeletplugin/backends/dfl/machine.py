"""A machine with stand-ins of DFL cards, for the contract of backends, and for plugins, of which some are killed.

``python -m tests.kubeletplugin.backends.dfl.machine ROOT prepare|unprepare`` is a plugin for one call, with the
stand-in's library in LD_PRELOAD: the backend's own system calls go to it.
"""

import sys
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from pathlib import Path

import anyio

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from kerf_dra.driver.kubeletplugin.backends.dfl import DflBackend
from kerf_dra.driver.kubeletplugin.backends.dfl.config import DflConfig
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import SystemCalls
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import CardFiles
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.testing import MachineUnderTest, ProcessKilled
from tests.fakes.claims import claim
from tests.fakes.dfl import DflMachine, FakeSystemCalls
from tests.fakes.dfl.machine import BLANK_ID
from tests.kubeletplugin.backends.fpga.node import FpgaNode, SteppedClock
from tests.kubeletplugin.backends.one_call import call_plugin

CLAIM = claim("fpga", "fpga-0-aes-at-1")
"""What a process is called for."""


class DflMachineUnderTest(MachineUnderTest):
    """Two cards with four slots each."""

    lists_idle = False

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        self.hardware = DflMachine.create(folder)
        self.hardware.describe()
        self.document = self.describe(self.hardware)
        self._now = now
        self._points_left: int | None = None

    @staticmethod
    def describe(hardware: DflMachine) -> DflConfig:
        """Return the configuration for a machine."""
        return DflConfig(
            description_folder=str(hardware.descriptions),
            image_folder=str(hardware.images),
            system_root=str(hardware.folder),
            health_poll_seconds=0.01,
            cache_folder=str(hardware.folder / "cache"),
        )

    def open_backend(self) -> DflBackend:
        return DflBackend(self.document, calls=FakeSystemCalls(self._pass_point), now=self._now)

    def config(self, partition: Partition) -> DeviceConfigBase | None:
        """Slots and whole cards get a function, as nothing is left to see of blank ones."""
        if partition.function is not None:
            return None
        return FpgaConfig(api_version="kerf.dev/v1alpha1", function="aes")

    def idle(self, card_uuid: str) -> Collection[Hashable]:
        return [
            (port.slot, loaded)
            for card in CardFiles(self.hardware.folder).list_cards([])
            if card.uuid == card_uuid
            for port in card.ports
            if (loaded := self.hardware.read_afu_id(port.number)) != BLANK_ID
        ]

    def kill_at(self, point: int | None) -> None:
        self._points_left = point

    def cut_by_hand(self, partition: Partition) -> None:
        self._for_each_port(partition, self.hardware.use)

    def remove_by_hand(self, partition: Partition) -> None:
        self._for_each_port(partition, self.hardware.stop_using)

    def use(self, partition: Partition) -> None:
        self._for_each_port(partition, self.hardware.use)

    def stop_using(self, partition: Partition) -> None:
        self._for_each_port(partition, self.hardware.stop_using)

    def take_away(self, card_uuid: str) -> None:
        self.hardware.take_away(self.fme(card_uuid))

    def bring_back(self, card_uuid: str) -> None:
        self.hardware.bring_back(0)

    def make_unhealthy(self, card_uuid: str) -> None:
        (self.hardware.fme_folder(self.fme(card_uuid)) / "errors/nonfatal_errors").write_text("0x4\n")

    def partitions(self, card: Card) -> Sequence[Partition]:
        """Return one run of slots of each size, all single slots, and the functions."""
        found = super().partitions(card)
        return [one for one in found if one.placement is None or one.placement.size == 1 or one.placement.start == 0]

    def fme(self, card_uuid: str) -> int:
        """Return the number of the card's management engine."""
        (found,) = (card.fme for card in CardFiles(self.hardware.folder).list_cards([]) if card.uuid == card_uuid)
        return found

    def _for_each_port(self, partition: Partition, call: Callable[[int], None]) -> None:
        (card,) = (one for one in CardFiles(self.hardware.folder).list_cards([]) if one.uuid == partition.card_uuid)
        assert partition.placement is not None
        for slot in partition.placement.units:
            port = card.find_port(slot)
            assert port is not None
            call(port.number)

    def _pass_point(self) -> None:
        if self._points_left is not None:
            self._points_left -= 1
            if self._points_left == 0:
                raise ProcessKilled


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


def machine(root: Path) -> DflMachine:
    return DflMachine(root / "machine")


def hardware(root: Path, calls: SystemCalls | None = None) -> DflBackend:
    """A backend of the cards whose machine lies below ``root``, opened."""
    backend = DflBackend(DflMachineUnderTest.describe(machine(root)), calls=calls)
    backend.open()
    return backend


async def call(root: Path, operation: str, calls: SystemCalls | None = None) -> None:
    await call_plugin(root, CLAIM, operation, hardware(root, calls))


if __name__ == "__main__":
    anyio.run(call, Path(sys.argv[1]), sys.argv[2])
