"""Worker threads for calls that block, which may hang for ever without keeping the process from ending.

They are daemon threads: the interpreter does not wait for them at its exit, as it does for ``anyio.to_thread``'s.
There is no limit on their number, so that hanging calls never take threads from others; the callers have one call at a
time for each card and each backend. Idle threads are used again.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

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
            threading.Thread(target=self._run, args=(queue,), name="kerf hardware", daemon=True).start()
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
