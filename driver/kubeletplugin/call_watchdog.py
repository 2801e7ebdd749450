"""Decides when the process ends because a call to the hardware hangs.

A call cannot be cancelled, and a vendor's library stays loaded: what hangs inside of them ends with the process only.
The next process finds in the records and notes of claims what is to be finished. It may hang again, and while it starts
no card of the node is worked on, so a process is given up for this reason once an hour at most: between these times the
card that hangs is in quarantine, and other cards go on. What waits in the kernel where no signal ends it would keep the
process from ending, too: then the process stays.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import anyio

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor, HangingCall
from kerf_dra.driver.kubeletplugin.backends.kernel_files import is_uninterruptible
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.problem_log import ProblemLog

RECORD: Final = "hanging-calls"
"""Name of the file, in the state directory, that a process writes before it ends for this reason. Its time counts; its
content, the calls, is for people."""
EVERY_S: Final = 3600.0
"""Time between two ends for this reason: a start takes minutes where a card hangs, and what a start does not cure
should not cost the other cards more than a few percent of their time."""

_PROC: Final = Path("/proc")

_log = logging.getLogger(__name__)


def _can_thread_end(thread_id: int) -> bool:
    return not is_uninterruptible(_PROC, thread_id)


class HangingCallError(PermanentError):
    """A call to the hardware hangs, and another process may do without it: this one ends, and is started again."""


class CallWatchdog:
    """The watchdog over the calls of one instance's plugin."""

    def __init__(
        self,
        card_executor: CardExecutor,
        settings: Settings,
        *,
        now: Callable[[], float] = time.time,
        can_end: Callable[[int], bool] = _can_thread_end,
    ) -> None:
        """``now`` returns Unix time in seconds, and ``can_end`` whether a thread, by its number in the kernel, ends
        with its process.
        """
        self._card_executor = card_executor
        self._settings = settings
        self._record = settings.state / RECORD
        self._now = now
        self._can_end = can_end
        self._problems = ProblemLog(_log, logging.ERROR)

    async def run(self) -> None:
        """Watch until cancelled. Raises HangingCallError when the process is to end."""
        while True:
            await anyio.sleep(self._settings.socket_poll_s)
            if calls := self._card_executor.list_hanging(self._settings.hanging_grace_s):
                self._judge(calls)

    def _judge(self, calls: Sequence[HangingCall]) -> None:
        """Raise HangingCallError, or log why not. Its few calls to small files are made in the event loop."""
        problem = "; ".join(call.problem for call in calls)
        if reason := self._find_reason_to_stay(calls) or self._write_record(problem):
            self._problems.note("calls", f"{problem}; the process stays, because {reason}")
        else:
            raise HangingCallError(f"the process has to start again: {problem}")

    def _find_reason_to_stay(self, calls: Sequence[HangingCall]) -> str:
        if any(call.thread_id is not None and not self._can_end(call.thread_id) for call in calls):
            return "the call waits in the kernel, which would not let the process end: see the kernel's log"
        try:
            ended_at = self._record.stat().st_mtime
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{self._record} cannot be read: {error}"
        is_recent = abs(self._now() - ended_at) < EVERY_S  # also where the clock was set back
        return "one has ended for this reason within the last hour, which has not helped" if is_recent else ""

    def _write_record(self, problem: str) -> str:
        """Write down that the process ends; returns why that is impossible, empty: it is written."""
        try:
            self._record.write_text(f"{problem}\n")
        except OSError as error:
            return f"{self._record} cannot be written: {error}"
        return ""
