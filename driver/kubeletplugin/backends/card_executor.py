"""Executes calls to backends in worker threads: for each card one at a time, different cards at the same time.

Samples of what a card is used for have a thread of their own, beside all other calls. One that does not return keeps
only the samples of its card waiting: no card is stuck by it, and no process ends.

A call that does not return within its time is given up, and its card is *stuck* until the call returns after all:
further calls for that card fail at once with a message that names card, call and since when, and other cards go on. A
call whose caller is cancelled counts as given up, too. The same holds for ``discover`` and ``wait_for_events`` of a
backend, which have threads of their own.

A part that compares hardware with records holds the card's lock meanwhile: no other call changes the card then.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar, TypeVarTuple

import anyio

from kerf_dra.api.model.times import format_unix_time
from kerf_dra.driver.kubeletplugin.backends.base import (
    Backend,
    BusReader,
    CardAbsentError,
    CardChange,
    CardSample,
    CardSurvey,
    DiscoveryChange,
    Handle,
    HardwareBusyError,
    HardwareRefusedError,
    HealthChange,
    SampledBackend,
    UnlistedCard,
)
from kerf_dra.driver.kubeletplugin.backends.sample_validation import sample_card
from kerf_dra.driver.kubeletplugin.backends.survey_validation import survey_card
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.worker_threads import Work, WorkerThreads, start_call

ResultT = TypeVar("ResultT")
ArgsT = TypeVarTuple("ArgsT")

EVENTS_S: Final = 60.0
"""A backend waits at most so long for events in one call: a thread that waits costs nothing."""
_log = logging.getLogger(__name__)

_EVENTS_GRACE_S: Final = 30.0
"""A backend may take so much longer than it was asked to wait for events: it reads states of its cards then."""
_OPEN_S: Final = 120.0
"""Limit of opening or closing a backend: a driver that loads its first card was seen to take more than 30 s
(dra-driver-nvidia-gpu#774)."""

_LAST_CALLS_S: Final = 5.0
"""Surveys that run when the plugin stops get so long: they are calls of milliseconds, and one that were taken for a
call that hangs would cost the process its end in peace. So does closing beside a call that hangs: what keeps the one in
a library may keep the other."""
_SURVEY: Final = "survey"
_SAMPLE_S: Final = 5.0
"""Limit of a sample of a card, which is some ten calls of milliseconds."""

_ENDS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
"""What would end the process or the task of the caller; a backend that raises one has only failed."""

_WAITING: Final = metrics.gauge("kerf_hardware_queue_length", "Calls that wait for another one on their card.")
_STUCK: Final = metrics.gauge("kerf_stuck_cards", "Cards on which a call hangs.")


@dataclass(slots=True)
class _RunningCall:
    """A call in a worker thread."""

    operation: str
    since: float
    """When it began, in Unix time."""
    ended: anyio.Event
    limit_at: float
    """When it has taken as long as it may, in the event loop's time."""
    is_given_up: bool = False
    thread_id: int | None = None
    """The kernel's number of its thread (gettid(2)); None: the thread has not begun."""

    def run_in_thread(self, function: Callable[[*ArgsT], ResultT], *args: *ArgsT) -> ResultT:
        """Note the thread, and call the function in it."""
        self.thread_id = threading.get_native_id()
        return function(*args)


class HangingCall(NamedTuple):
    """A call that was given up and has not returned."""

    problem: str
    """What hangs since when, for people."""
    thread_id: int | None
    """The kernel's number of its thread; None: the thread has not begun."""


class CallQueue:
    """The calls for one subject, a card or a part of a backend: the holder of ``lock`` may make one after the other."""

    def __init__(
        self,
        subject: str,
        limit_s: float,
        *,
        start: Callable[[Work], None],
        now: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        """``on_change`` is called when a call has been given up, and when it returns after all."""
        self.subject = subject
        self.lock = anyio.Lock(fast_acquire=True)
        self._limit_s = limit_s
        self._start = start
        self._now = now
        self._on_change = on_change
        self._running: _RunningCall | None = None

    @property
    def problem(self) -> str:
        """The call that hangs; empty: none does."""
        call = self._running
        if call is None or not call.is_given_up:
            return ""
        since = format_unix_time(call.since)
        return f"{self.subject} does not answer: {call.operation}, begun at {since}, has not returned"

    def find_hanging(self, grace_s: float) -> HangingCall | None:
        """Return the call that hangs, once it has taken ``grace_s`` longer than it may."""
        call = self._running
        if call is None or not self.problem or anyio.current_time() < call.limit_at + grace_s:
            return None
        return HangingCall(self.problem, call.thread_id)

    async def call(self, operation: str, function: Callable[[*ArgsT], ResultT], *args: *ArgsT) -> ResultT:
        """Run ``function(*args)`` in a worker thread; ``operation`` names it in messages.

        Raises what it raises, and HardwareBusyError when it does not return in time.
        """
        ended = anyio.Event()
        call = _RunningCall(operation, self._now(), ended, anyio.current_time() + self._limit_s)
        outcome: list[Callable[[], ResultT]] = []

        def end(result: Callable[[], ResultT]) -> None:
            outcome.append(result)
            self._running = None
            ended.set()
            if call.is_given_up:
                self._on_change()

        self._running = call
        start_call(self._start, end, call.run_in_thread, function, *args)
        try:
            with anyio.move_on_after(self._limit_s):
                await ended.wait()
        finally:
            if not outcome:
                call.is_given_up = True
                self._on_change()
        if not outcome:
            raise HardwareBusyError(f"{self.subject}: {operation} gave no answer within {self._limit_s:g} s")
        try:
            return outcome[0]()
        except _ENDS as raised:
            raise HardwareRefusedError(f"{self.subject}: {operation} raised {raised!r}") from raised

    async def wait_until_ended(self, operation: str) -> None:
        """Wait while a call of this operation runs."""
        if (call := self._running) is not None and call.operation == operation:
            await call.ended.wait()

    def check(self) -> None:
        """Raise HardwareBusyError while a call hangs."""
        if self.problem:
            raise HardwareBusyError(f"{self.problem}; see the kernel's log about the hardware")


class CardExecutor:
    """The executor of one node's calls to ``backends``, which are by name."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        *,
        call_timeout_s: float,
        discovery_timeout_s: float,
        now: Callable[[], float] = time.time,
        start: Callable[[Work], None] | None = None,
    ) -> None:
        """``now`` returns Unix time in seconds, for messages.

        ``start`` begins work in a thread; tests on a virtual clock have it done at once.
        """
        self.backends = backends
        self._call_timeout_s = call_timeout_s
        self._discovery_timeout_s = discovery_timeout_s
        self.now: Final = now
        """Returns Unix time in seconds."""
        self._threads = WorkerThreads()
        self.start: Final = start or self._threads.start
        """Begins work in a thread."""
        self._cards: dict[str, CallQueue] = {}
        self._backend_queues: dict[tuple[str, str], CallQueue] = {}
        self._sample_queues: dict[str, CallQueue] = {}
        """The samples of cards, by UUID: none of them is waited for, nor counts as a call that hangs."""
        self._owners: dict[str, str] = {}
        """By the UUID of every card that was ever discovered: the backend that found it last."""
        self._open_backends: set[str] = set()
        self._open_errors: dict[str, Exception] = {}
        """By backend: why it could not be opened when that was tried last."""
        self._opened: dict[str, anyio.Event] = {}
        """By backend: set when it is opened for the first time."""
        self._stuck_count = 0
        self.stuck_changed = Notifier()
        """Notified when ``stuck`` has changed."""
        self._units: dict[str, int] = {}
        """The units of every card that was ever discovered, by its UUID."""
        self._refused: dict[str, str] = {}
        """Why nothing of a card is prepared now, by its UUID."""

    @property
    def stuck(self) -> Mapping[str, str]:
        """The cards on which a call hangs, by UUID, with the reason for people."""
        return {uuid: queue.problem for uuid, queue in self._cards.items() if queue.problem}

    @property
    def has_hanging_calls(self) -> bool:
        """Whether a call on a card was given up and has not returned: it may still change the card."""
        return any(queue.problem for queue in self._cards.values())

    def list_hanging(self, grace_s: float) -> list[HangingCall]:
        """Return the calls, on cards and to backends, that have taken ``grace_s`` longer than they may."""
        queues = (*self._cards.values(), *self._backend_queues.values())
        return [call for queue in queues if (call := queue.find_hanging(grace_s)) is not None]

    def backend(self, name: str) -> Backend:
        """Return the backend. Raises HardwareRefusedError when it is not configured (any more)."""
        backend = self.backends.get(name)
        if backend is None:
            known = ", ".join(sorted(self.backends)) or "none"
            raise HardwareRefusedError(f"its backend {name!r} is not configured (any more); there is {known}")
        return backend

    def units(self, card_uuid: str) -> int | None:
        """Return the number of the card's units; None: it was never discovered."""
        return self._units.get(card_uuid)

    def refuse_prepares(self, card_uuid: str, reason: str) -> None:
        """Have ``check_prepare`` raise for a card from now on."""
        self._refused[card_uuid] = reason

    def allow_prepares(self, card_uuid: str) -> None:
        """End what ``refuse_prepares`` has begun, if it has."""
        self._refused.pop(card_uuid, None)

    def check_prepare(self, card_uuid: str) -> None:
        """Raise HardwareBusyError while nothing of a card is to be prepared."""
        if reason := self._refused.get(card_uuid):
            raise HardwareBusyError(reason)

    @asynccontextmanager
    async def lock(self, card_uuid: str) -> AsyncIterator[CallQueue]:
        """Hold the lock of a card, for one or several calls and what is decided between them.

        Raises HardwareBusyError at once while a call on the card hangs.
        """
        queue = self._cards.get(card_uuid)
        if queue is None:
            queue = self._cards[card_uuid] = self._make_queue(f"card {card_uuid}", self._call_timeout_s)
        queue.check()
        with _WAITING.track_inprogress():
            await queue.lock.acquire()
        try:
            queue.check()
            yield queue
        finally:
            queue.lock.release()

    async def survey_under_lock(self, backend_name: str, card_uuid: str, apply: Callable[[CardSurvey], None]) -> None:
        """Survey a card, and call ``apply`` with the result while the card is still locked.

        Raises what the backend raises, HardwareBusyError as ``lock`` and ``CallQueue.call`` do, and
        ContradictorySurveyError. Of a backend that could not be opened, raises CardAbsentError where that says that
        its cards are not there, else HardwareBusyError.
        """
        backend = self.backend(backend_name)
        if error := self._open_errors.get(backend_name):
            kind = CardAbsentError if isinstance(error, CardAbsentError) else HardwareBusyError
            raise kind(f"backend {backend_name} is not open: {error}") from error
        async with self.lock(card_uuid) as card:
            apply(await card.call(_SURVEY, survey_card, backend, card_uuid, self.units(card_uuid)))

    async def discover(self, backend_name: str) -> tuple[Card, ...]:
        """Return the cards that a backend finds; it is opened before the first time, and again if that has failed.

        Raises what the backend raises, and HardwareBusyError when it does not answer.
        """
        if backend_name not in self._open_backends:
            await self._open(backend_name)
            self._find_opened(backend_name).set()
        discover = self.backend(backend_name).discover
        cards = tuple(await self._call_backend(backend_name, "discover", self._discovery_timeout_s, discover))
        self._units.update((card.uuid, card.units) for card in cards)
        self._owners.update((card.uuid, backend_name) for card in cards)
        return cards

    async def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample | None:
        """Return what a card and its devices of ``handles`` are used for; None: its backend cannot say.

        Raises what the backend raises, ContradictorySampleError, and HardwareBusyError while any call on the card hangs
        and while its backend is not open.
        """
        name = self._owners.get(card_uuid)
        if name is None or name not in self._open_backends:
            raise HardwareBusyError(f"card {card_uuid} is of no backend that is open")
        backend = self.backend(name)
        if not isinstance(backend, SampledBackend):
            return None
        if problem := self.stuck.get(card_uuid):
            raise HardwareBusyError(problem)
        queue = self._sample_queues.get(card_uuid)
        if queue is None:
            queue = self._sample_queues[card_uuid] = CallQueue(
                f"card {card_uuid}", _SAMPLE_S, start=self.start, now=self.now, on_change=_ignore_change
            )
        queue.check()
        async with queue.lock:
            queue.check()
            return await queue.call("sample", sample_card, backend, card_uuid, handles)

    async def list_unlisted(self, backend_name: str, cards: Sequence[Card]) -> Sequence[UnlistedCard]:
        """Return the cards on the bus that are none of ``cards``, where a backend can say so.

        Raises what the backend raises, and HardwareBusyError when it does not answer.
        """
        backend = self.backend(backend_name)
        if not isinstance(backend, BusReader):
            return ()
        operation, limit_s = "list_unlisted", self._discovery_timeout_s
        return await self._call_backend(backend_name, operation, limit_s, backend.list_unlisted, cards)

    async def wait_for_events(self, backend_name: str) -> Sequence[HealthChange | CardChange | DiscoveryChange]:
        """Wait for a backend's events for at most a minute, from the moment that ``discover`` has opened it.

        Raises as ``discover`` does, and HardwareRefusedError when what it returns is no sequence of events.
        """
        operation, limit_s = "wait_for_events", EVENTS_S + _EVENTS_GRACE_S
        wait = self.backend(backend_name).wait_for_events
        await self._find_opened(backend_name).wait()
        events: object = await self._call_backend(backend_name, operation, limit_s, wait, EVENTS_S)
        if isinstance(events, Sequence) and all(
            isinstance(event, HealthChange | CardChange | DiscoveryChange) for event in events
        ):
            return events
        raise HardwareRefusedError(
            f"backend {backend_name}: {operation} returned {events!r:.200}, which are not events"
        )

    async def close_backends(self) -> None:
        """Close the backends that are open, which ends their waits, and wait a moment for surveys that still run.

        A backend that cannot be closed is logged: the others are.
        """
        limit_s = _LAST_CALLS_S if self.list_hanging(0.0) else _OPEN_S
        for name in sorted(self._open_backends):
            try:
                await self._call_backend(name, "close", limit_s, self.backend(name).close)
            except Exception as error:  # noqa: BLE001  (backends are third parties': the others are closed)
                _log.error("backend %s cannot be closed: %r", name, error)
        self._open_backends.clear()
        with anyio.move_on_after(_LAST_CALLS_S):
            for queue in self._cards.values():
                await queue.wait_until_ended(_SURVEY)

    def close(self) -> None:
        """End the idle threads."""
        self._threads.close()

    async def _open(self, backend_name: str) -> None:
        try:
            await self._call_backend(backend_name, "open", _OPEN_S, self.backend(backend_name).open)
        except Exception as error:
            self._open_errors[backend_name] = error
            raise
        self._open_errors.pop(backend_name, None)
        self._open_backends.add(backend_name)

    def _find_opened(self, backend_name: str) -> anyio.Event:
        return self._opened.setdefault(backend_name, anyio.Event())

    async def _call_backend(
        self, name: str, operation: str, limit_s: float, function: Callable[[*ArgsT], ResultT], *args: *ArgsT
    ) -> ResultT:
        queue = self._backend_queues.get((name, operation))
        if queue is None:
            queue = self._backend_queues[name, operation] = self._make_queue(f"backend {name}", limit_s)
        queue.check()
        async with queue.lock:
            queue.check()
            return await queue.call(operation, function, *args)

    def _make_queue(self, subject: str, limit_s: float) -> CallQueue:
        return CallQueue(subject, limit_s, start=self.start, now=self.now, on_change=self._report_change)

    def _report_change(self) -> None:
        before, self._stuck_count = self._stuck_count, len(self.stuck)
        _STUCK.inc(self._stuck_count - before)  # the executors of other families count in the same gauge
        self.stuck_changed.notify()


def _ignore_change() -> None:
    """Stand for what follows of a call that hangs, where nothing does."""
