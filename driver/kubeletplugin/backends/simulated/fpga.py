"""What a simulated FPGA knows and allows: slots, images and who holds them, as functions from state to state. Pure."""

import msgspec

from driver.kubeletplugin.backends.base import HardwareBusyError, HardwareRefusedError
from driver.kubeletplugin.backends.simulated.steps import Step
from driver.partitions.geometry import Function, Placement, Shell


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """A run of slots that somebody holds, or in which a function was left."""

    placement: Placement
    image: Placement
    """The slots that the function's image covers, inside ``placement``."""
    function: str = ""
    """What runs there; empty: undefined, a load has begun and not ended."""
    bridged: bool = False
    """Whether the slots are connected to the bus, which they are not during a load."""
    owner: str = ""
    """Which claim's device holds it; empty: nobody, the function is merely kept."""


class FpgaState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an FPGA remembers until the machine boots. Slots of no region are blank."""

    shell: str
    regions: tuple[Region, ...] = ()

    def of(self, owner: str) -> Region | None:
        return next((region for region in self.regions if region.owner == owner), None)

    @property
    def loaded(self) -> dict[Placement, str]:
        """Functions that are ready for use."""
        return {region.image: region.function for region in self.regions if region.function and region.bridged}


def image_for(shell: Shell, function_name: str, placement: Placement) -> Placement:
    """Where the function goes when a claim holds the slots ``placement``: the largest image that lies inside.

    Raises HardwareRefusedError when the shell has no such function, or no image of it for these slots.
    """
    function = shell.function(function_name)
    if function is None:
        known = ", ".join(sorted(known.name for known in shell.functions))
        raise HardwareRefusedError(
            f"{Step.CHECK}: shell {shell.name} has no function {function_name!r}; it has {known}"
        )
    inside = [image for image in function.placements if set(image.units) <= set(placement.units)]
    if not inside:
        raise HardwareRefusedError(
            f"{Step.CHECK}: {function_name} of shell {shell.name} has no image for slots {_slots(placement)}; "
            f"it has for {' and '.join(_slots(image) for image in function.placements)}"
        )
    return max(inside, key=lambda image: (image.size, -image.start))


def reserve(state: FpgaState, placement: Placement, image: Placement, function: str, owner: str) -> FpgaState:
    """Hold the slots for ``owner``; what others left in them is lost, unless it is the function in the right place.

    Raises HardwareBusyError when somebody else holds one of them.
    """
    overlapping = [region for region in state.regions if region.placement.overlaps(placement)]
    if any(region.owner not in ("", owner) for region in overlapping):
        raise HardwareBusyError(f"{Step.CHECK}: slots {_slots(placement)} are in use")
    warm = any(region.image == image and region.function == function and region.bridged for region in overlapping)
    held = Region(placement=placement, image=image, function=function if warm else "", bridged=warm, owner=owner)
    kept = tuple(region for region in state.regions if region not in overlapping)
    return msgspec.structs.replace(state, regions=(*kept, held))


def program(state: FpgaState, owner: str, function: str) -> FpgaState:
    """``function`` is in the owner's slots, which are not connected yet."""
    region = _held(state, owner, Step.PROGRAM)
    return _replaced(state, region, msgspec.structs.replace(region, function=function))


def enable_bridges(state: FpgaState, owner: str) -> FpgaState:
    region = _held(state, owner, Step.ENABLE_BRIDGES)
    return _replaced(state, region, msgspec.structs.replace(region, bridged=True))


def read_back(state: FpgaState, owner: str, function: Function) -> FpgaState:
    """Raises HardwareRefusedError when the owner's slots do not report the function's id."""
    region = _held(state, owner, Step.READ_BACK)
    if not region.bridged or region.function != function.name:
        raise HardwareRefusedError(f"{Step.READ_BACK}: the slots do not report {function.afu_id} ({function.name})")
    return state


def keep(state: FpgaState, owner: str) -> FpgaState:
    """Give the slots back with the function in them."""
    region = state.of(owner)
    if region is None:
        return state
    return _replaced(state, region, msgspec.structs.replace(region, placement=region.image, owner=""))


def blank(state: FpgaState, owner: str) -> FpgaState:
    """Give the slots back empty."""
    region = state.of(owner)
    return _replaced(state, region, None) if region else state


def _held(state: FpgaState, owner: str, step: Step) -> Region:
    region = state.of(owner)
    if region is None:
        raise HardwareRefusedError(f"{step}: the slots were given back meanwhile")
    return region


def _replaced(state: FpgaState, old: Region, new: Region | None) -> FpgaState:
    kept = tuple(region for region in state.regions if region is not old)
    return msgspec.structs.replace(state, regions=kept if new is None else (*kept, new))


def _slots(placement: Placement) -> str:
    return str(placement.start) if placement.size == 1 else f"{placement.start}-{placement.units[-1]}"
