"""Writes the files of prepared claims again where another program has removed or changed them.

A round costs one lstat(2) for each file and no reading: what a file's inode says of it (identity, mode, size, times) is
compared with what it said when the content was last found right. Only what differs is read, and only what has another
content or mode, or is a link, is written (``cdi.Store``, ``MetadataFiles``). The time of the inode's last change cannot
be set by a program, so no change is missed.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from kerf_dra import cdi
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.kubeletplugin.claims import cdi_spec
from kerf_dra.driver.kubeletplugin.claims.device_metadata import MetadataFiles
from kerf_dra.driver.kubeletplugin.claims.repair.prepared_records import PreparedRecords
from kerf_dra.driver.kubeletplugin.claims.steps import ClaimContext, StepExecutor
from kerf_dra.driver.kubeletplugin.claims.transitions import RecordState, Step, classify_record
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.problem_log import ProblemLog
from kerf_dra.driver.runtime.worker_threads import LimitedCalls, Work

_log = logging.getLogger(__name__)

REPAIRS: Final = metrics.counter(
    "kerf_repairs_total",
    "Repairs under running pods: files (written), devices (partitions made), numbers (of nodes), sharing (by MPS).",
    ["driver", "what"],
)
_LIMIT_S: Final = 300.0
"""Longest wait for the next try with files that cannot be written: a person who has freed the disk waits five minutes
at most."""

Stamp: TypeAlias = tuple[tuple[int, ...] | None, ...]
"""What the inode of each file of a claim says of it, None for one that is not there."""


class FileRepairer:
    """The repairer of the files of one node's claims."""

    def __init__(
        self,
        *,
        settings: Settings,
        boot_id: str,
        records: PreparedRecords,
        executor: StepExecutor,
        store: cdi.Store,
        metadata: MetadataFiles,
        cluster: Cluster,
        start: Callable[[Work], None],
    ) -> None:
        """``start`` begins work in a thread: files are looked at there."""
        self._driver = settings.driver_name
        self._interval_s = settings.survey_interval_s
        self._boot_id = boot_id
        self._records = records
        self._executor = executor
        self._store = store
        self._metadata = metadata
        self._cluster = cluster
        self._calls = LimitedCalls(1, start=start)
        self._retries = Backoff(first_s=self._interval_s, factor=2, limit_s=max(_LIMIT_S, self._interval_s), jitter=0.1)
        self._right: dict[str, tuple[PreparedClaim, Stamp]] = {}
        """By claim UID: the record, and the inodes of files that were found to have what it says."""
        self._delays: dict[str, Iterator[float]] = {}
        """By claim UID: the waits of claims whose files could not be written."""
        self._retry_at: dict[str, float] = {}
        self._problems = ProblemLog(_log, logging.ERROR)

    def find_cdi_file(self, claim: ClaimRef) -> Path:
        """Return the path of a claim's CDI file."""
        return self._store.path(cdi_spec.file_name(self._driver, claim.uid))

    async def run(self) -> None:
        """Compare the files at the interval of surveys, until cancelled."""
        while True:
            await self.repair()
            await anyio.sleep(self._interval_s)

    async def repair(self) -> None:
        """Compare the files of all prepared claims once, and write again what is not as it should be."""
        records = self._list_prepared()
        self._forget_others({record.claim.uid for record in records})
        now = anyio.current_time()
        due = [record for record in records if self._retry_at.get(record.claim.uid, now) <= now]
        stamps = await self._calls.run(self._stamp_all, due)
        for record, stamp in zip(due, stamps, strict=True):
            known = self._right.get(record.claim.uid)
            if known is None or known[0] is not record or known[1] != stamp:
                error = await self._records.run_alone(record, "restore files", self._restore)
                self._note_result(record, error)

    def _list_prepared(self) -> list[PreparedClaim]:
        return [record for record in self._records.list_all() if self._is_prepared(record)]

    def _is_prepared(self, record: PreparedClaim) -> bool:
        return classify_record(record, self._boot_id) is RecordState.PREPARED

    async def _restore(self, uid: str) -> None:
        """Check the content of a claim's files, and write them again where it is another. Raises KerfError."""
        record = self._records.find(uid)
        if record is None or not self._is_prepared(record):
            return
        before = await self._calls.run(self._stamp, record)
        await self._executor.execute((Step.WRITE_CDI,), ClaimContext(record.claim, record))
        after = await self._calls.run(self._stamp, record)
        self._right[uid] = (record, before)  # where it differs, the next round reads once more what was written
        if after != before:
            REPAIRS.labels(self._driver, "files").inc()
            _log.warning("files of the claim were removed or changed by another program, and are written again")

    def _note_result(self, record: PreparedClaim, error: Exception | None) -> None:
        uid = record.claim.uid
        if error is None:
            self._retry_at.pop(uid, None)
            self._delays.pop(uid, None)
            if self._problems.clear(uid):
                _log.info("claim %s: its files are right again", record.claim)
            return
        delays = self._delays.setdefault(uid, self._retries.delays())
        self._retry_at[uid] = anyio.current_time() + next(delays)
        is_first = not self._problems.messages
        reason = str(error) or repr(error)
        message = f"claim {record.claim}: its files cannot be written, so its containers cannot be started: {reason}"
        if self._problems.note(uid, message) and is_first:  # one event, where a full disk concerns all claims
            self._cluster.report(None, type="Warning", reason="ClaimFilesNotWritten", message=message)

    def _forget_others(self, uids: set[str]) -> None:
        for known in (self._right, self._delays, self._retry_at):
            for uid in known.keys() - uids:
                del known[uid]
        self._problems.keep(uids)

    def _stamp_all(self, records: Sequence[PreparedClaim]) -> list[Stamp]:
        return [self._stamp(record) for record in records]

    def _stamp(self, record: PreparedClaim) -> Stamp:
        described = [device for device in record.devices if device.description is not None]
        requests = sorted({request for device in described for request in device.requests})
        metadata = self._metadata.paths(record.claim.uid, requests).values()
        return tuple(_read_inode(path) for path in (self.find_cdi_file(record.claim), *metadata))


def _read_inode(path: Path) -> tuple[int, ...] | None:
    """Return what distinguishes a file from any other, and any change of it; None: there is none that can be looked
    at.
    """
    try:
        status = path.lstat()
    except OSError:
        return None
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_dev, status.st_ino, status.st_mode, status.st_size, *times)
