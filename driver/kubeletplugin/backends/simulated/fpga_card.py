"""Simulated FPGA cards: a claim's function is loaded into slots by the phases of a partial reconfiguration.

The order of a prepare is that of ``fpga.slot_loader``. A claim that asks for no function gets blank slots. Where the
slots are of another layout of the shell than the card has, that one is loaded first.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from kerf_dra.api.kerf.fpga_objects import MAX_SLOTS
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.driver.families.fpga.descriptions import DescribedShell, ImageReference
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardSurvey,
    FoundPartition,
    HardwareRefusedError,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.fpga.parameters import find_compute_unit_percent, find_load_limit
from kerf_dra.driver.kubeletplugin.backends.fpga.slot_loader import (
    LOADS,
    SlotLoader,
    SlotPlan,
    SlotSelection,
    choose_release,
    has_begun,
)
from kerf_dra.driver.kubeletplugin.backends.simulated import fpga
from kerf_dra.driver.kubeletplugin.backends.simulated.fpga import FpgaState
from kerf_dra.driver.kubeletplugin.backends.simulated.handles import FpgaHandle, SimulatedHandle
from kerf_dra.driver.kubeletplugin.backends.simulated.state_store import StateFile
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareStep, StepRunner, TimeBudget
from kerf_dra.driver.partitions.device_names import card_name, list_units
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement

_PORTS: Final = MAX_SLOTS
"""Port numbers of each card, so that no two cards have one port."""


class SimulatedFpga(SlotLoader):
    """One simulated FPGA; its methods have the contracts of Backend's."""

    def __init__(
        self,
        card: Card,
        shell: Shell,
        layouts: Mapping[str, DescribedShell],
        file: StateFile[FpgaState],
        step_runner: StepRunner,
    ) -> None:
        """``layouts`` is what is described of each layout of ``shell``, by the layout's name."""
        self.kind = card.kind
        self.name = card_name(card)
        self.file = file
        self._card = card
        self._shell = shell
        self._layouts = layouts
        self._step_runner = step_runner
        self._plan: SlotPlan
        """What the prepare that goes on is to load."""

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
        plan = self.load_slots(device, config, journal, found)
        return FpgaHandle(
            card=self._card.uuid,
            device=device.share.id.device,
            ports=tuple(self._card.index * _PORTS + slot for slot in plan.slots.units),
            function=plan.function,
            slots=None if device.admin_access else plan.slots,
            release=plan.config.release,
            compute_unit_percent=find_compute_unit_percent(device),
        )

    def unprepare(self, handle: SimulatedHandle) -> None:
        """Empty the slots, or leave the function in them. Another's function that is there by now stays."""
        if not isinstance(handle, FpgaHandle) or handle.slots is None or not handle.function:
            return
        state, slots = self.file.read(), handle.slots
        inside = state.within(slots)
        if state.layout != slots.layout or not inside:
            return
        reported = {region.function for region in inside if region.function}
        is_kept = handle.release == "Keep" and all(region.is_ready for region in inside)
        action = choose_release(reported, handle.function, None, is_kept=is_kept)
        if action == "Keep":
            self._step(HardwareStep.KEEP)
        elif action == "Blank":
            self._blank(slots)

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        """Empty the slots if a load into them has begun."""
        del found
        slots = self._list_slots(device, "")
        if has_begun(journal) and self.file.read().layout == slots.layout:
            self._blank(slots)

    def partitions(self) -> Iterator[Partition]:
        """Yield the slots with a function that is ready, and without one those in the middle of a load."""
        for region in self.file.read().regions:
            yield Partition(
                kind=self.kind,
                card_uuid=self._card.uuid,
                placement=region.image,
                function=region.function if region.is_ready else None,
            )

    def reset(self) -> None:
        """Reset the card, of which nothing is in use: its slots are empty then."""
        self._step(HardwareStep.RESET, fpga.reset)

    def set_mig_mode(self, is_on: bool) -> str:
        raise HardwareRefusedError(f"{self.name} is an FPGA: it has no MIG mode to switch {'on' if is_on else 'off'}")

    # What the loader asks for

    fills_with_blanks = False

    def select_slots(self, device: AllocatedDevice, function: str) -> SlotSelection:
        slots = self._list_slots(device, function)
        shell = None if device.admin_access else self._layouts[slots.layout]
        return SlotSelection(slots=slots, shell=shell, place=self.name)

    @contextmanager
    def hold_slots(self, plan: SlotPlan) -> Iterator[None]:
        fpga.check_unused(self.file.read(), plan.slots, HardwareStep.CHECK)
        self._plan = plan
        yield

    @contextmanager
    def use_slot(self, slot: int) -> Iterator[None]:
        """Load the layout where the card has another one, and reserve the slots for the image."""
        config, slots, image, name = self._plan.config, self._plan.slots, self._plan.function_slots, self._plan.function
        load_s = self._shell.layout(slots.layout).load_s
        if self.file.read().layout != slots.layout:
            self._step(
                HardwareStep.LOAD_LAYOUT,
                lambda state: fpga.load_layout(state, slots.layout),
                usual_s=load_s,
                budget=TimeBudget(find_load_limit(config, load_s)),
            )
        if image is not None and slot == image.start:
            self._step(HardwareStep.CHECK, lambda state: fpga.reserve(state, slots, image, name))
        yield

    def read_slot(self, slot: int) -> Collection[str]:
        loaded = self.file.read().loaded.items()
        found = (self._shell.find_function(name, image) for image, name in loaded if slot in image.units)
        return {function.afu_id for function in found if function is not None}

    def load_slot(self, slot: int, image: ImageReference, limit_s: float | None) -> None:
        """Load an image by the phases of a partial reconfiguration, all within the limit."""
        del slot
        place = self._plan.function_slots
        assert place is not None  # that of the image
        function = self._shell.find_function(image.function, place)
        assert function is not None  # the plan is of its images
        budget = TimeBudget(math.inf if limit_s is None else limit_s)
        self._step(HardwareStep.DISABLE_BRIDGES, budget=budget)
        self._step(
            HardwareStep.PROGRAM,
            lambda state: fpga.program(state, place, function.name),
            usual_s=function.load_s,
            budget=budget,
        )
        self._step(HardwareStep.ENABLE_BRIDGES, lambda state: fpga.enable_bridges(state, place), budget=budget)
        self._step(HardwareStep.READ_BACK, lambda state: fpga.read_back(state, place, function), budget=budget)
        LOADS.inc()

    def clear_slot(self, slot: int) -> None:
        """Empty all slots for a claim that asks for no function: what was left in them is not for it to see."""
        del slot
        if not self._plan.function:  # else they are emptied where they are reserved
            self._blank(self._plan.slots)

    # Changes

    def _list_slots(self, device: AllocatedDevice, function: str) -> Placement:
        return device.partition.placement or self._shell.find_whole(function, self.file.read().layout)

    def _blank(self, slots: Placement) -> None:
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
