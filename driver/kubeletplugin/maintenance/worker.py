"""Does what CardMaintenances want with free cards, verifies the cards, and reports it in ``status.work``.

One task for each CardMaintenance that has something to do. An act runs under the lock of its card, after all calls that
run there; what could begin on the card meanwhile is refused (``CardExecutor.refuse_prepares``) from the step in which
the last condition was checked until the card is verified or given up.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, NamedTuple

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.card_maintenance import CardMaintenanceObject, MaintenanceWork, WorkState, is_named_card
from kerf_dra.api.model.names import ClaimRef, DeviceId, ShareId
from kerf_dra.api.model.times import format_unix_time
from kerf_dra.driver.kube.events import EventKind
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    Backend,
    CardAbsentError,
    CardSurvey,
    HardwareBusyError,
    HardwareRefusedError,
    MaintainingBackend,
)
from kerf_dra.driver.kubeletplugin.backends.card_executor import CallQueue, CardExecutor
from kerf_dra.driver.kubeletplugin.backends.ownership import BEFORE, find_ours, list_before
from kerf_dra.driver.kubeletplugin.backends.survey_validation import survey_card
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeEvents, NodeState
from kerf_dra.driver.kubeletplugin.inventory.state.maintenances import NamedCard
from kerf_dra.driver.kubeletplugin.inventory.surveyor import HardwareSurveyor
from kerf_dra.driver.kubeletplugin.maintenance.decision import (
    MOST_ATTEMPTS,
    NextStep,
    choose_test_partition,
    decide_next,
    find_mode_problem,
    find_obstacle,
)
from kerf_dra.driver.kubeletplugin.maintenance.hooks import HOOK_LIMIT_S, HookFolder, HookUnavailableError
from kerf_dra.driver.kubeletplugin.maintenance.work_file import WorkFile, WorkJournal, WorkRecord, WorkStage
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.device_names import card_name, device_name
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.reclaim.cards import find_card, find_cards
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.problem_log import ProblemLog
from kerf_dra.driver.runtime.worker_threads import LimitedCalls

_log: Final = logging.getLogger(__name__)

_HOOK_GRACE_S: Final = 30.0
"""Seconds from the limit of a hook until its thread counts as hanging: to kill its processes takes less."""
_TEST_CLAIM: Final = "kerf-verification"
"""The name of the claim for which test partitions are made: there is no such claim."""
_ACTS: Final = metrics.counter(
    "kerf_maintenance_acts_total",
    "What was done with free cards in maintenance, by what it was (Reset, MigOn, MigOff, Hook) and how it ended: done, "
    "failed.",
    ["driver", "act", "outcome"],
)


_STATES: Final[Mapping[WorkStage, WorkState]] = MappingProxyType(
    {"Planned": "Waiting", "Begun": "Acting", "Ended": "Verifying", "Done": "Done", "Failed": "Failed"}
)
_MAX_MESSAGE: Final = 1024
"""The most characters of a message in a status: as those of the reclaimer."""
_WITHOUT_BACKEND: Final = "use a hook of the node (then: Hook), or then: None and do it by the vendor's tool"
_INTERRUPTED: Final = "the plugin was ended in the middle, and does not begin again: see what was done"
_VERIFIED: Final = "the plugin was ended in the middle, and has verified the card"
_AFTER_FAILURE: Final = "the card stays withheld: look at it, then end this maintenance (kerf undrain)"


class _Target(NamedTuple):
    """A CardMaintenance with its card."""

    held: NamedCard
    card: Card
    backend_name: str
    backend: Backend

    def __str__(self) -> str:
        return f"card {card_name(self.card)} ({self.card.uuid})"


class MaintenanceWorker:
    """The worker of one family's plugin."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        card_executor: CardExecutor,
        state: NodeState,
        settings: Settings,
        surveyor: HardwareSurveyor,
        work_file: WorkFile,
        events: NodeEvents,
        hooks: HookFolder | None = None,
    ) -> None:
        """``hooks`` is the folder of hooks; None: the node has none."""
        self._cluster = cluster
        self._executor = card_executor
        self._state = state
        self._settings = settings
        self._surveyor = surveyor
        self._file = work_file
        self._events = events
        self._hooks = hooks
        self._maintenances = state.restrictions.maintenances
        self._writes = LimitedCalls(1, start=card_executor.start)
        self._running: set[tuple[str, int]] = set()
        self._reported: dict[tuple[str, int], MaintenanceWork] = {}
        """What the status of each was given last."""
        self._again_at: dict[tuple[str, int], float] = {}
        """When those that wait are tried again, in the event loop's time."""
        self._problems = ProblemLog(_log)

    def resume(self) -> None:
        """Refuse prepares of cards on which an act may have begun, and note which are returned, before any claim is
        prepared: an earlier process may have left them so.
        """
        if self._file.problem:
            self._problems.note("file", self._file.problem)
        for record in self._file.records.values():
            if record.stage in ("Begun", "Ended"):
                reason = f"card {record.card_uuid} is in maintenance, and is verified after {record.act}"
                self._executor.refuse_prepares(record.card_uuid, reason)
            elif record.stage == "Done":
                self._maintenances.note_returned(*record.key)

    async def run(self) -> None:
        """Do what CardMaintenances want, until cancelled."""
        async with anyio.create_task_group() as group:
            while True:
                change = self._state.maintenances_changed.next_event
                await self._forget_others()
                waits = self._begin_all(group)
                limit_s = self._settings.maintenance_retry_s if waits or self._running else None
                with anyio.move_on_after(limit_s if limit_s is not None else float("inf")):
                    await change.wait()

    def _begin_all(self, group: TaskGroup) -> bool:
        """Begin a task for each CardMaintenance that has something to do now; returns whether any has later."""
        waiting = [
            held
            for held in self._maintenances.named
            if held.key not in self._running
            and decide_next(held, self._file.records.get(held.key)) is not NextStep.NOTHING
        ]
        for held in waiting:
            if anyio.current_time() >= self._again_at.get(held.key, 0.0):
                self._running.add(held.key)
                group.start_soon(self._advance, held)
        return bool(waiting)

    async def _forget_others(self) -> None:
        """Forget what was done for CardMaintenances that are gone: their cards get claims again."""
        if not self._maintenances.is_known:
            return
        there = {held.uid for held in self._maintenances.named} | {uid for uid, _ in self._running}
        gone = [record for record in self._file.records.values() if record.uid not in there]
        if gone:
            try:
                await self._writes.run(self._file.keep_only, there)
            except KerfError as error:
                self._problems.note("file", str(error))
                return
        for record in gone:
            self._executor.allow_prepares(record.card_uuid)
        self._reported = {key: work for key, work in self._reported.items() if key[0] in there}
        self._again_at = {key: at for key, at in self._again_at.items() if key[0] in there}
        self._problems.keep({"file", *(held.maintenance for held in self._maintenances.named)})

    async def _advance(self, held: NamedCard) -> None:
        try:
            await self._take_step(held)
            self._problems.clear(held.maintenance)
        except KerfError as error:
            self._again_at[held.key] = anyio.current_time() + self._settings.maintenance_retry_s
            self._problems.note(held.maintenance, f"CardMaintenance {held.maintenance}: {error}")
        finally:
            self._running.discard(held.key)

    async def _take_step(self, held: NamedCard) -> None:
        """Do what is next, and what follows from that. Raises KerfError where it is to be tried again."""
        record = self._file.records.get(held.key)
        step = decide_next(held, record)
        if step is NextStep.REPORT and record is not None:
            self._reported.pop(held.key, None)  # whatever was written, the status says something else
            await self._report(held, _to_work(record))
            return
        target = self._find(held, record)
        if target is None:
            if record is not None and step is NextStep.VERIFY:
                await self._note_attempt(held, record, "the card is not there: boot the node, or replace the card")
            return
        if self._file.problem:
            await self._wait(held, self._file.problem)
            return
        if step is NextStep.BEGIN:
            record = await self._begin(target)
        elif record is None:
            record = self._new_record(target, "Begun")
        if record is None or step is NextStep.NOTHING:
            return
        if step is NextStep.GIVE_UP:
            await self._end(held, record, "Failed", _INTERRUPTED)
        elif record.stage in ("Begun", "Ended"):
            await self._verify(target, record)

    def _find(self, held: NamedCard, record: WorkRecord | None) -> _Target | None:
        """Return the card of a CardMaintenance; None: this plugin has none, or it is not there."""
        name = held.card if record is None else record.card_uuid
        for inputs in self._state.devices.inputs:
            for card, backend in zip(inputs.cards, inputs.backends, strict=True):
                if is_named_card(name, card.uuid, card.pci_bus_id):
                    return _Target(held, card, backend, self._executor.backend(backend))
        return None

    # The act

    async def _begin(self, target: _Target) -> WorkRecord | None:
        """Do what is wanted, unless something keeps it from that; returns the record if the card is to be verified."""
        held, card = target.held, target.card
        if held.then != "Hook" and not isinstance(target.backend, MaintainingBackend):
            reason = f"backend {target.backend_name} cannot do {held.then}: {_WITHOUT_BACKEND}"
            await self._end(held, self._new_record(target, "Planned"), "Failed", reason)
            return None
        record = self._file.records.get(held.key) or self._new_record(target, "Planned")
        reason = f"{target} is in maintenance, and its node does {held.then}: CardMaintenance {held.maintenance}"
        self._executor.refuse_prepares(card.uuid, reason)
        try:
            self._check_hook(held)
            async with self._executor.lock(card.uuid) as queue:
                await self._check_free(target, queue)
                return await self._act(target, record, queue)
        except (HardwareBusyError, HookUnavailableError, CardAbsentError) as error:
            if (known := self._file.records.get(held.key)) is not None:
                await self._write(replace(known, stage="Planned", started_at=""))  # nothing was done
            await self._wait(held, _describe(error))
            return None
        finally:
            kept = self._file.records.get(held.key)
            if kept is None or kept.stage not in ("Begun", "Ended"):
                self._executor.allow_prepares(card.uuid)

    def _check_hook(self, held: NamedCard) -> None:
        """Raise HookUnavailableError unless the hook can be run."""
        if held.then == "Hook":
            self._need_hooks().find(held.hook)

    def _need_hooks(self) -> HookFolder:
        if self._hooks is None:
            raise HookUnavailableError("the node has no folder of hooks: kerf kubelet-plugin --maintenance-hooks")
        return self._hooks

    async def _check_free(self, target: _Target, queue: CallQueue) -> None:
        """Raise HardwareBusyError, with the reason, unless nothing of the card is in use; and what keeps it from being
        known. Nothing of the card can begin while this is checked.
        """
        backend, card = target.backend, target.card
        survey = await self._survey(target, queue)
        slices = await self._cluster.list_published()
        published = find_card(find_cards(slices, self._settings.node_name), card.uuid)
        if obstacle := find_obstacle(card, self._state.records.values(), survey, published):
            raise HardwareBusyError(obstacle)
        if isinstance(backend, MaintainingBackend):
            holders = await queue.call("find holders", backend.find_card_holders, card.uuid)
            if holders:
                raise HardwareBusyError(f"the card is held open by {', '.join(holders)}: end them, then it goes on")

    async def _act(self, target: _Target, record: WorkRecord, queue: CallQueue) -> WorkRecord | None:
        """Do what is wanted, once; returns the record if the card is to be verified."""
        held = target.held
        await self._write(record)  # if the process is killed now, the act has not begun
        record = replace(record, started_at=format_unix_time(self._executor.now()))
        shown = await self._report(held, _to_work(replace(record, stage="Begun")))
        if shown is None or shown.is_terminating or shown.metadata.generation != held.generation:
            return None  # it was ended or changed meanwhile
        await self._write(replace(record, stage="Begun"))
        self._log_and_report("Normal", "CardMaintenanceBegun", f"{target}: {held.then} begins ({held.maintenance})")
        journal = WorkJournal(self._file, held.key, is_test=False)
        uuid, backend = target.card.uuid, target.backend
        try:
            if held.then == "Hook":
                message = await self._run_hook(target)
            elif not isinstance(backend, MaintainingBackend):
                raise HardwareRefusedError(_WITHOUT_BACKEND)
            elif held.then == "Reset":
                message = await queue.call("reset", backend.reset_card, uuid, journal)
            else:
                message = await queue.call("MIG mode", backend.set_mig_mode, uuid, held.then == "MigOn")
        except (HardwareBusyError, HookUnavailableError) as error:
            if queue.problem:  # it was given up, and goes on
                await self._end(held, self._file.records[held.key], "Failed", str(error))
                return None
            await self._end_act(target, queue)
            raise
        except Exception as error:  # noqa: BLE001  (backends are third parties': the other cards go on)
            with suppress(KerfError):  # the first error is the one to be reported
                await self._end_act(target, queue)
            reason = f"{_name_act(held)}: {_describe(error)}"
            await self._end(held, self._file.records[held.key], "Failed", reason)
            return None
        _log.info("%s: %s", target, message)
        record = replace(self._file.records[held.key], stage="Ended", message=message)
        await self._write(record)
        self._state.request_publication()  # its minor number may be another one, or its partitions
        return record

    async def _run_hook(self, target: _Target) -> str:
        """Run a hook in a thread of its own, not as a call to the hardware: it may take long. Raises
        HookUnavailableError, and HardwareRefusedError when it has failed.
        """
        hooks, card = self._need_hooks(), target.card
        variables: Mapping[str, str] = {
            "KERF_NODE": self._settings.node_name,
            "KERF_CARD": card_name(card),
            "KERF_CARD_UUID": card.uuid,
            "KERF_CARD_PCI_ADDRESS": card.pci_bus_id,
        }
        limit_s = HOOK_LIMIT_S + _HOOK_GRACE_S
        queue = CallQueue("hook", limit_s, start=self._executor.start, now=self._executor.now, on_change=_ignore)
        result = await queue.call(target.held.hook, hooks.run, target.held.hook, variables)
        if result.exit_code != 0:
            raise HardwareRefusedError(result.describe())
        return f"{_name_act(target.held)}: {result.describe()}"

    async def _end_act(self, target: _Target, queue: CallQueue) -> None:
        """Have the backend restore what an act has changed for its own sake."""
        backend = target.backend
        if isinstance(backend, MaintainingBackend) and target.held.then != "Hook":
            journal = WorkJournal(self._file, target.held.key, is_test=False)
            await queue.call("end of maintenance", backend.end_act, target.card.uuid, journal)

    # Verification

    async def _verify(self, target: _Target, record: WorkRecord) -> None:
        """Verify the card until it is well, at most so many times. Raises WorkFileError."""
        held = target.held
        if record.stage == "Begun":
            record = replace(record, stage="Ended", message=_VERIFIED)
            await self._write(record)
        while record.stage == "Ended":
            await self._try_report(held, _to_work(record))
            problem = await self._find_problem(target)
            record = self._file.records[held.key]
            if not problem:
                await self._end(held, record, "Done", record.message)
                return
            record = await self._note_attempt(held, record, problem)
            if record.stage == "Ended":
                await anyio.sleep(self._settings.verification_interval_s)

    async def _note_attempt(self, held: NamedCard, record: WorkRecord, problem: str) -> WorkRecord:
        """Note a failed verification; returns the record, which has failed after the last one."""
        attempts = record.attempts + 1
        _log.warning("CardMaintenance %s: verification %d has failed: %s", held.maintenance, attempts, problem)
        record = replace(record, stage="Ended", attempts=attempts)
        if attempts >= MOST_ATTEMPTS:
            return await self._end(held, record, "Failed", f"the card is not well after {held.then}: {problem}")
        await self._write(record)
        return record

    async def _find_problem(self, target: _Target) -> str:
        """Return why the card is not well; empty: it is."""
        try:
            async with self._executor.lock(target.card.uuid) as queue:
                await self._end_act(target, queue)
                survey = await self._survey(target, queue)
                if problem := find_mode_problem(target.held.then, survey):
                    return problem
                await self._test_partition(target, survey, queue)
            # What the card has now decides which of its devices are published, before the taint goes.
            await self._surveyor.survey_now([target.card.uuid])
            self._state.request_publication()
        except Exception as error:  # noqa: BLE001  (as above)
            return _describe(error)
        return await self._wait_healthy(target.card)

    async def _test_partition(self, target: _Target, survey: CardSurvey, queue: CallQueue) -> None:
        """Make a partition and remove it, where the card can. Raises what the backend raises."""
        journal = WorkJournal(self._file, target.held.key, is_test=True)
        card, held = target.card, target.held
        partition = choose_test_partition(card, held.then, survey)
        if partition is None:
            return
        pool = f"{self._settings.node_name}/{card.kind}"
        device = AllocatedDevice(
            claim=ClaimRef("", _TEST_CLAIM, held.uid),
            share=ShareId(DeviceId(self._settings.driver_name, pool, device_name(card, partition)), None),
            partition=partition,
            admin_access=False,
            consumed_capacity={},
        )
        await queue.call("test partition", _make_and_remove, device, target.backend, survey, journal)

    async def _wait_healthy(self, card: Card) -> str:
        """Wait a moment until the card is healthy; returns what is wrong with it, empty: nothing."""
        whole = Partition(kind=card.kind, card_uuid=card.uuid)
        with anyio.move_on_after(self._settings.verification_interval_s):
            while True:
                change = self._state.changed.next_event
                if self._state.health.find_unhealthy(whole) is None:
                    return ""
                await change.wait()
        unhealthy = self._state.health.find_unhealthy(whole)
        return "" if unhealthy is None else f"its health is {unhealthy.state}: {unhealthy.reason}"

    async def _survey(self, target: _Target, queue: CallQueue) -> CardSurvey:
        uuid = target.card.uuid
        return await queue.call("survey", survey_card, target.backend, uuid, self._executor.units(uuid))

    # Records and reports

    def _new_record(self, target: _Target, stage: WorkStage) -> WorkRecord:
        held = target.held
        return WorkRecord(
            uid=held.uid,
            generation=held.generation,
            card_uuid=target.card.uuid,
            backend=target.backend_name,
            act=held.then,
            stage=stage,
        )

    async def _write(self, record: WorkRecord) -> None:
        if self._file.records.get(record.key) != record:
            await self._writes.run(self._file.put, record)

    async def _end(self, held: NamedCard, record: WorkRecord, stage: WorkStage, message: str) -> WorkRecord:
        """Record and report that it is Done or has Failed. Raises WorkFileError."""
        ended = replace(record, stage=stage, message=message, finished_at=format_unix_time(self._executor.now()))
        await self._write(ended)
        self._executor.allow_prepares(record.card_uuid)
        _ACTS.labels(self._settings.driver_name, record.act, stage.lower()).inc()
        subject = f"card {record.card_uuid}, CardMaintenance {held.maintenance}"
        if stage == "Done":
            self._state.note_returned(*held.key)
            self._log_and_report("Normal", "CardReturned", f"{subject}: it is well and gets claims again: {message}")
        else:
            self._log_and_report("Warning", "CardMaintenanceFailed", f"{subject}: {message}; {_AFTER_FAILURE}")
        await self._try_report(held, _to_work(ended))
        return ended

    async def _wait(self, held: NamedCard, reason: str) -> None:
        """Report why nothing was done yet, and have it tried again later. Raises ApiError."""
        self._again_at[held.key] = anyio.current_time() + self._settings.maintenance_retry_s
        work = MaintenanceWork(state="Waiting", message=reason[:_MAX_MESSAGE], observed_generation=held.generation)
        if self._reported.get(held.key) != work:
            _log.info("CardMaintenance %s: nothing is done with the card yet: %s", held.maintenance, reason)
        await self._report(held, work)

    async def _report(self, held: NamedCard, work: MaintenanceWork) -> CardMaintenanceObject | None:
        """Write ``status.work``; returns the object then, None: it is gone. Raises ApiError and WorkDroppedError.

        What was written last is not written again, unless the act begins, for which the object is to be seen as it is.
        """
        if work.state != "Acting" and self._reported.get(held.key) == work:
            return None
        kept = await self._cluster.write_maintenance_work(held.maintenance, held.uid, work)
        if kept is not None:
            self._reported[held.key] = work
        return kept

    async def _try_report(self, held: NamedCard, work: MaintenanceWork) -> None:
        """Write ``status.work`` now or later."""
        try:
            await self._report(held, work)
        except KerfError as error:
            self._problems.note(held.maintenance, f"CardMaintenance {held.maintenance}: {error}")

    def _log_and_report(self, kind: EventKind, reason: str, message: str) -> None:
        _log.log(logging.WARNING if kind == "Warning" else logging.INFO, "%s", message)
        self._events.report_node(kind, reason, message)


def _make_and_remove(device: AllocatedDevice, backend: Backend, survey: CardSurvey, journal: WorkJournal) -> None:
    """Make a test partition and remove it, after what an interrupted verification has left of one; blocks.

    Raises what the backend raises; what it has left is removed then, or by the next verification.
    """
    partition = device.partition
    if journal.notes:
        backend.abandon(device, journal, find_ours(partition, survey, journal.notes, ()))
        journal.clear()
        survey = backend.survey(partition.card_uuid)
    if survey.partitions:
        return
    journal.write(**{BEFORE: list_before(survey, None)})
    try:
        backend.unprepare(backend.prepare(device, None, journal, None))
    except Exception:
        left = backend.survey(partition.card_uuid)
        backend.abandon(device, journal, find_ours(partition, left, journal.notes, ()))
        journal.clear()
        raise
    journal.clear()


def _to_work(record: WorkRecord) -> MaintenanceWork:
    """Return what the status says of a record; of one that has failed also what to do, whatever its length."""
    state = _STATES[record.stage]
    message = record.message or f"{record.act} of card {record.card_uuid}"
    ending = f"; {_AFTER_FAILURE}" if state == "Failed" else ""
    return MaintenanceWork(
        state=state,
        message=message[: _MAX_MESSAGE - len(ending)] + ending,
        started_at=record.started_at or None,
        finished_at=record.finished_at or None,
        attempts=record.attempts,
        observed_generation=record.generation,
    )


def _name_act(held: NamedCard) -> str:
    return f"hook {held.hook}" if held.then == "Hook" else held.then


def _describe(error: Exception) -> str:
    if isinstance(error, CardAbsentError):
        return f"{error}; nothing is done with a card that does not answer: boot the node, or replace the card"
    return str(error) if isinstance(error, KerfError) else repr(error)


def _ignore() -> None:
    """A hook that hangs keeps no card from anything but itself."""
