"""Simulated GPUs: a claim's partition or whole card, by NVML's steps."""

from collections.abc import Callable, Iterator

import msgspec

from api.kerf.v1alpha1 import DeviceConfig, FpgaConfig
from api.model.device_attributes import CAPACITY_MEMORY
from driver.kubeletplugin.backends.base import AllocatedDevice, HardwareRefusedError
from driver.kubeletplugin.backends.simulated import gpu
from driver.kubeletplugin.backends.simulated.gpu import GpuState
from driver.kubeletplugin.backends.simulated.handles import GpuHandle, SimulatedHandle, owner_of
from driver.kubeletplugin.backends.simulated.state_store import CardFile
from driver.kubeletplugin.backends.simulated.step_runner import Stepper
from driver.kubeletplugin.backends.simulated.steps import Step
from driver.partitions.device_names import card_name
from driver.partitions.geometry import DeviceKind, GpuCard, Partition


def _memory_limit(device: AllocatedDevice) -> int | None:
    """What the claim's share has of the device's memory; the name may come with the driver's domain."""
    names = (CAPACITY_MEMORY, f"{device.share.id.driver}/{CAPACITY_MEMORY}")
    found = [amount for name, amount in device.consumed_capacity.items() if name in names]
    return int(found[0]) if found else None


class SimulatedGpu:
    """A SimulatedCard that is a GPU."""

    def __init__(self, card: GpuCard, file: CardFile[GpuState], stepper: Stepper) -> None:
        self.kind = DeviceKind.GPU
        self.name = card_name(card)
        self._card = card
        self._file = file
        self._stepper = stepper

    def discover(self) -> GpuCard:
        return self._card

    def handle(self, device: AllocatedDevice, config: DeviceConfig | None) -> GpuHandle:
        if isinstance(config, FpgaConfig):
            raise HardwareRefusedError(f"{device.share} is a GPU, but the claim gives it an FpgaConfig")
        handle = GpuHandle(
            card=self._card.uuid,
            device=device.share.id.device,
            owner="" if device.admin_access else owner_of(device),
            minor=self._card.index,
            visible=self._card.uuid,
            sharing=config.sharing.strategy if config else "Exclusive",
            memory_limit_bytes=_memory_limit(device),
        )
        instance = self._file.read().of(handle.owner)
        if instance is None:
            return handle
        return msgspec.structs.replace(handle, visible=instance.mig_uuid, instance=instance.id)

    def has(self, owner: str) -> bool:
        state = self._file.read()
        instance = state.of(owner)
        return state.whole == owner or (instance is not None and bool(instance.mig_uuid))

    async def make(self, device: AllocatedDevice, config: DeviceConfig | None, owner: str) -> None:
        del config  # how containers share the device is told to them, not to the card
        partition = device.partition
        if partition.placement is None:
            await self._step(Step.SET_MIG_MODE, lambda state: gpu.take_whole(state, owner))
            return
        profile, placement = partition.profile or "", partition.placement
        state = self._file.read()
        if not state.mig:
            await self._step(Step.SET_MIG_MODE, gpu.enable_mig)
        if state.of(owner) is None:
            await self._step(
                Step.CREATE_GPU_INSTANCE,
                lambda state: gpu.create_gpu_instance(state, self._card.model, profile, placement, owner),
            )
        await self._step(
            Step.CREATE_COMPUTE_INSTANCE, lambda state: gpu.create_compute_instance(state, self._card.uuid, owner)
        )

    async def take_back(self, handle: SimulatedHandle) -> None:
        await self.abandon(handle.owner)

    async def abandon(self, owner: str) -> None:
        state = self._file.read()
        if state.whole == owner:
            self._file.change(lambda state: gpu.release_whole(state, owner))  # no call of NVML: the card is just idle
        instance = state.of(owner)
        if instance is None:
            return
        if instance.mig_uuid:
            await self._step(Step.DESTROY_COMPUTE_INSTANCE, lambda state: gpu.destroy_compute_instance(state, owner))
        await self._step(Step.DESTROY_GPU_INSTANCE, lambda state: gpu.destroy_gpu_instance(state, owner))

    def held(self) -> Iterator[tuple[str, Partition]]:
        state = self._file.read()
        if state.whole:
            yield state.whole, Partition(kind=self.kind, card_uuid=self._card.uuid)
        for instance in state.instances:
            partition = Partition(
                kind=self.kind,
                card_uuid=self._card.uuid,
                profile=instance.profile,
                placement=instance.placement,
            )
            yield instance.owner, partition

    async def _step(self, step: Step, change: Callable[[GpuState], GpuState]) -> None:
        await self._stepper.run(step, self.name, self._file, change)
