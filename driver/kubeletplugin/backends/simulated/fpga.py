"""The rules of a simulated FPGA with partial reconfiguration, as functions from state to state. Pure.

A function is loaded as an image that covers some slots, and may stay there when its claim ends, so that a later load of
the same function is skipped. Nothing says for whom a function was loaded: one that no process uses may be replaced. An
FPGA has one layout of its shell at a time; loading another one empties it.
"""

import msgspec

from kerf_dra.driver.families.fpga.shell import Function
from kerf_dra.driver.kubeletplugin.backends.base import HardwareConflictError, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareStep
from kerf_dra.driver.partitions.device_names import list_units
from kerf_dra.driver.partitions.geometry import Placement


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of an image: with a function in them, or in the middle of a load."""

    image: Placement
    function: str = ""
    """The loaded function; empty: undefined, a load has begun and not ended."""
    bridged: bool = False
    """Whether the slots are connected to the bus; during a load they are not."""

    @property
    def is_ready(self) -> bool:
        return bool(self.function) and self.bridged


class FpgaState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an FPGA until the machine boots. Slots of no region are blank."""

    shell: str
    layout: str = ""
    """The name of the layout that it has."""
    regions: tuple[Region, ...] = ()
    in_use: tuple[Placement, ...] = ()
    """The slots that processes outside of Kerf use; set by tests."""

    def region(self, image: Placement) -> Region | None:
        return next((region for region in self.regions if region.image == image), None)

    def within(self, slots: Placement) -> tuple[Region, ...]:
        """Return the regions that have some of ``slots``."""
        return tuple(region for region in self.regions if region.image.overlaps(slots))

    @property
    def loaded(self) -> dict[Placement, str]:
        """The functions that are ready for use, by the slots of their image."""
        return {region.image: region.function for region in self.regions if region.is_ready}


def load_layout(state: FpgaState, layout: str) -> FpgaState:
    """Load another layout: what the FPGA runs is lost. Raises HardwareConflictError when a process uses a slot."""
    everything = Placement(0, 1, layout=layout)  # any of its slots overlaps those of other layouts
    check_unused(state, everything, HardwareStep.LOAD_LAYOUT)
    return msgspec.structs.replace(state, layout=layout, regions=())


def reserve(state: FpgaState, slots: Placement, image: Placement, function: str) -> FpgaState:
    """Make ``slots`` free for ``function``: what they run is lost, unless it is this very image of ``function``.

    Raises HardwareConflictError when a process outside of Kerf uses one of the slots.
    """
    check_unused(state, slots, HardwareStep.CHECK)
    inside = state.within(slots)
    warm = tuple(one for one in inside if one == Region(image=image, function=function, bridged=True))
    kept = tuple(region for region in state.regions if region not in inside)
    return msgspec.structs.replace(state, regions=(*kept, *(warm or (Region(image=image),))))


def program(state: FpgaState, image: Placement, function: str) -> FpgaState:
    """Put ``function`` into the slots of ``image``, which are not connected yet."""
    region = _find(state, image, HardwareStep.PROGRAM)
    return _replaced(state, region, msgspec.structs.replace(region, function=function))


def enable_bridges(state: FpgaState, image: Placement) -> FpgaState:
    region = _find(state, image, HardwareStep.ENABLE_BRIDGES)
    return _replaced(state, region, msgspec.structs.replace(region, bridged=True))


def read_back(state: FpgaState, image: Placement, function: Function) -> FpgaState:
    """Check the slots. Raises HardwareRefusedError when they do not report the function's id."""
    region = _find(state, image, HardwareStep.READ_BACK)
    if not region.bridged or region.function != function.name:
        raise HardwareRefusedError(
            f"{HardwareStep.READ_BACK}: the slots do not report {function.afu_id} ({function.name})"
        )
    return state


def blank(state: FpgaState, slots: Placement) -> FpgaState:
    """Empty the slots. Raises HardwareConflictError when a process uses one of them."""
    check_unused(state, slots, HardwareStep.BLANK)
    inside = state.within(slots)
    return msgspec.structs.replace(state, regions=tuple(one for one in state.regions if one not in inside))


def reset(state: FpgaState) -> FpgaState:
    """Reset the FPGA: its slots are empty. Raises HardwareConflictError when a process uses a slot."""
    for used in state.in_use:
        check_unused(state, used, HardwareStep.RESET)
    return msgspec.structs.replace(state, regions=())


def check_unused(state: FpgaState, slots: Placement, step: HardwareStep) -> None:
    """Raise HardwareConflictError when a process outside of Kerf uses one of ``slots``."""
    for used in state.in_use:
        if used.overlaps(slots):
            raise HardwareConflictError(f"{step}: a process outside of Kerf uses slots {list_units(used)}")


def _find(state: FpgaState, image: Placement, step: HardwareStep) -> Region:
    region = state.region(image)
    if region is None:
        raise HardwareRefusedError(f"{step}: the slots were emptied meanwhile")
    return region


def _replaced(state: FpgaState, old: Region, new: Region) -> FpgaState:
    kept = tuple(region for region in state.regions if region is not old)
    return msgspec.structs.replace(state, regions=(*kept, new))
