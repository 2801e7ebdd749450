"""Surveys a node's cards: before they are first published, when something has changed on one, and at an interval.

Each card is surveyed for itself: one whose survey fails or takes long keeps no other from being surveyed. What changes
is published at once; logs and events report it once. While others hold anything, the claims' allocations are listed,
too: a device that a claim has is tainted where it would otherwise be withdrawn.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.model.prepared import ClaimState
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, CardSurvey, HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.backends.survey_validation import ContradictorySurveyError
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeEvents, NodeState
from kerf_dra.driver.kubeletplugin.inventory.state.health import HeldCard
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import (
    CardReplacement,
    PreparationNotes,
    find_missing,
    find_replacements,
)
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)

_FAILED: Final = metrics.counter("kerf_surveys_failed_total", "Surveys of cards that failed.", ["driver"])
_QUARANTINED: Final = metrics.gauge(
    "kerf_quarantined_cards", "Cards that get no claims, because what is on them is not known.", ["driver"]
)


class AllocationSource(Protocol):
    """What claims have of this node's devices, by the API server's account."""

    async def list_allocated(self) -> Collection[DeviceId] | None:
        """Return the devices of this node that any claim has; None: it is not known. Raises KerfError."""
        ...


class HardwareSurveyor:
    """The surveyor of one node's cards."""

    def __init__(
        self,
        *,
        card_executor: CardExecutor,
        state: NodeState,
        boot_id: str,
        notes: PreparationNotes,
        settings: Settings,
        allocated: AllocationSource,
        events: NodeEvents,
    ) -> None:
        self._card_executor = card_executor
        self._state = state
        self._restrictions = state.restrictions
        self._surveys = state.restrictions.surveys
        self._records = state.records
        self._boot_id = boot_id
        self._notes = notes
        self._driver = settings.driver_name
        self._interval_s = settings.survey_interval_s
        self._first_survey_s = settings.discovery_timeout_s
        self._first_list_s = settings.claims_sync_timeout_s
        self._allocated = allocated
        self._events = events
        self._cards: dict[str, tuple[str, Card]] = {}
        self._missed: AbstractSet[str] = frozenset()
        """The cards that claims have and that the latest discovery has missed, by UUID."""
        self._replacements: frozenset[CardReplacement] = frozenset()
        """Those of the latest discovery."""
        self._reported: dict[str, Mapping[str, str]] = {}
        self._problems = ProblemLog(_log)
        self._running: set[str] = set()
        self._requested: set[str] = set()
        self._request = Notifier()

    def request(self, card_uuid: str) -> None:
        """Have the card surveyed soon, because something may have changed on it."""
        self._requested.add(card_uuid)
        self._request.notify()

    async def survey_now(self, card_uuids: Collection[str]) -> None:
        """Survey cards before what is known of them is relied on; one that is there again is discovered soon.

        Raises HardwareBusyError when a survey fails or a card is not there: then it is unknown.
        """
        failures: list[Exception] = []
        for card_uuid in card_uuids:
            if card_uuid not in self._cards:
                has_changed = await self._look_for(card_uuid, failures)
            else:
                has_changed = await self._survey_known_card(*self._cards[card_uuid], failures)
            if has_changed:
                self._state.note_surveys()
        if failures:
            first = failures[0]
            reason = str(first) if isinstance(first, KerfError) else repr(first)
            raise HardwareBusyError(f"it is not known what is left of the prepared devices: {reason}") from first

    async def follow_stuck(self) -> None:
        """Have cards surveyed on which a call hangs or hung, until cancelled: this fails at once, or ends their
        quarantine.
        """
        change = self._card_executor.stuck_changed.next_event
        self._request_stuck()
        while True:
            await change.wait()
            change = self._card_executor.stuck_changed.next_event
            self._request_stuck()
            self._state.note_surveys()

    def _request_stuck(self) -> None:
        for card_uuid in self._card_executor.stuck.keys() | self._surveys.quarantine.keys():
            self.request(card_uuid)

    async def meet(self, cards: Mapping[str, Sequence[Card]], missed: Sequence[HeldCard] = ()) -> None:
        """Take note of the discovered ``cards``, by backend, and of those that claims have and that discovery misses.

        Those that are new are surveyed, as are those that discovery begins or ceases to miss: then they are published.
        """
        found = {card.uuid: (backend, card) for backend, held in cards.items() for card in held}
        known = [card for _, card in self._cards.values()] + [held.card for held in missed]
        self._report_replacements(find_replacements(known, [card for _, card in found.values()]))
        found |= {held.card.uuid: (held.backend, held.card) for held in missed if not held.replaced_by}
        new = found.keys() - self._cards.keys()
        missed_uuids = {held.card.uuid for held in missed}
        doubtful = new | ((missed_uuids ^ self._missed) & found.keys())
        self._cards, self._missed = found, missed_uuids
        self._surveys.keep_only(found.keys())
        for card_uuid in self._reported.keys() - found.keys():
            del self._reported[card_uuid]
        for card_uuid in new:
            self._surveys.fail(card_uuid, "it has not been surveyed yet", is_doubtful=False)
        if doubtful:
            with anyio.move_on_after(self._first_survey_s):
                async with anyio.create_task_group() as group:
                    for card_uuid in sorted(doubtful - self._running):
                        self._begin(group, card_uuid, is_new=True)
        if new or self._restrictions.kept_out.needs_list:
            with anyio.move_on_after(self._first_list_s):  # later, the next survey lists them
                await self._list_if_held()
        self._count_quarantined()

    async def run(self) -> None:
        """Survey the cards at the interval and whenever it is requested, until cancelled."""
        next_at = anyio.current_time() + self._interval_s
        async with anyio.create_task_group() as group:
            while True:
                request = self._request.next_event
                due = {card_uuid for card_uuid in self._requested if card_uuid not in self._running}
                self._requested -= due
                if anyio.current_time() >= next_at:
                    next_at = anyio.current_time() + self._interval_s
                    due |= self._cards.keys() | self._list_awaited()
                    if await self._list_if_held():
                        self._state.note_surveys()
                for card_uuid in sorted(due - self._running):
                    self._begin(group, card_uuid)
                with anyio.move_on_after(max(0.0, next_at - anyio.current_time())):
                    await request.wait()

    def _report_replacements(self, replacements: Collection[CardReplacement]) -> None:
        for replacement in replacements:
            if replacement not in self._replacements:
                _log.warning("%s", replacement)
                self._events.report_node("Warning", "CardReplaced", str(replacement))
        self._replacements = frozenset(replacements)

    def _begin(self, group: TaskGroup, card_uuid: str, *, is_new: bool = False) -> None:
        self._running.add(card_uuid)
        group.start_soon(self._run_survey, card_uuid, is_new)

    async def _run_survey(self, card_uuid: str, is_new: bool) -> None:
        try:
            if card_uuid in self._cards:
                changed = await self._survey_known_card(*self._cards[card_uuid])
            else:
                changed = await self._look_for(card_uuid)
        finally:
            self._running.discard(card_uuid)
            if card_uuid in self._requested:
                self._request.notify()
        if changed and not is_new:
            await self._list_if_held()
            self._state.note_surveys()

    async def _survey_known_card(self, backend: str, card: Card, failures: list[Exception] | None = None) -> bool:
        """Survey a card; returns whether anything about its devices has changed. An error goes to ``failures``."""
        changed = False

        def apply(survey: CardSurvey) -> None:
            nonlocal changed
            changed = self._surveys.update(card, survey, self._records.values(), self._boot_id, self._notes)

        try:
            await self._card_executor.survey_under_lock(backend, card.uuid, apply)
        except Exception as error:  # noqa: BLE001  (backends are third parties': the other cards go on)
            _FAILED.labels(self._driver).inc()
            if failures is not None:
                failures.append(error)
            stuck = self._card_executor.stuck.get(card.uuid)
            reason = stuck or (str(error) if isinstance(error, KerfError) else repr(error))
            is_absent = isinstance(error, CardAbsentError)
            is_doubtful = stuck is not None or isinstance(error, ContradictorySurveyError)
            changed = self._surveys.fail(card.uuid, reason, is_doubtful=is_doubtful, is_absent=is_absent) or is_absent
            self._count_quarantined()
            self._report_changes(card, {"SurveyFailed": f"card {card.uuid} cannot be surveyed: {reason}"})
            return changed
        changed |= self._restrictions.refusals.expire(card.uuid, lambda part: bool(self._surveys.find_held(part)))
        self._count_quarantined()
        self._report_changes(card, {})
        self._state.note_surveyed(card.uuid)
        return changed

    async def _look_for(self, card_uuid: str, failures: list[Exception] | None = None) -> bool:
        """Ask for a card that was not there at the last discovery; returns whether it may be there now.

        Errors go to ``failures``.
        """
        backends = {
            device.backend
            for record in self._records.values()
            for device in record.devices
            if device.part.card_uuid == card_uuid
        }
        for backend in backends:
            surveys: list[CardSurvey] = []
            try:
                await self._card_executor.survey_under_lock(backend, card_uuid, surveys.append)
            except Exception as error:  # noqa: BLE001  (as above)
                if failures is not None:
                    failures.append(error)
                if not isinstance(error, CardAbsentError):
                    _log.info("card %s cannot be looked for: %r", card_uuid, error)
                continue
            if failures is not None and find_missing(surveys[0], self._records.values(), self._boot_id, {}):
                failures.append(HardwareBusyError(f"card {card_uuid} has lost partitions and is not discovered yet"))
            return True
        return not backends  # an event about a card of which nothing is known: it may be new

    def _list_awaited(self) -> set[str]:
        """List the cards, also those that are not there, that hold what is to be released."""
        return {
            device.part.card_uuid
            for record in self._records.values()
            if record.state is ClaimState.RELEASING
            for device in record.devices
        }

    async def _list_if_held(self) -> bool:
        """List the allocated devices while others hold any, or cards are kept out; returns whether that says anything
        new.
        """
        kept_out = self._restrictions.kept_out
        if not (self._surveys.has_held or kept_out.needs_list):
            return self._restrictions.allocated.replace(None)
        try:
            changed = self._restrictions.allocated.replace(await self._allocated.list_allocated())
        except KerfError as error:
            self._problems.note("list", f"cannot list which devices claims have, so the last list counts: {error}")
            return False
        self._problems.clear("list")
        kept_out.note_list()
        return changed

    def _count_quarantined(self) -> None:
        _QUARANTINED.labels(self._driver).set(len(self._surveys.quarantine))

    def _report_changes(self, card: Card, failure: Mapping[str, str]) -> None:
        """Log and report what is new of a card, once for each change."""
        reported = self._reported.get(card.uuid, {})
        state = {**self._surveys.describe(card), **failure}
        for reason, message in state.items():
            if reported.get(reason) != message:
                _log.warning("%s", message)
                self._events.report_node("Warning", reason, message)
        if reported and not state:
            message = f"card {card.uuid} is free for claims again"
            _log.info("%s", message)
            self._events.report_node("Normal", "CardFree", message)
        self._reported[card.uuid] = state
