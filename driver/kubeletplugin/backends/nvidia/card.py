"""One NVIDIA card: what is on it, and how a partition or the whole card is made ready and released."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec import structs

from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    HardwareConflictError,
    HardwareHeldError,
    HardwareInUseError,
    HardwareRefusedError,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.kernel_files import describe_processes
from kerf_dra.driver.kubeletplugin.backends.nvidia.handles import NvidiaHandle
from kerf_dra.driver.kubeletplugin.backends.nvidia.mig_mode import MigPolicy, can_switch, find_restrictions
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import CardReading, GpuInstanceReading
from kerf_dra.driver.kubeletplugin.backends.nvidia.system_files import SystemFiles
from kerf_dra.driver.partitions.geometry import Partition, Placement
from kerf_dra.driver.runtime import metrics

_ID: Final = "gi-"
"""Begins the id of a GPU instance in a survey."""
_PROCESSES: Final = "processes"
"""The id, in a survey, of the processes that use the card outside of all instances."""
_DESTROY_DELAYS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds before the next try of a destroy that NVML refuses as IN_USE although no process is listed: instances stay
locked for some tenths of a second after their last process (FAR, MISO). In all well below the kubelet's deadline."""
_RETRIES: Final = metrics.counter(
    "kerf_nvidia_destroy_retries_total", "Destroys of MIG instances that NVML refused as in use and that were repeated."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaCard:
    """One card; its methods have the contracts of Backend's."""

    reading: CardReading
    """The card as it was at the last discovery."""
    model: GpuModel
    library: NvmlLibrary
    system: SystemFiles
    policy: MigPolicy
    wait: Callable[[float], None]
    """Waits so many seconds; raises HardwareBusyError when the backend is closed meanwhile."""

    @property
    def uuid(self) -> str:
        return self.reading.uuid

    def survey(self) -> CardSurvey:
        mode = self.library.read_mig_mode(self.uuid)
        no_whole, no_partitions = find_restrictions(mode, self.reading.architecture, self.policy)
        processes = self.library.list_processes(self.uuid)
        used = None if processes is None else {process.instance for process in processes}
        found = [
            FoundPartition(
                id=f"{_ID}{one.id}",
                profile=self._profile_name(one.profile_id),
                placement=one.placement,
                uuid=one.uuid,
                in_use=None if used is None else one.id in used,
                is_static=self._is_static(one),
            )
            for one in self.library.list_gpu_instances(self.uuid)
        ]
        if used is not None and None in used:
            found.append(FoundPartition(id=_PROCESSES, profile=None, placement=None, in_use=True))
        return CardSurvey(card_uuid=self.uuid, partitions=tuple(found), no_whole=no_whole, no_partitions=no_partitions)

    def prepare(
        self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None, *, is_stand_in: bool
    ) -> NvidiaHandle:
        if device.partition.placement is None or device.admin_access:
            if not device.admin_access:
                self._leave_mig_mode()
            return NvidiaHandle(
                card=self.uuid,
                device=device.share.id.device,
                minor=self.library.read_minor(self.uuid),
                uuid=self.uuid,
                is_stand_in=is_stand_in,
                is_admin=device.admin_access,
            )
        instance = self._make_instance(device.partition, device.partition.placement, journal, found)
        compute_id, mig_uuid = instance.compute_instances[0]
        minor = self.library.read_minor(self.uuid)
        capabilities = self.system.find_capabilities(minor, instance.id, compute_id)
        if capabilities is None:
            raise HardwareBusyError(
                f"the driver shows no capabilities of GPU instance {instance.id} of {self.uuid} yet"
            )
        return NvidiaHandle(
            card=self.uuid,
            device=device.share.id.device,
            minor=minor,
            uuid=mig_uuid,
            instance=instance.id,
            compute_instance=compute_id,
            profile=device.partition.profile or "",
            profile_id=instance.profile_id,
            placement=instance.placement.run,
            capabilities=capabilities,
            is_stand_in=is_stand_in,
            is_static=found is not None and found.is_static,
        )

    def renumber(self, handle: NvidiaHandle) -> NvidiaHandle:
        """Return the handle with the minor number of the card and the capabilities of its instance as of now."""
        minor = self.library.read_minor(self.uuid)
        capabilities = handle.capabilities
        if handle.instance is not None:
            found = self.system.find_capabilities(minor, handle.instance, handle.compute_instance)
            capabilities = capabilities if found is None else found
        return structs.replace(handle, minor=minor, capabilities=capabilities)

    def unprepare(self, handle: NvidiaHandle) -> None:
        """Remove the GPU instance, if it is still the handle's: the same id may be another's by now."""
        mode = self.library.read_mig_mode(self.uuid)  # a card that is away proves nothing
        if handle.instance is None or (mode is not None and not mode.is_on):
            return
        profile_id = self._find_profile_id(handle.profile) if handle.profile_id is None else handle.profile_id
        instance = self._find_instance(handle.instance, profile_id)
        if instance is None or instance.uuid not in ("", handle.uuid) or instance.placement.run != handle.placement:
            return
        if handle.is_static:
            self._check_unused(instance)
        else:
            self._destroy(instance)

    def abandon(self, partition: Partition, found: FoundPartition | None) -> None:
        if partition.profile is not None:
            self._find_profile_id(partition.profile)  # else the survey has not looked for it
        if found is not None and found.profile is not None and not found.is_static:
            instance = self._find_again(found)
            if instance is not None:
                self._destroy(instance)

    def _find_profile_id(self, name: str) -> int:
        """Return NVML's id of a profile. Raises HardwareBusyError while the card does not report the profile."""
        profile = self.model.profile(name)
        if profile is None or profile.gi_profile_id is None:
            raise HardwareBusyError(
                f"cannot determine what card {self.uuid} has of profile {name}: NVML does not report the profile now"
            )
        return profile.gi_profile_id

    # Creation

    def _make_instance(
        self, partition: Partition, placement: Placement, journal: Journal, found: FoundPartition | None
    ) -> GpuInstanceReading:
        """Make the GPU instance with its compute instance, or complete the one that was ``found``."""
        if found is not None and found.is_static:
            return self._find_static(found)
        if found is None:
            id_ = self._create(partition, placement)
            journal.write(instance=id_)
            instance = self._find_instance(id_)
        else:
            id_ = _number(found)
            instance = self._find_again(found)
        if instance is not None and not instance.compute_instances:
            self.library.create_compute_instance(self.uuid, id_)
            instance = self._find_instance(id_)
        if instance is None or not instance.compute_instances:
            raise HardwareBusyError(f"GPU instance {id_} of card {self.uuid} was destroyed meanwhile")
        return instance

    def _find_again(self, found: FoundPartition) -> GpuInstanceReading | None:
        """Return the instance that a survey has found; None: it is gone, and its id may be another's by now."""
        instance = self._find_instance(_number(found))
        if instance is None or instance.uuid not in ("", found.uuid):
            return None
        place = (self._profile_name(instance.profile_id), instance.placement)
        return instance if place == (found.profile, found.placement) else None

    def _find_static(self, found: FoundPartition) -> GpuInstanceReading:
        instance = self._find_instance(_number(found))
        if instance is None or not self._is_static(instance) or instance.uuid != found.uuid:
            raise HardwareBusyError(
                f"MIG device {found.uuid} of card {self.uuid} does not exist any more: it was removed outside of Kerf"
            )
        return instance

    def _is_static(self, instance: GpuInstanceReading) -> bool:
        """Whether claims get the instance as an administrator has made it: its MIG device has all of it."""
        if self.policy is not MigPolicy.STATIC or not instance.is_filled:
            return False
        return self.build_partition(self._profile_name(instance.profile_id), instance.placement) is not None

    def _create(self, partition: Partition, placement: Placement) -> int:
        if self.policy is MigPolicy.STATIC:
            raise HardwareBusyError(f"card {self.uuid} has no MIG device {partition.profile} at {placement.start} now")
        profile = self.model.profile(partition.profile or "")
        if profile is None or profile.gi_profile_id is None or placement not in profile.placements:
            raise HardwareRefusedError(f"card {self.uuid} has no {partition.profile} at {placement.start}")
        self._enter_mig_mode()
        id_ = self.library.create_gpu_instance(self.uuid, profile.gi_profile_id, placement)
        if id_ is None:
            raise self._conflict(placement)
        return id_

    def _conflict(self, placement: Placement) -> HardwareBusyError | HardwareConflictError:
        """Return the error that says who has the place, or that the engines beside it are taken."""
        for found in self.survey().partitions:
            if found.placement is None or found.placement.overlaps(placement):
                return HardwareConflictError(f"in use outside of Kerf: {found}")
        return HardwareBusyError(
            f"card {self.uuid} has too few engines left for another partition at {placement.start}"
        )

    # MIG mode

    def _enter_mig_mode(self) -> None:
        mode = self.library.read_mig_mode(self.uuid)
        if mode is not None and mode.is_on:
            return
        if reason := find_restrictions(mode, self.reading.architecture, self.policy).no_partitions:
            raise HardwareBusyError(f"card {self.uuid} is not available in partitions now: {reason}")
        self.library.set_mig_mode(self.uuid, True)

    def _leave_mig_mode(self) -> None:
        mode = self.library.read_mig_mode(self.uuid)
        if mode is None or not mode.is_on:
            return
        if not can_switch(self.reading.architecture, self.policy):
            reason = find_restrictions(mode, self.reading.architecture, self.policy).no_whole
            raise HardwareBusyError(f"card {self.uuid} is not available whole now: {reason}")
        if there := self.survey().partitions:
            raise HardwareConflictError(f"in use outside of Kerf: {there[0]}")
        self.library.set_mig_mode(self.uuid, False)

    # Destruction

    def _destroy(self, instance: GpuInstanceReading) -> None:
        """Destroy ``instance`` with what is in it, and check that the card does not list it any more."""
        self._check_unused(instance)
        try:
            for compute_id, _ in instance.compute_instances:
                self._retry(
                    instance, partial(self.library.destroy_compute_instance, self.uuid, instance.id, compute_id)
                )
            self._retry(instance, partial(self._destroy_emptied, instance))
        except HardwareInUseError as error:
            raise HardwareHeldError(
                f"{self._describe_use(instance)}, {self._find_holders(instance)}: {error}"
            ) from error

    def _destroy_emptied(self, instance: GpuInstanceReading) -> None:
        """Destroy a GPU instance. Raises HardwareInUseError when the card still lists it (NVIDIA/go-nvml#146, H100)."""
        self.library.destroy_gpu_instance(self.uuid, instance.id)
        if self._is_there(instance):
            raise HardwareInUseError("nvmlGpuInstanceDestroy has succeeded, but the instance is still there")

    def _check_unused(self, instance: GpuInstanceReading) -> None:
        """Check that no process is listed on the instance. Raises HardwareHeldError."""
        processes = self.library.list_processes(self.uuid) or ()
        if pids := sorted({one.pid for one in processes if one.instance == instance.id}):
            use = self._describe_use(instance)
            raise HardwareHeldError(f"{use} by {self._name_processes(pids)}: it is released when they end")

    def _describe_use(self, instance: GpuInstanceReading) -> str:
        return f"GPU instance {instance.id} of card {self.uuid} is in use"

    def _name_processes(self, pids: Sequence[int]) -> str:
        return describe_processes({pid: self.system.read_process_name(pid) for pid in pids})

    def _find_holders(self, instance: GpuInstanceReading) -> str:
        """Say who holds an instance that no process computes on: a monitor such as DCGM (NVIDIA/DCGM#276)."""
        minor = self.library.read_minor(self.uuid)
        if pids := self.system.find_openers(self.system.list_capabilities(minor, instance.id)):
            return f"held open by {self._name_processes(pids)}"
        return "though no process is listed; a monitor such as DCGM may hold it"

    def _retry(self, instance: GpuInstanceReading, destroy: Callable[[], None]) -> None:
        """Destroy ``instance``, or a part of it, as long as it is there: its id may be another's at the next try."""
        for delay_s in (*_DESTROY_DELAYS_S, None):
            if not self._is_there(instance):
                return
            try:
                destroy()
            except HardwareInUseError:
                if delay_s is None:
                    raise
                _RETRIES.inc()
                self.wait(delay_s)
            else:
                return

    def _is_there(self, instance: GpuInstanceReading) -> bool:
        """Whether an instance that was read before is there still, maybe with fewer compute instances.

        Raises HardwareBusyError when that cannot be determined: it had no compute instance and has one now.
        """
        now = self._find_instance(instance.id, instance.profile_id)
        if now is None or now.placement != instance.placement:
            return False
        if not now.compute_instances or not set(now.compute_instances).isdisjoint(instance.compute_instances):
            return True
        if not instance.compute_instances:
            raise HardwareBusyError(f"GPU instance {instance.id} of card {self.uuid} changes while it is destroyed")
        return False  # another one has got its id

    def _find_instance(self, id_: int, profile_id: int | None = None) -> GpuInstanceReading | None:
        """Return the GPU instance of an id, where it is known of a profile; None: the card does not list it."""
        instances = self.library.list_gpu_instances(self.uuid, profile_id)
        return next((one for one in instances if one.id == id_), None)

    def find_partition(self, instance_id: int) -> Partition | None:
        """Return the partition that a GPU instance is; None: it is gone."""
        return self._to_partition(self._find_instance(instance_id))

    def find_partition_of(self, mig_uuid: str) -> Partition | None:
        """Return the partition whose MIG device has this UUID; None: there is none on this card."""
        instances = self.library.list_gpu_instances(self.uuid)
        return self._to_partition(next((one for one in instances if one.uuid == mig_uuid), None))

    def _to_partition(self, instance: GpuInstanceReading | None) -> Partition | None:
        if instance is None:
            return None
        return self.build_partition(self._profile_name(instance.profile_id), instance.placement)

    def build_partition(self, profile: str | None, placement: Placement | None) -> Partition | None:
        """Return the card's partition of this profile and placement; None: it has none."""
        specs = gpu_geometry(self.model).specs
        shape = (profile, placement)
        return next((one.of(self.uuid) for one in specs if (one.profile, one.placement) == shape), None)

    def _profile_name(self, profile_id: int) -> str:
        names = (one.name for one in self.model.profiles if one.gi_profile_id == profile_id)
        return next(names, f"profile-{profile_id}")


def _number(found: FoundPartition) -> int:
    return int(found.id.removeprefix(_ID))
