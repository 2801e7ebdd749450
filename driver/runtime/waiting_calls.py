"""Callers that wait for an answer, so that work for which nobody waits can let them go first, for one event loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from kerf_dra.driver.runtime.notifier import Notifier

MOST_S: Final = 2.0
"""The longest time that other work lets callers go first: a burst of calls is over by then, and where calls come
without a pause, or one hangs, the other work must be done all the same."""


class WaitingCalls:
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
        """Return as soon as no caller waits, or callers have waited without a pause for ``MOST_S``."""
        while self._count and (left_s := self._busy_since + MOST_S - anyio.current_time()) > 0:
            answered = self._answered.next_event
            with anyio.move_on_after(left_s):
                await answered.wait()
