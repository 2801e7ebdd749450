"""Makes devices ready before their pods are bound, and tells the scheduler (KEP-5007; docs/early-loading.md).

Follows the claims of the cluster: one that is allocated here and waits for us is prepared, one that lost its allocation
is looked at by ``collecting``. Runs only on nodes whose functions load slowly.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio

from api.errors import InvalidDocumentError, KerfError, PermanentError, TransientError
from api.model.allocations import DeviceRequestAllocationResult
from api.model.claims import AllocatedClaim
from api.model.names import ClaimRef, DriverName, ObjectRef
from api.model.prepared import PreparedDevice
from driver.kube.http.errors import ConflictError, ForbiddenError, NotFoundError
from driver.kube.store import ObjectChange
from driver.kubeletplugin.claims.allocation import NotAllocatedError
from driver.kubeletplugin.claims.checkpoint import Checkpoint
from driver.kubeletplugin.claims.hardware import DevicesFailedError
from driver.kubeletplugin.claims.preparer import ClaimGoneError, Preparing
from driver.kubeletplugin.cluster.base import Cluster
from driver.kubeletplugin.inventory.binding_conditions import Conditions, awaited, told
from driver.kubeletplugin.inventory.health import HealthBoard
from driver.kubeletplugin.inventory.publisher import Inventorying
from driver.partitions.records import from_card_part
from driver.runtime import metrics
from driver.runtime.backoff import Backoff
from driver.runtime.work_queue import KeyedQueue

_WORKERS: Final = 8
"""Claims worked on at once: more than there are cards in most nodes, and each card does one thing at a time."""
_RETRIES: Final = Backoff(first_s=0.5, factor=2, limit_s=30, jitter=0.2)
"""After a failed load, or a write that met another: the hardware gets a moment."""

_log = logging.getLogger(__name__)

_EARLY: Final = metrics.counter("kerf_early_total", "Claims made ready before their pod was bound.", ["outcome"])


class Preloading:
    """One node's claims that wait for their devices. Times are in seconds; ``now`` is Unix time."""

    def __init__(
        self,
        *,
        driver: DriverName,
        inventorying: Inventorying,
        cluster: Cluster,
        preparing: Preparing,
        checkpoint: Checkpoint,
        board: HealthBoard,
        now: Callable[[], float],
        patience_s: float,
        setback_s: float,
        retries: Backoff = _RETRIES,
    ) -> None:
        """``patience_s``: how long a failing load is tried again; ``setback_s``: how long its card gets no further
        ones.
        """
        self._driver = driver
        self._conditions = Conditions.of(driver)
        self._inventorying = inventorying
        self._cluster = cluster
        self._preparing = preparing
        self._checkpoint = checkpoint
        self._board = board
        self._now = now
        self._patience_s = patience_s
        self._setback_s = setback_s
        self._claims = cluster.follow_claims(self._changed)
        self._queue: KeyedQueue[ObjectRef] = KeyedQueue(retries=retries)
        self._failing_since: dict[ObjectRef, float] = {}
        self.followed = anyio.Event()
        """Set once all claims are known."""
        self.is_on = False
        """Whether claims are followed: only then may the scheduler be told to wait."""

    async def run(self) -> None:
        """For ever."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._claims.run)
            await self._claims.wait_synced()
            self._switch(on=True)
            self.followed.set()
            await self._queue.run(self._look_at, workers=_WORKERS)

    def _switch(self, *, on: bool) -> None:
        self.is_on = on
        self._inventorying.changed()

    def _changed(self, change: ObjectChange[AllocatedClaim]) -> None:
        if any(_is_of(self._driver, claim) for claim in (change.old, change.new) if claim is not None):
            self._queue.add(change.ref)

    async def _look_at(self, ref: ObjectRef) -> None:
        if self._board.end_setbacks():
            self._inventorying.changed()
        claim = self._claims.store.get(ref)
        self._suspect_gone(ref, claim)
        pools = {pool.name for pool in self._inventorying.inventory.pools}
        results = awaited(claim.status, self._driver, pools, self._conditions) if claim is not None else ()
        if claim is None or not results or not self.is_on:
            self._failing_since.pop(ref, None)
            return
        try:
            failure = self._setback_of(results) or await self._make_ready(claim)
        except (NotAllocatedError, ClaimGoneError):
            return  # the cache is late: the change comes here
        await self._tell(claim, results, failure)

    def _suspect_gone(self, ref: ObjectRef, claim: AllocatedClaim | None) -> None:
        """What was made ready for a claim that has no allocation any more, the kubelet will not unprepare."""
        allocated_uid = claim.metadata.uid if claim is not None and claim.status.allocation is not None else None
        for record in self._checkpoint.records.values():
            is_named_so = (record.claim.namespace, record.claim.name) == (ref.namespace, ref.name)
            if record.awaits_pod and is_named_so and record.claim.uid != allocated_uid:
                self._preparing.suspects.add(record.claim)

    async def _make_ready(self, claim: AllocatedClaim) -> str | None:
        """None when the devices are ready, else why they will not be.

        Raises TransientError to be tried again, NotAllocatedError and ClaimGoneError when nobody waits any more.
        """
        metadata = claim.metadata
        try:
            await self._preparing.prepare_early(ClaimRef(metadata.namespace, metadata.name, metadata.uid))
        except (NotAllocatedError, ClaimGoneError):
            raise
        except KerfError as error:
            since = self._failing_since.setdefault(claim.ref, self._now())
            if not _is_in_vain(error) and self._now() - since < self._patience_s:
                raise TransientError(str(error)) from error
            _log.error("claim %s cannot be made ready, the scheduler is to try elsewhere: %s", claim.ref, error)
            if isinstance(error, DevicesFailedError):
                self._set_back(error.failed, str(error))
            return str(error)
        return None

    def _set_back(self, devices: Iterable[PreparedDevice], reason: str) -> None:
        for device in devices:
            self._board.set_back(from_card_part(device.part), reason, self._setback_s)
        self._inventorying.changed()

    def _setback_of(self, results: Iterable[DeviceRequestAllocationResult]) -> str | None:
        offered = (self._inventorying.inventory.find(result.id) for result in results if not result.admin_access)
        setbacks = (self._board.setback(device.partition) for device in offered if device is not None)
        return next((reason for reason in setbacks if reason is not None), None)

    async def _tell(
        self, claim: AllocatedClaim, results: Sequence[DeviceRequestAllocationResult], failure: str | None
    ) -> None:
        devices = told(results, self._conditions, failure=failure, now=self._now())
        try:
            await self._cluster.tell(claim, devices)
        except (ConflictError, NotFoundError):
            return  # it has changed since; the change comes here
        except ForbiddenError as error:
            _log.error("pods are bound before their devices are ready, as the scheduler cannot be told: %s", error)
            self._switch(on=False)
            return
        _EARLY.labels("failed" if failure else "ready").inc()
        if failure:
            self._queue.add(claim.ref, after_s=self._setback_s)  # to end the setback


def _is_of(driver: str, claim: AllocatedClaim) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and any(result.driver == driver for result in allocation.devices.results)


def _is_in_vain(error: KerfError) -> bool:
    """Whether another try can do no better."""
    failures = error.failures if isinstance(error, DevicesFailedError) else (error,)
    return any(isinstance(failure, PermanentError | InvalidDocumentError) for failure in failures)
