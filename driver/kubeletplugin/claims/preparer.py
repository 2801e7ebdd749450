"""Prepare and unprepare: finds out how things stand with a claim, and has the steps carried out that follow.

One claim is worked on by one task at a time (``joining``), claims at once.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from anyio.abc import TaskGroup

from api.errors import PermanentError
from api.model.claims import ResourceClaim
from api.model.names import ClaimRef
from api.model.prepared import PreparedClaim
from driver.kubeletplugin.claims.allocation import allocated, resolve
from driver.kubeletplugin.claims.checkpoint import Checkpoint
from driver.kubeletplugin.claims.steps import Job, Stepping
from driver.kubeletplugin.claims.transitions import PREPARE, UNPREPARE, Step, found, is_gone
from driver.kubeletplugin.inventory.devices import Inventory
from driver.runtime import logs, metrics
from driver.runtime.single_flight import Joining

ReadClaim: TypeAlias = Callable[[ClaimRef], Awaitable[ResourceClaim | None]]
"""Reads a claim from the API server, now; None when there is none of its name. Raises the errors of ``driver.kube``."""

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


class Preparing:
    """The claims of one node."""

    def __init__(
        self,
        *,
        driver: str,
        boot_id: str,
        checkpoint: Checkpoint,
        stepping: Stepping,
        read_claim: ReadClaim,
        inventory: Callable[[], Inventory],
        tasks: TaskGroup,
    ) -> None:
        """``inventory``: what the node offers now. ``tasks`` outlives the calls: the work is done there."""
        self._driver = driver
        self._boot_id = boot_id
        self._checkpoint = checkpoint
        self._stepping = stepping
        self._read_claim = read_claim
        self._inventory = inventory
        self._joining: Joining[str, PreparedClaim | None] = Joining(tasks)

    async def prepare(self, claim: ClaimRef) -> PreparedClaim:
        """Make the devices of ``claim`` ready, or find that they are. Raises KerfError saying why not."""
        record = await self._joined("prepare", claim, self._prepare)
        assert record is not None, "a prepare ends with a record or an error"
        return record

    async def prepare_early(self, claim: ClaimRef) -> None:
        """Make the devices of ``claim`` ready before its pod is bound (KEP-5007). Raises KerfError saying why not."""
        await self._joined("prepare early", claim, partial(self._prepare, is_early=True))

    async def unprepare(self, claim: ClaimRef) -> None:
        """Take back the devices of ``claim``; an unknown claim is fine. Raises KerfError saying why not."""
        await self._joined("unprepare", claim, self._unprepare)

    async def release_if_gone(self, claim: ClaimRef) -> None:
        """Take back the devices of ``claim`` unless the API server says, now, that it has them. Raises KerfError."""
        await self._joined("collect", claim, self._collect)

    async def drain(self, grace_s: float) -> None:
        """Begin nothing more and let what runs end, at most ``grace_s`` seconds."""
        await self._joining.drain(grace_s)

    async def _joined(
        self, operation: str, claim: ClaimRef, work: Callable[[ClaimRef], Awaitable[PreparedClaim | None]]
    ) -> PreparedClaim | None:
        begun = time.perf_counter()
        outcome = "failed"
        try:
            with logs.context(claim=str(claim), claim_uid=claim.uid):
                record = await self._joining.do(claim.uid, operation, lambda: work(claim))
            outcome = "done"
            return record
        finally:
            _SECONDS.labels(operation, outcome).observe(time.perf_counter() - begun)

    async def _prepare(self, ref: ClaimRef, *, is_early: bool = False) -> PreparedClaim | None:
        claim = await self._read(ref)
        shares = [result.share for result in allocated(claim, self._driver)]
        job = Job(ref, self._checkpoint.get(ref.uid))
        state = found(job.record, self._boot_id, shares)
        steps = PREPARE[state]
        if Step.PREPARE_HARDWARE in steps:
            job.wanted = resolve(claim, self._driver, self._inventory())
            job.pod_claim_name = claim.metadata.annotations.get(POD_CLAIM_NAME, "")
            job.awaits_pod = is_early
        elif job.record is not None and job.record.awaits_pod and not is_early:
            steps = (*steps, Step.RECORD_PREPARED)  # its pod has come
        await self._stepping.carry_out(steps, job)
        _log.info("prepared %s (found: %s)", ", ".join(share.id.device for share in shares), state)
        return job.record

    async def _unprepare(self, ref: ClaimRef) -> None:
        job = Job(ref, self._checkpoint.get(ref.uid))
        state = found(job.record, self._boot_id)
        await self._stepping.carry_out(UNPREPARE[state], job)
        _log.info("unprepared (found: %s)", state)

    async def _collect(self, ref: ClaimRef) -> None:
        record = self._checkpoint.get(ref.uid)
        if record is not None and is_gone(await self._read_claim(ref), record):
            _log.warning("the claim is gone and the kubelet has not unprepared it: taking its devices back")
            await self._unprepare(ref)

    async def _read(self, ref: ClaimRef) -> ResourceClaim:
        claim = await self._read_claim(ref)
        if claim is None:
            raise ClaimGoneError(f"claim {ref} (UID {ref.uid}) does not exist")
        if (uid := claim.metadata.uid) != ref.uid:
            raise ClaimGoneError(
                f"claim {ref} was deleted and made anew: its UID is {uid}, the kubelet means {ref.uid}"
            )
        return claim
