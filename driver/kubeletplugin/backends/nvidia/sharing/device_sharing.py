"""Sets up how one device is shared, and takes it back: compute mode, time slices, the request for a daemon of MPS.

What is set up is in a record in the device's folder before it is done, with the compute mode that was there; the record
goes last. So the next process, also after a kill at any point, finishes or undoes it. All claims that share a device
have one record: it says which strategy the device has until the last of them has left. A record of another boot is as
good as none: a boot ends modes, time slices and daemons.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from kerf_dra.api.kerf.v1alpha1 import GpuSharing
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError, HardwareHeldError, UnsuitableClaimError
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import ComputeMode
from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing.limits import ClientLimits, widen
from kerf_dra.driver.mps.control_daemon import CONTROL
from kerf_dra.driver.mps.documents import (
    LOCK,
    DaemonFolder,
    DaemonRequest,
    read_document,
    remove_document,
    write_document,
)
from kerf_dra.driver.mps.driver_programs import DriverProgram, ProgramFailedError
from kerf_dra.driver.runtime.boot import read_boot_id
from kerf_dra.driver.runtime.file_lock import is_held

_RECORD: Final = "sharing.json"
_SMI: Final = "nvidia-smi"
_SMI_S: Final = 20.0
"""Limit of a call of nvidia-smi, which takes seconds on a machine with many cards."""
_READY_S: Final = 30.0
"""Time for a daemon to start: below the 45 s of the kubelet's call (``pkg/kubelet/cm/dra``)."""
_END_S: Final = 15.0
"""Time for a daemon to end: it is killed after 5 s."""
_POLL_S: Final = 0.1
_SLICES: Final = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}
"""The intervals by the numbers of ``nvidia-smi compute-policy --set-timeslice``."""
NO_DAEMONS: Final = "`kerf mps-daemons` does not run for {}: see its DaemonSet kerf-mps-daemons on this node"
"""The reason that no daemon answers, with the folder of all devices."""


class SharingRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How a device is shared now."""

    boot_id: str
    strategy: str
    interval: str = ""
    """The time slice, with strategy TimeSlicing."""
    former_mode: ComputeMode | None = None
    """The card's compute mode before, to be restored; None: the strategy does not change it."""
    active_thread_percentage: int | None = None
    pinned_memory_mib: int | None = None
    """With strategy Mps: the largest limits of all claims since the first; None: one has no limit."""


class DeviceSharing:
    """Sets up and takes back how devices are shared. A card's calls come one at a time, and block."""

    def __init__(
        self,
        folder: Path | None,
        driver_root: Path,
        library: NvmlLibrary,
        *,
        wait: Callable[[float], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``folder`` has a folder for each device; None: devices are not shared by strategies.

        ``wait`` waits seconds, and raises HardwareBusyError when the backend is closed meanwhile.
        """
        self._root = folder
        self._smi = DriverProgram(driver_root, _SMI)
        self._control = DriverProgram(driver_root, CONTROL)
        self._library = library
        self._wait = wait
        self._now = now

    @property
    def has_time_slices(self) -> bool:
        """Whether whole cards can be shared by time slices of a chosen length."""
        return self._root is not None and self._smi.is_there

    @property
    def has_mps(self) -> bool:
        """Whether MPS can be allocated, on cards that are capable of it."""
        return self._root is not None and self._control.is_there

    def folder(self, device_uuid: str) -> DaemonFolder | None:
        """Return the folder of a device; None: devices are not shared by strategies."""
        return None if self._root is None else DaemonFolder(self._root / device_uuid)

    def check(self, strategy: str, *, is_whole: bool) -> None:
        """Raise UnsuitableClaimError for a strategy that the device, whole or a partition, or this node cannot do."""
        if strategy != "Exclusive" and self._root is None:
            raise UnsuitableClaimError(
                f"sharing.strategy: {strategy} needs the field sharingFolder in the backend's configuration"
            )
        if strategy == "TimeSlicing" and not is_whole:
            raise UnsuitableClaimError("sharing.strategy: TimeSlicing is for whole cards, not for MIG partitions")

    def set_up(self, card_uuid: str, device_uuid: str, sharing: GpuSharing, limits: ClientLimits) -> None:
        """Let the device be shared as ``sharing`` says, by a claim with ``limits`` beside those that share it already.

        Raises HardwareBusyError while claims share it in another way, or when the MPS daemon does not become ready in
        time.
        """
        folder = self.folder(device_uuid)
        if folder is None:
            return
        record = self._record(folder, card_uuid, sharing, limits)
        if sharing.strategy == "TimeSlicing":
            self._set_mode(card_uuid, record, ComputeMode.DEFAULT)
            self._set_time_slice(card_uuid, record.interval)
        elif sharing.strategy == "Mps":
            self._set_mode(card_uuid, record, ComputeMode.EXCLUSIVE_PROCESS)
            self._start_daemon(folder, record)

    def restore_mps(self, card_uuid: str, folder: DaemonFolder, limits: ClientLimits) -> bool:
        """Have a device shared by MPS again, for a claim with ``limits``, where another program has removed what says
        so; returns whether it has.

        Raises UnreadableDocumentError where nothing can be said, and what ``set_up`` raises.
        """
        folder.check_root()
        record = self._read(folder)
        is_complete = record is not None and folder.read_request() is not None
        if self.folder(folder.device) != folder or (record is not None and is_complete and _keeps(record, limits)):
            return False
        self.set_up(card_uuid, folder.device, GpuSharing(strategy="Mps"), limits)
        return True

    def take_back_others(self, card_uuid: str, device_uuid: str, sharing: GpuSharing, limits: ClientLimits) -> None:
        """Take back what is set up for a device otherwise than for a claim that has it alone, by ``sharing`` and with
        ``limits``: a claim whose record was lost left it, and its limits would hold for this one.

        Raises HardwareHeldError as ``take_back`` does.
        """
        folder = self.folder(device_uuid)
        record = None if folder is None else self._read(folder)
        if folder is None or record is None:
            return
        there = (record.strategy, record.interval, record.active_thread_percentage, record.pinned_memory_mib)
        if there != (*_describe(sharing), limits.active_thread_percentage, limits.pinned_memory_mib):
            self.take_back(card_uuid, folder)

    def take_back(self, card_uuid: str, folder: DaemonFolder) -> None:
        """Take back what was set up for the device of ``folder``, on this card; nothing there is success.

        Raises HardwareHeldError while a daemon of MPS does not end.
        """
        record = self._read(folder)
        remove_document(folder.request)
        self._await_end(folder)
        if record is not None:
            if record.strategy == "TimeSlicing":
                self._set_time_slice(card_uuid, "Default")
            self._restore_mode(card_uuid, record)
        remove_document(folder.path / _RECORD)

    def _record(self, folder: DaemonFolder, card_uuid: str, sharing: GpuSharing, limits: ClientLimits) -> SharingRecord:
        """Record that a claim shares the device, and return the record."""
        wanted = _describe(sharing)
        there = self._read(folder)
        if there is not None and (there.strategy, there.interval) != wanted:
            now = " ".join(filter(None, (there.strategy, there.interval)))
            raise HardwareBusyError(
                f"other claims share {folder.device} by the strategy {now} until they end, this one asks for "
                f"{' '.join(filter(None, wanted))}"
            )
        if there is None:
            changes_mode = folder.device == card_uuid and sharing.strategy != "Exclusive"
            former = self._library.read_compute_mode(card_uuid) if changes_mode else None
            record = SharingRecord(
                boot_id=read_boot_id(),
                strategy=wanted[0],
                interval=wanted[1],
                former_mode=former,
                active_thread_percentage=limits.active_thread_percentage,
                pinned_memory_mib=limits.pinned_memory_mib,
            )
        else:
            both = widen(limits, _limits_of(there))
            record = msgspec.structs.replace(
                there,
                active_thread_percentage=both.active_thread_percentage,
                pinned_memory_mib=both.pinned_memory_mib,
            )
        write_document(folder.path / _RECORD, record)
        return record

    def _read(self, folder: DaemonFolder) -> SharingRecord | None:
        record = read_document(folder.path / _RECORD, SharingRecord)
        return record if record is not None and record.boot_id == read_boot_id() else None

    # Compute mode and time slices

    def _set_mode(self, card_uuid: str, record: SharingRecord, mode: ComputeMode) -> None:
        if record.former_mode is not None and self._library.read_compute_mode(card_uuid) != mode:
            self._library.set_compute_mode(card_uuid, mode)

    def _restore_mode(self, card_uuid: str, record: SharingRecord) -> None:
        """Restore the compute mode, unless another program has set yet another one meanwhile."""
        mode = ComputeMode.DEFAULT if record.strategy == "TimeSlicing" else ComputeMode.EXCLUSIVE_PROCESS
        former = record.former_mode
        if former is not None and former != mode and self._library.read_compute_mode(card_uuid) == mode:
            self._library.set_compute_mode(card_uuid, former)

    def _set_time_slice(self, card_uuid: str, interval: str) -> None:
        arguments = ("compute-policy", "-i", card_uuid, "--set-timeslice", f"{_SLICES[interval]}")
        try:
            self._smi.run(*arguments, timeout_s=_SMI_S)
        except ProgramFailedError as error:
            raise HardwareBusyError(f"the time slice of {card_uuid} cannot be set to {interval}: {error}") from error

    # Daemons of MPS

    def _start_daemon(self, folder: DaemonFolder, record: SharingRecord) -> None:
        """Ask for a daemon with the limits of ``record``, and wait until it has them."""
        request = DaemonRequest(
            id=uuid.uuid4().hex,
            boot_id=record.boot_id,
            device=folder.device,
            active_thread_percentage=record.active_thread_percentage or 100,
            pinned_memory_mib=record.pinned_memory_mib,
        )
        write_document(folder.request, request)
        end = self._now() + _READY_S
        while (state := folder.read_state()) is None or not state.is_ready or state.request != request.id:
            if self._now() >= end:
                reason = state.error if state is not None and state.error else "no reason is known"
                raise HardwareBusyError(f"no MPS control daemon for {folder.device}: {_explain(folder, reason)}")
            self._wait(_POLL_S)

    def _await_end(self, folder: DaemonFolder) -> None:
        end = self._now() + _END_S
        while (state := folder.read_state()) is not None:
            if self._now() >= end:
                reason = state.error or f"process {state.pid} has not ended"
                raise HardwareHeldError(
                    f"{folder.device} is held by its MPS control daemon: {_explain(folder, reason)}"
                )
            self._wait(_POLL_S)


def _limits_of(record: SharingRecord) -> ClientLimits:
    return ClientLimits(
        active_thread_percentage=record.active_thread_percentage, pinned_memory_mib=record.pinned_memory_mib
    )


def _keeps(record: SharingRecord, limits: ClientLimits) -> bool:
    """Whether a daemon by ``record`` lets clients have what ``limits`` let them have."""
    there = _limits_of(record)
    return widen(replace(limits, share_memory_bytes=None), there) == there


def _explain(folder: DaemonFolder, reason: str) -> str:
    root = folder.path.parent
    return reason if is_held(root / LOCK) else NO_DAEMONS.format(root)


def _describe(sharing: GpuSharing) -> tuple[str, str]:
    """Return the strategy, and with TimeSlicing the interval."""
    interval = sharing.time_slicing.interval if sharing.time_slicing is not None else "Default"
    return sharing.strategy, interval if sharing.strategy == "TimeSlicing" else ""
