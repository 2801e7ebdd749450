"""Simulated FPGA cards: a claim's function is loaded into slots by the phases of a partial reconfiguration.

A load is skipped where the function already runs in the right slots (a warm hit).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from api.kerf.v1alpha1 import DeviceConfig, FpgaConfig, GpuConfig
from driver.kubeletplugin.backends.base import AllocatedDevice, CardSurvey, HardwareRefusedError
from driver.kubeletplugin.backends.simulated import fpga
from driver.kubeletplugin.backends.simulated.fpga import FpgaState
from driver.kubeletplugin.backends.simulated.handles import FpgaHandle, SimulatedHandle, owner_of
from driver.kubeletplugin.backends.simulated.state_store import StateFile
from driver.kubeletplugin.backends.simulated.steps import HardwareStep, StepRunner, TimeBudget
from driver.partitions.device_names import card_name
from driver.partitions.geometry import DeviceKind, FpgaCard, Partition, Placement

_LOADS: Final = 3
_LEAST_S: Final = 30
"""A load may take three times what the image's maker states, at least 30 s: makers measure on idle machines, and one
phase of a DFL reconfiguration alone may take 8 s (Linux ``drivers/fpga/dfl-fme-mgr.c``)."""
_PORTS: Final = 8
"""Port numbers of each card: a port id of the DFL hardware has three bits."""


class SimulatedFpga:
    """One simulated FPGA; its methods have the contracts of SimulatedGpu's."""

    def __init__(self, card: FpgaCard, file: StateFile[FpgaState], step_runner: StepRunner) -> None:
        self.kind = DeviceKind.FPGA
        self.name = card_name(card)
        self._card = card
        self._file = file
        self._step_runner = step_runner

    def discover(self) -> FpgaCard:
        return replace(self._card, loaded=self._file.read().loaded)

    def handle(self, device: AllocatedDevice, config: DeviceConfig | None) -> FpgaHandle:
        config = _fpga_config(device, config)
        slots = self._slots(device.partition)
        return FpgaHandle(
            card=self._card.uuid,
            device=device.share.id.device,
            owner="" if device.admin_access else owner_of(device),
            ports=tuple(self._card.index * _PORTS + slot for slot in slots.units),
            function="" if device.admin_access else _function(device, config),
            release=config.release,
        )

    def has(self, owner: str) -> bool:
        region = self._file.read().of(owner)
        return region is not None and bool(region.function) and region.bridged

    async def make(self, device: AllocatedDevice, config: DeviceConfig | None, owner: str) -> None:
        config = _fpga_config(device, config)
        function, slots = _function(device, config), self._slots(device.partition)
        image = fpga.image_for(self._card.shell, function, slots)
        await self._step(HardwareStep.CHECK, lambda state: fpga.reserve(state, slots, image, function, owner))
        if not self.has(owner):
            await self._program(function, owner, config.timeout_seconds)

    async def release(self, handle: SimulatedHandle) -> None:
        if isinstance(handle, FpgaHandle) and handle.release == "Keep" and self.has(handle.owner):
            await self._step(HardwareStep.KEEP, lambda state: fpga.keep(state, handle.owner))
        else:
            await self.abandon(handle.owner)

    async def abandon(self, owner: str) -> None:
        if self._file.read().of(owner) is not None:
            await self._step(HardwareStep.BLANK, lambda state: fpga.blank(state, owner))

    def survey(self) -> CardSurvey:
        """List what processes use outside of Kerf: nothing yet."""
        return CardSurvey(card_uuid=self._card.uuid)

    def held(self) -> Iterator[tuple[str, Partition]]:
        for region in self._file.read().regions:
            partition = Partition(
                kind=self.kind,
                card_uuid=self._card.uuid,
                placement=region.placement,
                function=region.function or None,
            )
            if region.owner:
                yield region.owner, partition

    def _slots(self, partition: Partition) -> Placement:
        return partition.placement or Placement(0, self._card.units)

    async def _program(self, name: str, owner: str, timeout_s: float | None) -> None:
        function = self._card.shell.function(name)
        assert function is not None  # image_for has found it
        budget = TimeBudget(timeout_s or max(_LEAST_S, _LOADS * function.load_s))
        await self._step(HardwareStep.DISABLE_BRIDGES, budget=budget)
        await self._step(
            HardwareStep.PROGRAM, lambda state: fpga.program(state, owner, name), usual_s=function.load_s, budget=budget
        )
        await self._step(HardwareStep.ENABLE_BRIDGES, lambda state: fpga.enable_bridges(state, owner), budget=budget)
        await self._step(HardwareStep.READ_BACK, lambda state: fpga.read_back(state, owner, function), budget=budget)

    async def _step(
        self,
        step: HardwareStep,
        change: Callable[[FpgaState], FpgaState] = lambda state: state,
        *,
        usual_s: float | None = None,
        budget: TimeBudget | None = None,
    ) -> None:
        await self._step_runner.run(step, self.name, self._file, change, usual_s=usual_s, budget=budget)


def _fpga_config(device: AllocatedDevice, config: DeviceConfig | None) -> FpgaConfig:
    if isinstance(config, GpuConfig):
        raise HardwareRefusedError(f"{device.share} is an FPGA, but the claim gives it a GpuConfig")
    return config or FpgaConfig(api_version="kerf.dev/v1alpha1")


def _function(device: AllocatedDevice, config: FpgaConfig) -> str:
    """Return the function to load: the device's own, else the one that the config names."""
    own, asked = device.partition.function, config.function
    if own and asked and own != asked:
        raise HardwareRefusedError(f"{device.share} stands for {own}, but the claim's FpgaConfig asks for {asked}")
    function = own or asked
    if not function:
        raise HardwareRefusedError(f"{device.share} stands for no function: name one in an FpgaConfig")
    return function
