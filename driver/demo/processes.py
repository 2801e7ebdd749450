"""Kerf's own programs as child processes, which end with the demo, however it ends (``lifecycle.PARENT_PID``)."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import Process

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.runtime.lifecycle import PARENT_PID

_STOP_S: Final = 10.0
"""Seconds between SIGTERM and SIGKILL."""
_COMMAND: Final = (sys.executable, "-m", "kerf_dra.driver.cli")
_TAIL: Final = 20
"""Lines of a dead program's log in the error."""


_running: Final[set[Process]] = set()


class ProgramDiedError(KerfError):
    """One of Kerf's programs ended during the demo. The message has the end of its log."""


@dataclass(slots=True, kw_only=True)
class Program:
    """A running ``kerf`` subcommand."""

    name: str
    arguments: Sequence[str]
    log: Path
    process: Process

    def check(self) -> None:
        """Raise ProgramDiedError when the program no longer runs."""
        if self.process.returncode is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-_TAIL:]
            end = "\n".join(f"    {line}" for line in lines) or "    (it wrote nothing)"
            raise ProgramDiedError(f"{self.name} ended with exit code {self.process.returncode}; its log ends:\n{end}")

    async def kill(self) -> None:
        """Kill the program (SIGKILL), as a crash would."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def run_program(
    name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Program]:
    """Run ``kerf ARGUMENTS`` in this interpreter's environment, stopped on exit in any case.

    The child is in its own session: Ctrl-C reaches the demo only, which then stops its programs in order.
    """
    command = [*_COMMAND, *arguments]
    with log.open("ab") as out:
        process = await anyio.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, PARENT_PID: str(os.getpid()), **(environment or {})},
            start_new_session=True,
        )
    _running.add(process)
    try:
        yield Program(name=name, arguments=arguments, log=log, process=process)
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)
            _running.discard(process)


def kill_programs() -> None:
    """Kill all programs that run, at once: for a demo that may not even wait for their end."""
    for process in _running:
        if process.returncode is None:
            process.kill()


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        with anyio.move_on_after(_STOP_S):
            await process.wait()
    if process.returncode is None:
        process.kill()
    await process.wait()
    await process.aclose()
