"""The queries and changes of NVML that the backend needs, with the structures of its bindings (nvidia-ml-py).

It returns values and raises Kerf's errors. Only it and ``nvml`` know the bindings. A function that is
new here has a row in ``nvml.return_codes`` if one of its error codes is an answer, and the stand-in for the library
models it (``driver/testing/nvml/source``; ``tests/fakes/nvml_functions.py`` names those that Kerf calls).
"""

import ctypes
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.families.gpu.model import Engines
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    HardwareBusyError,
    HardwareRefusedError,
    OutdatedProcessError,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.session import is_answer, read_text
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.usage_session import UsageSession
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import (
    CardReading,
    ComputeMode,
    ConditionReading,
    EventReading,
    GpuInstanceReading,
    MigMode,
    ProcessReading,
    ProfileReading,
)
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.partitions.slice_limits import MAX_COUNTERS

AnswerT = TypeVar("AnswerT")

_log = logging.getLogger(__name__)

_ARCHITECTURES: Final = {5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper", 10: "blackwell", 13: "rubin"}
"""NVML_DEVICE_ARCH_*, in the words of Kerf's table of models."""
_NO_INSTANCE: Final = 0xFFFFFFFF
"""The id of a GPU instance that NVML gives for what is outside of all."""
_MIB: Final = 2**20
_OLDEST_NAMED: Final = 2
"""The first version of the profile structure that has the profile's name (driver 470)."""
_MOST_INSTANCES: Final = 64
"""Rows for the instances of one profile: more than any card has, also where NVML does not say how many it may have."""
_MOST_CARDS: Final = 1024
"""Far above what a machine has: a library that counts more is not believed, or each of them would be asked for."""
_MOST_PLACEMENTS: Final = 256
"""Far above the twelve that a profile was seen to have; a larger count is not believed, and no memory taken for it."""
_MOST_UNITS: Final = MAX_COUNTERS - 7
"""The most memory slices of a card: each has a counter, as its memory, its multiprocessors and five kinds of engines
have. A card with more could not be published, nor any other beside it; twelve are the most that were seen."""
_LIST_TRIES: Final = 3
"""Times that instances are listed until none has gone while it was read: others make and remove one now and then."""


class EventSet(NamedTuple):
    """A set of NVML's events of some cards, valid until NVML is opened again."""

    generation: int
    """NVML's opening that it belongs to."""
    handle: Any
    cards: Mapping[str, int | None]
    """The address that NVML's handle of each card is, by UUID: a lost card does not say its UUID any more."""


class NvmlLibrary(UsageSession):
    """NVML of one driver installation. Cards are named by UUID; all methods may be called in several threads."""

    def __init__(self, driver_root: Path) -> None:
        """``driver_root`` has the driver's files: ``/``, or where a driver container has mounted them."""
        super().__init__(driver_root)
        self._handles: dict[str, Any] = {}
        self._listed = 0
        """The number of cards at the latest listing, and the indexes of those that did not answer."""
        self._silent: tuple[int, ...] = ()
        self._problems: dict[int, str] = {}
        """Why cards were left out at the latest listing, by index."""
        self._doubt: KerfError | None = None
        """Why a card could not be read at the latest listing, though nothing says that it is away."""
        self._profiles: dict[str, tuple[ProfileReading, ...]] = {}
        self._compute_profiles: dict[tuple[str, int], tuple[int, ...]] = {}
        """The ids of compute profiles, by the UUID of the card and the id of the GPU instances' profile."""
        self._mig_capable: set[str] = set()
        self._with_processes: set[str] = set()
        """The UUIDs of cards that have answered what some cards do not support: these always do."""

    def _shut_down(self) -> None:
        # New ones: what another thread has looked up before, it adds to the old ones, which are not read any more. What
        # cards support stays: a process keeps its library, and that takes no kernel driver of another version.
        self._handles = {}
        super()._shut_down()

    # Cards

    def list_cards(self) -> list[CardReading]:
        """Return the cards that answer, in NVML's order; one that is lost or fails otherwise is left out.

        Why is logged when it begins, and again only where it was different in between. Raises CardAbsentError when the
        driver went away, HardwareRefusedError when NVML counts more cards than a machine can have.
        """
        found: dict[str, CardReading] = {}
        silent: list[int] = []
        problems: dict[int, str] = {}
        doubt: KerfError | None = None
        count, handles = self._count_cards(), self._handles
        for index in range(count):
            try:
                handle = self._call("nvmlDeviceGetHandleByIndex", index)
                reading = self._read_card(handle)
            except KerfError as error:
                self._call("nvmlDeviceGetCount")  # fails, too, where it is not the card but the driver
                problems[index] = f"GPU {index} does not answer: {error}"
                silent.append(index)
                doubt = doubt if isinstance(error, CardAbsentError) else error
                continue
            if reading.uuid in found:
                problems[index] = f"GPU {index} is left out: NVML lists {reading.uuid} twice"
                doubt = doubt or HardwareBusyError(problems[index])  # it is some other card
                continue
            handles[reading.uuid] = handle
            found[reading.uuid] = reading
        self._listed, self._silent, self._doubt = count, tuple(silent), doubt
        self._report(problems)
        return [*found.values()]

    def _count_cards(self) -> int:
        count = int(self._call("nvmlDeviceGetCount"))
        if count > _MOST_CARDS:
            raise HardwareRefusedError(f"nvmlDeviceGetCount: NVML counts {count} GPUs, more than a machine can have")
        return count

    def _report(self, problems: dict[int, str]) -> None:
        """Log the problems of cards that were not those of the latest listing."""
        for index, problem in problems.items():
            if self._problems.get(index) != problem:
                _log.warning("%s", problem)
        self._problems = problems

    def check_listed(self, card_uuid: str) -> None:
        """Check that a card which the latest listing has left out is not there.

        Raises HardwareBusyError when it may be one that could not be read.
        """
        if self._doubt is not None:
            raise HardwareBusyError(f"card {card_uuid} may be one that cannot be read: {self._doubt}")

    def has_new_cards(self) -> bool:
        """Whether a card answers that the latest listing has left out, or that was not there.

        Raises OutdatedProcessError; while the driver is away there are none.
        """
        try:
            count = self._count_cards()
            return any(map(self._answers, (*self._silent, *range(self._listed, count))))
        except OutdatedProcessError:
            raise
        except KerfError:
            return False

    def _answers(self, index: int) -> bool:
        try:
            self._read_card(self._call("nvmlDeviceGetHandleByIndex", index))
        except OutdatedProcessError:
            raise
        except KerfError:
            return False
        return True

    def read_driver_version(self) -> str:
        """Return the version of the loaded driver."""
        return str(self._call("nvmlSystemGetDriverVersion"))

    def read_minor(self, card_uuid: str) -> int:
        """Return the number of the card's device node, which a reset may change."""
        return int(self._call("nvmlDeviceGetMinorNumber", self._handle(card_uuid)))

    def read_profiles(self, card_uuid: str) -> tuple[ProfileReading, ...]:
        """Return the GPU-instance profiles that the card has; none: it is not capable of MIG.

        One that the card has had before stays: NVML may report none while MIG mode is off. Raises HardwareBusyError
        when it reports none of a card whose MIG mode is on.
        """
        handle = self._handle(card_uuid)
        enums = range(self._bindings().NVML_GPU_INSTANCE_PROFILE_COUNT)
        known = {profile.enum: profile for profile in self._profiles.get(card_uuid, ())}
        for enum, found in _ask_twice(partial(self._read_profile, handle), enums).items():
            if found.placements or enum not in known:
                known[enum] = found
        if not known and (modes := self._call("nvmlDeviceGetMigMode", handle)) is not None and modes[0]:
            raise HardwareBusyError(f"NVML reports no profile of card {card_uuid}, whose MIG mode is on")
        self._profiles[card_uuid] = profiles = tuple(known[enum] for enum in sorted(known))
        return profiles

    def read_mig_mode(self, card_uuid: str) -> MigMode | None:
        """Return the MIG mode; None: the card is not capable of it.

        Raises HardwareBusyError when NVML says so of a card that has had a mode before, or that has profiles.
        """
        modes = self._call("nvmlDeviceGetMigMode", self._handle(card_uuid))
        if modes is not None:
            self._mig_capable.add(card_uuid)
            return MigMode(is_on=bool(modes[0]), is_on_later=bool(modes[1]))
        profiles = self._profiles.get(card_uuid)
        if card_uuid in self._mig_capable or (self.read_profiles(card_uuid) if profiles is None else profiles):
            raise HardwareBusyError(f"NVML says that card {card_uuid} has no MIG mode, but the card is capable of MIG")
        return None

    def set_mig_mode(self, card_uuid: str, is_on: bool) -> None:
        """Switch MIG mode, now or not at all: what would be pending until a reset is taken back.

        Raises HardwareBusyError while the card is used, HardwareRefusedError when it takes a reset or a boot.
        """
        name, handle, nvml = "nvmlDeviceSetMigMode", self._handle(card_uuid), self._bindings()
        activation = self._call(name, handle, int(is_on))
        if activation != nvml.NVML_SUCCESS:  # the call succeeds also where the mode is pending only
            self._call(name, handle, int(not is_on))
            raise self._to_error(nvml, name, nvml.NVMLError(activation), self.generation)

    def read_compute_mode(self, card_uuid: str) -> ComputeMode:
        """Return which processes may use the card. Raises HardwareRefusedError for a mode that Kerf does not know."""
        mode = self._call("nvmlDeviceGetComputeMode", self._handle(card_uuid))
        try:
            return ComputeMode(mode)
        except ValueError:
            raise HardwareRefusedError(f"nvmlDeviceGetComputeMode: {mode} is no mode that Kerf knows") from None

    def set_compute_mode(self, card_uuid: str, mode: ComputeMode) -> None:
        """Set which processes may use the card from now on; a boot ends it."""
        self._call("nvmlDeviceSetComputeMode", self._handle(card_uuid), int(mode))

    # Processes

    def list_processes(self, card_uuid: str) -> list[ProcessReading] | None:
        """Return the processes that use the card or its instances, by number; None: the driver does not report them.

        Raises HardwareBusyError when it does not report those of a card of which it has before.
        """
        handle = self._handle(card_uuid)
        computing = self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle)
        if computing is None:
            if card_uuid in self._with_processes:
                raise HardwareBusyError(
                    f"NVML does not list the processes of card {card_uuid} now, though it has before"
                )
            return None
        self._with_processes.add(card_uuid)
        drawing = self._call("nvmlDeviceGetGraphicsRunningProcesses_v3", handle) or []
        found = {(process.pid, _to_instance(process.gpuInstanceId)) for process in (*computing, *drawing)}
        readings = [ProcessReading(pid=pid, instance=instance) for pid, instance in found]
        return sorted(readings, key=lambda one: (one.pid, one.instance or 0))

    # Health

    def read_condition(self, card_uuid: str) -> ConditionReading:
        """Return what the card says of its own health; what a driver does not report counts as healthy.

        Raises CardAbsentError when the card does not answer.
        """
        try:
            return self._read_condition(self._handle(card_uuid))
        except CardAbsentError:  # it may be back with another handle
            self._handles.pop(card_uuid, None)
            raise

    def _read_condition(self, handle: Any) -> ConditionReading:  # noqa: ANN401
        nvml = self._bindings()
        rows = self._call("nvmlDeviceGetRemappedRows", handle)
        reasons = self._call("nvmlDeviceGetCurrentClocksEventReasons", handle)
        fields = [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        values = self._call("nvmlDeviceGetFieldValues", handle, fields)
        is_reported = values is not None and values[0].nvmlReturn == nvml.NVML_SUCCESS
        return ConditionReading(
            has_pending_rows=rows is not None and bool(rows[2]),
            has_failed_rows=rows is not None and bool(rows[3]),
            recovery_action=int(values[0].value.uiVal) if is_reported else None,
            is_too_hot=bool((reasons or 0) & nvml.nvmlClocksEventReasonHwThermalSlowdown),
        )

    def create_event_set(self, card_uuids: Collection[str]) -> EventSet:
        """Make a set of the events of these cards: Xids, changes of instances and of the recovery action.

        A card that does not report events is in it all the same. Raises CardAbsentError when one does not answer.
        """
        nvml, generation = self._bindings(), self.generation
        wanted = (
            nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventMigConfigChange | nvml.nvmlEventTypeGpuRecoveryAction
        )
        events = EventSet(generation, self._call("nvmlEventSetCreate"), cards := {})
        try:
            for card_uuid in card_uuids:
                handle = self._handle(card_uuid)
                supported = self._call("nvmlDeviceGetSupportedEventTypes", handle) or 0
                if supported & wanted:
                    arguments = (handle, supported & wanted, events.handle)
                    self._call("nvmlDeviceRegisterEvents", *arguments)
                cards[card_uuid] = ctypes.cast(handle, ctypes.c_void_p).value
        except KerfError:
            self.free_event_set(events)
            raise
        return events

    def wait_for_event(self, events: EventSet, timeout_s: float) -> EventReading | None:
        """Wait for an event of the set; None: there was none in time.

        Raises CardAbsentError when a card of the set is lost, or the set is no longer valid. Opens nothing again.
        """
        name, nvml = "nvmlEventSetWait_v2", self._nvml
        if nvml is None or events.generation != self.generation:
            raise CardAbsentError("NVML was closed")
        try:
            data = nvml.nvmlEventSetWait_v2(events.handle, round(timeout_s * 1000))
        except nvml.NVMLError as error:
            if is_answer(nvml, name, error):
                return None
            raise self._to_error(nvml, name, error, events.generation) from error
        address = ctypes.cast(data.device, ctypes.c_void_p).value
        return EventReading(
            card_uuid=next((card_uuid for card_uuid, known in events.cards.items() if known == address), None),
            xid=data.eventData if data.eventType == nvml.nvmlEventTypeXidCriticalError else None,
            instance=_to_instance(data.gpuInstanceId),
        )

    def free_event_set(self, events: EventSet) -> None:
        """Give up a set; one that is no longer valid went with NVML."""
        nvml = self._nvml
        if nvml is not None and events.generation == self.generation:
            with suppress(nvml.NVMLError):
                nvml.nvmlEventSetFree(events.handle)

    # Instances

    def list_gpu_instances(self, card_uuid: str, profile_id: int | None = None) -> list[GpuInstanceReading]:
        """Return the GPU instances of the card, whatever made them, by id: all, or those of one profile.

        What it does not have is not on the card: every call for it has succeeded. Raises HardwareBusyError when
        instances go while they are read, at each of some tries, and when NVML contradicts itself.
        """
        mode = self.read_mig_mode(card_uuid)
        if mode is None and profile_id is not None:
            raise HardwareBusyError(f"NVML says that card {card_uuid} has no MIG mode, but it has had a GPU instance")
        if mode is None or not mode.is_on:
            return []
        for _ in range(_LIST_TRIES):
            found = self._read_gpu_instances(card_uuid, profile_id)
            if found is not None:
                return sorted(found, key=lambda instance: instance.id)
        raise HardwareBusyError(f"the GPU instances of card {card_uuid} cannot be read: NVML lists some that it denies")

    def create_gpu_instance(self, card_uuid: str, profile_id: int, placement: Placement) -> int | None:
        """Create a GPU instance at exactly this placement and return its id; None: something there is in use."""
        place = self._bindings().c_nvmlGpuInstancePlacement_t(start=placement.start, size=placement.size)
        instance = self._call(
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            self._handle(card_uuid),
            profile_id,
            ctypes.byref(place),
        )
        if instance is None:
            return None
        if (info := self._call("nvmlGpuInstanceGetInfo", instance)) is None:
            raise HardwareBusyError(f"the GPU instance that was made on card {card_uuid} was destroyed meanwhile")
        return int(info.id)

    def create_compute_instance(self, card_uuid: str, instance_id: int) -> None:
        """Create the compute instance that fills a GPU instance.

        Raises HardwareBusyError when that is gone.
        """
        instance = self._instance(card_uuid, instance_id)
        # Its id is not always 0: 1g with double memory was seen to have one of its own.
        profiles = self._read_compute_profiles(instance)
        largest = max(profiles, key=lambda profile: (profile.sliceCount, profile.multiprocessorCount))
        self._call("nvmlGpuInstanceCreateComputeInstance", instance, largest.id)

    def destroy_compute_instance(self, card_uuid: str, instance_id: int, compute_id: int) -> None:
        """Destroy a compute instance that was there.

        Raises HardwareInUseError while it is used, HardwareBusyError when it is gone.
        """
        instance = self._instance(card_uuid, instance_id)
        compute = self._call("nvmlGpuInstanceGetComputeInstanceById", instance, compute_id)
        self._call("nvmlComputeInstanceDestroy", compute)

    def destroy_gpu_instance(self, card_uuid: str, instance_id: int) -> None:
        """Destroy a GPU instance that was there. That NVML says so does not mean that it is gone (NVIDIA/go-nvml#146).

        Raises HardwareInUseError while it is used, HardwareBusyError when it is gone.
        """
        self._call("nvmlGpuInstanceDestroy", self._instance(card_uuid, instance_id))

    # Reading

    def _read_card(self, handle: Any) -> CardReading:  # noqa: ANN401  (NVML's handles are opaque)
        pci = self._call("nvmlDeviceGetPciInfo", handle)
        major, minor = self._call("nvmlDeviceGetCudaComputeCapability", handle)
        architecture = self._call("nvmlDeviceGetArchitecture", handle)
        cuda = self._call("nvmlSystemGetCudaDriverVersion")
        memory = self._call("nvmlDeviceGetMemoryInfo", handle)
        if not (uuid := self._call("nvmlDeviceGetUUID", handle)):
            raise HardwareRefusedError("nvmlDeviceGetUUID: the answer is empty")
        return CardReading(
            uuid=uuid,
            product=self._call("nvmlDeviceGetName", handle),
            minor=self._call("nvmlDeviceGetMinorNumber", handle),
            pci_address=f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
            pci_device_id=f"{pci.pciDeviceId >> 16:04x}",
            memory_bytes=0 if memory is None else memory.total,
            architecture=_ARCHITECTURES.get(architecture, "unknown"),
            cuda_compute_capability=f"{major}.{minor}",
            driver_version=self._call("nvmlSystemGetDriverVersion"),
            cuda_driver_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def _read_profile(self, handle: Any, enum: int) -> ProfileReading | None:  # noqa: ANN401
        name = "nvmlDeviceGetGpuInstanceProfileInfo"
        info, version = None, 0
        for version in (_OLDEST_NAMED, 1):
            info = self._call(name, handle, enum, version)
            if info is not None:
                break
        if info is None:
            return None
        return ProfileReading(
            enum=enum,
            id=info.id,
            name=read_text(info, "name").removeprefix("MIG ") if version >= _OLDEST_NAMED else "",
            compute_slices=info.sliceCount,
            memory_bytes=info.memorySizeMB * _MIB,
            multiprocessors=info.multiprocessorCount,
            engines=Engines(
                copy=info.copyEngineCount,
                decoders=info.decoderCount,
                encoders=info.encoderCount,
                jpeg=info.jpegCount,
                ofa=info.ofaCount,
            ),
            max_instances=info.instanceCount,
            placements=tuple(sorted(self._read_placements(handle, info.id))),
        )

    def _read_placements(self, handle: Any, profile_id: int) -> Iterator[Placement]:  # noqa: ANN401
        name, count = "nvmlDeviceGetGpuInstancePossiblePlacements", ctypes.c_uint(0)
        asked = (self._call(name, handle, profile_id, None, ctypes.byref(count)) for _ in range(2))  # as _ask_twice
        if all(answer is None for answer in asked):
            return
        if count.value > _MOST_PLACEMENTS:
            raise HardwareRefusedError(f"{name}: NVML counts {count.value} placements of profile {profile_id}")
        rows = (self._bindings().c_nvmlGpuInstancePlacement_t * count.value)()
        if self._call(name, handle, profile_id, rows, ctypes.byref(count)) is None:
            raise HardwareBusyError(f"NVML counts {count.value} placements of profile {profile_id}, and lists none")
        for row in _take(name, rows, count.value):
            if not row.size or row.start + row.size > _MOST_UNITS:
                place = f"{row.size} memory slices at {row.start}"
                raise HardwareRefusedError(f"{name}: NVML places profile {profile_id} on {place}")
            yield Placement(row.start, row.size)

    def _read_gpu_instances(self, card_uuid: str, profile_id: int | None) -> list[GpuInstanceReading] | None:
        """Return the GPU instances of all profiles, or of one; None: one has gone while it was read."""
        handle = self._handle(card_uuid)
        profiles = {one.id: one for one in self._profiles.get(card_uuid) or self.read_profiles(card_uuid)}
        found: list[GpuInstanceReading] = []
        for id_ in profiles if profile_id is None else (profile_id,):
            profile = profiles.get(id_)
            for instance in self._instances(handle, id_):
                reading = self._read_gpu_instance(card_uuid, instance, profile)
                if reading is None:
                    return None
                found.append(reading)
        return found

    def _instances(self, handle: Any, profile_id: int) -> list[Any]:  # noqa: ANN401
        name, count = "nvmlDeviceGetGpuInstances", ctypes.c_uint(0)
        rows = (self._bindings().c_nvmlGpuInstance_t * _MOST_INSTANCES)()
        self._call(name, handle, profile_id, rows, ctypes.byref(count))
        return _take(name, rows, count.value)

    def _read_gpu_instance(
        self,
        card_uuid: str,
        instance: Any,  # noqa: ANN401
        profile: ProfileReading | None,
    ) -> GpuInstanceReading | None:
        """Return what the instance is; None: it has gone, or a compute instance of it."""
        if (info := self._call("nvmlGpuInstanceGetInfo", instance)) is None:
            return None
        computes = self._read_compute_instances(instance, (card_uuid, int(info.profileId)))
        if computes is None:
            return None
        return GpuInstanceReading(
            id=info.id,
            profile_id=info.profileId,
            placement=Placement(info.placement.start, info.placement.size),
            compute_instances=tuple((id_, uuid) for id_, uuid, _ in computes),
            is_filled=profile is not None and [slices for _, _, slices in computes] == [profile.compute_slices],
        )

    def _read_compute_profiles(self, instance: Any) -> list[Any]:  # noqa: ANN401
        """Return the compute-instance profiles of a GPU instance. Raises HardwareBusyError when NVML reports none."""
        enums = range(self._bindings().NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
        found = _ask_twice(partial(self._read_compute_profile, instance), enums)
        if not found:
            raise HardwareBusyError("NVML reports no compute profile of a GPU instance")
        return [*found.values()]

    def _read_compute_profile(self, instance: Any, enum: int) -> Any:  # noqa: ANN401
        """Return a compute-instance profile, from an old driver in the oldest form; None: there is none."""
        name = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
        info = self._call(name, instance, enum, 0)
        return self._call(name, instance, enum, 0, 1) if info is None else info

    def _read_compute_instances(
        self,
        instance: Any,  # noqa: ANN401
        kind: tuple[str, int],
    ) -> list[tuple[int, str, int]] | None:
        """Return the id, the UUID and the compute slices of each, by id; None: one has gone while it was read.

        Where there is none of the profiles that are known of this kind, one may have been missed: they are read again.
        """
        found = self._list_compute_instances(instance, self._compute_profiles.get(kind, ()))
        if found == []:
            self._compute_profiles[kind] = ids = tuple(one.id for one in self._read_compute_profiles(instance))
            found = self._list_compute_instances(instance, ids)
        return found

    def _list_compute_instances(
        self,
        instance: Any,  # noqa: ANN401
        profile_ids: Iterable[int],
    ) -> list[tuple[int, str, int]] | None:
        name, count = "nvmlGpuInstanceGetComputeInstances", ctypes.c_uint(0)
        rows = (self._bindings().c_nvmlComputeInstance_t * _MOST_INSTANCES)()
        found: list[tuple[int, str, int]] = []
        for id_ in profile_ids:
            self._call(name, instance, id_, rows, ctypes.byref(count))
            for compute in _take(name, rows, count.value):
                if (info := self._call("nvmlComputeInstanceGetInfo", compute)) is None:
                    return None
                found.append((info.id, self._call("nvmlDeviceGetUUID", info.device), info.placement.size))
        return sorted(found)

    # Handles and calls

    def _handle(self, card_uuid: str) -> Any:  # noqa: ANN401
        """Return a card's handle, asked for once: a look-up was seen to take ten seconds (dra-driver-nvidia-gpu)."""
        handles = self._handles
        handle = handles.get(card_uuid)
        if handle is None:
            handle = self._call("nvmlDeviceGetHandleByUUID", card_uuid.encode())
            if handle is None:
                raise CardAbsentError(f"card {card_uuid} is not there: NVML does not know its UUID")
            handles[card_uuid] = handle
        return handle

    def _instance(self, card_uuid: str, instance_id: int) -> Any:  # noqa: ANN401
        """Return the handle of a GPU instance. Raises HardwareBusyError when it is gone."""
        return self._call("nvmlDeviceGetGpuInstanceById", self._handle(card_uuid), instance_id)


def _ask_twice(ask: Callable[[int], AnswerT | None], numbers: Iterable[int]) -> dict[int, AnswerT]:
    """Return the answers by number; what is said to be unsupported is asked about again, after all others.

    So calls that fail a few times in a row hide no profile, and with it no instance.
    """
    found: dict[int, AnswerT] = {}
    for _ in range(2):
        for number in numbers:
            if number not in found and (answer := ask(number)) is not None:
                found[number] = answer
    return found


def _take(name: str, rows: Any, count: int) -> list[Any]:  # noqa: ANN401  (an array of the bindings)
    """Return the first ``count`` rows. Raises HardwareBusyError when NVML says that it has filled more than there are.

    What it did not say of the rest must not count as absent.
    """
    if count > len(rows):
        raise HardwareBusyError(f"{name}: NVML lists {count} where it had {len(rows)} rows")
    return list(rows[:count])


def _to_instance(id_: int | None) -> int | None:
    """Return the id of a GPU instance; None: what is outside of all."""
    return None if id_ in (None, _NO_INSTANCE) else id_
