"""The process of a driver that the test itself starts, so that it may kill it and start it again."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio

from kerf_dra.api.errors import KerfError

_POLL_S: Final = 0.05
"""Seconds between two questions whether the process has ended."""
_KILLED_S: Final = 10.0
"""The time that a killed process takes to end at most: it may be in a call of the kernel."""


class ProcessError(KerfError):
    """The driver's process cannot be started, or does not end."""


class DriverProcess:
    """A driver's process. What it prints goes to standard error."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None: it runs, or has not been started."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        """Start it. Raises ProcessError."""
        try:
            self._process = subprocess.Popen(  # noqa: S603  (the user's own command)
                self._command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno()
            )
        except OSError as error:
            raise ProcessError(f"{self._command[0]} cannot be started: {error.strerror}") from error

    def count_descriptors(self) -> int:
        """Return how many files it has open. Raises ProcessError when the kernel does not say."""
        assert self._process is not None, "it is started first"
        try:
            return sum(1 for _ in Path(f"/proc/{self._process.pid}/fd").iterdir())
        except OSError as error:
            raise ProcessError(f"the descriptors of the driver's process are not known: {error.strerror}") from error

    async def kill(self) -> None:
        """Kill it, and wait for its end. Raises ProcessError."""
        await self.end(signal.SIGKILL, _KILLED_S)

    async def end(self, number: signal.Signals, within_s: float) -> None:
        """Send it a signal, and wait for its end. Raises ProcessError when it runs for longer than ``within_s``."""
        if self._process is None:
            return
        self._process.send_signal(number)
        if not await self.wait_end(within_s):
            raise ProcessError(f"it runs {within_s:g} s after {number.name}")

    async def wait_end(self, within_s: float) -> bool:
        """Wait for its end for at most ``within_s``; returns whether it has ended."""
        assert self._process is not None, "it is started first"
        with anyio.move_on_after(within_s):
            while self._process.poll() is None:  # noqa: ASYNC110  (the end of a process sets no event)
                await anyio.sleep(_POLL_S)
        return self._process.poll() is not None
