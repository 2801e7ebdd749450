"""A board that dfx-mgrd's stand-in loads, for the contract of backends, and for plugins, of which some are killed.

``call_in_process`` is what the process of a plugin does that makes one call.
"""

import tempfile
import weakref
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from kerf_dra.driver.kubeletplugin.backends.slots import SlotsBackend
from kerf_dra.driver.kubeletplugin.backends.slots.config import SlotsConfig
from kerf_dra.driver.kubeletplugin.backends.slots.daemon import DaemonSocket
from kerf_dra.driver.kubeletplugin.backends.slots.messages import LIST_PACKAGE, LOAD_ACCEL, unpack_request
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.testing import MachineUnderTest, ProcessKilled
from tests.fakes.claims import claim
from tests.fakes.dfx import DaemonStandIn, DfxMachine
from tests.fakes.dfx.machine import FLAT
from tests.kubeletplugin.backends.fpga.node import FpgaNode
from tests.kubeletplugin.backends.one_call import call_plugin

DEVICE: Final = "fpga-0-aes-at-1"
"""What a process is called for, unless another device is named."""


class SlotsMachineUnderTest(MachineUnderTest):
    """A board with three slots, or with further layouts: two slots, and a flat one."""

    lists_idle = False

    def __init__(self, folder: Path, slots: int = 3, *, has_layouts: bool = False) -> None:
        self.hardware = DfxMachine.create(folder, slots)
        if has_layouts:
            self.hardware.add_layouts()
            self.hardware.describe_layouts()
        else:
            self.hardware.describe(slots)
        self.timeout_s: float | None = None
        """The most seconds that the client waits; None: as long as it would."""
        self.limits_s: list[float] = []
        """How many seconds each load might take."""
        self.is_loading_for_another = False
        """Whether the daemon loads for somebody all the time, so that no question is answered."""
        sockets = tempfile.TemporaryDirectory(prefix="dfx-")  # paths of sockets have 107 bytes, those of tests more
        self.daemon = DaemonStandIn(folder, f"{sockets.name}/s")
        self.daemon.start()
        weakref.finalize(self, self._end, self.daemon, sockets)
        self.document = build_config(self.hardware, self.daemon.path)
        self._points_left: int | None = None

    @staticmethod
    def _end(daemon: DaemonStandIn, sockets: "tempfile.TemporaryDirectory[str]") -> None:
        daemon.stop()
        sockets.cleanup()

    def open_backend(self) -> SlotsBackend:
        return SlotsBackend(self.document, exchange=self._exchange)

    def config(self, partition: Partition) -> DeviceConfigBase | None:
        """Slots and whole cards get a function, as nothing is left to see of empty ones."""
        if partition.function is not None:
            return None
        return FpgaConfig(api_version="kerf.dev/v1alpha1", function="aes")

    def idle(self, card_uuid: str) -> Collection[Hashable]:
        """What is loaded, and what a slot's logic was made into last, unless it is blank, or flat: that has none."""
        del card_uuid
        state = self.daemon.read_state()
        flat = FLAT.rpartition("/")[2]
        left = [one for one in state["fabric"].items() if not one[1].startswith("blank") and one[1] != flat]
        return [*((slot, *one) for slot, one in state["slots"].items()), *left]

    def kill_at(self, point: int | None) -> None:
        self._points_left = point

    def cut_by_hand(self, partition: Partition) -> None:
        """Load and use a function, as with ``dfx-mgr-client``."""
        assert partition.placement is not None
        name = "aes-half" if partition.placement.layout else "aes"
        for slot in _slots(partition):
            assert self.daemon.load(f"{name}-{slot}").endswith(":operating")
            self.hardware.use(slot)

    def remove_by_hand(self, partition: Partition) -> None:
        for slot in _slots(partition):
            self.hardware.stop_using(slot)
            self.daemon.unload(self.daemon.read_state()["slots"][str(slot)][1])

    def use(self, partition: Partition) -> None:
        self._for_each(partition, self.hardware.use)

    def stop_using(self, partition: Partition) -> None:
        self._for_each(partition, self.hardware.stop_using)

    def take_away(self, card_uuid: str) -> None:
        """End the daemon: without it nobody knows."""
        self.daemon.stop()

    def bring_back(self, card_uuid: str) -> None:
        self.daemon.start()

    def make_unhealthy(self, card_uuid: str) -> None:
        self.hardware.set_manager_state("write error")

    def partitions(self, card: Card) -> Sequence[Partition]:
        """Return one run of slots of each size, all single slots, and the functions; of layouts some of each.

        With layouts, what there is without them is left out: it is what takes most of the time.
        """
        found = super().partitions(card)
        if card.geometry.layouts:
            return [one for one in found if one.placement is None or one.function in {"fft", "sobel", "vadd"}]
        return [one for one in found if one.placement is None or one.placement.size == 1 or one.placement.start == 0]

    def _exchange(self, request: bytes, timeout_s: float) -> bytes:
        kind, _, _ = unpack_request(request)
        if self.is_loading_for_another:
            raise TimeoutError
        if kind == LIST_PACKAGE:
            return DaemonSocket(self.daemon.path)(request, timeout_s)
        if kind == LOAD_ACCEL:
            self.limits_s.append(timeout_s)
        self._pass_point()
        answer = DaemonSocket(self.daemon.path)(request, timeout_s if self.timeout_s is None else self.timeout_s)
        self._pass_point()
        return answer

    @staticmethod
    def _for_each(partition: Partition, call: Callable[[int], None]) -> None:
        for slot in _slots(partition):
            call(slot)

    def _pass_point(self) -> None:
        if self._points_left is not None:
            self._points_left -= 1
            if self._points_left == 0:
                raise ProcessKilled


def _slots(partition: Partition) -> Sequence[int]:
    assert partition.placement is not None
    return partition.placement.units


def build_config(hardware: DfxMachine, socket: str) -> SlotsConfig:
    return SlotsConfig(
        socket=socket,
        firmware_folder=str(hardware.firmware),
        description_folder=str(hardware.descriptions),
        overlay_folder=str(hardware.overlays),
        system_root=str(hardware.folder),
        health_poll_seconds=0.01,
    )


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


def hardware(root: Path, socket: str) -> SlotsBackend:
    """A backend of the board that lies below ``root``, opened."""
    backend = SlotsBackend(build_config(DfxMachine(root / "machine"), socket))
    backend.open()
    return backend


async def call(root: Path, socket: str, operation: str, device: str = DEVICE) -> None:
    await call_plugin(root, claim(device, device), operation, hardware(root, socket))


def call_in_process(root: Path, socket: str, operation: str, device: str) -> None:
    anyio.run(partial(call, root, socket, operation, device))
