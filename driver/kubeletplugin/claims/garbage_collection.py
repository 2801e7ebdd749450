"""Garbage collection of claims that nobody will unprepare, and of stray metadata files.

The kubelet unprepares a claim when the last pod that uses it has ended, and retries for ever. But it forgets claims: on
a node that is drained by force, or when it loses its own checkpoint. What was begun and never finished is released as
soon as the claim is gone, and so is what was prepared for a pod that never started; nothing runs on either. What was
prepared may still be used by a container that is about to end, so the kubelet gets time to unprepare it first.

A CDI file without a record is not collected: a record is there before its file and after it, so the record was lost,
and a pod may run with the partitions that the file names. It is told, and goes when the kubelet unprepares the claim.

A release that could not be finished, because its card was away, is finished as soon as the card has been surveyed.
"""

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import anyio

import cdi
from api.errors import KerfError
from api.model.prepared import ClaimState, PreparedClaim
from driver.kubeletplugin.claims import cdi_spec
from driver.kubeletplugin.claims.checkpoint import Checkpoint
from driver.kubeletplugin.claims.device_metadata import MetadataFileError, MetadataFiles
from driver.kubeletplugin.claims.preparer import ClaimPreparer
from driver.kubeletplugin.claims.transitions import RecordState, classify_record, is_gone
from driver.kubeletplugin.cluster.base import Cluster
from driver.kubeletplugin.settings import Settings
from driver.runtime import metrics

_log = logging.getLogger(__name__)

_COLLECTED: Final = metrics.counter(
    "kerf_garbage_collected_total", "Claims, unfinished releases and files that were collected.", ["driver", "what"]
)


class ClaimGarbageCollector:
    """The garbage collector of one node. ``clock`` returns monotonic seconds."""

    def __init__(
        self,
        *,
        settings: Settings,
        boot_id: str,
        preparer: ClaimPreparer,
        checkpoint: Checkpoint,
        store: cdi.Store,
        metadata: MetadataFiles,
        cluster: Cluster,
        clock: Callable[[], float],
    ) -> None:
        self._driver = settings.driver_name
        self._interval_s = settings.collect_interval_s
        self._grace_s = settings.gone_grace_s
        self._boot_id = boot_id
        self._preparer = preparer
        self._checkpoint = checkpoint
        self._store = store
        self._metadata = metadata
        self._cluster = cluster
        self._clock = clock
        self._gone_since: dict[str, float] = {}

    def check_files(self) -> None:
        """Remove what interrupted writes left, and metadata of claims without record or CDI file; tell lost records."""
        prefix = cdi_spec.file_prefix(self._driver)
        kept = set(self._checkpoint.records)
        try:
            self._store.sweep(prefix)
            for name in self._store.names(prefix):
                if (uid := name.removeprefix(prefix)) not in self._checkpoint.records:
                    kept.add(uid)
                    self._tell_lost_record(uid, self._store.path(name))
        except cdi.CDIError as error:
            _log.error("cannot check CDI files: %s", error)
        try:
            for uid in self._metadata.remove_others(kept):
                _log.warning("removed device metadata of claim %s, which is not prepared", uid)
        except MetadataFileError as error:
            _log.error("cannot remove stray files: %s", error)

    def _tell_lost_record(self, uid: str, path: Path) -> None:
        message = (
            f"the record of the claim with UID {uid} is lost: {path} is there, and the checkpoint does not have it; "
            "what it has on a card is nobody's now: end its pods, remove its partitions by the vendor's tool, then the "
            "file"
        )
        _log.error("%s", message)
        self._cluster.report(None, type="Warning", reason="RecordLost", message=message)

    def finish_releases(self, card_uuid: str) -> None:
        """Have releases finished that wait for this card, because it has been surveyed: it is there."""
        for uid in self._preparer.deferred & self._checkpoint.records.keys():
            record = self._checkpoint.records[uid]
            if any(device.part.card_uuid == card_uuid for device in record.devices):
                self._preparer.suspects.add(record.claim)

    async def collect(self, uids: Collection[str]) -> None:
        """Check the claims ``uids`` once; an error with one does not keep the others from being checked."""
        for uid in sorted(uids):
            record = self._checkpoint.get(uid)
            if record is None:
                self._gone_since.pop(uid, None)
                continue
            try:
                await self._collect(record)
            except KerfError as error:
                _log.warning("cannot tell yet whether claim %s is gone: %s", record.claim, error)

    async def run(self) -> None:
        """Check every claim at the start and each interval, suspect claims sooner, until cancelled."""
        next_full = self._clock()
        while True:
            change = self._preparer.suspects.next_event
            full = self._clock() >= next_full
            if full:
                next_full = self._clock() + self._interval_s
            suspects = self._preparer.suspects.take()
            uids = set(self._checkpoint.records) if full else suspects | self._gone_since.keys()
            await self.collect(uids)
            pause_s = min(self._grace_s, self._interval_s) if self._gone_since else next_full - self._clock()
            with anyio.move_on_after(max(pause_s, 0)):
                await change.wait()

    async def _collect(self, record: PreparedClaim) -> None:
        uid = record.claim.uid
        if record.state is ClaimState.RELEASING and uid in self._preparer.deferred:  # the kubelet thinks it done
            await self._preparer.finish_release(record.claim)
            self._count(uid, "release")
            return
        if not is_gone(await self._cluster.read_claim(record.claim), record):
            self._gone_since.pop(uid, None)
            return
        since = self._gone_since.setdefault(uid, self._clock())
        may_run = classify_record(record, self._boot_id) is RecordState.PREPARED and not record.awaits_pod
        if not may_run or self._clock() - since >= self._grace_s:
            await self._preparer.release_if_gone(record.claim)
            self._gone_since.pop(uid, None)
            self._count(uid, "claim")

    def _count(self, uid: str, what: str) -> None:
        if self._checkpoint.get(uid) is None:
            _COLLECTED.labels(self._driver, what).inc()
