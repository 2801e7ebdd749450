"""Executes the hardware work of claims: cards at the same time, and for each card one device after the other.

What is ours on a card is decided by ``ownership`` from the notes in the checkpoint, in the same job and under the same
lock as the backend's call. Without notes on a device nothing of it is on the hardware: they are written before the
first call that changes something, and cleared after the last. Before the first note the claim's record is synced to
disk: here, and not where it is written, because this thread may wait for the disk and the event loop may not.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    Backend,
    CardSurvey,
    FoundPartition,
    Handle,
    HardwareConflictError,
    HardwareRefusedError,
    Journal,
    NumberedBackend,
    RequestEditor,
    RestoringBackend,
    SampledBackend,
)
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.backends.ownership import BEFORE, check_free, find_ours, list_before
from kerf_dra.driver.kubeletplugin.backends.survey_validation import survey_card
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import Configurations, decode_config
from kerf_dra.driver.kubeletplugin.claims.cdi_spec import build_request_edits, first_variable
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint, DeviceJournal
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.runtime import logs, metrics
from kerf_dra.driver.runtime.concurrency import for_each

_log = logging.getLogger(__name__)

_SECONDS: Final = metrics.histogram(
    "kerf_hardware_seconds",
    "Time that a backend took for one device, without waiting for its card.",
    ["driver", "backend", "operation", "outcome"],
    # From a simulated card's milliseconds over GPU instances (tenths of a second) to FPGA loads (tens of seconds).
    buckets=(0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300),
)


class DevicesFailedError(KerfError):
    """The hardware work for some devices of a claim failed; the message says for each what went wrong.

    ``devices`` are all devices of the claim, with the new state of those that succeeded; ``failed`` are the others, and
    ``failures`` their errors.
    """

    def __init__(self, devices: Sequence[PreparedDevice], failures: Mapping[int, Exception]) -> None:
        self.devices = tuple(devices)
        self.failures = tuple(failures[index] for index in sorted(failures))
        self.failed = tuple(devices[index] for index in sorted(failures))
        super().__init__(
            "; ".join(f"{devices[index].share.id.device}: {failures[index]}" for index in sorted(failures))
        )


class PreparedIdentity(NamedTuple):
    """What can be said of a prepared device to others; empty: its backend does not say, or there is none."""

    uuid: str
    """The UUID by which programs address it."""
    function: str
    """The function that is loaded."""
    edits: ContainerEdits
    """What containers get of it."""
    is_sampled: bool
    """Whether its backend can say what it is used for."""

    @property
    def device_nodes(self) -> tuple[str, ...]:
        """The paths of its device nodes in containers."""
        return tuple(node.path for node in self.edits.device_nodes)


class HardwareExecutor:
    """The executor of one node: one job in a worker thread for each device, under the lock of the device's card."""

    def __init__(
        self, card_executor: CardExecutor, configurations: Configurations, checkpoint: Checkpoint, *, boot_id: str
    ) -> None:
        """``configurations`` are those of the driver's family."""
        self._card_executor = card_executor
        self._configurations = configurations
        self._checkpoint = checkpoint
        self._boot_id = boot_id

    async def prepare_devices(self, claim: ClaimRef, devices: Sequence[PreparedDevice]) -> tuple[PreparedDevice, ...]:
        """Prepare the devices of ``claim``, whose record is *started*; returns them with their handles.

        Those that have a handle are ready since an earlier call.
        Raises DevicesFailedError, whose ``devices`` are to be released: some may be done.
        """
        return _check_results(devices, await for_each(partial(self._prepare_device, claim), devices))

    async def release_devices(self, record: PreparedClaim) -> None:
        """Release what was or may have been prepared; nothing there is success. Raises DevicesFailedError.

        A device of which another share stays is left to that share, with the notes on it. A record of an earlier boot
        has nothing on the hardware.
        """
        if record.boot_id == self._boot_id:
            _check_results(record.devices, await for_each(partial(self._release_device, record.claim), record.devices))

    async def renumber_device(self, device: PreparedDevice) -> PreparedDevice:
        """Return a prepared device with the numbers that the kernel gives its device nodes now. Raises what its backend
        raises.

        It is returned as it is where all of its nodes are still its own: another version of Kerf may write handles that
        say more of the same device, or have more nodes of it.
        """
        backend = self._card_executor.backend(device.backend)
        if device.handle is None or not isinstance(backend, NumberedBackend):
            return device
        async with self._card_executor.lock(device.part.card_uuid) as card:
            handle = await card.call(f"numbers of {device.share.id.device}", backend.renumber, device.handle)
        if _list_nodes(backend.edits(device.handle)) <= _list_nodes(backend.edits(handle)):
            return device
        return msgspec.structs.replace(device, handle=handle)

    def has_restorable(self, devices: Iterable[PreparedDevice]) -> bool:
        """Whether the backend of any of ``devices`` can set up again what is gone beside them."""
        return any(isinstance(self._card_executor.backend(device.backend), RestoringBackend) for device in devices)

    async def restore_device(self, device: PreparedDevice) -> bool:
        """Set up again what is gone beside a prepared device; returns whether anything was. Raises what its backend
        raises.
        """
        backend = self._card_executor.backend(device.backend)
        if device.handle is None or not isinstance(backend, RestoringBackend):
            return False
        async with self._card_executor.lock(device.part.card_uuid) as card:
            return await card.call(f"restore of {device.share.id.device}", backend.restore, device.handle)

    def identify(self, devices: Iterable[PreparedDevice]) -> list[PreparedIdentity]:
        """Return what prepared ``devices`` are, in their order, by their handles. Raises what backends raise."""
        return [self._identify(device) for device in devices]

    def build_request_edits(self, devices: Iterable[PreparedDevice]) -> dict[str, ContainerEdits]:
        """Return what each request needs beside its prepared ``devices``. Raises ConflictingRequestsError."""
        return build_request_edits(devices, self._build_edits_of_request)

    def build_container_edits(self, devices: Iterable[PreparedDevice]) -> ContainerEdits:
        """Return what a container needs beside all these ``devices`` together, which no request of a claim has."""
        handles: dict[str, list[Handle]] = {}
        for device in devices:
            handles.setdefault(device.backend, []).append(device.handle or {})
        return sum((self._build_edits_of_request(*each) for each in handles.items()), ContainerEdits())

    def find_variables(self, devices: Iterable[PreparedDevice]) -> dict[str, str]:
        """Return a variable that requests of these prepared devices need, by the name of the backend; empty: they need
        none. Other backends, which never need any, are left out.
        """
        found: dict[str, str] = {}
        for device in devices:
            backend = self._card_executor.backend(device.backend)
            if isinstance(backend, RequestEditor):
                edits = backend.request_edits([device.handle or {}])
                found[device.backend] = found.get(device.backend) or first_variable([edits])
        return found

    def _build_edits_of_request(self, backend: str, handles: Sequence[Handle]) -> ContainerEdits:
        found = self._card_executor.backend(backend)
        return found.request_edits(handles) if isinstance(found, RequestEditor) else ContainerEdits()

    def _identify(self, device: PreparedDevice) -> PreparedIdentity:
        handle, backend = device.handle or {}, self._card_executor.backend(device.backend)
        return PreparedIdentity(
            uuid=_text(handle.get("uuid")),
            function=_text(handle.get("function")) or device.part.function or "",
            edits=backend.edits(handle),
            is_sampled=isinstance(backend, SampledBackend),
        )

    async def _prepare_device(self, claim: ClaimRef, device: PreparedDevice) -> PreparedDevice | Exception:
        if device.handle is not None:
            return device
        try:
            backend = self._card_executor.backend(device.backend)
            config = decode_config(device, self._configurations)
            self._card_executor.check_prepare(device.part.card_uuid)
            async with self._card_executor.lock(device.part.card_uuid) as card:
                self._card_executor.check_prepare(device.part.card_uuid)  # a maintenance had the lock meanwhile
                own = self._checkpoint.journal(claim.uid, device.share, self._boot_id)
                job = self._make_job(backend, claim, device, own)
                try:
                    with _measured("prepare", device):
                        made = await card.call(f"prepare of {device.share.id.device}", job.run_prepare, config)
                except BaseException:
                    own.close_unless_begun()  # the call may go on when it is cancelled or took too long
                    raise
        except Exception as error:  # noqa: BLE001  (backends are third parties': the other devices go on)
            return _log_failure("prepare", device, error)
        try:
            handle = msgspec.json.decode(msgspec.json.encode(made), type=dict[str, Any])  # as the checkpoint has it
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            return HardwareRefusedError(f"backend {device.backend}: prepare returned no JSON object: {error}")
        return msgspec.structs.replace(device, handle=handle)

    async def _release_device(self, claim: ClaimRef, device: PreparedDevice) -> PreparedDevice | Exception:
        own = self._checkpoint.journal(claim.uid, device.share, self._boot_id)
        try:
            if BEFORE not in own.notes:
                return device  # nothing was begun on the hardware, or all of it is undone
            backend = self._card_executor.backend(device.backend)
            async with self._card_executor.lock(device.part.card_uuid) as card:
                if BEFORE not in own.notes:
                    return device  # the shared device was released with another share meanwhile
                if heirs := self._find_sharers(claim, device):
                    _bequeath(own, heirs)
                    return device
                job = self._make_job(backend, claim, device, own)
                with _measured("release", device):
                    await card.call(f"release of {device.share.id.device}", job.run_release, device.handle)
        except Exception as error:  # noqa: BLE001  (as above)
            return _log_failure("release", device, error)
        return device

    def _make_job(self, backend: Backend, claim: ClaimRef, device: PreparedDevice, own: DeviceJournal) -> "DeviceJob":
        noted = self._checkpoint.journals_of(device.share.id, self._boot_id) if device.share.share is not None else []
        return DeviceJob(
            backend=backend,
            device=_to_allocated_device(claim, device),
            units=self._card_executor.units(device.part.card_uuid),
            own=own,
            others=[journal for journal in noted if (journal.uid, journal.share) != (claim.uid, device.share)],
        )

    def _find_sharers(self, claim: ClaimRef, device: PreparedDevice) -> list[DeviceJournal]:
        """Return the journals of other shares of ``device`` that claims have, or are about to get.

        Of the same claim these are shares that were ready before, and stay ready.
        """
        if device.share.share is None:
            return []
        return [
            self._checkpoint.journal(uid, held.share, self._boot_id)
            for uid, record in self._checkpoint.records.items()
            if record.state is not ClaimState.RELEASING and record.boot_id == self._boot_id
            for held in record.devices
            if held.share.id == device.share.id and not held.admin_access
            if uid != claim.uid or (held.share != device.share and held.handle is not None)
        ]


class ClaimJournal(Journal, Protocol):
    """A journal that can be ended."""

    def clear(self) -> None:
        """Forget all notes: nothing of the device's prepare is on the hardware. Raises CheckpointError."""
        ...

    def sync_record(self) -> None:
        """Make the claim's record survive a power cut. Raises CheckpointError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceJob:
    """The work for one device, done in a worker thread while its card is locked."""

    backend: Backend
    device: AllocatedDevice
    units: int | None
    own: ClaimJournal
    others: Sequence[ClaimJournal]
    """The journals of other shares of the device, of this claim or of others: they have it, or had until just now."""

    def run_prepare(self, config: DeviceConfigBase | None) -> Handle:
        """Prepare the device, or finish what an interrupted try left. Raises what the backend raises."""
        if self.device.admin_access:
            return self.backend.prepare(self.device, config, self.own, None)
        survey = self._survey_device_card()
        ours = self._find_ours(survey)
        check_free(self.device.partition, survey, ours)
        self.own.sync_record()
        # Ids are given again: a note of before may have the id of what is made now in place of what is gone.
        if ours is None or BEFORE not in self.own.notes:
            self.own.write(**{BEFORE: list_before(survey, ours)})
        try:
            return self.backend.prepare(self.device, config, self.own, ours)
        except HardwareConflictError:
            if ours is None:
                self.own.clear()  # what is in the place now is not ours: the hardware has refused to make it
            raise

    def run_release(self, handle: Handle | None) -> None:
        """Remove what was prepared, or what may be there where there is no handle. Raises what the backend raises."""
        if handle is None:
            self.backend.abandon(self.device, self.own, self._find_ours(self._survey_device_card()))
        else:
            self.backend.unprepare(handle)
        for journal in (self.own, *self.others):
            journal.clear()

    def _survey_device_card(self) -> CardSurvey:
        return survey_card(self.backend, self.device.partition.card_uuid, self.units)

    def _find_ours(self, survey: CardSurvey) -> FoundPartition | None:
        others = [journal.notes for journal in self.others]
        return find_ours(self.device.partition, survey, self.own.notes, others)


def _bequeath(own: DeviceJournal, heirs: Sequence[DeviceJournal]) -> None:
    """Pass the notes on a shared device on to those who keep it: by them they know that its partition is ours."""
    for heir in heirs:
        if BEFORE not in heir.notes:
            heir.write(**own.notes)
    own.clear()


def _list_nodes(edits: ContainerEdits) -> set[tuple[str, str]]:
    """Return the device nodes of a container, each with that of the host."""
    return {(node.path, node.host_path or node.path) for node in edits.device_nodes}


@contextmanager
def _measured(operation: str, device: PreparedDevice) -> Iterator[None]:
    """Measure and label a call for ``device``."""
    begun = time.perf_counter()
    outcome = "failed"
    try:
        with logs.context(pool=device.share.id.pool, device=device.share.id.device):
            yield
        outcome = "done"
    finally:
        _SECONDS.labels(device.share.id.driver, device.backend, operation, outcome).observe(time.perf_counter() - begun)


def _to_allocated_device(claim: ClaimRef, device: PreparedDevice) -> AllocatedDevice:
    return AllocatedDevice(
        claim=claim,
        share=device.share,
        partition=from_card_part(device.part),
        admin_access=device.admin_access,
        consumed_capacity=device.consumed_capacity,
    )


def _log_failure(operation: str, device: PreparedDevice, error: Exception) -> Exception:
    if not isinstance(error, KerfError):
        _log.error("backend %s failed unexpectedly to %s %s", device.backend, operation, device.share, exc_info=error)
    return error


def _check_results(
    devices: Sequence[PreparedDevice], results: Sequence[PreparedDevice | Exception]
) -> tuple[PreparedDevice, ...]:
    failures = {index: result for index, result in enumerate(results) if isinstance(result, Exception)}
    state = [
        device if isinstance(result, Exception) else result for device, result in zip(devices, results, strict=True)
    ]
    if failures:
        raise DevicesFailedError(state, failures)
    return tuple(state)


def _text(value: object) -> str:
    """Return ``value`` of a third party's handle if it is text."""
    return value if isinstance(value, str) else ""
