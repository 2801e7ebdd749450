"""Carries out what was decided about claims and contexts, one call to the API server for each write.

Order of writes (KEP-3063): the finalizer before the allocation, the allocation's end before the finalizer's. A write
carries the version that it was decided on, so what somebody else changed meanwhile is never overwritten.

An allocation also needs that no other controller gives the same devices to another claim, which no version can tell.
So the leader marks a claim first (the finalizer), then makes sure that it still leads, then writes the allocation; and
who begins to lead changes the version of every marked claim that is not allocated (``take_over``) before deciding
anything. If a former leader looked before the change of leadership, its mark was there to be seen, and its write fails
by the version; if it looked after, it stops. A leader that stood still between the two writes can therefore do no harm.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from api.core.v1 import Pod
from api.errors import TransientError
from api.model.allocations import ResourceClaimConsumerReference
from api.model.base import JsonObject
from api.model.classic import ClassicClaim, PodSchedulingContext, UnsuitableNodes
from api.model.names import ObjectRef
from api.resource.classic import ClassicKinds
from api.wire import to_builtins
from driver.controller.classic.allocator import Grant
from driver.controller.classic.claims import plan_claim
from driver.controller.classic.outcomes import About, Complaint, Outcome
from driver.controller.classic.scheduling_contexts import concerns, plan_context
from driver.controller.classic.state import World
from driver.kube.http.errors import ConflictError, NotFoundError, ServerError, StatusError
from driver.kube.patches import if_unchanged

FENCE: Final = "kerf.dev/leader-change"
"""Annotation that a new leader writes on marked claims: that it changes is all that matters."""

_log = logging.getLogger(__name__)


class NotLeadingError(TransientError):
    """Another controller leads: what was decided must not be written."""


class Api(Protocol):
    """The API server as this needs it. All calls raise the errors of ``driver.kube.http.errors``."""

    async def pod(self, ref: ObjectRef) -> Pod | None:
        """As it is now; None: there is none."""
        ...

    async def claims(self) -> Sequence[ClassicClaim]:
        """All claims as they are now."""
        ...

    async def read_claim(self, ref: ObjectRef) -> ClassicClaim | None:
        """As it is now; None: there is none."""
        ...

    async def patch_claim(self, ref: ObjectRef, metadata: JsonObject) -> ClassicClaim:
        """Merge ``metadata``, which names the version."""
        ...

    async def patch_claim_status(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> ClassicClaim:
        """Merge ``status`` if the claim is as ``metadata`` says."""
        ...

    async def patch_context_status(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> None:
        """Merge ``status`` if the context is as ``metadata`` says."""
        ...

    async def confirm_leading(self) -> None:
        """Ask the API server, now, whether this process leads. Raises NotLeadingError when it does not."""
        ...


@dataclass(frozen=True, slots=True)
class Ended:
    """How a pass ended."""

    rule: str
    outcome: Outcome
    complaints: tuple[Complaint, ...] = ()


class Syncing:
    """Passes over claims and contexts. Two passes over one key must not run at once; over different keys they may."""

    def __init__(self, api: Api, kinds: ClassicKinds, world: World) -> None:
        self._api = api
        self._kinds = kinds
        self._world = world
        self._doubtful: dict[str, ClassicClaim] = {}
        """By UID: claims as they were marked, whose allocation was sent and may have been written or not."""

    async def take_over(self, term: str) -> None:
        """Make sure that no former leader, this process included, can finish what it began.

        ``term`` is new with every change of leadership. Has to end before the first pass begins.
        """
        for claim in await self._api.claims():
            self._world.note(claim)
            if self._world.finalizer in claim.metadata.finalizers and claim.status.allocation is None:
                await self._fence(claim, term)
        for uid in list(self._doubtful):
            self._settled(uid)

    async def sync_claim(self, ref: ObjectRef) -> Ended:
        """One pass over a claim."""
        await self._settle()
        claim = self._world.claim(ref)
        plan = plan_claim(claim, self._world)
        if plan.grant is not None:
            await self._allocate([plan.grant])
        if claim is not None and plan.release:
            claim = await self._patch_status(claim, self._kinds.released)
            _log.info("ResourceClaim %s: deallocated", claim.ref)
        if claim is not None and plan.unprotect:
            kept = [name for name in claim.metadata.finalizers if name != self._world.finalizer]
            await self._patch_metadata(claim, {"finalizers": kept or None})
        return Ended(plan.rule, plan.outcome, plan.complaints)

    async def sync_context(self, ref: ObjectRef) -> Ended:
        """One pass over a PodSchedulingContext."""
        await self._settle()
        if not concerns(self._world.caches.contexts.get(ref)):
            return Ended("S-3", Outcome.FORGET)
        pod = await self._api.pod(ref)
        if pod is None:
            return Ended("S-4", Outcome.REQUEUE, (Complaint(About.CONTEXT, f"pod {ref} does not exist"),))
        context = self._world.caches.contexts.get(ref)
        plan = plan_context(context, pod, self._world)
        await self._allocate(plan.grants)
        if context is not None and plan.report is not None:
            await self._report(context, plan.report)
        return Ended(plan.rule, plan.outcome, plan.complaints)

    async def _allocate(self, grants: Sequence[Grant]) -> None:
        """Mark all, confirm, allocate all. Between the plan and the reservation here nothing is awaited.

        What cannot be written at all leaves no mark. Raises HandleTooLargeError.
        """
        statuses = [self._allocated(grant) for grant in grants]
        for grant in grants:
            self._world.reserve(grant.claim, grant.holdings)
        try:
            marked = [await self._mark(grant.claim) for grant in grants]
            if marked:
                await self._api.confirm_leading()
            for grant, claim, status in zip(grants, marked, statuses, strict=True):
                await self._write_allocation(claim, status)
                devices = ", ".join(f"{result.pool}/{result.device}" for result in grant.allocation.devices.results)
                _log.info("ResourceClaim %s: allocated %s", claim.ref, devices)
        finally:
            for grant in grants:
                if grant.claim.metadata.uid not in self._doubtful:
                    self._settled(grant.claim.metadata.uid)

    def _allocated(self, grant: Grant) -> JsonObject:
        """Allocation and reservation, in one write."""
        status = self._kinds.allocated(grant.allocation, self._world.driver)
        if grant.pod is None:
            return status
        consumers = (*grant.claim.status.reserved_for, _consumer(grant.pod))
        return status | {"reservedFor": to_builtins(consumers)}

    async def _write_allocation(self, claim: ClassicClaim, status: JsonObject) -> None:
        try:
            await self._patch_status(claim, status)
        except BaseException as error:
            is_refused = isinstance(error, StatusError) and not isinstance(error, ServerError)
            if not is_refused:  # no answer, or cancelled: it may be written
                self._doubtful[claim.metadata.uid] = claim
            raise

    async def _settle(self) -> None:
        """Find out about writes without an answer: once the claim has another version, they can happen no more."""
        for uid, claim in list(self._doubtful.items()):
            await self._fence(claim, f"{claim.metadata.resource_version}?")
            if self._doubtful.get(uid) is claim:
                self._settled(uid)

    def _settled(self, uid: str) -> None:
        self._doubtful.pop(uid, None)
        self._world.holdings.unreserve(uid)

    async def _mark(self, claim: ClassicClaim) -> ClassicClaim:
        if self._world.finalizer in claim.metadata.finalizers:
            return claim
        return await self._patch_metadata(claim, {"finalizers": [*claim.metadata.finalizers, self._world.finalizer]})

    async def _fence(self, claim: ClassicClaim, term: str) -> None:
        """Change the claim's version, unless somebody else has."""
        newest: ClassicClaim | None = claim
        while newest is not None and newest.status.allocation is None:
            try:
                await self._patch_metadata(newest, {"annotations": {FENCE: term}})
                return
            except (ConflictError, NotFoundError):
                newest = await self._api.read_claim(claim.ref)
                if newest is not None:
                    self._world.note(newest)

    async def _patch_metadata(self, claim: ClassicClaim, fields: JsonObject) -> ClassicClaim:
        return self._noted(await self._api.patch_claim(claim.ref, if_unchanged(claim.metadata) | fields))

    async def _patch_status(self, claim: ClassicClaim, status: JsonObject) -> ClassicClaim:
        return self._noted(await self._api.patch_claim_status(claim.ref, if_unchanged(claim.metadata), status))

    def _noted(self, answer: ClassicClaim) -> ClassicClaim:
        self._world.note(answer)
        return answer

    async def _report(self, context: PodSchedulingContext, report: Sequence[UnsuitableNodes]) -> None:
        status = {"resourceClaims": to_builtins(tuple(report))}
        await self._api.patch_context_status(context.ref, if_unchanged(context.metadata), status)


def _consumer(pod: Pod) -> ResourceClaimConsumerReference:
    return ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
