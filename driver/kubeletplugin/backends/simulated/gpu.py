"""The rules of a simulated MIG GPU, as functions from state to state. Pure.

They follow NVML's documented behavior, without the counters that Kerf publishes, so that one can be tested against the
other. A GPU instance needs a legal, free placement, fewer instances of its profile than the maximum, and enough of the
engines that instances compete for. It cannot be destroyed while it has a compute instance. MIG mode cannot change while
there are instances. Ids depend on the placement, as drivers give them, and nothing says who made an instance.
"""

import uuid
from enum import StrEnum
from typing import Final

import msgspec

from kerf_dra.driver.families.gpu.model import GpuModel, Profile
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError, HardwareConflictError, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareStep
from kerf_dra.driver.partitions.geometry import Placement, Run

_NO_RESOURCES: Final = "Insufficient Resources"
_IN_USE: Final = "In use by another client"
_INVALID: Final = "Invalid Argument"


class GpuInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance (GI) and its compute instance (CI), once it has one."""

    id: int
    profile: str
    run: Run = msgspec.field(name="placement")
    """Its memory slices: two numbers, which earlier versions of Kerf read, too."""
    mig_uuid: str = ""
    """UUID of the compute instance that fills the GPU instance; empty: there is none yet."""
    in_use: bool = False
    """Whether a process uses it; set by tests."""

    @property
    def placement(self) -> Placement:
        return Placement(*self.run)


class MigSwitch(StrEnum):
    """How MIG mode of a card is switched."""

    IMMEDIATE = "Immediate"
    """At once, as on Hopper and later."""
    NEEDS_RESET = "NeedsReset"
    """Only with a reset of the card, as on Ampere."""
    NOT_CAPABLE = "NotCapable"
    """Never: the card has no MIG."""


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a GPU until the machine boots."""

    model: str
    mig: bool = False
    switch: MigSwitch = MigSwitch.IMMEDIATE
    """Set by tests."""
    in_use: bool = False
    """Whether a process uses the card, outside of all instances; set by tests."""
    instances: tuple[GpuInstance, ...] = ()

    def instance(self, id_: int) -> GpuInstance | None:
        return next((instance for instance in self.instances if instance.id == id_), None)

    @property
    def no_partitions(self) -> str:
        """The reason why the card cannot be cut; empty: it can."""
        if self.switch is MigSwitch.NOT_CAPABLE:
            return "the card has no MIG"
        return "" if self.mig or self.switch is MigSwitch.IMMEDIATE else "MIG mode is off and on only after a reset"

    @property
    def no_whole(self) -> str:
        """The reason why the card cannot be allocated whole; empty: it can."""
        return "MIG mode is on and off only after a reset" if self.mig and self.switch is MigSwitch.NEEDS_RESET else ""


def set_mig_mode(state: GpuState, is_on: bool) -> GpuState:
    """Switch MIG mode. Raises HardwareRefusedError when it cannot be switched so, HardwareBusyError while the card or
    one of its instances is used.
    """
    if reason := state.no_partitions if is_on else state.no_whole:
        raise HardwareRefusedError(f"{HardwareStep.SET_MIG_MODE}: {reason}")
    if state.mig != is_on and (state.instances or state.in_use):
        raise HardwareBusyError(f"{HardwareStep.SET_MIG_MODE}: {_IN_USE}")
    return msgspec.structs.replace(state, mig=is_on)


def switch_mig_mode(state: GpuState, is_on: bool) -> GpuState:
    """Switch MIG mode of a card in maintenance: where that needs a reset, the idle card resets by itself, as Ampere's.

    Raises HardwareRefusedError when it has no MIG, HardwareBusyError while the card or one of its instances is used.
    """
    if state.switch is MigSwitch.NOT_CAPABLE:
        raise HardwareRefusedError(f"{HardwareStep.SET_MIG_MODE}: {state.no_partitions}")
    if state.mig != is_on and (state.instances or state.in_use):
        raise HardwareBusyError(f"{HardwareStep.SET_MIG_MODE}: {_IN_USE}")
    return msgspec.structs.replace(state, mig=is_on)


def reset(state: GpuState) -> GpuState:
    """Reset the card: its instances are gone. Raises HardwareBusyError while it or one of its instances is used."""
    if state.in_use or any(instance.in_use for instance in state.instances):
        raise HardwareBusyError(f"{HardwareStep.RESET}: {_IN_USE}")
    return msgspec.structs.replace(state, instances=())


def create_gpu_instance(state: GpuState, model: GpuModel, profile_name: str, placement: Placement) -> GpuState:
    """Create a GPU instance without a compute instance.

    Raises HardwareRefusedError for what the model never allows, HardwareConflictError while another instance has the
    place, HardwareBusyError while others have the engines.
    """
    profile = model.profile(profile_name)
    if profile is None or placement not in profile.placements:
        raise HardwareRefusedError(
            f"{HardwareStep.CREATE_GPU_INSTANCE}: {_INVALID}: {model.id} has no {profile_name} at {placement.start}:"
            f"{placement.size}"
        )
    for instance in state.instances:
        if placement.overlaps(instance.placement):
            there = f"{instance.profile} at {instance.placement.start}"
            raise HardwareConflictError(f"{HardwareStep.CREATE_GPU_INSTANCE}: {_NO_RESOURCES}: {there} is there")
    if not state.mig or not _has_room(state, model, profile):
        raise HardwareBusyError(f"{HardwareStep.CREATE_GPU_INSTANCE}: {_NO_RESOURCES}")
    made = GpuInstance(id=instance_id(model, placement), profile=profile.name, run=Run(placement.start, placement.size))
    return msgspec.structs.replace(state, instances=(*state.instances, made))


def create_compute_instance(state: GpuState, card_uuid: str, id_: int) -> GpuState:
    """Create the compute instance that fills GPU instance ``id_``. Its UUID depends on card and ids alone.

    Raises HardwareRefusedError when there is no such GPU instance.
    """
    instance = state.instance(id_)
    if instance is None:
        raise HardwareRefusedError(f"{HardwareStep.CREATE_COMPUTE_INSTANCE}: {_INVALID}: the GPU instance is gone")
    mig_uuid = f"MIG-{uuid.uuid5(uuid.NAMESPACE_URL, f'{card_uuid}/{instance.id}/0')}"
    return _replaced(state, instance, msgspec.structs.replace(instance, mig_uuid=mig_uuid))


def destroy_compute_instance(state: GpuState, id_: int) -> GpuState:
    """Destroy the compute instance of GPU instance ``id_``. Raises HardwareBusyError while a process uses it."""
    instance = state.instance(id_)
    if instance is not None and instance.in_use:
        raise HardwareBusyError(f"{HardwareStep.DESTROY_COMPUTE_INSTANCE}: {_IN_USE}")
    return _replaced(state, instance, msgspec.structs.replace(instance, mig_uuid="")) if instance else state


def destroy_gpu_instance(state: GpuState, id_: int) -> GpuState:
    """Destroy GPU instance ``id_``. Raises HardwareBusyError while it has a compute instance."""
    instance = state.instance(id_)
    if instance is not None and instance.mig_uuid:
        raise HardwareBusyError(f"{HardwareStep.DESTROY_GPU_INSTANCE}: {_IN_USE}")
    return _replaced(state, instance, None) if instance else state


def _replaced(state: GpuState, old: GpuInstance, new: GpuInstance | None) -> GpuState:
    kept = tuple(instance for instance in state.instances if instance is not old)
    return msgspec.structs.replace(state, instances=kept if new is None else (*kept, new))


def _has_room(state: GpuState, model: GpuModel, profile: Profile) -> bool:
    if sum(instance.profile == profile.name for instance in state.instances) >= profile.max_instances:
        return False
    others = [model.profile(instance.profile) for instance in state.instances]
    return all(
        sum(getattr(other.engines, engine) for other in (profile, *others) if other) <= getattr(model.engines, engine)
        for engine in model.exclusive_engines
    )


def instance_id(model: GpuModel, placement: Placement) -> int:
    """Return the id as the driver gives it; with eight slices: 7g 0, 3g and 4g 1-2, two slices 3-6, one slice 7-13."""
    return model.memory_slices // placement.size - 1 + placement.start // placement.size
