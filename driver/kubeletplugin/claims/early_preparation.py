"""Early preparation: devices are made ready before their pods are bound (KEP-5007; docs/early-loading.md).

The plugin watches all claims. One that is allocated to this node with unmet binding conditions is prepared, and its
conditions are set; one that lost its allocation is left to garbage collection. This runs only on nodes whose functions
load slowly, or with devices that a class has prepared early.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio

from kerf_dra.api.errors import InvalidDocumentError, KerfError, PermanentError, TransientError
from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.claims import AllocatedClaim
from kerf_dra.api.model.names import ClaimRef, ObjectRef
from kerf_dra.driver.kube.http.errors import ConflictError, ForbiddenError, NotFoundError
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.kubeletplugin.backends.base import UnsuitableClaimError
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import NotAllocatedError
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from kerf_dra.driver.kubeletplugin.claims.preparer import ClaimGoneError, ClaimPreparer
from kerf_dra.driver.kubeletplugin.claims.status_writer import ASK_AGAIN_S, DeviceStatusWriter
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster, StatusDroppedError
from kerf_dra.driver.kubeletplugin.inventory.binding_conditions import (
    BindingConditions,
    build_device_statuses,
    find_awaited_devices,
)
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.records import from_card_part
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.work_queue import WorkQueue

_WORKERS: Final = 1024
"""Claims prepared at once: more than a node has. Each card does one thing at a time, and reads of claims have a budget;
with fewer, claims over one card that hangs would keep those over other cards waiting."""
_EVERY_CLAIM: Final = ObjectRef("", "")
"""The key in the queue at whose turn every claim is looked at again: no claim has it."""
_RETRIES: Final = Backoff(first_s=0.5, factor=2, limit_s=30, jitter=0.2)
"""Back-off after a failed load or a conflicting write: at most half a minute apart, because a pod waits."""

_log = logging.getLogger(__name__)

_PREPARES: Final = metrics.counter(
    "kerf_early_prepares_total", "Claims prepared before pods were bound.", ["driver", "outcome"]
)


class EarlyPreparer:
    """Prepares the claims of one node that wait for their devices. ``now`` returns Unix time in seconds."""

    def __init__(
        self,
        *,
        settings: Settings,
        state: NodeState,
        cluster: Cluster,
        preparer: ClaimPreparer,
        status_writer: DeviceStatusWriter,
        checkpoint: Checkpoint,
        now: Callable[[], float],
        retries: Backoff = _RETRIES,
        ask_again_s: float = ASK_AGAIN_S,
    ) -> None:
        """After a write that was refused no pod waits here for ``ask_again_s`` seconds."""
        self._ask_again_s = ask_again_s
        self._driver = settings.driver_name
        self._conditions = BindingConditions.of_driver(settings.driver_name)
        self._retry_s = settings.load_retry_s
        self._hold_s = settings.load_hold_s
        self._state = state
        self._preparer = preparer
        self._status_writer = status_writer
        self._checkpoint = checkpoint
        self._now = now
        self._claims = cluster.watch_claims(self._claim_changed)
        self._queue: WorkQueue[ObjectRef] = WorkQueue(name="early-preparation", retries=retries)
        self._failing_since: dict[ObjectRef, float] = {}
        self.synced = anyio.Event()
        """Set once all claims are known."""

    async def run(self) -> None:
        """Prepare claims as they come, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._claims.run)
            await self._claims.wait_synced()
            self._state.note_early_preparation(is_active=True)
            self.synced.set()
            await self._queue.run(self._reconcile, workers=_WORKERS)

    def _claim_changed(self, change: ObjectChange[AllocatedClaim]) -> None:
        if any(_has_devices_of(self._driver, claim) for claim in (change.old, change.new) if claim is not None):
            self._queue.add(change.ref)

    def _ask_again(self) -> None:
        """Be active again after a refusal: it may have been one namespace's, or a permission that is back."""
        self._state.note_early_preparation(is_active=True)
        for claim in self._claims.store.values():
            if _has_devices_of(self._driver, claim):
                self._queue.add(claim.ref)

    async def _reconcile(self, ref: ObjectRef) -> None:
        if ref == _EVERY_CLAIM:
            self._ask_again()
            return
        claim = self._claims.store.get(ref)
        self._suspect_if_gone(ref, claim)
        pools = {pool.name for pool in self._state.devices.pools}
        results = find_awaited_devices(claim.status, self._driver, pools, self._conditions) if claim is not None else ()
        if claim is None or not results or not self._state.prepares_early:
            self._failing_since.pop(ref, None)
            return
        try:
            failure = self._find_load_failure(results) or await self._prepare_before_binding(claim)
        except (NotAllocatedError, ClaimGoneError):
            return  # the informer is late, and will report the change
        await self._write_status(claim, results, failure)

    def _suspect_if_gone(self, ref: ObjectRef, claim: AllocatedClaim | None) -> None:
        """Have garbage collection check an allocation that no longer exists: no kubelet will unprepare it."""
        allocated_uid = claim.metadata.uid if claim is not None and claim.status.allocation is not None else None
        for record in self._checkpoint.records.values():
            has_name = (record.claim.namespace, record.claim.name) == (ref.namespace, ref.name)
            if record.awaits_pod and has_name and record.claim.uid != allocated_uid:
                self._state.suspects.add(record.claim.uid)

    async def _prepare_before_binding(self, claim: AllocatedClaim) -> str | None:
        """Prepare the claim; returns None when its devices are ready, else why they will not be.

        Raises TransientError for a failure to be tried again, NotAllocatedError and ClaimGoneError when no pod waits
        for the devices any more.
        """
        metadata = claim.metadata
        try:
            await self._preparer.prepare_early(ClaimRef(metadata.namespace, metadata.name, metadata.uid))
        except (NotAllocatedError, ClaimGoneError):
            raise
        except KerfError as error:
            since = self._failing_since.setdefault(claim.ref, anyio.current_time())
            if not _is_permanent(error) and anyio.current_time() - since < self._retry_s:
                raise TransientError(str(error)) from error
            _log.error("claim %s cannot be prepared, the scheduler is to try elsewhere: %s", claim.ref, error)
            if isinstance(error, DevicesFailedError):
                self._record_load_failures(error)
            return str(error)
        return None

    def _record_load_failures(self, error: DevicesFailedError) -> None:
        """Taint what failed, unless the claim is at fault: others may have the device. They get the reason: only what
        is wrong with the device, not what else is wrong with this claim, which may be another tenant's.
        """
        for device, failure in zip(error.failed, error.failures, strict=True):
            if not isinstance(failure, InvalidDocumentError | UnsuitableClaimError):
                reason = f"{device.share.id.device}: {failure}"
                self._state.health.record_load_failure(from_card_part(device.part), reason, self._hold_s)
        self._state.request_publication()

    def _find_load_failure(self, results: Iterable[DeviceRequestAllocationResult]) -> str | None:
        offered = (self._state.devices.find(result.id) for result in results if not result.admin_access)
        reasons = (self._state.health.find_load_failure(device.partition) for device in offered if device is not None)
        return next((reason for reason in reasons if reason is not None), None)

    async def _write_status(
        self, claim: AllocatedClaim, results: Sequence[DeviceRequestAllocationResult], failure: str | None
    ) -> None:
        awaited = build_device_statuses(results, self._conditions, failure=failure, now=self._now())
        try:
            await self._status_writer.write(claim, awaited)
        except (ConflictError, NotFoundError):
            return  # it has changed since, and the informer will report that
        except (ForbiddenError, StatusDroppedError) as error:
            _log.error("pods are bound before their devices are ready, as claims cannot be written: %s", error)
            self._state.note_early_preparation(is_active=False)
            self._queue.add(_EVERY_CLAIM, after_s=self._ask_again_s)
            return
        _PREPARES.labels(self._driver, "failed" if failure else "ready").inc()


def _has_devices_of(driver: str, claim: AllocatedClaim) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and any(result.driver == driver for result in allocation.devices.results)


def _is_permanent(error: KerfError) -> bool:
    """Whether trying again is in vain."""
    failures = error.failures if isinstance(error, DevicesFailedError) else (error,)
    return any(isinstance(failure, PermanentError | InvalidDocumentError) for failure in failures)
