"""Structured concurrency: one coroutine for each of several items, one execution that callers share, and work that
yields to callers.

Single flight is Go's ``golang.org/x/sync/singleflight``: callers that ask for the same work while it runs share its one
result. Two things differ here. The work runs in a task of its own, because a gRPC client's deadline cancels the handler
of its call, and the work belongs to the process. Work of another verb for the same key waits until the running one has
ended, so that at most one task works on a key.
"""

import logging
import math
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar, TypeVarTuple

import anyio
from anyio.abc import TaskGroup

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.runtime.notifier import Notifier

ItemT = TypeVar("ItemT")
KeyT = TypeVar("KeyT", bound=Hashable)
ResultT = TypeVar("ResultT")
ArgsT = TypeVarTuple("ArgsT")

LONGEST_YIELD_S: Final = 2.0
"""The longest time that other work lets callers go first: a burst of calls is over by then, and where calls come
without a pause, or one hangs, the other work must be done all the same."""

_log = logging.getLogger(__name__)


def is_cancelled() -> bool:
    """Whether the task is to end, because a scope that it is in was cancelled.

    A cancellation that arrives otherwise is not ours: ``grpc.aio`` raises one in each task that waits for a call
    when another task closes the channel. It must not be passed on: a task group takes it for its own end, and cancels
    all its tasks without a word.
    """
    return anyio.current_effective_deadline() == -math.inf


async def for_each(work: Callable[[ItemT], Coroutine[Any, Any, ResultT]], items: Sequence[ItemT]) -> list[ResultT]:
    """Run ``work`` on all ``items`` at the same time; returns the results in the order of ``items``.

    A single item gets no task of its own: most claims have one device, most pods one claim, and a task would cost more
    than the rest of such a call. Raises what a single item raises, and an ExceptionGroup for several items.
    """
    if len(items) == 1:
        return [await work(items[0])]
    results: dict[int, ResultT] = {}

    async def run(index: int) -> None:
        results[index] = await work(items[index])

    async with anyio.create_task_group() as group:
        for index in range(len(items)):
            group.start_soon(run, index)
    return [results[index] for index in range(len(items))]


class _Flight(Generic[ResultT]):
    """One execution of some work, with its result once it has ended."""

    def __init__(self, verb: str, error: Exception) -> None:
        self.verb = verb
        self.scope = anyio.CancelScope(shield=True)
        self.ended = anyio.Event()
        self.error = error
        self.results: list[ResultT] = []

    async def result(self) -> ResultT:
        await self.ended.wait()
        if not self.results:
            raise self.error
        return self.results[0]


class SingleFlight(Generic[KeyT, ResultT]):
    """At most one execution of work for each key, shared by all callers that ask for it meanwhile."""

    def __init__(self, tasks: TaskGroup, *, stopping: Callable[[], Exception]) -> None:
        """The work runs in ``tasks``, which outlives the callers. ``stopping`` makes the error for callers whose work
        ``drain`` keeps from beginning or cuts off.
        """
        self._tasks = tasks
        self._stopping = stopping
        self._flights: dict[KeyT, _Flight[ResultT]] = {}
        self._is_stopping = False

    async def do(
        self, key: KeyT, verb: str, work: Callable[[*ArgsT], Coroutine[Any, Any, ResultT]], *args: *ArgsT
    ) -> ResultT:
        """Run ``work(*args)``, or join the work of the same ``verb`` that runs for ``key``; returns the result.

        Cancelling the caller leaves the work running. Raises what the work raises, and the error of ``stopping`` once
        ``drain`` was called.
        """
        while (running := self._flights.get(key)) is not None:
            if running.verb == verb:
                return await running.result()
            await running.ended.wait()
        if self._is_stopping:
            raise self._stopping()
        flight = self._flights[key] = _Flight(verb, self._stopping())
        self._tasks.start_soon(self._run, key, flight, work, args)
        return await flight.result()

    async def drain(self, grace_s: float) -> None:
        """Begin no more work, wait at most ``grace_s`` seconds for the running work, and cancel the rest."""
        self._is_stopping = True
        with anyio.move_on_after(grace_s):
            for flight in list(self._flights.values()):
                await flight.ended.wait()
        for flight in self._flights.values():
            flight.scope.cancel()

    async def _run(
        self,
        key: KeyT,
        flight: _Flight[ResultT],
        work: Callable[[*ArgsT], Coroutine[Any, Any, ResultT]],
        args: tuple[*ArgsT],
    ) -> None:
        try:
            with flight.scope:
                flight.results.append(await work(*args))
        except KerfError as error:
            flight.error = error
            _log.warning("%s failed: %s", flight.verb, error)
        except Exception as error:  # noqa: BLE001  (the callers get it; other keys go on)
            flight.error = error
            _log.exception("%s failed unexpectedly", flight.verb)
        finally:
            del self._flights[key]
            flight.ended.set()


class UnansweredCalls:
    """The number of calls that are being answered."""

    def __init__(self) -> None:
        self._count = 0
        self._busy_since = 0.0
        self._answered = Notifier()
        """Notified when the last caller has its answer."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one call inside the context."""
        if not self._count:
            self._busy_since = anyio.current_time()
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._answered.notify()

    async def let_go_first(self) -> None:
        """Return as soon as no caller waits, or callers have waited without a pause for ``LONGEST_YIELD_S``."""
        while self._count and (left_s := self._busy_since + LONGEST_YIELD_S - anyio.current_time()) > 0:
            answered = self._answered.next_event
            with anyio.move_on_after(left_s):
                await answered.wait()
