"""Takes back what nobody will unprepare: claims that went while plugin or kubelet were away, and stray CDI files.

The kubelet unprepares a claim when the last pod that uses it has ended, and tries for ever. But it forgets: a node that
is drained by force, a kubelet that lost its own checkpoint. What was begun and never finished is taken back as soon as
the claim is gone; nothing runs on it. What was prepared may still be used by a container that is about to end, so the
kubelet gets time to do it properly first; what was made ready for a pod that never came is not.
"""

import logging
from collections.abc import Callable, Collection
from typing import Final

import anyio

import cdi
from api.errors import KerfError
from api.model.prepared import PreparedClaim
from driver.kubeletplugin.claims import cdi_spec
from driver.kubeletplugin.claims.checkpoint import Checkpoint
from driver.kubeletplugin.claims.metadata_files import MetadataFileError, MetadataFiles
from driver.kubeletplugin.claims.preparer import Preparing
from driver.kubeletplugin.claims.transitions import Found, found, is_gone
from driver.kubeletplugin.cluster.base import Cluster
from driver.runtime import metrics

_log = logging.getLogger(__name__)

_COLLECTED: Final = metrics.counter("kerf_collected_total", "Things taken back that nobody unprepared.", ["what"])


class Collecting:
    """Looks after the records of one node. Times are in seconds; ``clock`` is monotonic."""

    def __init__(
        self,
        *,
        driver: str,
        boot_id: str,
        preparing: Preparing,
        checkpoint: Checkpoint,
        store: cdi.Store,
        metadata: MetadataFiles,
        cluster: Cluster,
        interval_s: float,
        grace_s: float,
        clock: Callable[[], float],
    ) -> None:
        """``grace_s``: how long a prepared claim has to be gone before its devices are taken from it."""
        self._driver = driver
        self._boot_id = boot_id
        self._preparing = preparing
        self._checkpoint = checkpoint
        self._store = store
        self._metadata = metadata
        self._cluster = cluster
        self._interval_s = interval_s
        self._grace_s = grace_s
        self._clock = clock
        self._gone_since: dict[str, float] = {}

    def sweep_files(self) -> None:
        """Remove CDI and metadata files of claims without a record, and what an interrupted write left."""
        kept = {cdi_spec.file_name(self._driver, uid) for uid in self._checkpoint.records}
        try:
            self._store.sweep(cdi_spec.file_prefix(self._driver))
            for name in self._store.names(cdi_spec.file_prefix(self._driver)):
                if name not in kept:
                    _log.warning("removing CDI file %s: its claim is not prepared", name)
                    self._store.remove(name)
                    _COLLECTED.labels("file").inc()
        except cdi.CDIError as error:
            _log.error("cannot remove stray CDI files: %s", error)
        try:
            for uid in self._metadata.sweep(self._checkpoint.records.keys()):
                _log.warning("removed device metadata of claim %s, which is not prepared", uid)
        except MetadataFileError as error:
            _log.error("cannot remove stray files: %s", error)

    async def collect(self, uids: Collection[str]) -> None:
        """Look once at the claims ``uids``; an error with one does not hide the others."""
        for uid in sorted(uids):
            record = self._checkpoint.get(uid)
            if record is None:
                self._gone_since.pop(uid, None)
                continue
            try:
                await self._look_at(record)
            except KerfError as error:
                _log.warning("cannot tell yet whether claim %s is gone: %s", record.claim, error)

    async def run(self) -> None:
        """For ever: every claim at the start and each interval, doubtful ones sooner."""
        next_full = self._clock()
        while True:
            change = self._preparing.suspects.next
            full = self._clock() >= next_full
            if full:
                next_full = self._clock() + self._interval_s
            suspects = self._preparing.suspects.take()
            uids = set(self._checkpoint.records) if full else suspects | self._gone_since.keys()
            await self.collect(uids)
            pause_s = min(self._grace_s, self._interval_s) if self._gone_since else next_full - self._clock()
            with anyio.move_on_after(max(pause_s, 0)):
                await change.wait()

    async def _look_at(self, record: PreparedClaim) -> None:
        uid = record.claim.uid
        if not is_gone(await self._cluster.read_claim(record.claim), record):
            self._gone_since.pop(uid, None)
            return
        since = self._gone_since.setdefault(uid, self._clock())
        running = found(record, self._boot_id) is Found.PREPARED and not record.awaits_pod
        if not running or self._clock() - since >= self._grace_s:
            await self._preparing.release_if_gone(record.claim)
            self._gone_since.pop(uid, None)
            if self._checkpoint.get(uid) is None:
                _COLLECTED.labels("claim").inc()
