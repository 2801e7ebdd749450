"""Simulated GPU cards: a claim's partition or whole card is made and removed by NVML's steps."""

from collections.abc import Callable, Iterator

import msgspec

from api.kerf.v1alpha1 import DeviceConfig, FpgaConfig
from api.model.device_attributes import CAPACITY_MEMORY
from driver.kubeletplugin.backends.base import AllocatedDevice, CardSurvey, FoundPartition, HardwareRefusedError
from driver.kubeletplugin.backends.simulated import gpu
from driver.kubeletplugin.backends.simulated.gpu import GpuState
from driver.kubeletplugin.backends.simulated.handles import GpuHandle, SimulatedHandle, owner_of
from driver.kubeletplugin.backends.simulated.state_store import StateFile
from driver.kubeletplugin.backends.simulated.steps import HardwareStep, StepRunner
from driver.partitions.device_names import card_name
from driver.partitions.geometry import DeviceKind, GpuCard, Partition


class SimulatedGpu:
    """One simulated GPU. An owner is a mark on the hardware (``owner_of``).

    Every method may be called again after any failure, also by a new process, and raises HardwareBusyError and
    HardwareRefusedError as those of Backend do.
    """

    def __init__(self, card: GpuCard, file: StateFile[GpuState], step_runner: StepRunner) -> None:
        self.kind = DeviceKind.GPU
        self.name = card_name(card)
        self._card = card
        self._file = file
        self._step_runner = step_runner

    def discover(self) -> GpuCard:
        """Return the card as it is now."""
        return self._card

    def handle(self, device: AllocatedDevice, config: DeviceConfig | None) -> GpuHandle:
        """Return the handle of ``device`` as it is now. Raises HardwareRefusedError for the config of another kind."""
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
        """Whether everything that ``make`` does for ``owner`` is done."""
        state = self._file.read()
        instance = state.of(owner)
        return state.whole == owner or (instance is not None and bool(instance.mig_uuid))

    async def make(self, device: AllocatedDevice, config: DeviceConfig | None, owner: str) -> None:
        """Make the partition or load the function, or continue an earlier try that was interrupted."""
        del config  # sharing is configured in containers, not on the card
        partition = device.partition
        if partition.placement is None:
            await self._step(HardwareStep.SET_MIG_MODE, lambda state: gpu.take_whole(state, owner))
            return
        profile, placement = partition.profile or "", partition.placement
        state = self._file.read()
        if not state.mig:
            await self._step(HardwareStep.SET_MIG_MODE, gpu.enable_mig)
        if state.of(owner) is None:
            await self._step(
                HardwareStep.CREATE_GPU_INSTANCE,
                lambda state: gpu.create_gpu_instance(state, self._card.model, profile, placement, owner),
            )
        await self._step(
            HardwareStep.CREATE_COMPUTE_INSTANCE,
            lambda state: gpu.create_compute_instance(state, self._card.uuid, owner),
        )

    async def release(self, handle: SimulatedHandle) -> None:
        """Release what ``handle`` stands for; nothing there is success."""
        await self.abandon(handle.owner)

    async def abandon(self, owner: str) -> None:
        """Remove whatever ``owner`` has, complete or half made."""
        state = self._file.read()
        if state.whole == owner:
            self._file.change(lambda state: gpu.release_whole(state, owner))  # no call of NVML: the card is just idle
        instance = state.of(owner)
        if instance is None:
            return
        if instance.mig_uuid:
            await self._step(
                HardwareStep.DESTROY_COMPUTE_INSTANCE, lambda state: gpu.destroy_compute_instance(state, owner)
            )
        await self._step(HardwareStep.DESTROY_GPU_INSTANCE, lambda state: gpu.destroy_gpu_instance(state, owner))

    def survey(self) -> CardSurvey:
        """List the GPU instances."""
        found = (
            FoundPartition(id=f"gi-{one.id}", profile=one.profile, placement=one.placement, uuid=one.mig_uuid)
            for one in self._file.read().instances
        )
        return CardSurvey(card_uuid=self._card.uuid, partitions=tuple(found))

    def held(self) -> Iterator[tuple[str, Partition]]:
        """Yield each owner with what it holds, half-made partitions included."""
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

    async def _step(self, step: HardwareStep, change: Callable[[GpuState], GpuState]) -> None:
        await self._step_runner.run(step, self.name, self._file, change)


def _memory_limit(device: AllocatedDevice) -> int | None:
    """Return the bytes of the device's memory that the share has; the name may come with the driver's domain."""
    names = (CAPACITY_MEMORY, f"{device.share.id.driver}/{CAPACITY_MEMORY}")
    found = [amount for name, amount in device.consumed_capacity.items() if name in names]
    return int(found[0]) if found else None
