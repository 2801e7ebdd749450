"""NVML through nvidia-ml-py: the only module that knows the bindings. It returns values and raises Kerf's errors."""

import ctypes
import logging
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from kerf_dra.api.errors import KerfError, PermanentError, TransientError
from kerf_dra.driver.families.gpu.model import Engines
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    HardwareBusyError,
    HardwareInUseError,
    HardwareRefusedError,
    OutdatedProcessError,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileIdentity, identify_file
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

_log = logging.getLogger(__name__)

SONAME: Final = "libnvidia-ml.so.1"
_FOLDERS: Final = (
    *("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib"),
    *("lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib"),
)
"""Where distributions and NVIDIA's driver container have the library, below the driver's root."""
_ARCHITECTURES: Final = {5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper", 10: "blackwell", 13: "rubin"}
"""NVML_DEVICE_ARCH_*, in the words of Kerf's table of models."""
_NO_INSTANCE: Final = 0xFFFFFFFF
"""The id of a GPU instance that NVML gives for what is outside of all."""
_MIB: Final = 2**20
_COMPUTE_INSTANCES: Final = 8
"""Ids of compute instances in one GPU instance: 0 to 7."""
_OLDEST_NAMED: Final = 2
"""The first version of the profile structure that has the profile's name (driver 470)."""
_OTHER_VERSION: Final = "LIB_RM_VERSION_MISMATCH"
"""The kernel driver that is loaded now is not of the library's version."""
_CARD_IS_AWAY: Final = frozenset({"GPU_IS_LOST", "NOT_FOUND", "DRIVER_NOT_LOADED", "UNINITIALIZED", _OTHER_VERSION})
_REFUSED: Final = frozenset({"INVALID_ARGUMENT", "NOT_SUPPORTED", "NO_PERMISSION", "FUNCTION_NOT_FOUND"})
_REOPENED: Final = frozenset({"DRIVER_NOT_LOADED", "UNINITIALIZED", _OTHER_VERSION})
"""Errors after which NVML has to be opened anew: the kernel driver was loaded again."""
_UNREPORTED: Final = frozenset({"NOT_SUPPORTED", "INVALID_ARGUMENT", "FUNCTION_NOT_FOUND"})
"""Answers to a question about a profile that this card or this driver does not have."""
_GONE: Final = frozenset({"NOT_FOUND", "INVALID_ARGUMENT"})
"""Answers to a question about an instance that is not there (any more): its handle is no argument then."""


class NvmlUnavailableError(TransientError):
    """NVML cannot be opened now: its library is not there, or the kernel driver is not loaded or of another version."""


class NvmlBindingsMissingError(PermanentError):
    """The Python package nvidia-ml-py is not installed."""


class EventSet(NamedTuple):
    """A set of NVML's events of some cards, valid until NVML is opened anew."""

    generation: int
    """NVML's opening that it belongs to."""
    handle: Any
    cards: Mapping[str, int | None]
    """The address that NVML's handle of each card is, by UUID: a lost card does not say its UUID any more."""


class NvmlLibrary:
    """NVML of one driver installation. Cards are named by UUID; all methods may be called in several threads."""

    def __init__(self, driver_root: Path) -> None:
        """``driver_root`` has the driver's files: ``/``, or where a driver container has mounted them."""
        self._root = driver_root
        self._nvml: Any = None
        self._is_wanted = False
        self._lock = threading.Lock()
        self._loaded: ctypes.CDLL | None = None
        self._file: FileIdentity | None = None
        """The library's file when it was loaded: a process never loads another one, whatever is there later."""
        self._driver_version = ""
        self._handles: dict[str, Any] = {}
        self._listed = 0
        """The number of cards at the latest listing, and the indexes of those that did not answer."""
        self._silent: tuple[int, ...] = ()
        self.generation = 0
        """How often NVML was opened: another number than before means that the driver was loaded anew."""
        self._profiles: dict[str, tuple[ProfileReading, ...]] = {}

    def open(self) -> None:
        """Load and initialize NVML.

        Raises NvmlBindingsMissingError, NvmlUnavailableError, and OutdatedProcessError when the driver was replaced by
        another version since the library was loaded.
        """
        with self._lock:
            self._is_wanted = True
            if self._nvml is None:
                self._nvml = self._initialize()

    def close(self) -> None:
        """End the use of NVML; calls that run get an error. May be called twice."""
        with self._lock:
            self._is_wanted = False
            self._shut_down()

    @property
    def driver_release(self) -> int:
        """The release of the driver that is open, 580 of 580.95.05; 0: it has none that can be read."""
        release = self._driver_version.partition(".")[0]
        return int(release) if release.isdecimal() else 0

    # Cards

    def list_cards(self) -> list[CardReading]:
        """Return the cards that answer, in NVML's order; one that is lost or fails otherwise is left out.

        Raises CardAbsentError when the driver went away.
        """
        found: list[CardReading] = []
        silent: list[int] = []
        count, handles = self._call("nvmlDeviceGetCount"), self._handles
        for index in range(count):
            try:
                handle = self._call("nvmlDeviceGetHandleByIndex", index)
                reading = self._read_card(handle)
            except KerfError as error:
                self._call("nvmlDeviceGetCount")  # fails, too, where it is not the card but the driver
                _log.warning("GPU %d does not answer: %s", index, error)
                silent.append(index)
                continue
            handles[reading.uuid] = handle
            found.append(reading)
        self._listed, self._silent = count, tuple(silent)
        return found

    def has_new_cards(self) -> bool:
        """Whether a card answers that the latest listing has left out, or that was not there.

        Raises OutdatedProcessError; while the driver is away there are none.
        """
        try:
            count = self._call("nvmlDeviceGetCount")
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
        """Return the GPU-instance profiles that the card has; none: it is not capable of MIG."""
        handle, profiles = self._handle(card_uuid), self._profiles
        enums = range(self._bindings().NVML_GPU_INSTANCE_PROFILE_COUNT)
        found = tuple(profile for enum in enums if (profile := self._read_profile(handle, enum)) is not None)
        profiles[card_uuid] = found
        return found

    def read_mig_mode(self, card_uuid: str) -> MigMode | None:
        """Return the MIG mode; None: the card is not capable of it."""
        modes = self._call("nvmlDeviceGetMigMode", self._handle(card_uuid), none_for=_UNREPORTED)
        return None if modes is None else MigMode(is_on=bool(modes[0]), is_on_later=bool(modes[1]))

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
        """Return which processes may use the card."""
        return ComputeMode(self._call("nvmlDeviceGetComputeMode", self._handle(card_uuid)))

    def set_compute_mode(self, card_uuid: str, mode: ComputeMode) -> None:
        """Set which processes may use the card from now on; a boot ends it."""
        self._call("nvmlDeviceSetComputeMode", self._handle(card_uuid), int(mode))

    # Processes

    def list_processes(self, card_uuid: str) -> list[ProcessReading] | None:
        """Return the processes that use the card or its instances, by number; None: the driver does not tell."""
        handle, untold = self._handle(card_uuid), _UNREPORTED | {"NO_PERMISSION"}
        computing = self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle, none_for=untold)
        if computing is None:
            return None
        drawing = self._call("nvmlDeviceGetGraphicsRunningProcesses_v3", handle, none_for=untold) or []
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
        rows = self._call("nvmlDeviceGetRemappedRows", handle, none_for=_UNREPORTED)
        reasons = self._call("nvmlDeviceGetCurrentClocksEventReasons", handle, none_for=_UNREPORTED)
        fields = [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        values = self._call("nvmlDeviceGetFieldValues", handle, fields, none_for=_UNREPORTED)
        is_told = values is not None and values[0].nvmlReturn == nvml.NVML_SUCCESS
        return ConditionReading(
            has_pending_rows=rows is not None and bool(rows[2]),
            has_failed_rows=rows is not None and bool(rows[3]),
            recovery_action=int(values[0].value.uiVal) if is_told else None,
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
                supported = self._call("nvmlDeviceGetSupportedEventTypes", handle, none_for=_UNREPORTED) or 0
                if supported & wanted:
                    arguments = (handle, supported & wanted, events.handle)
                    self._call("nvmlDeviceRegisterEvents", *arguments, none_for=_UNREPORTED)
                cards[card_uuid] = ctypes.cast(handle, ctypes.c_void_p).value
        except KerfError:
            self.free_event_set(events)
            raise
        return events

    def wait_for_event(self, events: EventSet, timeout_s: float) -> EventReading | None:
        """Wait for an event of the set; None: there was none in time.

        Raises CardAbsentError when a card of the set is lost, or the set is no longer valid. Opens nothing anew.
        """
        name, nvml = "nvmlEventSetWait_v2", self._nvml
        if nvml is None or events.generation != self.generation:
            raise CardAbsentError("NVML was closed")
        try:
            data = nvml.nvmlEventSetWait_v2(events.handle, round(timeout_s * 1000))
        except nvml.NVMLError as error:
            if _is_one_of(nvml, error, {"TIMEOUT"}):
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

    def list_gpu_instances(self, card_uuid: str) -> list[GpuInstanceReading]:
        """Return all GPU instances of the card, whoever made them, by id; one that goes meanwhile is left out."""
        handle = self._handle(card_uuid)
        if (mode := self.read_mig_mode(card_uuid)) is None or not mode.is_on:
            return []
        profiles = self._profiles.get(card_uuid) or self.read_profiles(card_uuid)
        held = ((one, profile) for profile in profiles for one in self._instances(handle, profile))
        found = filter(None, (self._read_gpu_instance(*one) for one in held))
        return sorted(found, key=lambda instance: instance.id)

    def create_gpu_instance(self, card_uuid: str, profile_id: int, placement: Placement) -> int | None:
        """Create a GPU instance at exactly this placement and return its id; None: something there is in use."""
        place = self._bindings().c_nvmlGpuInstancePlacement_t(start=placement.start, size=placement.size)
        instance = self._call(
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            self._handle(card_uuid),
            profile_id,
            ctypes.byref(place),
            none_for={"INSUFFICIENT_RESOURCES"},
        )
        return None if instance is None else int(self._call("nvmlGpuInstanceGetInfo", instance).id)

    def create_compute_instance(self, card_uuid: str, instance_id: int) -> None:
        """Create the compute instance that fills a GPU instance.

        Raises HardwareBusyError when that is gone, HardwareRefusedError when there is no profile that fills it.
        """
        instance = self._instance(card_uuid, instance_id)
        if instance is None:
            raise HardwareBusyError(f"GPU instance {instance_id} of card {card_uuid} was destroyed meanwhile")
        name = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
        profiles = [
            profile
            for enum in range(self._bindings().NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
            if (profile := self._call(name, instance, enum, 0, none_for=_UNREPORTED)) is not None
        ]
        if not profiles:
            raise HardwareRefusedError(f"GPU instance {instance_id} of card {card_uuid} has no compute profiles")
        # Its id is not always 0: 1g with double memory was seen to have one of its own.
        largest = max(profiles, key=lambda profile: (profile.sliceCount, profile.multiprocessorCount))
        self._call("nvmlGpuInstanceCreateComputeInstance", instance, largest.id)

    def destroy_compute_instance(self, card_uuid: str, instance_id: int, compute_id: int) -> None:
        """Destroy a compute instance; one that is gone is success. Raises HardwareInUseError while it is used."""
        instance = self._instance(card_uuid, instance_id)
        if instance is None:
            return
        name = "nvmlGpuInstanceGetComputeInstanceById"
        compute = self._call(name, instance, compute_id, none_for={"NOT_FOUND"})
        if compute is not None:
            self._call("nvmlComputeInstanceDestroy", compute, none_for={"NOT_FOUND"})

    def destroy_gpu_instance(self, card_uuid: str, instance_id: int) -> None:
        """Destroy a GPU instance; one that is gone is success.

        Raises HardwareInUseError while it is used, or is still there although NVML has said that it was destroyed.
        """
        instance = self._instance(card_uuid, instance_id)
        if instance is None:
            return
        self._call("nvmlGpuInstanceDestroy", instance, none_for={"NOT_FOUND"})
        if self._instance(card_uuid, instance_id) is not None:  # seen on H100 (NVIDIA/go-nvml#146)
            raise HardwareInUseError("nvmlGpuInstanceDestroy has succeeded, but the instance is still there")

    # Reading

    def _read_card(self, handle: Any) -> CardReading:  # noqa: ANN401  (NVML's handles are opaque)
        pci = self._call("nvmlDeviceGetPciInfo", handle)
        major, minor = self._call("nvmlDeviceGetCudaComputeCapability", handle)
        architecture = self._call("nvmlDeviceGetArchitecture", handle)
        cuda = self._call("nvmlSystemGetCudaDriverVersion")
        memory = self._call("nvmlDeviceGetMemoryInfo", handle, none_for=_UNREPORTED)
        return CardReading(
            uuid=self._call("nvmlDeviceGetUUID", handle),
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
            info = self._call(name, handle, enum, version, none_for=_UNREPORTED)
            if info is not None:
                break
        if info is None:
            return None
        return ProfileReading(
            enum=enum,
            id=info.id,
            name=_decode(info.name).removeprefix("MIG ") if version >= _OLDEST_NAMED else "",
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
        if self._call(name, handle, profile_id, None, ctypes.byref(count), none_for=_UNREPORTED) is None:
            return
        rows = (self._bindings().c_nvmlGpuInstancePlacement_t * count.value)()
        self._call(name, handle, profile_id, rows, ctypes.byref(count))
        yield from (Placement(row.start, row.size) for row in rows[: count.value])

    def _instances(self, handle: Any, profile: ProfileReading) -> list[Any]:  # noqa: ANN401
        count = ctypes.c_uint(0)
        rows = (self._bindings().c_nvmlGpuInstance_t * profile.max_instances)()
        name = "nvmlDeviceGetGpuInstances"
        if self._call(name, handle, profile.id, rows, ctypes.byref(count), none_for=_UNREPORTED) is None:
            return []
        return list(rows[: count.value])

    def _read_gpu_instance(self, instance: Any, profile: ProfileReading) -> GpuInstanceReading | None:  # noqa: ANN401
        """Return what the instance is; None: it is gone."""
        if (info := self._call("nvmlGpuInstanceGetInfo", instance, none_for=_GONE)) is None:
            return None
        computes = list(self._read_compute_instances(instance))
        return GpuInstanceReading(
            id=info.id,
            profile_id=info.profileId,
            placement=Placement(info.placement.start, info.placement.size),
            compute_instances=tuple((id_, uuid) for id_, uuid, _ in computes),
            is_filled=[slices for _, _, slices in computes] == [profile.compute_slices],
        )

    def _read_compute_instances(self, instance: Any) -> Iterator[tuple[int, str, int]]:  # noqa: ANN401
        """Yield the id, the UUID and the compute slices of each."""
        name = "nvmlGpuInstanceGetComputeInstanceById"
        for id_ in range(_COMPUTE_INSTANCES):
            compute = self._call(name, instance, id_, none_for=_GONE)
            info = None if compute is None else self._call("nvmlComputeInstanceGetInfo", compute, none_for=_GONE)
            mig_uuid = None if info is None else self._call("nvmlDeviceGetUUID", info.device, none_for=_GONE)
            if info is not None and mig_uuid is not None:
                yield id_, mig_uuid, info.placement.size

    # Handles and calls

    def _handle(self, card_uuid: str) -> Any:  # noqa: ANN401
        """Return a card's handle, asked for once: a look-up was seen to take ten seconds (dra-driver-nvidia-gpu)."""
        handles = self._handles
        handle = handles.get(card_uuid)
        if handle is None:
            try:
                handle = handles[card_uuid] = self._call("nvmlDeviceGetHandleByUUID", card_uuid.encode())
            except (CardAbsentError, HardwareRefusedError) as error:
                raise CardAbsentError(f"card {card_uuid} is not there: {error}") from error
        return handle

    def _instance(self, card_uuid: str, instance_id: int) -> Any:  # noqa: ANN401
        """Return the handle of a GPU instance; None: it is gone."""
        name = "nvmlDeviceGetGpuInstanceById"
        return self._call(name, self._handle(card_uuid), instance_id, none_for={"NOT_FOUND", "NOT_SUPPORTED"})

    def _call(self, name: str, *arguments: Any, none_for: Collection[str] = ()) -> Any:  # noqa: ANN401
        """Call a function of the bindings; None for the errors that are an answer."""
        nvml, generation = self._bindings(), self.generation
        try:
            return getattr(nvml, name)(*arguments)
        except nvml.NVMLError as error:
            if _is_one_of(nvml, error, none_for):
                return None
            raise self._to_error(nvml, name, error, generation) from error
        except UnicodeDecodeError as error:
            raise HardwareRefusedError(f"{name}: the answer is not text: {error}") from error

    def _to_error(self, nvml: Any, name: str, error: Any, generation: int) -> KerfError:  # noqa: ANN401
        """Return Kerf's error for one of NVML's opening ``generation``, which it may end."""
        message = f"{name}: {error}"
        if _is_one_of(nvml, error, _CARD_IS_AWAY):
            if _is_one_of(nvml, error, _REOPENED):
                with self._lock:
                    if generation == self.generation:  # else another thread has opened it anew: its event sets stay
                        self._shut_down()
            return CardAbsentError(message)
        if _is_one_of(nvml, error, {"RESET_REQUIRED"}):
            return HardwareRefusedError(f"{message}: the card has to be reset, or the machine booted")
        if _is_one_of(nvml, error, {"IN_USE"}):
            return HardwareInUseError(message)
        return HardwareRefusedError(message) if _is_one_of(nvml, error, _REFUSED) else HardwareBusyError(message)

    def _initialize(self) -> Any:  # noqa: ANN401  (the bindings have no types)
        """Return the bindings once NVML is initialized."""
        try:
            import pynvml  # here: only processes with this backend pay for it, and have to have it
        except ImportError as error:
            message = "the backend nvidia needs the Python package nvidia-ml-py: pip install 'kerf-dra[nvidia]'"
            raise NvmlBindingsMissingError(message) from error
        self._load()
        try:
            self._driver_version = _open(pynvml)
        except pynvml.NVMLError as error:
            if _is_one_of(pynvml, error, {_OTHER_VERSION}) and self._is_replaced():
                raise OutdatedProcessError(
                    f"{self._find()} is of another version than when it was loaded, as is NVIDIA's driver: the process "
                    "has to start again"
                ) from error
            where = "" if self._root == Path("/") else f" below {self._root}"
            raise NvmlUnavailableError(
                f"NVML cannot be opened{where}: {error}; is NVIDIA's driver loaded, and driverRoot where its files are?"
            ) from error
        self.generation += 1
        return pynvml

    def _bindings(self) -> Any:  # noqa: ANN401
        """Return the bindings, of NVML that is opened anew after the kernel driver was loaded anew.

        Raises CardAbsentError when that fails, and after ``close``.
        """
        if (nvml := self._nvml) is not None:
            return nvml
        with self._lock:
            if not self._is_wanted:
                raise CardAbsentError("NVML is not open")
            try:
                self._nvml = self._nvml or self._initialize()
            except NvmlUnavailableError as error:
                raise CardAbsentError(str(error)) from error
            return self._nvml

    def _shut_down(self) -> None:
        nvml, self._nvml = self._nvml, None
        # New ones: what another thread has looked up before, it adds to the old ones, which nobody reads.
        self._handles, self._profiles = {}, {}
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _load(self) -> None:
        """Load the library of the driver's root, so that the bindings find it by its soname."""
        if self._loaded is not None:
            return
        path = self._find()
        self._file = self._file or identify_file(path)
        if self._root == Path("/"):  # the linker finds it
            return
        if path is None:
            raise NvmlUnavailableError(f"there is no {SONAME} below the driver's root {self._root}")
        try:
            self._loaded = ctypes.CDLL(os.fspath(path))
        except OSError as error:
            raise NvmlUnavailableError(f"{path} cannot be loaded: {error}") from error

    def _find(self) -> Path | None:
        """Return the path of the library below the driver's root."""
        paths = (self._root / folder / SONAME for folder in _FOLDERS)
        return next((path for path in paths if path.exists()), None)

    def _is_replaced(self) -> bool:
        """Whether another process would load another file."""
        now = identify_file(self._find())
        return now is not None and now != self._file


def _open(nvml: Any) -> str:  # noqa: ANN401  (the bindings have no types)
    """Open NVML, and return the driver's version. Raises NVMLError.

    NVML counts how often it is opened, and works with a driver that was loaded anew only once it was closed as often:
    so what fails after the opening ends it.
    """
    nvml.nvmlInit()
    try:
        return _decode(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
        raise


def _is_one_of(nvml: Any, error: Any, names: Collection[str]) -> bool:  # noqa: ANN401
    return any(error.value == getattr(nvml, f"NVML_ERROR_{name}") for name in names)


def _to_instance(id_: int | None) -> int | None:
    """Return the id of a GPU instance; None: what is outside of all."""
    return None if id_ in (None, _NO_INSTANCE) else id_


def _decode(text: bytes | str) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text
