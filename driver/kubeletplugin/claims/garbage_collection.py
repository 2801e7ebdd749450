"""Garbage collection of claims that no kubelet will unprepare, and of stray metadata files.

The kubelet unprepares a claim when the last pod that uses it has ended, and retries for ever. But it forgets claims: on
a node that is drained by force, when it loses its own checkpoint, when it is busy (kubernetes/kubernetes#140527). What
was begun and never finished is released as soon as the claim is gone, and so is what was prepared for a pod that
never started; nothing runs on either. What was prepared may still be used by a container that is about to end, so the
kubelet gets time to unprepare it first. A claim that is there but reserved for no pod for that time is released, too.

**An end needs proof.** That no claim is seen, or one without devices, may mean a version of the API that is switched
off, a proxy, or an API server that was restored from an old backup. Only answers that are the claim asked for count; of
404s only a Status of the API server that names it (``cluster.read_claim``). They must agree over time, from the
server's storage and its cache (``cluster.claim_end``), and be confirmed right before the release by one more, by
discovery and by the list of claims. Neither the kubelet, which knows its pods, nor processes on the hardware, nor the
pods themselves may contradict (``claim_users``). Where these disagree the devices stay, are tainted so that no other
claim gets them, and it is reported.

A CDI file without a record is not collected: a record is there before its file and after it, so the record was lost,
and a pod may run with the partitions that the file names. It is reported, and goes when the kubelet unprepares the
claim.

A release that could not be finished, because its card was away, is finished as soon as the card has been surveyed.
"""

import logging
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import anyio

from kerf_dra import cdi
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kubeletplugin.claims import cdi_spec
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint, claim_uid_of
from kerf_dra.driver.kubeletplugin.claims.claim_users import ClaimUsers
from kerf_dra.driver.kubeletplugin.claims.device_metadata import MetadataFileError, MetadataFiles
from kerf_dra.driver.kubeletplugin.claims.preparer import ClaimPreparer
from kerf_dra.driver.kubeletplugin.claims.transitions import may_run
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.cluster.claim_end import (
    ANSWERS,
    ANSWERS_ALONE,
    ClaimEnd,
    EndContradictedError,
    EndProof,
    SeenClaims,
    Source,
    add_answer,
    find_end,
)
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)

_ORPHANED: Final = metrics.gauge(
    "kerf_orphaned_claims",
    "Claims that the API server shows as ended, and that a pod or a process of this node uses, or the server itself "
    "contradicts.",
    ["driver"],
)
_COLLECTED: Final = metrics.counter(
    "kerf_garbage_collected_total", "Claims, unfinished releases and files that were collected.", ["driver", "what"]
)


class CollectionSchedule:
    """Decides which claims are looked up at the API server now. Pure.

    All at the start; later at ``interval_s`` those with which pods run by the kubelet's account, at
    ``unused_interval_s`` the others, and at once those with which none runs any more. Times are in seconds.
    """

    def __init__(self, interval_s: float, unused_interval_s: float) -> None:
        self._interval_s = interval_s
        self._unused_interval_s = unused_interval_s
        self._used: Collection[str] = ()
        self._checked: dict[str, float] | None = None
        """When each claim was last looked up, or is known since; None before the start."""

    def find_due(self, now: float, uids: Collection[str], used: Collection[str]) -> set[str]:
        """Return which of the claims ``uids`` are to be looked up at ``now``; ``used`` are those that pods use."""
        checked = dict.fromkeys(uids, -math.inf) if self._checked is None else self._checked
        checked = {uid: checked.get(uid, now) for uid in uids}
        due = {
            uid
            for uid, at in checked.items()
            if (uid in self._used and uid not in used)
            or now - at >= (self._interval_s if uid in used else self._unused_interval_s)
        }
        self._checked = checked | dict.fromkeys(due, now)
        self._used = frozenset(used)
        return due


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
        users: ClaimUsers,
        state: NodeState,
        seen: SeenClaims,
        clock: Callable[[], float],
    ) -> None:
        self._driver = settings.driver_name
        self._interval_s = settings.collect_interval_s
        self._unused_interval_s = settings.collect_unused_interval_s
        self._usage_interval_s = settings.usage_interval_s
        self._grace_s = settings.gone_grace_s
        self._boot_id = boot_id
        self._preparer = preparer
        self._checkpoint = checkpoint
        self._store = store
        self._metadata = metadata
        self._cluster = cluster
        self._clock = clock
        self._users = users
        self._state = state
        self._orphaned = state.restrictions.orphaned
        self._seen = seen
        self._proofs: dict[str, EndProof] = {}
        """What shows that a claim has ended, by UID."""
        self._used: set[str] = set()
        """The claims that pods use, as the kubelet said last."""
        self._doubts = ProblemLog(_log)
        """Why it is unknown whether a claim has ended, by UID."""

    def check_files(self) -> None:
        """Remove what interrupted writes left, and metadata of claims without record or CDI file; report lost
        records.
        """
        prefix = cdi_spec.file_prefix(self._driver)
        kept = set(self._checkpoint.records)
        try:
            self._store.sweep(prefix)
        except cdi.CDIError as error:
            _log.warning("cannot remove stray files, the next start tries again: %s", error)
        try:
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
            "no record has what it made on a card: end its pods, remove its partitions with the vendor's tool, then "
            "the file"
        )
        _log.error("%s", message)
        self._cluster.report(None, type="Warning", reason="RecordLost", message=message)

    async def collect(self, uids: Collection[str]) -> None:
        """Check the claims ``uids`` once; an error with one does not keep the others from being checked."""
        self._doubts.keep(self._checkpoint.records)
        self._seen.keep(self._checkpoint.records)
        for uid in sorted(uids):
            record = self._checkpoint.get(uid)
            if record is None or record.resource:
                self._forget(uid)
                continue
            try:
                await self._collect(record)
            except KerfError as error:
                self._doubts.note(uid, f"claim {record.claim} is left as it is until more is known: {error}")
            else:
                self._doubts.clear(uid)

    async def run(self) -> None:
        """Check claims when they are due (``CollectionSchedule``), and suspect ones at once, until cancelled."""
        schedule = CollectionSchedule(self._interval_s, self._unused_interval_s)
        while True:
            change = self._state.suspects.next_event
            uids = {uid for uid, record in self._checkpoint.records.items() if not record.resource}
            due = schedule.find_due(self._clock(), uids, self._list_running(await self._list_used()))
            await self.collect(due | self._state.suspects.take() | self._proofs.keys())
            with anyio.move_on_after(self._usage_interval_s):
                await change.wait()

    async def _list_used(self) -> set[str]:
        try:
            self._used = await self._users.list_used()
        except KerfError as error:  # what may run is not released meanwhile, so that looking it up is of no use
            _log.debug("%s", error)
        return self._used

    def _list_running(self, used: Collection[str]) -> set[str]:
        """List those of the claims ``used`` with which containers may run: a pod is listed while it waits, too."""
        records = self._checkpoint.records
        return {uid for uid in used if uid in records and may_run(records[uid], self._boot_id)}

    async def _collect(self, record: PreparedClaim) -> None:
        uid = record.claim.uid
        if record.state is ClaimState.RELEASING and uid in self._state.deferred:  # the kubelet thinks it done
            await self._preparer.finish_release(record.claim)
            self._count(uid, "release")
            return
        proof = await self._look(record)
        if proof is None:
            self._forget(uid)
            return
        is_in_doubt = may_run(record, self._boot_id)
        if proof.doubt:
            self._tell_doubt(record, proof)
        if proof.answers < await self._count_needed(proof.end, is_in_doubt=is_in_doubt):
            return
        if is_in_doubt and (user := await self._users.find_user(record, self._seen.get(uid).pods)):
            if proof.end is not ClaimEnd.UNRESERVED:
                self._tell_orphan(record, f"{proof.end}, says the API server, but {user}")
            return
        try:
            await self._preparer.release_if_gone(record)
        except EndContradictedError as error:
            self._proofs[uid] = proof = proof.reject(str(error))
            self._tell_doubt(record, proof)
            return
        self._forget(uid)
        self._count(uid, "claim")

    async def _look(self, record: PreparedClaim) -> EndProof | None:
        """Have the API server asked once more; returns what shows that the claim has ended, None: it has not."""
        uid, seen = record.claim.uid, self._seen
        proof = self._proofs.get(uid)
        source = proof.next_source if proof is not None else Source.STORAGE
        not_older_than = seen.get(uid).newest if source is Source.CACHE else None
        claim = await self._cluster.read_claim(record.claim, not_older_than=not_older_than)
        end = find_end(claim, record, claim_uid_of(uid))
        contradiction = seen.get(uid).find_contradiction(claim) if end is not None else ""
        if not contradiction:
            seen.note(uid, claim, is_in_use=end is None)
        proof = add_answer(proof, source, end, contradiction, now=self._clock(), grace_s=self._grace_s)
        if proof is not None:
            self._proofs[uid] = proof
        return proof

    async def _count_needed(self, end: ClaimEnd, *, is_in_doubt: bool) -> int:
        """Return how many answers prove the end of a claim: one where nothing can run with its devices."""
        if is_in_doubt:
            return ANSWERS if await self._users.lists_claims() else ANSWERS_ALONE
        return ANSWERS if end is ClaimEnd.UNRESERVED else 1

    def _tell_doubt(self, record: PreparedClaim, proof: EndProof) -> None:
        """Report an end that stays contradicted: the scheduler may take the devices for free."""
        if self._clock() - proof.since >= self._grace_s:
            self._tell_orphan(record, f"{proof.end}, says the API server, and contradicts itself: {proof.doubt}")

    def _tell_orphan(self, record: PreparedClaim, why: str) -> None:
        """Keep the devices from other claims, and report it once."""
        if not self._orphaned.add(record):
            return
        self._count_orphans()
        devices = ", ".join(device.share.id.device for device in record.devices)
        message = (
            f"claim {record.claim} (UID {record.claim.uid}): {why}; {devices} is kept for it and gets no other claims: "
            "restore the claim if the API server has lost it, else end the pod"
        )
        _log.error("%s", message)
        self._cluster.report(None, type="Warning", reason="ClaimOrphaned", message=message)
        self._state.note_orphans()

    def _forget(self, uid: str) -> None:
        self._proofs.pop(uid, None)
        if self._orphaned.discard(uid):
            self._count_orphans()
            self._state.note_orphans()

    def _count_orphans(self) -> None:
        _ORPHANED.labels(self._driver).set(len(self._orphaned.claim_uids))

    def _count(self, uid: str, what: str) -> None:
        if self._checkpoint.get(uid) is None:
            _COLLECTED.labels(self._driver, what).inc()
