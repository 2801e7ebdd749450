"""The rules of a simulated MIG GPU, as functions from state to state. Pure.

They follow NVML's documented behavior, without the counters that Kerf publishes, so that one can be tested against the
other. A GPU instance needs a legal, free placement, fewer instances of its profile than the maximum, and enough of the
engines that instances compete for. It cannot be destroyed while it has a compute instance. MIG mode cannot change while
there are instances.
"""

import uuid
from typing import Final

import msgspec

from driver.families.gpu.model import GpuModel, Profile
from driver.kubeletplugin.backends.base import HardwareBusyError, HardwareRefusedError
from driver.kubeletplugin.backends.simulated.steps import HardwareStep
from driver.partitions.geometry import Placement

_NO_RESOURCES: Final = "Insufficient Resources"
_IN_USE: Final = "In use by another client"
_INVALID: Final = "Invalid Argument"


class GpuInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance (GI) and its compute instance (CI), once it has one."""

    id: int
    profile: str
    placement: Placement
    owner: str
    """The mark of the claim's device that it was made for; empty: Kerf did not make it."""
    mig_uuid: str = ""
    """UUID of the compute instance that fills the GPU instance; empty: there is none yet."""


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a GPU until the machine boots."""

    model: str
    mig: bool = False
    whole: str = ""
    """The mark of the claim's device that has the whole card; empty: none."""
    instances: tuple[GpuInstance, ...] = ()

    def of(self, owner: str) -> GpuInstance | None:
        return next((instance for instance in self.instances if instance.owner == owner), None)


def enable_mig(state: GpuState) -> GpuState:
    """Switch MIG on. Takes effect at once, as on Hopper and later.

    Raises HardwareBusyError while a claim's device has the whole card.
    """
    if state.whole:
        raise HardwareBusyError(f"{HardwareStep.SET_MIG_MODE}: {_IN_USE}")
    return msgspec.structs.replace(state, mig=True)


def take_whole(state: GpuState, owner: str) -> GpuState:
    """Switch MIG off and give the whole card to ``owner``.

    Raises HardwareBusyError while there are instances, or another owner has the card.
    """
    if state.instances or state.whole not in ("", owner):
        raise HardwareBusyError(f"{HardwareStep.SET_MIG_MODE}: {_IN_USE}")
    return msgspec.structs.replace(state, mig=False, whole=owner)


def release_whole(state: GpuState, owner: str) -> GpuState:
    return msgspec.structs.replace(state, whole="") if state.whole == owner else state


def create_gpu_instance(
    state: GpuState, model: GpuModel, profile_name: str, placement: Placement, owner: str
) -> GpuState:
    """Create a GPU instance without a compute instance.

    Raises HardwareRefusedError for what the model never allows, HardwareBusyError while other instances are in the way.
    """
    profile = model.profile(profile_name)
    if profile is None or placement not in profile.placements:
        raise HardwareRefusedError(
            f"{HardwareStep.CREATE_GPU_INSTANCE}: {_INVALID}: {model.id} has no {profile_name} at {placement.start}:"
            f"{placement.size}"
        )
    if not state.mig or not _has_room(state, model, profile, placement):
        raise HardwareBusyError(f"{HardwareStep.CREATE_GPU_INSTANCE}: {_NO_RESOURCES}")
    made = GpuInstance(id=instance_id(model, placement), profile=profile.name, placement=placement, owner=owner)
    return msgspec.structs.replace(state, instances=(*state.instances, made))


def create_compute_instance(state: GpuState, card_uuid: str, owner: str) -> GpuState:
    """Create the compute instance that fills the GPU instance of ``owner``. Its UUID depends on card and ids alone.

    Raises HardwareRefusedError when there is no such GPU instance.
    """
    instance = state.of(owner)
    if instance is None:
        raise HardwareRefusedError(f"{HardwareStep.CREATE_COMPUTE_INSTANCE}: {_INVALID}: the GPU instance is gone")
    mig_uuid = f"MIG-{uuid.uuid5(uuid.NAMESPACE_URL, f'{card_uuid}/{instance.id}/0')}"
    return _replaced(state, instance, msgspec.structs.replace(instance, mig_uuid=mig_uuid))


def destroy_compute_instance(state: GpuState, owner: str) -> GpuState:
    instance = state.of(owner)
    return _replaced(state, instance, msgspec.structs.replace(instance, mig_uuid="")) if instance else state


def destroy_gpu_instance(state: GpuState, owner: str) -> GpuState:
    """Destroy the owner's GPU instance. Raises HardwareBusyError while it has a compute instance."""
    instance = state.of(owner)
    if instance is not None and instance.mig_uuid:
        raise HardwareBusyError(f"{HardwareStep.DESTROY_GPU_INSTANCE}: {_IN_USE}")
    return _replaced(state, instance, None) if instance else state


def _replaced(state: GpuState, old: GpuInstance, new: GpuInstance | None) -> GpuState:
    kept = tuple(instance for instance in state.instances if instance is not old)
    return msgspec.structs.replace(state, instances=kept if new is None else (*kept, new))


def _has_room(state: GpuState, model: GpuModel, profile: Profile, placement: Placement) -> bool:
    if any(placement.overlaps(instance.placement) for instance in state.instances):
        return False
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
