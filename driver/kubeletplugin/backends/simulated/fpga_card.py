"""Simulated FPGA cards: a claim's function is loaded into slots by the phases of a partial reconfiguration.

A load is skipped where the function already runs in the right slots (a warm hit). A claim that asks for no function
gets blank slots. Where the slots are of another layout of the shell than the card has, that one is loaded first.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from kerf_dra.api.kerf.fpga_objects import MAX_SLOTS
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from kerf_dra.api.model.device_attributes import CAPACITY_COMPUTE_UNIT_PERCENT
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardSurvey,
    FoundPartition,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.fpga.parameters import find_fpga_config, find_function, find_load_limit
from kerf_dra.driver.kubeletplugin.backends.simulated import fpga
from kerf_dra.driver.kubeletplugin.backends.simulated.fpga import FpgaState
from kerf_dra.driver.kubeletplugin.backends.simulated.handles import FpgaHandle, SimulatedHandle
from kerf_dra.driver.kubeletplugin.backends.simulated.state_store import StateFile
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareStep, StepRunner, TimeBudget
from kerf_dra.driver.partitions.device_names import card_name, list_units
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement

_LOADING: Final = "loading"
"""The note that a load into the slots has begun, with the function's name."""
_PORTS: Final = MAX_SLOTS
"""Port numbers of each card, so that no two cards have one port."""


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
        state = self.file.read()
        return replace(self._card, loaded=state.loaded, layout=state.layout)

    def survey(self) -> CardSurvey:
        """List what processes outside of Kerf use: a function that none uses may be replaced."""
        found = (
            FoundPartition(id=f"slots-{list_units(used)}", profile=None, placement=used, in_use=True)
            for used in self.file.read().in_use
        )
        return CardSurvey(card_uuid=self._card.uuid, partitions=tuple(found))

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> FpgaHandle:
        del found  # slots are no objects: what an interrupted load left in them is loaded over
        fpga_config = find_fpga_config(device, config)
        function = find_function(device, fpga_config)
        slots = self._slots(device.partition, function)
        handle = FpgaHandle(
            card=self._card.uuid,
            device=device.share.id.device,
            ports=tuple(self._card.index * _PORTS + slot for slot in slots.units),
            release=fpga_config.release,
            compute_unit_percent=_find_percent(device),
        )
        if device.admin_access:
            return handle
        if function:
            self._load(function, slots, fpga_config, journal)
        else:
            self._blank(slots, fpga_config)
        return msgspec.structs.replace(handle, function=function, slots=slots)

    def unprepare(self, handle: SimulatedHandle) -> None:
        """Empty the slots, or leave the function in them. Another's function that is there by now stays."""
        if not isinstance(handle, FpgaHandle) or handle.slots is None or not handle.function:
            return
        state = self.file.read()
        inside = state.within(handle.slots)
        if (
            state.layout != handle.slots.layout
            or not inside
            or any(region.function not in ("", handle.function) for region in inside)
        ):
            return
        slots = handle.slots
        if handle.release == "Keep" and all(region.is_ready for region in inside):
            self._step(HardwareStep.KEEP)
        else:
            self._step(HardwareStep.BLANK, lambda state: fpga.blank(state, slots))

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        """Empty the slots if a load into them has begun."""
        del found
        state, slots = self.file.read(), self._slots(device.partition, "")
        if _LOADING in journal.notes and state.layout == slots.layout and state.within(slots):
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

    def _slots(self, partition: Partition, function: str) -> Placement:
        return partition.placement or self._shell.find_whole(function, self.file.read().layout)

    def _load(self, name: str, slots: Placement, config: FpgaConfig, journal: Journal) -> None:
        image = fpga.image_for(self._shell, name, slots)
        fpga.check_unused(self.file.read(), slots, HardwareStep.CHECK)
        function = self._shell.find_function(name, image)
        assert function is not None  # image_for has found it
        if _LOADING not in journal.notes:
            journal.write(**{_LOADING: name})
        self._load_layout(slots.layout, find_load_limit(config, self._shell.layout(slots.layout).load_s))
        self._step(HardwareStep.CHECK, lambda state: fpga.reserve(state, slots, image, name))
        region = self.file.read().region(image)
        if region is not None and region.is_ready:
            return
        budget = TimeBudget(find_load_limit(config, function.load_s))
        self._step(HardwareStep.DISABLE_BRIDGES, budget=budget)
        self._step(
            HardwareStep.PROGRAM, lambda state: fpga.program(state, image, name), usual_s=function.load_s, budget=budget
        )
        self._step(HardwareStep.ENABLE_BRIDGES, lambda state: fpga.enable_bridges(state, image), budget=budget)
        self._step(HardwareStep.READ_BACK, lambda state: fpga.read_back(state, image, function), budget=budget)

    def _load_layout(self, layout: str, limit_s: float) -> None:
        if self.file.read().layout != layout:
            self._step(
                HardwareStep.LOAD_LAYOUT,
                lambda state: fpga.load_layout(state, layout),
                usual_s=self._shell.layout(layout).load_s,
                budget=TimeBudget(limit_s),
            )

    def _blank(self, slots: Placement, config: FpgaConfig) -> None:
        """Empty the slots for a claim that asks for no function: what was left in them is not for it to see."""
        self._load_layout(slots.layout, find_load_limit(config, self._shell.layout(slots.layout).load_s))
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


def _find_percent(device: AllocatedDevice) -> int | None:
    """Return the hundredths of compute units that the share has."""
    amount = device.consumed(CAPACITY_COMPUTE_UNIT_PERCENT)
    return None if amount is None else int(amount)
