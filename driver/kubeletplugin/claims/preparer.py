"""Prepare and unprepare: finds out how things stand with a claim, and has the steps carried out that follow.

One claim is worked on by one task at a time (``SingleFlight``), claims at once: the kubelet's deadline cancels the
handler of its call, and then it calls again.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio
from anyio.abc import TaskGroup

from api.errors import PermanentError, TransientError
from api.model.claims import ResourceClaim
from api.model.names import ClaimRef
from api.model.prepared import PreparedClaim
from driver.kubeletplugin.claims.allocation import DeviceInUseError, allocated, resolve
from driver.kubeletplugin.claims.checkpoint import Checkpoint
from driver.kubeletplugin.claims.steps import Job, Stepping
from driver.kubeletplugin.claims.transitions import PREPARE, UNPREPARE, Step, found, is_gone
from driver.kubeletplugin.cluster.base import Cluster
from driver.kubeletplugin.inventory.publisher import Inventorying
from driver.runtime import logs, metrics
from driver.runtime.concurrency import SingleFlight
from driver.runtime.notifier import Pulse

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation on a claim that was made from a template: which entry of the pod's ``resourceClaims`` it is for."""

_log = logging.getLogger(__name__)

_SECONDS: Final = metrics.histogram(
    "kerf_claim_seconds",
    "Time from a call for one claim to its answer.",
    ["operation", "outcome"],
    # Around the answer from the record (milliseconds), hardware (tenths of a second) and the kubelet's deadline (45 s).
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 45, 120),
)


class ClaimGoneError(PermanentError):
    """The claim that the kubelet means does not exist (any more)."""


class StoppingError(TransientError):
    """The plugin ends; what was begun is finished or taken back after its next start."""

    def __init__(self) -> None:
        super().__init__("the kubelet plugin is stopping: the kubelet's next try will find its successor")


class Suspects:
    """Claims that may be gone, each of which keeps what it holds from another one or from everybody."""

    def __init__(self) -> None:
        self._uids: set[str] = set()
        self._change = Pulse()

    @property
    def next(self) -> anyio.Event:
        """Set when a claim comes to be suspected."""
        return self._change.next

    def add(self, claim: ClaimRef) -> None:
        self._uids.add(claim.uid)
        self._change.beat()

    def take(self) -> set[str]:
        """UIDs of those that came since the last time."""
        uids, self._uids = self._uids, set()
        return uids


class Preparing:
    """The claims of one node."""

    def __init__(
        self,
        *,
        driver: str,
        boot_id: str,
        checkpoint: Checkpoint,
        stepping: Stepping,
        cluster: Cluster,
        inventorying: Inventorying,
        tasks: TaskGroup,
    ) -> None:
        """``tasks`` outlives the calls: the work is done there."""
        self._driver = driver
        self._boot_id = boot_id
        self._checkpoint = checkpoint
        self._stepping = stepping
        self._cluster = cluster
        self._inventorying = inventorying
        self.suspects = Suspects()
        self._flights: SingleFlight[str, PreparedClaim | None] = SingleFlight(tasks, stopping=StoppingError)

    async def prepare(self, claim: ClaimRef) -> PreparedClaim:
        """Make the devices of ``claim`` ready, or find that they are. Raises KerfError saying why not."""
        with _operation("prepare", claim):
            record = await self._flights.do(claim.uid, "prepare", self._prepare, claim, False)
        assert record is not None, "a prepare ends with a record or an error"
        return record

    async def prepare_early(self, claim: ClaimRef) -> None:
        """Make the devices of ``claim`` ready before its pod is bound (KEP-5007). Raises KerfError saying why not."""
        with _operation("prepare early", claim):
            await self._flights.do(claim.uid, "prepare early", self._prepare, claim, True)

    async def unprepare(self, claim: ClaimRef) -> None:
        """Take back the devices of ``claim``; an unknown claim is fine. Raises KerfError saying why not."""
        with _operation("unprepare", claim):
            await self._flights.do(claim.uid, "unprepare", self._unprepare, claim)

    async def release_if_gone(self, claim: ClaimRef) -> None:
        """Take back the devices of ``claim`` unless the API server says, now, that it has them. Raises KerfError."""
        with _operation("collect", claim):
            await self._flights.do(claim.uid, "collect", self._collect, claim)

    async def drain(self, grace_s: float) -> None:
        """Begin nothing more and let what runs end, at most ``grace_s`` seconds."""
        await self._flights.drain(grace_s)

    async def _prepare(self, ref: ClaimRef, is_early: bool) -> PreparedClaim | None:
        claim = await self._read(ref)
        shares = [result.share for result in allocated(claim, self._driver)]
        job = Job(ref, self._checkpoint.get(ref.uid))
        state = found(job.record, self._boot_id, shares)
        steps = PREPARE[state]
        if Step.PREPARE_HARDWARE in steps:
            job.wanted = resolve(claim, self._driver, self._inventorying.inventory)
            job.pod_claim_name = claim.metadata.annotations.get(POD_CLAIM_NAME, "")
            job.awaits_pod = is_early
        elif job.record is not None and job.record.awaits_pod and not is_early:
            steps = (*steps, Step.RECORD_PREPARED)  # its pod has come
        try:
            await self._stepping.carry_out(steps, job)
        except DeviceInUseError as error:
            self.suspects.add(error.holder)
            raise
        _log.info("prepared %s (found: %s)", ", ".join(share.id.device for share in shares), state)
        return job.record

    async def _unprepare(self, ref: ClaimRef) -> None:
        job = Job(ref, self._checkpoint.get(ref.uid))
        state = found(job.record, self._boot_id)
        await self._stepping.carry_out(UNPREPARE[state], job)
        _log.info("unprepared (found: %s)", state)

    async def _collect(self, ref: ClaimRef) -> None:
        record = self._checkpoint.get(ref.uid)
        if record is not None and is_gone(await self._cluster.read_claim(ref), record):
            _log.warning("the claim is gone and the kubelet has not unprepared it: taking its devices back")
            await self._unprepare(ref)

    async def _read(self, ref: ClaimRef) -> ResourceClaim:
        claim = await self._cluster.read_claim(ref)
        if claim is None:
            raise ClaimGoneError(f"claim {ref} (UID {ref.uid}) does not exist")
        if (uid := claim.metadata.uid) != ref.uid:
            raise ClaimGoneError(
                f"claim {ref} was deleted and made anew: its UID is {uid}, the kubelet means {ref.uid}"
            )
        return claim


@contextmanager
def _operation(operation: str, claim: ClaimRef) -> Iterator[None]:
    """What is logged and measured of a call for ``claim``."""
    begun = time.perf_counter()
    outcome = "failed"
    try:
        with logs.context(claim=str(claim), claim_uid=claim.uid):
            yield
        outcome = "done"
    finally:
        _SECONDS.labels(operation, outcome).observe(time.perf_counter() - begun)
