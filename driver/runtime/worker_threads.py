"""Worker threads for calls that block, which may hang for ever without keeping the process from ending.

They are daemon threads: the interpreter does not wait for them at its exit, as it does for ``anyio.to_thread``'s.
There is no limit on their number, so that hanging calls never take threads from others; the callers have limits of
their own, such as one call at a time for each card. Idle threads are used again.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, NoReturn, TypeAlias, TypeVar, TypeVarTuple

import anyio

ResultT = TypeVar("ResultT")
ArgsT = TypeVarTuple("ArgsT")

Report: TypeAlias = Callable[[], None]
"""What a piece of work has to say when it has ended, called when its thread is free again."""
Work: TypeAlias = Callable[[], Report]


class WorkerThreads:
    """A pool of daemon threads."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Work | None]] = []
        self._is_closed = False

    def start(self, work: Work) -> None:
        """Run ``work`` in a thread, now."""
        try:
            queue = self._idle.pop()
        except IndexError:
            queue = SimpleQueue()
            threading.Thread(target=self._run, args=(queue,), name="kerf worker", daemon=True).start()
        queue.put(work)

    def close(self) -> None:
        """End the idle threads; busy ones end with their work."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _run(self, queue: "SimpleQueue[Work | None]") -> None:
        while (work := queue.get()) is not None:
            report = work()
            if self._is_closed:
                report()
                return
            self._idle.append(queue)
            report()
            del work, report


class LimitedCalls:
    """Calls in worker threads, of which so many run at the same time and no more."""

    def __init__(self, at_once: int, *, start: Callable[[Work], None]) -> None:
        self._start = start
        self._free = anyio.Semaphore(at_once, fast_acquire=True)

    async def run(self, function: Callable[[*ArgsT], ResultT], *args: *ArgsT) -> ResultT:
        """Begin ``function(*args)``, as soon as fewer than the limit run, and wait for its end.

        Also when cancelled: what was begun is complete. Raises what the function raises.
        """
        await self._free.acquire()
        ended, outcomes = anyio.Event(), list[Callable[[], ResultT]]()

        def end(outcome: Callable[[], ResultT]) -> None:
            outcomes.append(outcome)
            ended.set()
            self._free.release()

        start_call(self._start, end, function, *args)
        with anyio.CancelScope(shield=True):
            await ended.wait()
        return outcomes[0]()


def start_call(
    start: Callable[[Work], None],
    end: Callable[[Callable[[], ResultT]], None],
    function: Callable[[*ArgsT], ResultT],
    *args: *ArgsT,
) -> None:
    """Have ``function(*args)`` run by ``start``, in the caller's context; then ``end`` is called in the event loop.

    What ``end`` gets returns the result, or raises what the function has raised.
    """
    start(partial(_run_work, asyncio.get_running_loop(), contextvars.copy_context(), function, args, end))


def _run_work(
    loop: asyncio.AbstractEventLoop,
    context: contextvars.Context,
    function: Callable[..., ResultT],
    args: tuple[Any, ...],
    end: Callable[[Callable[[], ResultT]], None],
) -> Report:
    """Run the function, in a worker thread; the report hands its result to the event loop."""
    try:
        result = context.run(function, *args)
        outcome: Callable[[], ResultT] = lambda: result  # noqa: E731
    except BaseException as raised:  # noqa: BLE001  (the caller gets it)
        outcome = partial(_raise, raised)

    def report() -> None:
        try:
            loop.call_soon_threadsafe(end, outcome)
        except RuntimeError:  # the loop was closed: the process ends, and no task waits any more
            return

    return report


def _raise(error: BaseException) -> NoReturn:
    raise error
