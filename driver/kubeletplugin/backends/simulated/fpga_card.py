"""Simulated FPGA cards: a claim's function is loaded into slots by the phases of a partial reconfiguration.

A load is skipped where the function already runs in the right slots (a warm hit). A claim that asks for no function
gets blank slots.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from driver.families.fpga.shell import Shell
from driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardSurvey,
    FoundPartition,
    Journal,
)
from driver.kubeletplugin.backends.fpga_parameters import find_fpga_config, find_function, find_load_limit
from driver.kubeletplugin.backends.simulated import fpga
from driver.kubeletplugin.backends.simulated.fpga import FpgaState
from driver.kubeletplugin.backends.simulated.handles import FpgaHandle, SimulatedHandle
from driver.kubeletplugin.backends.simulated.state_store import StateFile
from driver.kubeletplugin.backends.simulated.steps import HardwareStep, StepRunner, TimeBudget
from driver.partitions.device_names import card_name
from driver.partitions.geometry import Card, Partition, Placement

_LOADING: Final = "loading"
"""The note that a load into the slots has begun, with the function's name."""
_PORTS: Final = 8
"""Port numbers of each card: a port id of the DFL hardware has three bits."""


class SimulatedFpga:
    """One simulated FPGA; its methods have the contracts of Backend's."""

    def __init__(self, card: Card, shell: Shell, file: StateFile[FpgaState], step_runner: StepRunner) -> None:
        self.kind = card.kind
        self.name = card_name(card)
        self.file = file
        self._card = card
        self._shell = shell
        self._step_runner = step_runner

    def discover(self) -> Card:
        """Return the card as it is now."""
        return replace(self._card, loaded=self.file.read().loaded)

    def survey(self) -> CardSurvey:
        """List what processes outside of Kerf use: a function that none uses may be replaced."""
        found = (
            FoundPartition(id=f"slots-{used.start}-{used.units[-1]}", profile=None, placement=used, in_use=True)
            for used in self.file.read().in_use
        )
        return CardSurvey(card_uuid=self._card.uuid, partitions=tuple(found))

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> FpgaHandle:
        del found  # slots are no objects: what an interrupted load left in them is loaded over
        fpga_config = find_fpga_config(device, config)
        slots = self._slots(device.partition)
        handle = FpgaHandle(
            card=self._card.uuid,
            device=device.share.id.device,
            ports=tuple(self._card.index * _PORTS + slot for slot in slots.units),
            release=fpga_config.release,
        )
        if device.admin_access:
            return handle
        function = find_function(device, fpga_config)
        if function:
            self._load(function, slots, fpga_config, journal)
        else:
            self._blank(slots)
        return msgspec.structs.replace(handle, function=function, slots=slots)

    def unprepare(self, handle: SimulatedHandle) -> None:
        """Empty the slots, or leave the function in them. Another's function that is there by now stays."""
        if not isinstance(handle, FpgaHandle) or handle.slots is None or not handle.function:
            return
        inside = self.file.read().within(handle.slots)
        if not inside or any(region.function not in ("", handle.function) for region in inside):
            return
        slots = handle.slots
        if handle.release == "Keep" and all(region.is_ready for region in inside):
            self._step(HardwareStep.KEEP)
        else:
            self._step(HardwareStep.BLANK, lambda state: fpga.blank(state, slots))

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        """Empty the slots if a load into them has begun."""
        del found
        slots = self._slots(device.partition)
        if _LOADING in journal.notes and self.file.read().within(slots):
            self._step(HardwareStep.BLANK, lambda state: fpga.blank(state, slots))

    def partitions(self) -> Iterator[Partition]:
        """Yield the slots with a function that is ready, and without one those in the middle of a load."""
        for region in self.file.read().regions:
            yield Partition(
                kind=self.kind,
                card_uuid=self._card.uuid,
                placement=region.image,
                function=region.function if region.is_ready else None,
            )

    def _slots(self, partition: Partition) -> Placement:
        return partition.placement or Placement(0, self._card.units)

    def _load(self, name: str, slots: Placement, config: FpgaConfig, journal: Journal) -> None:
        image = fpga.image_for(self._shell, name, slots)
        fpga.check_unused(self.file.read(), slots, HardwareStep.CHECK)
        if _LOADING not in journal.notes:
            journal.write(**{_LOADING: name})
        self._step(HardwareStep.CHECK, lambda state: fpga.reserve(state, slots, image, name))
        region = self.file.read().region(image)
        if region is not None and region.is_ready:
            return
        function = self._shell.function(name)
        assert function is not None  # image_for has found it
        budget = TimeBudget(find_load_limit(config, function.load_s))
        self._step(HardwareStep.DISABLE_BRIDGES, budget=budget)
        self._step(
            HardwareStep.PROGRAM, lambda state: fpga.program(state, image, name), usual_s=function.load_s, budget=budget
        )
        self._step(HardwareStep.ENABLE_BRIDGES, lambda state: fpga.enable_bridges(state, image), budget=budget)
        self._step(HardwareStep.READ_BACK, lambda state: fpga.read_back(state, image, function), budget=budget)

    def _blank(self, slots: Placement) -> None:
        """Empty the slots for a claim that asks for no function: what was left in them is not for it to see."""
        if self.file.read().within(slots):
            self._step(HardwareStep.BLANK, lambda state: fpga.blank(state, slots))

    def _step(
        self,
        step: HardwareStep,
        change: Callable[[FpgaState], FpgaState] = lambda state: state,
        *,
        usual_s: float | None = None,
        budget: TimeBudget | None = None,
    ) -> None:
        self._step_runner.run(step, self.name, self.file, change, usual_s=usual_s, budget=budget)
