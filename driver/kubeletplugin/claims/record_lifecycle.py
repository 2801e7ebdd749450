"""The lifecycle of a node's records, which claims and extended resources share.

A record is worked on by one task at a time. Its next prepare finds it, or takes back one that was set aside; asks the
cards whether they still have what it says, before it is the answer; and takes the steps that follow
(``transitions``, ``steps``). What a claim had before it was allocated otherwise is released, or set aside while a
container or a card keeps it. ``ClaimPreparer`` and ``ResourceAllocator`` are the two front ends: they say what a record
is to have, and what else follows.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from anyio.abc import TaskGroup

from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ClaimRef, ShareId
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint
from kerf_dra.driver.kubeletplugin.claims.steps import ClaimContext, ReleaseDeferredError, StepExecutor
from kerf_dra.driver.kubeletplugin.claims.transitions import (
    PREPARE,
    RELEASE,
    RecordState,
    Step,
    classify_record,
    may_run,
)
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.inventory.surveyor import HardwareSurveyor
from kerf_dra.driver.runtime.concurrency import SingleFlight

_log: Final = logging.getLogger(__name__)

Flights: TypeAlias = SingleFlight[str, PreparedClaim | None]
"""The single flight of records, by UID."""


class StoppingError(TransientError):
    """The plugin is stopping; what was begun is finished or released after its next start."""

    def __init__(self) -> None:
        super().__init__("the kubelet plugin is stopping: the kubelet's next try will find its successor")


@dataclass(frozen=True, slots=True)
class Preparation:
    """What a prepare has found, before it changes anything."""

    context: ClaimContext
    """With the record; what is wanted is the front end's to say, where devices are to be made."""
    state: RecordState
    ready: Sequence[PreparedDevice]
    """The devices of the record that the cards have now."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that follow."""
        return PREPARE[self.state]

    @property
    def makes_devices(self) -> bool:
        """Whether hardware is to be prepared."""
        return Step.PREPARE_HARDWARE in self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareResult:
    """What one prepare of a claim came to, for all that follows from it."""

    claim: ResourceClaim
    """As it was read for the prepare."""
    ref: ClaimRef
    record: PreparedClaim | None
    """The record now; None: there is none, because the prepare has failed."""
    is_early: bool
    """Whether the claim was prepared before its pod was bound (KEP-5007)."""
    made_devices: bool
    """Whether hardware was to be prepared; else the answer is that of an earlier prepare."""
    error: Exception | None = None
    """Why the claim is not ready; None: it is."""

    @property
    def has_ready_record(self) -> bool:
        """Whether all devices are ready, though ``error`` may keep containers from them."""
        return self.record is not None and self.record.state is ClaimState.PREPARED


class RecordLifecycle:
    """The records of one node, and the right to work on one of them alone."""

    def __init__(
        self,
        *,
        boot_id: str,
        checkpoint: Checkpoint,
        executor: StepExecutor,
        state: NodeState,
        tasks: TaskGroup,
        surveyor: HardwareSurveyor | None = None,
    ) -> None:
        """The work runs in ``tasks``, which outlives the kubelet's calls.

        Without a ``surveyor`` the latest surveys of the cards count, however old.
        """
        self._boot_id = boot_id
        self._checkpoint = checkpoint
        self._executor = executor
        self._state = state
        self._surveyor = surveyor
        self.flights: Flights = SingleFlight(tasks, stopping=StoppingError)

    async def drain(self, grace_s: float) -> None:
        """Begin no more work, wait at most ``grace_s`` seconds for the running work, and cancel the rest."""
        await self.flights.drain(grace_s)

    def classify(self, record: PreparedClaim | None) -> RecordState:
        """Return what ``record`` means in this boot, whatever it has."""
        return classify_record(record, self._boot_id)

    def may_run(self, record: PreparedClaim) -> bool:
        """Whether a container may have been started with devices of ``record``, and run still."""
        return may_run(record, self._boot_id)

    async def begin_prepare(
        self, ref: ClaimRef, allocated: Collection[tuple[str, ShareId]] | None = None, *, resource: str = ""
    ) -> Preparation:
        """Find out what a prepare has to do. Nothing but the cards' surveys is changed.

        ``allocated`` are the devices of a claim, each with its request; ``resource`` is the extended resource of a
        device that no claim has. Raises KerfError when a card cannot be surveyed: a container that were started now
        might get nothing.
        """
        record = self._checkpoint.get(ref.uid)
        if record is None and allocated is not None:
            record = self._take_back(ref.uid, allocated)
        context = ClaimContext(ref, record, resource=resource)
        state = classify_record(record, self._boot_id, allocated)
        ready = [] if state is RecordState.OUTDATED else await self._survey_ready_devices(record)
        if state is RecordState.PREPARED and len(ready) < len(context.existing.devices):
            _log.warning("what was prepared is no longer on the card: preparing it again")
            state = RecordState.STARTED
        return Preparation(context, state, ready)

    async def part_with_outdated(self, preparation: Preparation) -> None:
        """Release the devices that the claim had before, if it has others now, or leave them to garbage collection.

        A container may still run with what was prepared: after its own restart the kubelet calls for claims of pods
        that run, and does not say for which pod. So it is kept for as long as that of any claim that has ended. Where a
        release must wait, it keeps no new devices from the claim.
        """
        if preparation.state is not RecordState.OUTDATED:
            return
        context = preparation.context
        if self.may_run(context.existing):
            # It has the name of the claim, which may have no record next: a start would take that for a lost one.
            await self._executor.execute((Step.REMOVE_CDI,), context)
            self._state.suspects.add(self._executor.set_aside(context).uid)
            _log.warning("the claim has other devices now; its earlier ones are kept until its pods have ended")
            return
        try:
            await self._executor.execute(RELEASE, context)
        except ReleaseDeferredError as error:
            self._state.deferred.add(self._executor.set_aside(context).uid)
            _log.warning("the claim has other devices now, and of its earlier ones %s", error)

    def _take_back(self, uid: str, allocated: Iterable[tuple[str, ShareId]]) -> PreparedClaim | None:
        """Return the record of the devices that a claim without another record had before, and has again."""
        for record in self._checkpoint.list_set_aside(uid):
            is_same = classify_record(record, self._boot_id, allocated) is not RecordState.OUTDATED
            if is_same and record.state is not ClaimState.RELEASING:
                _log.warning("the claim has its earlier devices again")
                return self._checkpoint.take_back(record.claim.uid)
        return None

    async def _survey_ready_devices(self, record: PreparedClaim | None) -> list[PreparedDevice]:
        """Return the devices of a record that the hardware has, as it is now. Raises KerfError."""
        if record is None or record.boot_id != self._boot_id or not record.ready_devices:
            return []
        if self._surveyor is not None:
            cards = {device.part.card_uuid for device in record.ready_devices if not device.admin_access}
            await self._surveyor.survey_now(cards)
        surveys = self._state.restrictions.surveys
        return [device for device in record.ready_devices if not surveys.is_missing(record.claim.uid, device)]
