"""The simulated GPUs and FPGAs keep the contract of backends (``kerf_dra.driver.testing``)."""

from collections.abc import Callable, Collection, Hashable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend, gpu
from kerf_dra.driver.kubeletplugin.backends.simulated.config import FpgaCards, GpuCards, SimulatedConfig
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell
from kerf_dra.driver.kubeletplugin.backends.simulated.fpga import FpgaState
from kerf_dra.driver.kubeletplugin.backends.simulated.gpu import GpuState
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareFaults
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.testing import BackendContract, MachineUnderTest, ProcessKilled

MODEL: Final = "h100-80gb-sxm"
SHELL: Final = "quad"


class KillableSteps:
    """Runs the steps of a card, and kills the process before or after the one that is chosen."""

    def __init__(self, steps: Any, pass_point: Callable[[], None]) -> None:
        self._steps = steps
        self._pass_point = pass_point

    def run(self, *arguments: Any, **options: Any) -> None:
        self._pass_point()
        self._steps.run(*arguments, **options)
        self._pass_point()


class SimulatedMachine(MachineUnderTest):
    """Two simulated cards that take no time."""

    def __init__(self, folder: Path, cards: GpuCards | FpgaCards) -> None:
        self.folder = folder
        self.config_document = SimulatedConfig(state=str(folder), cards=(cards,), seed="tests", pace=0)
        self._points_left: int | None = None
        self._outside = SimulatedBackend(self.config_document)

    def open_backend(self) -> SimulatedBackend:
        backend = SimulatedBackend(self.config_document)
        for card in backend._cards.values():
            card._step_runner = KillableSteps(card._step_runner, self._pass_point)  # type: ignore[assignment]
        return backend

    def kill_at(self, point: int | None) -> None:
        self._points_left = point

    def take_away(self, card_uuid: str) -> None:
        self._write_faults(HardwareFaults(absent=(self._name(card_uuid),)))

    def bring_back(self, card_uuid: str) -> None:
        self._write_faults(HardwareFaults())

    def make_unhealthy(self, card_uuid: str) -> None:
        self._write_faults(HardwareFaults(degraded={self._name(card_uuid): "Xid 63: row remapping is due"}))

    def _pass_point(self) -> None:
        if self._points_left is not None:
            self._points_left -= 1
            if self._points_left == 0:
                raise ProcessKilled

    def _write_faults(self, faults: HardwareFaults) -> None:
        new = self.folder / "faults.json.new"
        new.write_bytes(msgspec.json.encode(faults))
        new.rename(self.folder / "faults.json")

    def _name(self, card_uuid: str) -> str:
        return self._outside._cards[card_uuid].name

    def _change(self, card_uuid: str, change: Callable[[Any], Any]) -> None:
        self._outside._cards[card_uuid].file.change(change)


class GpuMachine(SimulatedMachine):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, GpuCards(model=MODEL, count=2))

    def cut_by_hand(self, partition: Partition) -> None:
        assert partition.profile is not None
        assert partition.placement is not None
        model, profile, placement = gpu_model(MODEL), partition.profile, partition.placement

        def cut(state: GpuState) -> GpuState:
            return gpu.create_gpu_instance(gpu.set_mig_mode(state, True), model, profile, placement)

        self._change(partition.card_uuid, cut)

    def remove_by_hand(self, partition: Partition) -> None:
        def remove(state: GpuState) -> GpuState:
            kept = tuple(one for one in state.instances if one.placement != partition.placement)
            return msgspec.structs.replace(state, instances=kept)

        self._change(partition.card_uuid, remove)

    def use(self, partition: Partition) -> None:
        self._set_use(partition, in_use=True)

    def stop_using(self, partition: Partition) -> None:
        self._set_use(partition, in_use=False)

    def _set_use(self, partition: Partition, *, in_use: bool) -> None:
        def change(state: GpuState) -> GpuState:
            changed = tuple(
                msgspec.structs.replace(one, in_use=in_use) if one.placement == partition.placement else one
                for one in state.instances
            )
            return msgspec.structs.replace(state, instances=changed)

        self._change(partition.card_uuid, change)


class FpgaMachine(SimulatedMachine):
    lists_idle = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, FpgaCards(shell=SHELL, count=2))

    def config(self, partition: Partition) -> DeviceConfigBase | None:
        if partition.function is not None:
            return None
        return FpgaConfig(api_version="kerf.dev/v1alpha1", function=self._function_at(partition))

    def partitions(self, card: Card) -> Sequence[Partition]:
        return [one for one in super().partitions(card) if one.function is not None or self._function_at(one)]

    def idle(self, card_uuid: str) -> Collection[Hashable]:
        return [one for one in self._outside.partitions() if one.card_uuid == card_uuid]

    def cut_by_hand(self, partition: Partition) -> None:
        """Let a process use the slots, outside of Kerf: only that occupies them."""
        self._change(partition.card_uuid, lambda state: self._with_use(state, partition, is_used=True))

    def remove_by_hand(self, partition: Partition) -> None:
        self._change(partition.card_uuid, lambda state: self._with_use(state, partition, is_used=False))

    @staticmethod
    def _with_use(state: FpgaState, partition: Partition, *, is_used: bool) -> FpgaState:
        kept = [used for used in state.in_use if used != partition.placement]
        added = [partition.placement] if is_used and partition.placement is not None else []
        return msgspec.structs.replace(state, in_use=(*kept, *added))

    def _function_at(self, partition: Partition) -> str | None:
        """Return the function whose image fits best into the slots; None: none fits."""
        shell_ = shell(SHELL)
        slots = partition.placement or Placement(0, len(shell_.slots))
        fitting = [
            (image.size, function.name)
            for function in shell_.functions
            for image in function.placements
            if slots.start <= image.start and image.units[-1] <= slots.units[-1]
        ]
        return max(fitting)[1] if fitting else None


class TestSimulatedGpus(BackendContract):
    family = GPU

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return GpuMachine(folder)


class TestSimulatedFpgas(BackendContract):
    family = FPGA

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return FpgaMachine(folder)
