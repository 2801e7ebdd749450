"""Garbage collection of claims that nobody will unprepare, and of stray CDI and metadata files.

The kubelet unprepares a claim when the last pod that uses it has ended, and retries for ever. But it forgets claims: on
a node that is drained by force, or when it loses its own checkpoint. What was begun and never finished is released as
soon as the claim is gone, and so is what was prepared for a pod that never started; nothing runs on either. What was
prepared may still be used by a container that is about to end, so the kubelet gets time to unprepare it first.

A release that could not be finished, because its card was away, is finished as soon as the card has been surveyed.
"""

import logging
from collections.abc import Callable, Collection
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

    def remove_stray_files(self) -> None:
        """Remove CDI and metadata files of claims without a record, and what an interrupted write left."""
        kept = {cdi_spec.file_name(self._driver, uid) for uid in self._checkpoint.records}
        try:
            self._store.sweep(cdi_spec.file_prefix(self._driver))
            for name in self._store.names(cdi_spec.file_prefix(self._driver)):
                if name not in kept:
                    _log.warning("removing CDI file %s: its claim is not prepared", name)
                    self._store.remove(name)
                    _COLLECTED.labels(self._driver, "file").inc()
        except cdi.CDIError as error:
            _log.error("cannot remove stray CDI files: %s", error)
        try:
            for uid in self._metadata.remove_others(self._checkpoint.records.keys()):
                _log.warning("removed device metadata of claim %s, which is not prepared", uid)
        except MetadataFileError as error:
            _log.error("cannot remove stray files: %s", error)

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
