"""Reconciles claims and scheduling contexts: executes the plans, with one API call for each write.

Problem: an allocation is written to one claim, so no resource version keeps two controllers from allocating one device
to two claims. A Lease alone does not either: a leader may pause between its last read of the Lease and its write.

Protocol (fencing, with the claim's resource version as the token): the leader (1) writes the finalizer to the claim,
(2) confirms that it still leads, (3) writes the allocation on condition that the claim is unchanged since (1). A new
leader first changes the version of every claim that has the finalizer and no allocation (``take_over``), before any
decision.

Invariant: no former leader's allocation takes effect after a take-over. If (2) preceded the change of leadership, so
did (1), the new leader saw the finalizer, and (3) fails by the version; if (2) followed it, the former leader stops.

Example: leader x has written the finalizer and read the Lease, and is then stopped for a minute. y takes over and
writes the annotation ``FENCE`` to the claim; when x continues, its write conflicts. Nothing is allocated twice.

Order of writes (KEP-3063): the finalizer before the allocation, its removal after that of the allocation.

What is taken from a claim cannot be given back: before a deallocation, and before the finalizer is removed, the claim
is read from the server's storage, which must show the same end as the watch, and no older version.
"""

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.allocations import ResourceClaimConsumerReference
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import ClassicClaim
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.controller.classic.allocator import ClaimAllocation
from kerf_dra.driver.controller.classic.claims import ClaimPlan, plan_claim
from kerf_dra.driver.controller.classic.reconcile_result import EventSubject, ReconcileResult, Requeue, WarningEvent
from kerf_dra.driver.controller.classic.scheduling_contexts import has_nodes, plan_context
from kerf_dra.driver.controller.classic.state import FINALIZER, ClusterView
from kerf_dra.driver.kube.http.errors import ConflictError, NotFoundError, ServerError, StatusError
from kerf_dra.driver.kube.patches import if_unchanged

FENCE: Final = "kerf.dev/leader-change"
"""The annotation that is written to change a claim's version; its value means nothing."""

_log = logging.getLogger(__name__)


class NotLeadingError(TransientError):
    """Another controller leads, so the plan must not be written."""


class ClaimChangedError(TransientError):
    """The server's storage does not show the end of a claim that the watch has shown: decide again."""


class ClaimClient(Protocol):
    """The requests of a reconciler to the API server; all raise the errors of ``kerf_dra.driver.kube.http.errors``."""

    async def pod(self, ref: ObjectRef) -> Pod | None:
        """Read a pod, bypassing caches; None: it does not exist."""

    async def claims(self) -> Sequence[ClassicClaim]:
        """List all claims, bypassing caches."""

    async def read_claim(self, ref: ObjectRef) -> ClassicClaim | None:
        """Read a claim, bypassing caches; None: the server says that it does not exist."""

    async def patch_claim(self, ref: ObjectRef, metadata: JsonObject) -> ClassicClaim:
        """Merge ``metadata`` if the claim has the resource version that it names."""

    async def patch_claim_status(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> ClassicClaim:
        """Merge ``status`` if the claim has the version of ``metadata``."""

    async def patch_context_status(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> None:
        """Merge ``status`` if the context has the version of ``metadata``."""

    async def confirm_leading(self) -> None:
        """Read the Lease, bypassing caches. Raises NotLeadingError when this process does not hold it."""


class ClaimReconciler:
    """Reconciles claims and contexts. One key must not be reconciled twice at once; different keys may be."""

    def __init__(self, client: ClaimClient, kinds: ClassicKinds, view: ClusterView) -> None:
        self._client = client
        self._kinds = kinds
        self._view = view
        self._uncertain: dict[str, ClassicClaim] = {}
        """Claims whose allocation was sent without an answer, by UID, as they were when their finalizer was written."""

    async def take_over(self, term: str) -> None:
        """Make sure that no allocation of a former leader, this process included, can take effect any more.

        ``term`` is unique to this change of leadership. Nothing may be reconciled before this has returned.
        """
        for claim in await self._client.claims():
            self._view.assume(claim)
            if FINALIZER in claim.metadata.finalizers and claim.status.allocation is None:
                await self._fence(claim, term)
        for uid in list(self._uncertain):
            self._unreserve(uid)

    async def reconcile_claim(self, ref: ObjectRef) -> ReconcileResult:
        """Reconcile one claim.

        Raises ApiError when a write fails, NotLeadingError when another controller leads, and ClaimChangedError.
        """
        await self._resolve_uncertain()
        self._view.forget_missed()
        claim = self._view.claim(ref)
        plan = plan_claim(claim, self._view)
        if plan.allocation is not None:
            await self._allocate([plan.allocation])
        if claim is not None and (plan.deallocate or plan.remove_finalizer):
            claim = await self._confirm_end(claim, plan)
        if claim is not None and plan.deallocate:
            claim = await self._patch_status(claim, self._kinds.released)
            _log.info("ResourceClaim %s: deallocated", claim.ref)
        if claim is not None and plan.remove_finalizer:
            kept = [name for name in claim.metadata.finalizers if name != FINALIZER]
            await self._patch_metadata(claim, {"finalizers": kept or None})
        return plan

    async def reconcile_context(self, ref: ObjectRef) -> ReconcileResult:
        """Reconcile one PodSchedulingContext. Raises the errors of ``reconcile_claim``."""
        await self._resolve_uncertain()
        contexts = self._view.stores.contexts
        if not has_nodes(contexts.get(ref)):
            return ReconcileResult(rule="S-3")
        pod = await self._client.pod(ref)
        if pod is None:
            warning = WarningEvent(EventSubject.CONTEXT, f"pod {ref} does not exist")
            return ReconcileResult(rule="S-4", warnings=(warning,), requeue=Requeue.BACKOFF)
        self._view.forget_missed()
        context = contexts.get(ref)
        plan = plan_context(context, pod, self._view)
        await self._allocate(plan.allocations)
        if context is not None and plan.resource_claims is not None:
            status = {"resourceClaims": to_builtins(plan.resource_claims)}
            await self._client.patch_context_status(context.ref, if_unchanged(context.metadata), status)
        return plan

    async def _confirm_end(self, claim: ClassicClaim, plan: ClaimPlan) -> ClassicClaim | None:
        """Return the claim as the server's storage has it; None: it is gone. Raises ClaimChangedError."""
        now = await self._client.read_claim(claim.ref)
        if now is None or now.metadata.uid != claim.metadata.uid:
            return None
        if 0 < now.metadata.version < claim.metadata.version:
            raise ClaimChangedError(
                f"ResourceClaim {claim.ref}: a GET shows version {now.metadata.version}, which is older than "
                f"{claim.metadata.version}, seen before"
            )
        self._view.assume(now)
        again = plan_claim(now, self._view)
        if (again.deallocate, again.remove_finalizer) != (plan.deallocate, plan.remove_finalizer):
            raise ClaimChangedError(
                f"ResourceClaim {claim.ref}: it has changed, or has not ended as the watch has shown"
            )
        return now

    async def _allocate(self, allocations: Sequence[ClaimAllocation]) -> None:
        """Execute steps (1) to (3) of the protocol for all of ``allocations``.

        Nothing is awaited between the plan and the reservation. Raises HandleTooLargeError before any write.
        """
        statuses = [self._allocated_status(one) for one in allocations]
        for one in allocations:
            self._view.usage.reserve(one.claim.metadata.uid, one.usage)
        try:
            claims = [await self._add_finalizer(one.claim) for one in allocations]
            if claims:
                await self._client.confirm_leading()
            for one, claim, status in zip(allocations, claims, statuses, strict=True):
                await self._write_allocation(claim, status)
                devices = ", ".join(f"{result.pool}/{result.device}" for result in one.allocation.devices.results)
                _log.info("ResourceClaim %s: allocated %s", claim.ref, devices)
        finally:
            for one in allocations:
                if one.claim.metadata.uid not in self._uncertain:
                    self._unreserve(one.claim.metadata.uid)

    def _allocated_status(self, allocated: ClaimAllocation) -> JsonObject:
        """The fields of the allocation, and of the reservation for its pod, in one write."""
        status = self._kinds.allocated(allocated.allocation, allocated.driver)
        if allocated.pod is None:
            return status
        consumers = (*allocated.claim.status.reserved_for, _consumer(allocated.pod))
        return status | {"reservedFor": to_builtins(consumers)}

    async def _write_allocation(self, claim: ClassicClaim, status: JsonObject) -> None:
        try:
            await self._patch_status(claim, status)
        except BaseException as error:
            is_refused = isinstance(error, StatusError) and not isinstance(error, ServerError)
            if not is_refused:  # no answer, or cancelled: the server may have written it
                self._uncertain[claim.metadata.uid] = claim
            raise

    async def _resolve_uncertain(self) -> None:
        """Settle writes without an answer: once the claim has another version, they cannot take effect any more."""
        for uid, claim in list(self._uncertain.items()):
            await self._fence(claim, f"{claim.metadata.resource_version}?")
            if self._uncertain.get(uid) is claim:
                self._unreserve(uid)

    def _unreserve(self, uid: str) -> None:
        self._uncertain.pop(uid, None)
        self._view.usage.unreserve(uid)

    async def _add_finalizer(self, claim: ClassicClaim) -> ClassicClaim:
        if FINALIZER in claim.metadata.finalizers:
            return claim
        return await self._patch_metadata(claim, {"finalizers": [*claim.metadata.finalizers, FINALIZER]})

    async def _fence(self, claim: ClassicClaim, term: str) -> None:
        """Change the claim's version, unless it is allocated or no longer exists."""
        newest: ClassicClaim | None = claim
        while newest is not None and newest.status.allocation is None:
            try:
                written = await self._patch_metadata(newest, {"annotations": {FENCE: term}})
                if written.metadata.resource_version == newest.metadata.resource_version:
                    raise ClaimChangedError(f"ResourceClaim {claim.ref}: a write is answered by the version before it")
                return
            except (ConflictError, NotFoundError):
                newest = await self._client.read_claim(claim.ref)
                if newest is not None:
                    self._view.assume(newest)

    async def _patch_metadata(self, claim: ClassicClaim, fields: JsonObject) -> ClassicClaim:
        return self._assumed(await self._client.patch_claim(claim.ref, if_unchanged(claim.metadata) | fields))

    async def _patch_status(self, claim: ClassicClaim, status: JsonObject) -> ClassicClaim:
        return self._assumed(await self._client.patch_claim_status(claim.ref, if_unchanged(claim.metadata), status))

    def _assumed(self, answer: ClassicClaim) -> ClassicClaim:
        self._view.assume(answer)
        return answer


def _consumer(pod: Pod) -> ResourceClaimConsumerReference:
    return ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
