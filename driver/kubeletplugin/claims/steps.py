"""Carries out the steps of ``transitions`` for one claim: the only place that changes records, hardware and CDI files.

Whatever happens, hardware that was touched has a record. A prepare that fails takes back what it did; if even that
fails, or the process dies, the record says *started* and the next call, or ``collecting``, goes on from there.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, assert_never

from msgspec.structs import replace

import cdi
from api.errors import KerfError, TransientError
from api.model.names import ClaimRef
from api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from api.resource.device_metadata import encode as encode_metadata
from driver.kubeletplugin.claims import cdi_spec, device_metadata
from driver.kubeletplugin.claims.allocation import refuse_conflicts
from driver.kubeletplugin.claims.checkpoint import Checkpoint
from driver.kubeletplugin.claims.hardware import DevicesFailedError, Lanes
from driver.kubeletplugin.claims.metadata_files import MetadataFiles
from driver.kubeletplugin.claims.transitions import TAKE_BACK, Step
from driver.runtime import metrics

_log = logging.getLogger(__name__)

_RECORDS: Final = metrics.gauge("kerf_claim_records", "Claims in the checkpoint of this node.")


class CdiFileError(TransientError):
    """The claim's CDI file could not be written or removed."""


@dataclass(slots=True)
class Job:
    """One claim while steps are carried out."""

    claim: ClaimRef
    record: PreparedClaim | None
    """As in the checkpoint, except between the hardware's work and the step that records it."""
    wanted: tuple[PreparedDevice, ...] = ()
    """What to make, where something is to be made."""
    pod_claim_name: str = ""
    """The pod's name for the claim, when it was made from a template."""
    awaits_pod: bool = False
    """Whether it is done before the pod is bound."""

    @property
    def existing(self) -> PreparedClaim:
        assert self.record is not None, "the steps before have written one"
        return self.record


class Stepping:
    """The means to carry out steps. Every step may be repeated, by this process or its successor."""

    def __init__(
        self,
        *,
        driver: str,
        boot_id: str,
        checkpoint: Checkpoint,
        lanes: Lanes,
        store: cdi.Store,
        metadata: MetadataFiles,
        on_change: Callable[[], None],
    ) -> None:
        """``on_change`` is called when what is in use has changed."""
        self._driver = driver
        self._boot_id = boot_id
        self._checkpoint = checkpoint
        self._lanes = lanes
        self._store = store
        self._metadata = metadata
        self._on_change = on_change
        _RECORDS.set(len(checkpoint.records))  # those that the process before us has left

    async def carry_out(self, steps: Sequence[Step], job: Job) -> None:
        """One after the other; the first that fails is the last. Raises its KerfError."""
        for step in steps:
            match step:
                case Step.RECORD_STARTED:
                    await self._record_started(job)
                case Step.PREPARE_HARDWARE:
                    try:
                        devices = await self._lanes.prepare(job.claim, job.existing.devices)
                    except DevicesFailedError as error:
                        job.record = replace(job.existing, devices=error.devices)
                        await self._undo(job)
                        raise
                    job.record = replace(job.existing, devices=devices)
                case Step.WRITE_CDI:
                    self._write_cdi(job)
                case Step.RECORD_PREPARED:
                    self._put(job, replace(job.existing, state=ClaimState.PREPARED, awaits_pod=job.awaits_pod))
                case Step.RECORD_RELEASING:  # handles are kept, so that exactly what was made is taken back
                    self._put(job, replace(job.existing, state=ClaimState.RELEASING))
                case Step.REMOVE_CDI:
                    self._remove_cdi(job.claim)
                case Step.RELEASE_HARDWARE:
                    await self._lanes.release(job.claim, job.existing.devices, self._checkpoint.records)
                case Step.DROP_RECORD:
                    self._drop(job)
                case _:
                    assert_never(step)

    async def _record_started(self, job: Job) -> None:
        """Nothing is awaited between the check for conflicts and the record: two claims cannot both pass.

        Hardware is touched once the record would survive a power cut.
        """
        others = (record for uid, record in self._checkpoint.records.items() if uid != job.claim.uid)
        refuse_conflicts(job.wanted, others)
        record = PreparedClaim(
            claim=job.claim,
            state=ClaimState.STARTED,
            boot_id=self._boot_id,
            pod_claim_name=job.pod_claim_name,
            awaits_pod=job.awaits_pod,
            devices=job.wanted,
        )
        self._put(job, record)
        await self._checkpoint.sync()

    async def _undo(self, job: Job) -> None:
        """Take back a prepare that failed. If that fails, too, the record stays, and it is tried again later."""
        try:
            await self.carry_out(TAKE_BACK, job)
        except KerfError as error:
            _log.error("could not take back what a failed prepare did, will try again: %s", error)

    def _write_cdi(self, job: Job) -> None:
        """What the file mounts comes first."""
        record = job.existing
        documents = {request: encode_metadata(each) for request, each in device_metadata.documents(record).items()}
        paths = self._metadata.write(job.claim.uid, documents)
        mounts = {
            request: device_metadata.mount(self._driver, record, request, str(path)) for request, path in paths.items()
        }
        spec = cdi_spec.spec(self._driver, job.claim, record.devices, self._lanes.edits(record.devices), mounts)
        if spec is None:
            self._remove_cdi(job.claim)
        else:
            with _cdi_errors():
                self._store.write(cdi_spec.file_name(self._driver, job.claim.uid), spec)
        job.record = replace(record, devices=cdi_spec.with_ids(job.claim, record.devices, spec))

    def _remove_cdi(self, claim: ClaimRef) -> None:
        with _cdi_errors():
            self._store.remove(cdi_spec.file_name(self._driver, claim.uid))
        self._metadata.remove(claim.uid)

    def _drop(self, job: Job) -> None:
        self._checkpoint.drop(job.claim.uid)
        job.record = None
        self._changed()

    def _put(self, job: Job, record: PreparedClaim) -> None:
        self._checkpoint.put(record)
        job.record = record
        self._changed()

    def _changed(self) -> None:
        _RECORDS.set(len(self._checkpoint.records))
        self._on_change()


@contextmanager
def _cdi_errors() -> Iterator[None]:
    try:
        yield
    except cdi.CDIError as error:
        raise CdiFileError(f"the claim's CDI file: {error}") from error
