"""Simulated GPU cards: a partition or the whole card is made ready and removed by NVML's steps."""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, GpuConfig
from kerf_dra.api.model.device_attributes import CAPACITY_MEMORY
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    Journal,
    UnsuitableClaimError,
)
from kerf_dra.driver.kubeletplugin.backends.simulated import gpu
from kerf_dra.driver.kubeletplugin.backends.simulated.gpu import GpuInstance, GpuState
from kerf_dra.driver.kubeletplugin.backends.simulated.handles import GpuHandle, SimulatedHandle
from kerf_dra.driver.kubeletplugin.backends.simulated.state_store import StateFile
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareStep, StepRunner
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.partitions.geometry import Card, Partition

_ID: Final = "gi-"
"""Begins the id of a GPU instance in a survey."""


class SimulatedGpu:
    """One simulated GPU; its methods have the contracts of Backend's."""

    def __init__(self, card: Card, model: GpuModel, file: StateFile[GpuState], step_runner: StepRunner) -> None:
        self.kind = card.kind
        self.name = card_name(card)
        self.file = file
        self._card = card
        self._model = model
        self._step_runner = step_runner

    def discover(self) -> Card:
        """Return the card as it is now."""
        return self._card

    def survey(self) -> CardSurvey:
        state = self.file.read()
        found = [
            FoundPartition(
                id=f"{_ID}{one.id}",
                profile=one.profile,
                placement=one.placement,
                uuid=one.mig_uuid,
                in_use=one.in_use,
            )
            for one in state.instances
        ]
        if state.in_use:
            found.append(FoundPartition(id="processes", profile=None, placement=None, in_use=True))
        return CardSurvey(
            card_uuid=self._card.uuid,
            partitions=tuple(found),
            no_whole=state.no_whole,
            no_partitions=state.no_partitions,
        )

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> GpuHandle:
        if config is not None and not isinstance(config, GpuConfig):
            raise UnsuitableClaimError(f"{device.share} is a GPU, but the claim gives it a {type(config).__name__}")
        handle = GpuHandle(
            card=self._card.uuid,
            device=device.share.id.device,
            minor=self._card.index,
            uuid=self._card.uuid,
            sharing=config.sharing.strategy if isinstance(config, GpuConfig) else "Exclusive",
            memory_limit_bytes=_memory_limit(device),
        )
        if device.admin_access:
            return handle
        if device.partition.placement is None:
            self._step(HardwareStep.SET_MIG_MODE, lambda state: gpu.set_mig_mode(state, False))
            return handle
        instance = self._make(device.partition, journal, found)
        return msgspec.structs.replace(
            handle,
            uuid=instance.mig_uuid,
            instance=instance.id,
            profile=instance.profile,
            placement=instance.run,
        )

    def unprepare(self, handle: SimulatedHandle) -> None:
        """Remove the GPU instance, if it is still the handle's: the same id may be another's by now."""
        if not isinstance(handle, GpuHandle) or handle.instance is None:
            return
        instance = self.file.read().instance(handle.instance)
        if instance is None or (instance.profile, instance.run) != (handle.profile, handle.placement):
            return
        if instance.mig_uuid in ("", handle.uuid):
            self._destroy(instance)

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        del device, journal  # MIG mode stays as it is: the next user sets it
        instance = self.file.read().instance(_number(found)) if found is not None and found.profile else None
        if instance is not None:
            self._destroy(instance)

    def find_sampled(self, handle: SimulatedHandle) -> GpuHandle | None:
        """Return ``handle`` where its device is still there."""
        if not isinstance(handle, GpuHandle) or handle.instance is None:
            return handle if isinstance(handle, GpuHandle) else None
        instance = self.file.read().instance(handle.instance)
        return handle if instance is not None and instance.mig_uuid == handle.uuid else None

    def partitions(self) -> Iterator[Partition]:
        """Yield the GPU instances, half-made ones included."""
        for one in self.file.read().instances:
            yield Partition(kind=self.kind, card_uuid=self._card.uuid, profile=one.profile, placement=one.placement)

    def reset(self) -> None:
        """Reset the card, of which nothing is in use."""
        self._step(HardwareStep.RESET, gpu.reset)

    def set_mig_mode(self, is_on: bool) -> str:
        """Switch MIG mode of the card, of which nothing is in use; returns what was done."""
        mode = "on" if is_on else "off"
        if self.file.read().mig == is_on:
            return f"MIG mode was {mode} already"
        self._step(HardwareStep.SET_MIG_MODE, lambda state: gpu.switch_mig_mode(state, is_on))
        return f"MIG mode is {mode}"

    def _make(self, partition: Partition, journal: Journal, found: FoundPartition | None) -> GpuInstance:
        """Make the GPU instance with its compute instance, or complete the one that was ``found``."""
        profile, placement = partition.profile or "", partition.placement
        assert placement is not None
        if found is None:
            if not self.file.read().mig:
                self._step(HardwareStep.SET_MIG_MODE, lambda state: gpu.set_mig_mode(state, True))
            self._step(
                HardwareStep.CREATE_GPU_INSTANCE,
                lambda state: gpu.create_gpu_instance(state, self._model, profile, placement),
            )
            id_ = gpu.instance_id(self._model, placement)
            journal.write(instance=id_)
        else:
            id_ = _number(found)
        if found is None or not found.uuid:
            self._step(
                HardwareStep.CREATE_COMPUTE_INSTANCE,
                lambda state: gpu.create_compute_instance(state, self._card.uuid, id_),
            )
        instance = self.file.read().instance(id_)
        if instance is None:
            raise HardwareBusyError(f"GPU instance {id_} of {self.name} was destroyed meanwhile")
        return instance

    def _destroy(self, instance: GpuInstance) -> None:
        if instance.mig_uuid:
            self._step(
                HardwareStep.DESTROY_COMPUTE_INSTANCE, lambda state: gpu.destroy_compute_instance(state, instance.id)
            )
        self._step(HardwareStep.DESTROY_GPU_INSTANCE, lambda state: gpu.destroy_gpu_instance(state, instance.id))

    def _step(self, step: HardwareStep, change: Callable[[GpuState], GpuState]) -> None:
        self._step_runner.run(step, self.name, self.file, change)


def _number(found: FoundPartition) -> int:
    return int(found.id.removeprefix(_ID))


def _memory_limit(device: AllocatedDevice) -> int | None:
    """Return the bytes of the device's memory that the share has."""
    amount = device.consumed(CAPACITY_MEMORY)
    return None if amount is None else int(amount)
