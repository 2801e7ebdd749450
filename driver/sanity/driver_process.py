"""The processes that the test itself starts: instances of the driver, and a program that uses a device."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio

from kerf_dra.api.errors import InvalidDocumentError, KerfError, Problem

GRACE_S: Final = 30.0
"""The time that a kubelet gives a pod that it ends (``terminationGracePeriodSeconds`` by default)."""
INSTANCE: Final = "{instance}"
"""Where a command and the path of a socket have what distinguishes instances of the driver."""
_NAME_DIGITS: Final = 8
"""Hexadecimal digits of an instance's name: less than a UID has, because the path of a socket has 107 bytes at most."""
_USE_S: Final = 30.0
"""The time until a program uses the device: libraries of accelerators take seconds for their first context."""
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

    async def end_or_kill(self, number: signal.Signals, within_s: float) -> None:
        """End it by a signal, and kill it where it does not end: that is another row's finding. Raises ProcessError."""
        try:
            await self.end(number, within_s)
        except ProcessError:
            await self.kill()

    async def wait_end(self, within_s: float) -> bool:
        """Wait for its end for at most ``within_s``; returns whether it has ended."""
        assert self._process is not None, "it is started first"
        with anyio.move_on_after(within_s):
            while self._process.poll() is None:  # noqa: ASYNC110  (the end of a process sets no event)
                await anyio.sleep(_POLL_S)
        return self._process.poll() is not None


@dataclass(frozen=True, slots=True)
class InstanceCommand:
    """How instances of a driver are started that run at the same time, as in a rolling update (KEP-4381)."""

    registration_socket: Path
    """Its path, with INSTANCE in it."""
    command: Sequence[str]
    """The command, with INSTANCE in an option, such as that for the pod's UID."""

    def name_instance(self) -> tuple[Path, Sequence[str]]:
        """Return the socket and the command of a further instance, with a name of its own in both."""
        name = uuid4().hex[:_NAME_DIGITS]
        command = [part.replace(INSTANCE, name) for part in self.command]
        return Path(str(self.registration_socket).replace(INSTANCE, name)), command


def read_instance_command(registration_socket: Path, command: Sequence[str]) -> InstanceCommand | None:
    """Return how instances are started; None: neither the socket nor the command has INSTANCE.

    Raises InvalidDocumentError when only one of them has it.
    """
    in_socket, in_command = INSTANCE in str(registration_socket), any(INSTANCE in part for part in command)
    if in_socket != in_command:
        lacking = "the command after -- lacks it" if in_socket else f"the path lacks {INSTANCE}, which the command has"
        raise InvalidDocumentError(f"--registration-socket {registration_socket}", [Problem("", lacking)])
    return InstanceCommand(registration_socket, command) if in_socket else None


@asynccontextmanager
async def holding(command: Sequence[str], variables: Mapping[str, str]) -> AsyncIterator[None]:
    """A program that uses a device runs inside, from the first line that it prints on; it is killed at the end.

    Raises ProcessError when it cannot be started, or prints no line.
    """
    try:
        process = await anyio.open_process(
            command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stderr=sys.stderr.fileno()
        )
    except OSError as error:
        raise ProcessError(f"{command[0]} cannot be started: {error.strerror}") from error
    try:
        assert process.stdout is not None, "it is a pipe"
        with anyio.fail_after(_USE_S):
            await process.stdout.receive()
        yield
    except (TimeoutError, anyio.EndOfStream) as error:
        raise ProcessError(f"{command[0]} prints no line once it uses the device") from error
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_KILLED_S):
            with suppress(ProcessLookupError):  # it has ended
                process.kill()
            await process.aclose()
