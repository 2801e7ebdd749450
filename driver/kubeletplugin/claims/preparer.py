"""Prepares and unprepares claims: it reads a claim and its record, and has the steps executed that follow from them.

At most one task works on a claim (``record_lifecycle``), and claims are worked on at the same time. The work does not
belong to the call: the kubelet's deadline cancels the handler of its call, and then it calls again and joins the work.
A prepare ends in one ``PrepareResult``, from which all else follows.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.claims import POD_CLAIM_NAME, ResourceClaim
from kerf_dra.api.model.names import ClaimRef, ObjectRef, is_dns_label
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import (
    Configurations,
    HeldByOthersError,
    keep_handles,
    resolve_devices,
    select_results,
)
from kerf_dra.driver.kubeletplugin.claims.cdi_spec import check_containers
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint, claim_uid_of, is_set_aside
from kerf_dra.driver.kubeletplugin.claims.hardware import HardwareExecutor
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import Preparation, PrepareResult, RecordLifecycle
from kerf_dra.driver.kubeletplugin.claims.refused_claims import RefusedClaims
from kerf_dra.driver.kubeletplugin.claims.status_writer import DeviceStatusWriter
from kerf_dra.driver.kubeletplugin.claims.steps import ClaimContext, ReleaseDeferredError, StepExecutor
from kerf_dra.driver.kubeletplugin.claims.transitions import (
    UNPREPARE,
    RecordState,
    Step,
)
from kerf_dra.driver.kubeletplugin.claims.validation import list_share_demands
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.cluster.claim_end import EndContradictedError, SeenClaims, find_end
from kerf_dra.driver.kubeletplugin.inventory.metrics.claim_metrics import ClaimMetrics
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.runtime import logs, metrics
from kerf_dra.driver.runtime.concurrency import UnansweredCalls

_log = logging.getLogger(__name__)

_SECONDS: Final = metrics.histogram(
    "kerf_claim_seconds",
    "Time from a call for one claim to its answer.",
    ["driver", "operation", "outcome"],
    # Around the answer from the record (milliseconds), hardware (tenths of a second) and the kubelet's deadline (45 s).
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 45, 120),
)


class ClaimGoneError(PermanentError):
    """The claim that the kubelet names does not exist (any more)."""


class ClaimPreparer:
    """Prepares and unprepares the claims of one node."""

    def __init__(
        self,
        *,
        driver: str,
        configurations: Configurations,
        lifecycle: RecordLifecycle,
        checkpoint: Checkpoint,
        executor: StepExecutor,
        cluster: Cluster,
        state: NodeState,
        hardware: HardwareExecutor,
        status_writer: DeviceStatusWriter,
        seen: SeenClaims,
        claim_metrics: ClaimMetrics,
        unanswered: UnansweredCalls,
        refused: RefusedClaims | None = None,
    ) -> None:
        """``refused``, ``status_writer`` and ``claim_metrics`` are given what prepares come to, ``seen`` what answers
        show of claims. ``unanswered`` counts the kubelet's calls.
        """
        self._unanswered = unanswered
        self._state = state
        self._hardware = hardware
        self._claim_metrics = claim_metrics
        self._driver = driver
        self._configurations = configurations
        self._lifecycle = lifecycle
        self._flights = lifecycle.flights
        self._checkpoint = checkpoint
        self._executor = executor
        self._cluster = cluster
        self._status_writer = status_writer
        self._refused = refused
        self._seen = seen

    async def prepare_claim(self, claim: ClaimRef) -> PreparedClaim:
        """Make the devices of ``claim`` ready, unless they are. Raises the KerfError that says why they are not."""
        with self._unanswered.counted(), _operation(self._driver, "prepare", claim):
            record = await self._flights.do(claim.uid, "prepare", self._prepare_allocated, claim, False)
        assert record is not None, "a prepare ends with a record or an error"
        return record

    async def prepare_early(self, claim: ClaimRef) -> None:
        """Prepare ``claim`` before its pod is bound (KEP-5007). Raises KerfError as ``prepare_claim`` does."""
        with _operation(self._driver, "prepare early", claim):
            await self._flights.do(claim.uid, "prepare early", self._prepare_allocated, claim, True)

    async def unprepare_claim(self, claim: ClaimRef) -> None:
        """Release the devices of ``claim``, if it has any, and those that it had before it was allocated otherwise.

        Raises the KerfError that says why they are not released.
        """
        with self._unanswered.counted(), _operation(self._driver, "unprepare", claim):
            await self._flights.do(claim.uid, "unprepare", self._unprepare_recorded, claim)
            for record in self._checkpoint.list_set_aside(claim.uid):
                await self._flights.do(record.claim.uid, "unprepare", self._unprepare_recorded, record.claim)

    async def release_if_gone(self, record: PreparedClaim) -> None:
        """Release the devices of ``record`` if the API server says, asked in several ways, that no pod needs them now.

        What was prepared since the record was judged is left alone: a container may run with it. Raises
        EndContradictedError when the ways do not agree, and KerfError.
        """
        with _operation(self._driver, "collect", record.claim):
            await self._flights.do(record.claim.uid, "collect", self._collect, record)

    async def finish_release(self, claim: ClaimRef) -> None:
        """Go on with a release that waited for its card. Raises KerfError."""
        with _operation(self._driver, "finish release", claim):
            await self._flights.do(claim.uid, "finish release", self._finish_release, claim)

    async def restore_files(self) -> None:
        """Write the CDI and metadata files of all prepared claims again, because it is unknown what became of them.

        What a claim had before it was allocated otherwise has none: no container is to be started with it.
        A claim whose files cannot be written is logged: its containers cannot be created, all others' can.
        """
        for record in list(self._checkpoint.records.values()):
            is_prepared = self._lifecycle.classify(record) is RecordState.PREPARED
            if not is_prepared or is_set_aside(record.claim.uid):
                continue
            try:
                await self._executor.execute((Step.WRITE_CDI,), ClaimContext(record.claim, record))
            except Exception as error:  # noqa: BLE001  (backends are third parties': the other claims go on)
                _log.error("claim %s: its files cannot be written again: %r", record.claim, error)

    async def _prepare_allocated(self, ref: ClaimRef, is_early: bool) -> PreparedClaim | None:
        claim = await self._read(ref)
        allocated = [(result.request_name.request, result.share) for result in select_results(claim, self._driver)]
        preparation = await self._lifecycle.begin_prepare(ref, allocated)
        context, steps = preparation.context, preparation.steps
        if preparation.makes_devices:
            wanted = resolve_devices(claim, self._driver, self._configurations, self._state.devices)
            context.wanted = keep_handles(wanted, preparation.ready)
            context.demands = list_share_demands(claim, self._driver, self._state.devices)
            context.pod_claim_name = find_pod_claim_name(claim)
            context.awaits_pod = is_early
        elif context.existing.awaits_pod and not is_early:
            steps = (*steps, Step.RECORD_PREPARED)  # the kubelet now has its pod
        try:
            await self._lifecycle.part_with_outdated(preparation)
            await self._executor.execute(steps, context)
            if not is_early:
                await self._check_containers(claim, context.existing)
        except Exception as error:
            self._conclude(preparation, claim, is_early, error)
            raise
        self._conclude(preparation, claim, is_early)
        _log.info("prepared %s (record: %s)", ", ".join(share.id.device for _, share in allocated), preparation.state)
        return context.record

    def _conclude(
        self, preparation: Preparation, claim: ResourceClaim, is_early: bool, error: Exception | None = None
    ) -> None:
        """Have all that follows from a prepare follow: the claim's status, refusals, suspects, metrics."""
        result = PrepareResult(
            claim=claim,
            ref=preparation.context.claim,
            record=preparation.context.record,
            is_early=is_early,
            made_devices=preparation.makes_devices,
            error=error,
        )
        self._status_writer.note_prepare(result)
        if self._refused is not None:
            self._refused.note_prepare(result)
        if isinstance(result.error, HeldByOthersError):
            for holder in result.error.holders:
                self._state.suspects.add(holder.uid)
                _log.warning("claim %s (UID %s) holds what this one needs", holder, holder.uid)
        if result.error is None:
            self._seen.note(result.ref.uid, result.claim, is_in_use=True)
            self._claim_metrics.note_prepared(result.claim, is_new=result.made_devices)

    async def _check_containers(self, claim: ResourceClaim, record: PreparedClaim) -> None:
        """Raise ConflictingClaimsError when a container uses this claim and another one, and needs a variable of both.

        Of two claims that are prepared at a time the one that is ready later finds the other's record.
        """
        own = self._hardware.find_variables(record.devices)
        for other in tuple(self._checkpoint.records.values()) if own else ():
            ref = other.claim
            if ref.uid == record.claim.uid or ref.namespace != record.claim.namespace or other.resource:
                continue
            theirs = self._hardware.find_variables(other.devices) if other.state is ClaimState.PREPARED else {}
            variable = next((own[each] or theirs[each] for each in own.keys() & theirs.keys()), "")
            for user in claim.status.reserved_for if variable else ():
                pod = await self._cluster.read_pod(ObjectRef(ref.namespace, user.name))
                if pod is not None and user.resource == "pods":
                    check_containers(pod, record.claim.name, ref.name, variable)

    async def _unprepare_recorded(self, ref: ClaimRef) -> None:
        context = ClaimContext(ref, self._checkpoint.get(ref.uid))
        state = self._lifecycle.classify(context.record)
        if self._refused is not None:
            self._refused.forget(ref)
        self._status_writer.request_removal(ref)
        try:
            await self._executor.execute(UNPREPARE[state], context)
        except ReleaseDeferredError as error:
            _log.log(logging.DEBUG if ref.uid in self._state.deferred else logging.WARNING, "unprepared, but %s", error)
            self._state.deferred.add(ref.uid)
        else:
            self._state.deferred.discard(ref.uid)
            _log.info("unprepared (record: %s)", state)

    async def _finish_release(self, ref: ClaimRef) -> None:
        record = self._checkpoint.get(ref.uid)
        if record is not None and record.state is ClaimState.RELEASING:  # else it was prepared again meanwhile
            await self._unprepare_recorded(ref)

    async def _collect(self, judged: PreparedClaim) -> None:
        ref = judged.claim
        record = self._checkpoint.get(ref.uid)
        if record is None or (record != judged and self._lifecycle.may_run(record)):
            return
        uid = claim_uid_of(ref.uid)
        claim = await self._cluster.read_claim(ref)
        if (end := find_end(claim, record, uid)) is None:
            return
        if contradiction := self._seen.get(ref.uid).find_contradiction(claim):
            raise EndContradictedError(contradiction)
        listed = await self._cluster.list_claim(ref)
        if listed is not None and find_end(next(iter(listed), None), record, uid) is None:
            raise EndContradictedError("a list has it in use")
        _log.warning("releasing the devices of a claim that the kubelet has not unprepared: %s", end)
        await self._unprepare_recorded(ref)

    async def _read(self, ref: ClaimRef) -> ResourceClaim:
        claim = await self._cluster.read_claim(ref)
        if claim is None:
            raise ClaimGoneError(f"claim {ref} (UID {ref.uid}) does not exist")
        if (uid := claim.metadata.uid) != ref.uid:
            raise ClaimGoneError(
                f"claim {ref} was deleted and created again: its UID is {uid}, the kubelet means {ref.uid}"
            )
        return claim


def find_pod_claim_name(claim: ResourceClaim) -> str:
    """Return the entry of a pod's ``resourceClaims`` that ``claim`` was made for; empty: it was made by hand.

    An annotation that no entry can have, which is a DNS label, is of another writer: it must not get into a path.
    """
    name = claim.metadata.annotations.get(POD_CLAIM_NAME, "")
    return name if is_dns_label(name) else ""


@contextmanager
def _operation(driver: str, operation: str, claim: ClaimRef) -> Iterator[None]:
    """Log and measure a call for ``claim``."""
    begun = time.perf_counter()
    outcome = "failed"
    try:
        with logs.context(claim=str(claim), claim_uid=claim.uid):
            yield
        outcome = "done"
    finally:
        _SECONDS.labels(driver, operation, outcome).observe(time.perf_counter() - begun)
