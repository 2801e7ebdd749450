"""Executes the steps of ``transitions`` for one claim: the only code that changes records, hardware and CDI files.

Hardware that was changed always has a record. A prepare that fails takes back what it did; if even that fails, or the
process dies, the record says *started* and the next call, or garbage collection, goes on from there. Devices that were
ready before the call are kept by then, with their handles in the record.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, assert_never

from msgspec.structs import replace

from kerf_dra import cdi
from kerf_dra.api.errors import KerfError, TransientError
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareHeldError
from kerf_dra.driver.kubeletplugin.claims import cdi_spec, device_metadata
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import check_conflicts, check_share_totals
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.claims.device_metadata import MetadataFiles
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError, HardwareExecutor
from kerf_dra.driver.kubeletplugin.claims.transitions import RELEASE, Step
from kerf_dra.driver.kubeletplugin.claims.validation import ShareDemand
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.worker_threads import LimitedCalls, Work

_log = logging.getLogger(__name__)

_FILES_AT_ONCE: Final = 8
"""Claims whose files are written at the same time: a disk that hangs holds so many threads and no more."""

_RECORDS: Final = metrics.gauge("kerf_claim_records", "Claims in the checkpoint of this node.", ["driver"])


HELD_TRIES: Final = 3
"""Releases of a claim that a process prevents before the claim ends without it. The kubelet tries again after 10 to 20
seconds, and until the last try the pod is Terminating, which shows its error: most processes need no longer to end."""


class CdiFileError(TransientError):
    """The claim's CDI file could not be written or removed."""


class ReleaseDeferredError(TransientError):
    """A card with a device of the claim is away, or a process holds the device; the record stays, and the release goes
    on once the card is back or the process has ended.
    """


@dataclass(slots=True)
class ClaimContext:
    """One claim while its steps are executed."""

    claim: ClaimRef
    record: PreparedClaim | None
    """The claim's record: the checkpoint's, or a newer one that the next step writes there."""
    wanted: tuple[PreparedDevice, ...] = ()
    """The devices to prepare; empty where nothing is to be prepared."""
    demands: Sequence[ShareDemand] = ()
    """What it needs of devices that other claims share."""
    pod_claim_name: str = ""
    """The pod's name for the claim; empty: the claim was not made from a template."""
    awaits_pod: bool = False
    """Whether the claim is prepared before its pod is bound."""
    resource: str = ""
    """The extended resource whose device is to be prepared; empty: the claim is one."""
    repaired: PreparedClaim | None = None
    """The record whose devices are made again under a pod: a failed try leaves it as it is; None: the kubelet has
    called."""

    @property
    def existing(self) -> PreparedClaim:
        assert self.record is not None, "the steps before have written one"
        return self.record


class StepExecutor:
    """The executor of steps. Every step may be repeated, by this process or its successor."""

    def __init__(
        self,
        *,
        driver: str,
        boot_id: str,
        checkpoint: Checkpoint,
        hardware: HardwareExecutor,
        store: cdi.Store,
        metadata: MetadataFiles,
        state: NodeState,
        start: Callable[[Work], None],
    ) -> None:
        """``start`` begins work in a thread: files are written there."""
        self._driver = driver
        self._boot_id = boot_id
        self._checkpoint = checkpoint
        self._hardware = hardware
        self._store = store
        self._metadata = metadata
        self._state = state
        self._files = LimitedCalls(_FILES_AT_ONCE, start=start)
        self._held: Counter[str] = Counter()
        self._record_count = _RECORDS.labels(driver)
        self._record_count.set(len(checkpoint.records))  # those of the process before this one

    async def execute(self, steps: Sequence[Step], context: ClaimContext) -> None:
        """Execute ``steps`` in order until one fails. Raises the KerfError of that step."""
        for step in steps:
            match step:
                case Step.RECORD_STARTED:
                    self._record_started(context)
                case Step.PREPARE_HARDWARE:
                    before = context.existing
                    try:
                        devices = await self._hardware.prepare_devices(context.claim, before.devices)
                    except DevicesFailedError as error:
                        context.record = replace(before, devices=error.devices)
                        await self._undo(context, before)
                        raise
                    context.record = replace(context.existing, devices=devices)
                case Step.WRITE_CDI:
                    await self._write_cdi(context)
                case Step.RECORD_PREPARED:
                    record = replace(context.existing, state=ClaimState.PREPARED, awaits_pod=context.awaits_pod)
                    self._put(context, record)
                case Step.RECORD_RELEASING:  # handles are kept, so that exactly what was made is removed
                    self._put(context, replace(context.existing, state=ClaimState.RELEASING))
                case Step.REMOVE_CDI:
                    await self._files.run(self._remove_files, context.claim)
                case Step.RELEASE_HARDWARE:
                    with self._deferred_while_held(context):
                        await self._hardware.release_devices(context.existing)
                case Step.DROP_RECORD:
                    self._drop(context)
                case _:
                    assert_never(step)

    def _record_started(self, context: ClaimContext) -> None:
        """Check for conflicts and write the record, without an await between: two claims cannot both pass."""
        others = [record for uid, record in self._checkpoint.records.items() if uid != context.claim.uid]
        check_conflicts(context.wanted, others, context.claim.namespace)
        if context.record is None:  # else it has its place among the others, which are compared with it
            check_share_totals(context.demands, others, context.claim.namespace)
        record = PreparedClaim(
            claim=context.claim,
            state=ClaimState.STARTED,
            boot_id=self._boot_id,
            pod_claim_name=context.pod_claim_name,
            awaits_pod=context.awaits_pod,
            resource=context.resource,
            devices=context.wanted,
        )
        self._put(context, record)
        self._held.pop(context.claim.uid, None)

    async def _undo(self, context: ClaimContext, before: PreparedClaim) -> None:
        """Release what a failed prepare did. If that fails, too, the record stays, and a later call tries again.

        What was ready ``before`` is kept: a container may run with it. So are the record and the file of a claim that
        is repaired.
        """
        try:
            if context.repaired is None and all(device.handle is None for device in before.devices):
                await self.execute(RELEASE, context)
                return
            made = [
                device
                for device, was in zip(context.existing.devices, before.devices, strict=True)
                if was.handle is None
            ]
            context.record = before
            if context.repaired is None:
                await self.execute((Step.REMOVE_CDI,), context)
            await self._hardware.release_devices(replace(before, devices=tuple(made)))
            if context.repaired is not None:
                self._put(context, context.repaired)
        except KerfError as error:
            _log.error("could not undo a failed prepare, will try again: %s", error)

    @contextmanager
    def _deferred_while_held(self, context: ClaimContext) -> Iterator[None]:
        """Raise ReleaseDeferredError when nothing but the absence of cards keeps devices from being released, or
        processes that have not ended after some tries.

        The record then has these alone: the others are free for the next claim, however long it takes.
        """
        try:
            yield
        except DevicesFailedError as error:
            if not all(isinstance(failure, CardAbsentError | HardwareHeldError) for failure in error.failures):
                raise
            is_held = any(isinstance(failure, HardwareHeldError) for failure in error.failures)
            self._held[context.claim.uid] += is_held
            if is_held and self._held[context.claim.uid] < HELD_TRIES:
                raise
            if len(error.failed) < len(context.existing.devices):
                self._put(context, replace(context.existing, devices=error.failed))
            reason = "a process to end" if is_held else "a card that is not there"
            raise ReleaseDeferredError(f"the release waits for {reason}: {error}") from error

    def set_aside(self, context: ClaimContext) -> ClaimRef:
        """Keep the record apart from the claim, which has other devices now; returns the record's new UID."""
        aside = self._checkpoint.set_aside(context.claim.uid).claim
        self._held[aside.uid] = self._held.pop(context.claim.uid, 0)
        context.record = None
        self._report_change()
        return aside

    async def _write_cdi(self, context: ClaimContext) -> None:
        """Write the claim's files, in a worker thread: a slow disk must not keep probes and other claims waiting."""
        claim, record = context.claim, context.existing
        identities = self._hardware.identify(record.devices)
        uuids = {device.share: identity.uuid for device, identity in zip(record.devices, identities, strict=True)}
        documents = device_metadata.build_documents(record, lambda device: uuids[device.share])
        mounts = {
            request: device_metadata.build_mount(self._driver, record, request, str(path))
            for request, path in self._metadata.paths(claim.uid, documents).items()
        }
        of_requests = self._hardware.build_request_edits(record.devices)
        for request, mount in mounts.items():
            of_requests[request] = of_requests.get(request, cdi.ContainerEdits()) + mount
        edits = cdi_spec.number_variables(record.devices, (identity.edits for identity in identities))
        spec = cdi_spec.build_spec(self._driver, claim, record.devices, edits, of_requests)
        context.record = replace(record, devices=cdi_spec.add_cdi_ids(claim, record.devices, spec))
        await self._files.run(self._write_files, claim, documents, spec)

    def _write_files(self, claim: ClaimRef, documents: Mapping[str, bytes], spec: cdi.Spec | None) -> None:
        """Write the CDI file, where the claim has one, after the metadata files that it mounts."""
        self._metadata.write(claim.uid, documents)
        if spec is None:
            self._remove_files(claim)
        else:
            with _cdi_errors():
                self._store.write(cdi_spec.file_name(self._driver, claim.uid), spec)

    def _remove_files(self, claim: ClaimRef) -> None:
        with _cdi_errors():
            self._store.remove(cdi_spec.file_name(self._driver, claim.uid))
        self._metadata.remove(claim.uid)

    def _drop(self, context: ClaimContext) -> None:
        self._checkpoint.drop(context.claim.uid)
        self._held.pop(context.claim.uid, None)
        context.record = None
        self._report_change()

    def _put(self, context: ClaimContext, record: PreparedClaim) -> None:
        self._checkpoint.put(record)
        context.record = record
        self._report_change()

    def _report_change(self) -> None:
        self._record_count.set(len(self._checkpoint.records))
        self._state.note_records()


@contextmanager
def _cdi_errors() -> Iterator[None]:
    try:
        yield
    except cdi.CDIError as error:
        raise CdiFileError(f"the claim's CDI file: {error}") from error
