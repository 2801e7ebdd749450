"""A work queue of keys with merging, delays and retries, as client-go's ``util/workqueue``.

- A key that is added while it waits is merged: it keeps the earlier of the two times.
- A key that is added while a worker has it is worked on once more afterwards, never by two workers at a time.
- Work that raises TransientError, or an unexpected error, is repeated with a back-off of that key; work that raises
  PermanentError is logged and dropped until the key is added again.
- A queue with a name has metrics: how long keys wait from the time at which they are due, how long they are worked on,
  and how many keys the last work of which failed.
"""

import heapq
import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Iterator
from itertools import count
from typing import Final, Generic, TypeVar

import anyio

from kerf_dra.api.errors import PermanentError, TransientError
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.concurrency import is_cancelled
from kerf_dra.driver.runtime.notifier import Notifier

KeyT = TypeVar("KeyT", bound=Hashable)

RETRIES: Final = Backoff(first_s=0.05, factor=2, limit_s=60, jitter=0.2)
"""Fast at first, for conflicts that a fresh read resolves; at most a minute, for errors that stay."""

_BUCKETS_S: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60)
"""From a key that finds a free worker to one that waits for an API server that hardly answers."""
_waits: Final = metrics.histogram(
    "kerf_work_queue_wait_seconds",
    "Time of a key from when it was due until a worker took it.",
    ["queue"],
    buckets=_BUCKETS_S,
)
_works: Final = metrics.histogram(
    "kerf_work_queue_work_seconds",
    "Time that a worker had a key, by outcome: done, retried (tried again by itself), refused (not tried again until "
    "something changes), or crashed (an unexpected error, tried again).",
    ["queue", "outcome"],
    buckets=_BUCKETS_S,
)
_OUTCOMES: Final = ("done", "retried", "refused", "crashed")
_failing: Final = metrics.gauge(
    "kerf_work_queue_failing", "Keys whose last work was not done: it was retried, refused or crashed.", ["queue"]
)

_log = logging.getLogger(__name__)


class _QueueMetrics:
    """The metrics of the queues of one name, found once: to find them takes longer than to count."""

    def __init__(self, name: str) -> None:
        self.waits = _waits.labels(name)
        self.failing = _failing.labels(name)
        self._works = {outcome: _works.labels(name, outcome) for outcome in _OUTCOMES}

    def note_work(self, outcome: str, seconds: float) -> None:
        self._works[outcome].observe(seconds)


class WorkQueue(Generic[KeyT]):
    """A queue of keys and the workers that empty it, for one event loop. Nothing is persisted."""

    def __init__(self, *, name: str = "", retries: Backoff = RETRIES) -> None:
        """``name`` is that of the queue in metrics, where several may have one; empty: it has none."""
        self._metrics = _QueueMetrics(name) if name else None
        self._retries = retries
        self._failed: set[KeyT] = set()
        """The keys whose last work was not done."""
        self._due: dict[KeyT, float] = {}
        self._heap: list[tuple[float, int, KeyT]] = []
        self._order = count()  # among keys due at the same time: first come, first served
        self._running: set[KeyT] = set()
        self._delays: dict[KeyT, Iterator[float]] = {}
        self._changed = Notifier()

    def add(self, key: KeyT, *, after_s: float = 0.0) -> None:
        """Have ``key`` worked on, at the earliest ``after_s`` seconds from now. Returns at once."""
        due = anyio.current_time() + after_s
        if due < self._due.get(key, math.inf):
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._changed.notify()

    async def run(self, work: Callable[[KeyT], Awaitable[None]], *, workers: int) -> None:
        """Call ``work`` for keys as they come due, ``workers`` at a time, until cancelled."""
        free = anyio.Semaphore(workers)
        try:
            async with anyio.create_task_group() as group:
                while True:  # one task waits for keys: of many that wait, each key would wake all
                    await free.acquire()
                    group.start_soon(self._work_on, await self._take(), work, free)
        finally:
            for key in tuple(self._failed):
                self._note_failure(key, has_failed=False)  # no worker has it any more

    async def _work_on(self, key: KeyT, work: Callable[[KeyT], Awaitable[None]], free: anyio.Semaphore) -> None:
        try:
            await self._attempt(key, work)
        finally:
            self._finish(key)
            free.release()

    async def _attempt(self, key: KeyT, work: Callable[[KeyT], Awaitable[None]]) -> None:
        began = anyio.current_time()
        try:
            await work(key)
        except TransientError as error:
            outcome = "retried"
            _log.info("%s: %s; again in %.1f s", key, error, self._repeat(key))
        except PermanentError as error:
            outcome = "refused"
            _log.error("%s: %s; not tried again until something changes", key, error)
            self._delays.pop(key, None)
        except anyio.get_cancelled_exc_class():
            if is_cancelled():
                raise
            outcome = "crashed"
            _log.exception("%s: cancelled from outside; again in %.1f s", key, self._repeat(key))
        except Exception:  # noqa: BLE001  (a defect in one key's work must not stop the others')
            outcome = "crashed"
            _log.exception("%s: unexpected error; again in %.1f s", key, self._repeat(key))
        else:
            outcome = "done"
            self._delays.pop(key, None)
        self._note_failure(key, has_failed=outcome != "done")
        if self._metrics is not None:
            self._metrics.note_work(outcome, anyio.current_time() - began)

    def _note_failure(self, key: KeyT, *, has_failed: bool) -> None:
        change = self._failed.add if has_failed else self._failed.discard
        before = len(self._failed)
        change(key)
        if self._metrics is not None:
            self._metrics.failing.inc(len(self._failed) - before)

    def _repeat(self, key: KeyT) -> float:
        if key not in self._delays:
            self._delays[key] = self._retries.delays()
        delay_s = next(self._delays[key])
        self.add(key, after_s=delay_s)
        return delay_s

    async def _take(self) -> KeyT:
        """Wait for the next key that is due and that no worker has."""
        while (key := self._pop()) is None:
            idle_s = self._heap[0][0] - anyio.current_time() if self._heap else math.inf
            with anyio.move_on_after(idle_s):
                await self._changed.wait()
        return key

    def _pop(self) -> KeyT | None:
        now = anyio.current_time()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due and key not in self._running:  # else an earlier entry was taken for it
                del self._due[key]
                self._running.add(key)
                if self._metrics is not None:
                    self._metrics.waits.observe(now - due)
                return key
        return None

    def _finish(self, key: KeyT) -> None:
        self._running.remove(key)
        if key in self._due:  # added meanwhile; its entry may have been passed over
            heapq.heappush(self._heap, (self._due[key], next(self._order), key))
            self._changed.notify()
