"""The Backend protocol over NVIDIA cards."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from msgspec import structs

from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, GpuConfig, GpuSharing
from kerf_dra.api.model.device_attributes import ATTRIBUTE_MPS, ATTRIBUTE_TIME_SLICING
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.semver import coerce_version
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardAbsentError,
    CardChange,
    CardSample,
    CardSurvey,
    FoundPartition,
    Handle,
    HardwareBusyError,
    HardwareHeldError,
    HardwareRefusedError,
    HealthChange,
    Journal,
    UnlistedCard,
    UnsuitableClaimError,
)
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.backends.nvidia.card import NvidiaCard
from kerf_dra.driver.kubeletplugin.backends.nvidia.card_reset import CardReset, list_holders
from kerf_dra.driver.kubeletplugin.backends.nvidia.card_sample import sample_card
from kerf_dra.driver.kubeletplugin.backends.nvidia.cdi_hook import (
    HOOK_NAME,
    CdiHookMissingError,
    find_cdi_hook,
    install_cdi_hook,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.kubeletplugin.backends.nvidia.device_nodes import DeviceFiles
from kerf_dra.driver.kubeletplugin.backends.nvidia.driver_root import DriverFiles, find_driver_files
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileRoot
from kerf_dra.driver.kubeletplugin.backends.nvidia.geometry import (
    UNKNOWN_MODEL,
    build_model,
    describe_unknown_model,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.handles import HANDLES, NvidiaHandle, build_edits
from kerf_dra.driver.kubeletplugin.backends.nvidia.health import EventWatcher
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.exclusive_use import ExclusiveUse
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import CardReading
from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing import ClientLimits, DaemonHealth, DeviceSharing, find_limits
from kerf_dra.driver.kubeletplugin.backends.nvidia.system_files import NVIDIA_GPUS, SystemFiles
from kerf_dra.driver.kubeletplugin.backends.pci_devices import list_unlisted_cards
from kerf_dra.driver.mps.documents import SHARED_MEMORY, DaemonFolder
from kerf_dra.driver.mps.driver_programs import DriverProgram
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.partitions.slice_limits import MAX_VALUE

ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)

_FIRMWARE_PATH: Final = "/sys/module/firmware_class/parameters/path"
"""The kernel's own folder of firmware (admin-guide/kernel-parameters: firmware_class.path)."""

_SHARING_NOTE: Final = "shared"
"""The note of the UUID of the device whose sharing is about to be set up."""
_FOLDER_NOTE: Final = "sharingFolder"
"""The note of the device's folder then: the configuration may name another one by the time it is taken back."""
_OLDEST_MPS: Final = (7, 0)
"""The CUDA compute capability (Volta) from which on MPS has limits for each client (NVIDIA MPS, "Volta MPS")."""


class _Hook(NamedTuple):
    """Where the hook is on the host. Both fields change at once: prepares run beside the survey that finds it gone."""

    path: str
    """Empty: it is missing, or a stand-in does without."""
    missing: str
    """The reason why no container can use CUDA; empty: none, the hook is there, or a stand-in does without."""


def _shares_nvml(
    method: "Callable[Concatenate[NvidiaBackend, ParametersT], ResultT]",
) -> "Callable[Concatenate[NvidiaBackend, ParametersT], ResultT]":
    """Have a method wait while NVML is closed for a reset."""

    @wraps(method)
    def call_sharing_nvml(
        backend: "NvidiaBackend", /, *arguments: ParametersT.args, **options: ParametersT.kwargs
    ) -> ResultT:
        with backend.nvml_use.shared():
            return method(backend, *arguments, **options)

    return call_sharing_nvml


class NvidiaBackend:
    """A Backend of the NVIDIA cards of this machine.

    Nothing is remembered but what NVML can be asked again, and Xids (``health``).
    """

    name = "nvidia"

    def __init__(
        self,
        config: NvidiaConfig,
        *,
        library: NvmlLibrary | None = None,
        wait: Callable[[float], None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tests give ``library``, ``wait`` and ``now``."""
        self._closed = threading.Event()
        self._config = config
        self._library = library or NvmlLibrary(Path(config.driver_root))
        self._system = SystemFiles(root=Path(config.system_root))
        self._devices = DeviceFiles(root=FileRoot(path=Path(config.system_root)))
        self._wait = wait or self._wait_or_end
        self._sharing = DeviceSharing(
            Path(config.sharing_folder) if config.sharing_folder else None,
            Path(config.driver_root),
            self._library,
            wait=self._wait_or_end,
            now=now,
        )
        self._daemons = DaemonHealth(Path(config.sharing_folder) if config.sharing_folder else None, now=now)
        self._cards: dict[str, NvidiaCard] = {}
        self._now = now
        self._watcher: EventWatcher | None = None
        self._indexes: dict[str, int] = {}
        self._warned: set[str] = set()
        self._undescribed: dict[str, str] = {}
        """Why cards that are there could not be described at the latest discovery, by UUID: logged when it begins."""
        self.nvml_use: Final = ExclusiveUse()
        self._hook_lock = threading.Lock()
        self._hook = _Hook(path="", missing="")
        self._bring_hook = install_cdi_hook

    def look_only(self) -> None:
        self._bring_hook = find_cdi_hook

    def open(self) -> None:
        """Open NVML, and bring the hook to the host. Raises NvmlBindingsMissingError and NvmlUnavailableError."""
        self._closed.clear()
        self._library.open()
        self._install_hook()
        self._watcher = EventWatcher(
            self._library,
            list_cards=self._list_known,
            find_partition=self._find_partition,
            list_failed_daemons=self._list_failed_daemons,
            now=self._now,
        )

    def close(self) -> None:
        self._closed.set()
        if self._watcher is not None:
            self._watcher.close()
        self._library.close()

    @_shares_nvml
    def discover(self) -> Sequence[Card]:
        found: list[Card] = []
        undescribed: dict[str, str] = {}
        owners: dict[int, str] = {}
        for reading in self._library.list_cards():
            try:
                card = self._describe(reading)
                if (owner := owners.setdefault(card.index, card.uuid)) != card.uuid:
                    raise HardwareRefusedError(f"its number {card.index} is that of card {owner}")
                found.append(card)
            except KerfError as error:  # the other cards are there all the same
                undescribed[reading.uuid] = str(error)
                if self._undescribed.get(reading.uuid) != str(error):
                    _log.warning("card %s cannot be described: %s", reading.uuid, error)
        self._undescribed = undescribed
        return found

    def list_unlisted(self, cards: Sequence[Card]) -> Sequence[UnlistedCard]:
        return list_unlisted_cards(self._system.root, NVIDIA_GPUS, [card.pci_bus_id for card in cards])

    @_shares_nvml
    def survey(self, card_uuid: str) -> CardSurvey:
        found = self._card(card_uuid).survey()
        missing = self._install_hook().missing
        return replace(found, no_whole=missing, no_partitions=missing, no_static=missing) if missing else found

    @_shares_nvml
    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        if config is not None and not isinstance(config, GpuConfig):
            raise UnsuitableClaimError(f"{device.share} is a GPU, but the claim gives it a {type(config).__name__}")
        sharing = GpuSharing() if config is None else config.sharing
        self._sharing.check(sharing.strategy, is_whole=device.partition.placement is None)
        limits = find_limits(device, config)
        card = self._card(device.partition.card_uuid)
        hook = self._hook
        if hook.missing:
            raise HardwareBusyError(hook.missing)
        is_stand_in = self._config.is_for_stand_in
        # What is missing is found out before the card is changed.
        driver = self._find_driver() if hook.path else None
        control_nodes = self._devices.find_control_nodes() if hook.path else ()
        handle = card.prepare(device, journal, found, is_stand_in=is_stand_in)
        if driver is not None:
            handle = structs.replace(handle, driver=driver, control_nodes=control_nodes, hook_path=hook.path)
            handle = self._add_nodes(handle, card.reading.pci_address)
        if device.admin_access:
            return HANDLES.encode(handle)
        if not device.partition.shared:  # no other claim has it: what is there of another strategy is a leftover
            self._sharing.take_back_others(handle.card, handle.uuid, sharing, limits)
        if sharing.strategy != "Exclusive" or device.partition.shared:
            handle = self._share(handle, sharing, limits, journal)
        return HANDLES.encode(handle)

    def _share(self, handle: NvidiaHandle, sharing: GpuSharing, limits: ClientLimits, journal: Journal) -> NvidiaHandle:
        """Set up how the device is shared, and return its handle with what its containers get of it."""
        folder = self._sharing.folder(handle.uuid)
        if folder is not None:
            journal.write(**{_SHARING_NOTE: handle.uuid, _FOLDER_NOTE: str(folder.path)})
            self._sharing.set_up(handle.card, handle.uuid, sharing, limits)
            memory = self._config.shared_memory_folder or str(folder.path.parent / SHARED_MEMORY)
            handle = structs.replace(handle, sharing_folder=str(folder.path), shared_memory=memory)
        return structs.replace(
            handle,
            sharing=sharing.strategy,
            memory_limit_bytes=limits.share_memory_bytes,
            active_thread_percentage=limits.active_thread_percentage,
            pinned_memory_mib=limits.pinned_memory_mib,
        )

    @_shares_nvml
    def unprepare(self, handle: Handle) -> None:
        known = HANDLES.decode(handle)
        card = self._card(known.card)
        placement = None if known.placement is None else Placement(*known.placement)
        partition = card.build_partition(known.profile or None, placement)
        try:
            if known.sharing_folder:  # whatever the configuration says by now
                folder = DaemonFolder(Path(known.sharing_folder))
                folder.check_root()
                self._sharing.take_back(known.card, folder)
            card.unprepare(known)
        except HardwareHeldError as error:
            if self._watcher is not None and partition is not None:
                self._watcher.note_held(partition, str(error))
            raise
        if self._watcher is not None and partition is not None:
            self._watcher.note_released(partition)

    @_shares_nvml
    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        card = self._card(device.partition.card_uuid)
        for folder in self._list_shared_folders(device, journal, found):
            self._sharing.take_back(card.uuid, folder)
        card.abandon(device.partition, found)

    @_shares_nvml
    def renumber(self, handle: Handle) -> Handle:
        known = HANDLES.decode(handle)
        card = self._card(known.card)
        now = card.renumber(known)
        return HANDLES.encode(now if known.gpu is None else self._add_nodes(now, card.reading.pci_address))

    @_shares_nvml
    def restore(self, handle: Handle) -> bool:
        """Request the device's daemon of MPS again where the request, or the record of it, is gone."""
        known = HANDLES.decode(handle)
        if known.sharing != "Mps" or not known.sharing_folder:
            return False
        limits = ClientLimits(
            active_thread_percentage=known.active_thread_percentage, pinned_memory_mib=known.pinned_memory_mib
        )
        return self._sharing.restore_mps(known.card, DaemonFolder(Path(known.sharing_folder)), limits)

    def _list_shared_folders(
        self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None
    ) -> Iterator[DaemonFolder]:
        """Yield where the sharing of a device that a prepare has left may be set up."""
        ours = {journal.notes.get(_SHARING_NOTE, "")}
        if found is not None:
            ours.add(found.uuid)
        elif device.partition.shared and device.partition.is_whole:
            ours.add(device.partition.card_uuid)  # the claim that noted it may have left before this, the last one
        folders = {self._sharing.folder(device_uuid) for device_uuid in ours - {""}}
        if path := journal.notes.get(_FOLDER_NOTE, ""):
            folders.add(DaemonFolder(Path(path)))
        yield from (folder for folder in folders if folder is not None)

    @_shares_nvml
    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        known, sees_processes = [HANDLES.decode(handle) for handle in handles], self._system.sees_processes()
        return sample_card(self._library, card_uuid, known, self._now(), sees_processes=sees_processes)

    @_shares_nvml
    def find_card_holders(self, card_uuid: str) -> Sequence[str]:
        return list_holders(self._system, self._library.read_minor(self._card(card_uuid).uuid))

    def reset_card(self, card_uuid: str, journal: Journal) -> str:
        with self._taken_for(card_uuid, "reset") as watcher, self._library.closed():
            said = self._reset_of(card_uuid).run(journal)
            watcher.note_reset(card_uuid)
        return said

    def set_mig_mode(self, card_uuid: str, is_on: bool) -> str:
        mode = "on" if is_on else "off"
        with self._taken_for(card_uuid, f"MIG mode {mode}"):
            now = self._library.read_mig_mode(card_uuid)
            if now is None:
                raise HardwareRefusedError(f"card {card_uuid} has no MIG")
            if (now.is_on, now.is_on_later) == (is_on, is_on):
                return f"MIG mode was {mode} already"
            self._library.set_mig_mode(card_uuid, is_on)
        return f"MIG mode is {mode}"

    def end_act(self, card_uuid: str, journal: Journal) -> None:
        self._reset_of(card_uuid).restore(journal)

    @contextmanager
    def _taken_for(self, card_uuid: str, act: str) -> Iterator[EventWatcher]:
        """Have NVML alone, and no process but this one with the card open, as far as it can be seen.

        Raises HardwareBusyError, which names the processes, and CardAbsentError.
        """
        watcher = self._watcher
        if watcher is None:
            raise CardAbsentError("NVML is not open")
        if holders := self.find_card_holders(card_uuid):
            raise HardwareBusyError(f"card {card_uuid} is held open by {', '.join(holders)}")
        with watcher.paused(), self.nvml_use.exclusive(f"{act} of card {card_uuid}"):
            yield watcher

    def _reset_of(self, card_uuid: str) -> CardReset:
        return CardReset(card_uuid=card_uuid, program=DriverProgram(Path(self._config.driver_root), "nvidia-smi"))

    def edits(self, handle: Handle) -> ContainerEdits:
        return build_edits(HANDLES.decode(handle))

    def _install_hook(self) -> "_Hook":
        """Bring the hook to the host, unless it is there: an administrator may install it later, or remove it."""
        config = self._config
        if config.is_for_stand_in and not config.cdi_hook:
            return self._hook
        source, folder = config.cdi_hook or f"/usr/bin/{HOOK_NAME}", config.cdi_hook_folder
        with self._hook_lock:
            before = self._hook
            if before.path and Path(before.path).is_file():
                return before
            try:
                installed = self._bring_hook(Path(source), Path(folder) if folder else None)
            except (CdiHookMissingError, OSError) as error:
                self._hook = _Hook(path="", missing=str(error))
                if self._hook != before:
                    _log.error("no GPU of this node can be used in containers: %s", error)
            else:
                self._hook = _Hook(path=str(installed), missing="")
            return self._hook

    def _find_driver(self) -> DriverFiles:
        machine = os.uname()
        return find_driver_files(
            FileRoot(path=Path(self._config.driver_root), host_path=self._config.host_driver_root),
            self._library.read_driver_version(),
            machine=machine.machine,
            kernel_release=machine.release,
            firmware_path=self._devices.root.read_text(_FIRMWARE_PATH) or "",
        )

    def _add_nodes(self, handle: NvidiaHandle, pci_address: str) -> NvidiaHandle:
        """Return ``handle`` with the nodes of its device."""
        gpu = self._devices.find_gpu_nodes(handle.minor, pci_address)
        if handle.is_admin:
            return structs.replace(handle, gpu=gpu, monitor_node=self._devices.find_monitor_node())
        if handle.instance is None:
            return structs.replace(handle, gpu=gpu)
        nodes = self._devices.find_instance_nodes(handle.minor, handle.instance, handle.compute_instance)
        return structs.replace(handle, gpu=gpu, instance_nodes=nodes)

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange]:
        return () if self._watcher is None else self._watcher.wait(timeout_s)

    def _list_known(self) -> list[str]:
        """Return the UUIDs of the cards of which this process knows, and of those that answer after all."""
        if not self._cards or self._library.has_new_cards():
            self.discover()
        return list(self._cards)

    def _find_partition(self, card_uuid: str, instance: int) -> Partition | None:
        try:
            return self._card(card_uuid).find_partition(instance)
        except KerfError as error:
            _log.warning("GPU instance %d of card %s cannot be read: %s", instance, card_uuid, error)
            return None

    def _list_failed_daemons(self) -> dict[tuple[str, Partition | None], str]:
        """Return why the MPS daemons of cards, or of partitions of them, do not serve their clients."""
        found: dict[tuple[str, Partition | None], str] = {}
        for device_uuid, reason in self._daemons.list_failures().items():
            if device_uuid in self._cards:
                found[device_uuid, None] = reason
                continue
            partition = self._find_partition_of(device_uuid)
            if partition is not None:
                found[partition.card_uuid, partition] = reason
        return found

    def _find_partition_of(self, mig_uuid: str) -> Partition | None:
        for card in [*self._cards.values()]:  # a discovery may add one meanwhile
            try:
                if (found := card.find_partition_of(mig_uuid)) is not None:
                    return found
            except KerfError as error:  # a card that is away hides nothing of the others
                _log.debug("the MIG devices of card %s cannot be read: %s", card.uuid, error)
        return None

    def _card(self, card_uuid: str) -> NvidiaCard:
        if card_uuid not in self._cards:
            self.discover()
        card = self._cards.get(card_uuid)
        if card is None:
            if problem := self._undescribed.get(card_uuid):
                raise HardwareBusyError(f"card {card_uuid} cannot be described: {problem}")
            self._library.check_listed(card_uuid)
            raise CardAbsentError(f"there is no card {card_uuid} on this node")
        return card

    def _describe(self, reading: CardReading) -> Card:
        """Return the card that is published, and remember how its calls are made."""
        model, differences = build_model(reading, self._library.read_profiles(reading.uuid), gpu_models())
        geometry = gpu_geometry(model)  # before the card is believed where it differs from the table
        if not reading.product:
            self._warn_once(f"card {reading.uuid} reports no product name: its productName is empty")
        if model.id == UNKNOWN_MODEL:
            self._warn_once(describe_unknown_model(reading, model))
        if differences:
            self._warn_once(f"{model.id} differs from Kerf's table, the card is right: {'; '.join(differences)}")
        self._cards[reading.uuid] = NvidiaCard(
            reading=reading,
            model=model,
            library=self._library,
            system=self._system,
            policy=self._config.mig_mode,
            wait=self._wait,
        )
        # The minor number may change when an Ampere card is reset; the device names of this process do not.
        index = self._indexes.setdefault(reading.uuid, reading.minor)
        return Card(
            uuid=reading.uuid,
            index=index,
            geometry=geometry,
            pci_bus_id=reading.pci_address,
            pcie_root=self._system.find_pcie_root(reading.pci_address),
            numa_node=self._system.read_numa_node(reading.pci_address),
            driver_version=reading.driver_version,
            attributes={
                # NVML's names have up to 95 bytes; one that is too long for slices would keep all cards out of them.
                "productName": Attribute.of(reading.product.encode()[:MAX_VALUE].decode(errors="ignore")),
                "cudaComputeCapability": Attribute(version=coerce_version(reading.cuda_compute_capability)),
                "cudaDriverVersion": Attribute(version=coerce_version(reading.cuda_driver_version)),
                ATTRIBUTE_MPS: Attribute.of(self._sharing.has_mps and _has_mps_limits(reading)),
            },
            whole_attributes={ATTRIBUTE_TIME_SLICING: Attribute.of(self._sharing.has_time_slices)},
        )

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _log.warning("%s", message)

    def _wait_or_end(self, delay_s: float) -> None:
        if self._closed.wait(delay_s):
            raise HardwareBusyError("the backend was closed in the middle of a call")


def _has_mps_limits(reading: CardReading) -> bool:
    major, _, minor = reading.cuda_compute_capability.partition(".")
    return (int(major), int(minor)) >= _OLDEST_MPS


def open_backend(config: Path | None) -> NvidiaBackend:
    """Make a backend of this machine's NVIDIA cards, as the YAML document ``config`` says; None: the defaults.

    Raises InvalidDocumentError when the document is invalid.
    """
    return NvidiaBackend(read_config(config, NvidiaConfig))
