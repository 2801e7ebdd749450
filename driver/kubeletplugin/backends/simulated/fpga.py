"""The rules of a simulated FPGA with partial reconfiguration, as functions from state to state. Pure.

A claim holds a run of slots. A function is loaded as an image that covers slots inside it, and may stay there when the
claim ends, so that a later load of the same function is skipped.
"""

import msgspec

from driver.families.fpga.shell import Function, Shell
from driver.kubeletplugin.backends.base import HardwareBusyError, HardwareRefusedError
from driver.kubeletplugin.backends.simulated.steps import HardwareStep
from driver.partitions.geometry import Placement


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """A run of slots that a claim's device holds, or in which a function was left."""

    placement: Placement
    image: Placement
    """The slots that the function's image covers, inside ``placement``."""
    function: str = ""
    """The loaded function; empty: undefined, a load has begun and not ended."""
    bridged: bool = False
    """Whether the slots are connected to the bus; during a load they are not."""
    owner: str = ""
    """The mark of the claim's device that holds it; empty: none, the function is merely kept."""


class FpgaState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an FPGA until the machine boots. Slots of no region are blank."""

    shell: str
    regions: tuple[Region, ...] = ()

    def of(self, owner: str) -> Region | None:
        return next((region for region in self.regions if region.owner == owner), None)

    @property
    def loaded(self) -> dict[Placement, str]:
        """The functions that are ready for use, by the slots of their image."""
        return {region.image: region.function for region in self.regions if region.function and region.bridged}


def image_for(shell: Shell, function_name: str, placement: Placement) -> Placement:
    """Find the largest image of the function that lies inside the slots ``placement``.

    Raises HardwareRefusedError when the shell has no such function, or no image of it for these slots.
    """
    function = shell.function(function_name)
    if function is None:
        known = ", ".join(sorted(known.name for known in shell.functions))
        raise HardwareRefusedError(
            f"{HardwareStep.CHECK}: shell {shell.name} has no function {function_name!r}; it has {known}"
        )
    inside = [image for image in function.placements if set(image.units) <= set(placement.units)]
    if not inside:
        raise HardwareRefusedError(
            f"{HardwareStep.CHECK}: {function_name} of shell {shell.name} has no image for slots {_slots(placement)}; "
            f"it has for {' and '.join(_slots(image) for image in function.placements)}"
        )
    return max(inside, key=lambda image: (image.size, -image.start))


def reserve(state: FpgaState, placement: Placement, image: Placement, function: str, owner: str) -> FpgaState:
    """Hold the slots for ``owner``. A function left in them is lost, unless it is this very image of ``function``.

    Raises HardwareBusyError when another owner holds one of the slots.
    """
    overlapping = [region for region in state.regions if region.placement.overlaps(placement)]
    if any(region.owner not in ("", owner) for region in overlapping):
        raise HardwareBusyError(f"{HardwareStep.CHECK}: slots {_slots(placement)} are in use")
    warm = any(region.image == image and region.function == function and region.bridged for region in overlapping)
    held = Region(placement=placement, image=image, function=function if warm else "", bridged=warm, owner=owner)
    kept = tuple(region for region in state.regions if region not in overlapping)
    return msgspec.structs.replace(state, regions=(*kept, held))


def program(state: FpgaState, owner: str, function: str) -> FpgaState:
    """Put ``function`` into the owner's slots, which are not connected yet."""
    region = _held(state, owner, HardwareStep.PROGRAM)
    return _replaced(state, region, msgspec.structs.replace(region, function=function))


def enable_bridges(state: FpgaState, owner: str) -> FpgaState:
    region = _held(state, owner, HardwareStep.ENABLE_BRIDGES)
    return _replaced(state, region, msgspec.structs.replace(region, bridged=True))


def read_back(state: FpgaState, owner: str, function: Function) -> FpgaState:
    """Check the owner's slots. Raises HardwareRefusedError when they do not report the function's id."""
    region = _held(state, owner, HardwareStep.READ_BACK)
    if not region.bridged or region.function != function.name:
        raise HardwareRefusedError(
            f"{HardwareStep.READ_BACK}: the slots do not report {function.afu_id} ({function.name})"
        )
    return state


def keep(state: FpgaState, owner: str) -> FpgaState:
    """Release the slots with the function in them."""
    region = state.of(owner)
    if region is None:
        return state
    return _replaced(state, region, msgspec.structs.replace(region, placement=region.image, owner=""))


def blank(state: FpgaState, owner: str) -> FpgaState:
    """Release the slots empty."""
    region = state.of(owner)
    return _replaced(state, region, None) if region else state


def _held(state: FpgaState, owner: str, step: HardwareStep) -> Region:
    region = state.of(owner)
    if region is None:
        raise HardwareRefusedError(f"{step}: the slots were given back meanwhile")
    return region


def _replaced(state: FpgaState, old: Region, new: Region | None) -> FpgaState:
    kept = tuple(region for region in state.regions if region is not old)
    return msgspec.structs.replace(state, regions=kept if new is None else (*kept, new))


def _slots(placement: Placement) -> str:
    return str(placement.start) if placement.size == 1 else f"{placement.start}-{placement.units[-1]}"
