"""Loads functions into the slots of a card, in the order that is the same for every kind of card.

1. Everything that can be refused is refused before the card is changed: the configuration, the namespace, a function
   without an image for the slots, an image that is not as described.
2. The slots are held, or found unused.
3. A note goes into the journal, so that a later process knows that the slots are no longer as they were.
4. Each slot is made what it is to be: the image is loaded unless the slot reports it already (a warm hit), within its
   time, and what the slot then reports is compared with it.

A release decides from what a slot reports now: what another program has loaded since stays.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, FpgaConfig
from kerf_dra.driver.families.fpga.descriptions import DescribedShell, ImageReference
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice, FoundPartition, HardwareRefusedError, Journal
from kerf_dra.driver.kubeletplugin.backends.fpga.parameters import (
    check_namespace,
    find_fpga_config,
    find_function,
    find_load_limit,
)
from kerf_dra.driver.partitions.device_names import list_units
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.runtime import metrics

LOADS: Final = metrics.counter("kerf_fpga_loads_total", "Images that were loaded into slots of FPGAs.")
WARM_HITS: Final = metrics.counter(
    "kerf_fpga_warm_hits_total", "Images that were in their slot already, so that nothing was loaded."
)
_LOADING: Final = "loading"
"""The note that a change of the slots has begun, with the function's name."""
ReleaseAction: TypeAlias = Literal["Leave", "Keep", "Blank"]
"""What becomes of a slot when its device is released. Leave: another program has loaded something else since, and
nothing is changed. Keep: the claim's function stays for the next one. Blank: what is in the slot goes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSelection:
    """The slots of a device, and what may be loaded into them."""

    slots: Placement
    shell: DescribedShell | None
    """What is described of their layout, as of a shell without others; None with admin access."""
    place: str
    """What errors call the card or its layout, such as ``0000:3b:00.0``."""
    extra_s: float = 0.0
    """The seconds that a load takes beyond those of its image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlan:
    """What the slots of a claim's device are to hold, decided before the card is changed."""

    config: FpgaConfig
    """What the claim asks for."""
    slots: Placement
    found: FoundPartition | None
    """What an interrupted prepare of the device has left, or what another share of it uses; None: there is none."""
    function: str = ""
    """The function to load; empty: none is asked for, or the claim has admin access, and nothing is loaded."""
    version: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The function's parameters, for programs that use it."""
    function_slots: Placement | None = None
    """The slots of the function's image; None: no function is loaded."""
    images: Mapping[int, ImageReference] = field(default_factory=dict)
    """What is loaded, by the first slot of each image; other slots are cleared."""
    blanks: Mapping[int, ImageReference] = field(default_factory=dict)
    """The blank image of each slot of the layout that has one."""
    extra_s: float = 0.0
    """The seconds that a load takes beyond those of its image."""

    @property
    def changes(self) -> list[int]:
        """The slots that are filled one after another: an image for several is loaded into the first of them."""
        covered = self.function_slots.units[1:] if self.function_slots is not None else ()
        return [slot for slot in self.slots.units if slot not in covered]

    def find_id(self, slot: int) -> str:
        """Return the AFU id of the image that a slot is to hold; empty: none."""
        return self.images[slot].afu_id if slot in self.images else ""

    @property
    def function_slot(self) -> int | None:
        """The slot of the function, the first of several; None: no function is loaded."""
        return None if self.function_slots is None else self.function_slots.start


class SlotLoader(ABC):
    """A card whose slots are loaded, by one call at a time. A kind of card supplies the abstract methods."""

    fills_with_blanks: ClassVar[bool] = True
    """Whether a slot without a function is to hold its blank image; else it is cleared."""

    @abstractmethod
    def select_slots(self, device: AllocatedDevice, function: str) -> SlotSelection:
        """Return the slots of a device, of a whole card those of the layout that has ``function``.

        Raises HardwareConflictError where one is given away, and HardwareBusyError where none is described.
        """

    @abstractmethod
    def hold_slots(self, plan: SlotPlan) -> AbstractContextManager[object]:
        """Find the slots unused, and keep other processes from them as far as the card can.

        Raises HardwareConflictError where one is in use. Changes nothing that is loaded.
        """

    @abstractmethod
    def read_slot(self, slot: int) -> Collection[str]:
        """Return the AFU ids that a slot reports; none: it reports no function."""

    @abstractmethod
    def load_slot(self, slot: int, image: ImageReference, limit_s: float | None) -> None:
        """Load an image in place of what is in a slot, within ``limit_s`` seconds, and check that the slot reports it.

        Raises HardwareRefusedError where it does not, and where it took longer; None: there is no limit.
        """

    def find_fault(self, image: ImageReference, slot: Placement) -> ImageRefusal | None:
        """Return why an image cannot be loaded into a slot; None: it is as described, or unknown before a load."""
        del image, slot
        return None

    def use_slot(self, slot: int) -> AbstractContextManager[object]:
        """Make a held slot ready for a change, and for its next user after it."""
        del slot
        return nullcontext()

    def clear_slot(self, slot: int) -> None:  # noqa: B027  (most cards leave what is there)
        """Leave no function in a slot, as far as the card can do that without an image."""

    def load_slots(
        self,
        device: AllocatedDevice,
        config: DeviceConfigBase | None,
        journal: Journal,
        found: FoundPartition | None,
    ) -> SlotPlan:
        """Make the slots of a device what its claim asks for; with admin access nothing is done.

        Raises as ``Backend.prepare`` does, and InvalidDocumentError for a namespace that may not use the function.
        """
        plan = self._build_plan(device, find_fpga_config(device, config), found)
        if device.admin_access:
            return plan
        for slot, image in plan.images.items():
            if (fault := self.find_fault(image, Placement(slot, 1, layout=plan.slots.layout))) is not None:
                raise HardwareRefusedError(fault.message)
        with self.hold_slots(plan):
            if not has_begun(journal):
                journal.write(**{_LOADING: plan.function})
            for slot in plan.changes:
                wanted = plan.images.get(slot)
                load_s = plan.extra_s + (wanted.load_s if wanted is not None else 0.0)
                self.fill_slot(slot, wanted, find_load_limit(plan.config, load_s))
        return plan

    def fill_slot(self, slot: int, image: ImageReference | None, limit_s: float | None) -> None:
        """Have a held slot report an image, which is loaded unless it does already; None: have it cleared."""
        with self.use_slot(slot):
            if image is None:
                self.clear_slot(slot)
            elif image.afu_id in self.read_slot(slot):
                WARM_HITS.inc()
            else:
                self.load_slot(slot, image, limit_s)

    def _build_plan(self, device: AllocatedDevice, config: FpgaConfig, found: FoundPartition | None) -> SlotPlan:
        name = "" if device.admin_access else find_function(device, config)
        selected = self.select_slots(device, name)
        slots, shell = selected.slots, selected.shell
        if shell is None:
            return SlotPlan(config=config, slots=slots, found=found)
        spec = shell.specs.get(name)
        check_namespace(spec, device)
        place = _choose_place(shell, name, selected) if name else None
        images = {slot: blank for slot, blank in shell.blanks.items() if self.fills_with_blanks and slot in slots.units}
        if place is not None:
            images = {slot: blank for slot, blank in images.items() if slot not in place.units}
            images[place.start] = shell.images[name, place]
        function = shell.shell.function(name)
        return SlotPlan(
            config=config,
            slots=slots,
            found=found,
            function=name,
            version="" if function is None else function.version,
            parameters={} if spec is None else spec.parameters,
            function_slots=None if place is None else place._replace(layout=slots.layout),
            images=images,
            blanks=shell.blanks,
            extra_s=selected.extra_s,
        )


def has_begun(journal: Journal) -> bool:
    """Whether a change of the slots was noted: they may hold anything."""
    return _LOADING in journal.notes


def choose_release(
    reported: Collection[str], own: str | None, blank: ImageReference | None, *, is_kept: bool
) -> ReleaseAction:
    """Decide what becomes of a slot that reports some AFU ids now, or other names of what is in it.

    ``own`` is the name of what the prepare has left in it; empty: it left the slot empty; None: whatever was there.
    ``blank`` may be there as well, from a release that was interrupted. ``is_kept``: the claim asks for ``Keep``.
    """
    if own is not None and {*reported} - {own, *((blank.afu_id,) if blank is not None else ())}:
        return "Leave"
    return "Keep" if is_kept and own in reported else "Blank"


def _choose_place(shell: DescribedShell, name: str, selected: SlotSelection) -> Placement:
    """Return the slots of the function's largest image inside the selected slots, the first of several.

    Raises HardwareRefusedError where the shell has no such function, or no image of it for these slots.
    """
    slots = selected.slots
    if shell.shell.function(name) is None:
        known = ", ".join(sorted({one.name for one in shell.shell.functions})) or "none"
        what = f"layout {slots.layout} of shell" if slots.layout else "shell"
        raise HardwareRefusedError(f"{what} {shell.shell.name} has no function {name!r}; it has: {known}")
    places = sorted(place for function, place in shell.images if function == name)
    inside = [place for place in places if {*place.units} <= {*slots.units}]
    if not inside:
        where = f"slot {', '.join(map(str, slots.units))} of {selected.place}"
        there = " and ".join(map(list_units, places))
        raise HardwareRefusedError(f"{name} has no image for {where}; it has for {there}")
    return max(inside, key=lambda place: (place.size, -place.start, -place.gaps))
