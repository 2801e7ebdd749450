"""One run in a folder of its own, which goes with it, whatever signal ends the run."""

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import anyio
import click
from anyio.abc import TaskStatus

from kerf_dra.driver.demo.processes import kill_programs
from kerf_dra.driver.runtime import lifecycle

_LONGEST_ROOT: Final = 40
"""Characters of the temporary folder's path, so that the paths of sockets in it stay below 107 bytes."""
_FAILED: Final = 1
"""The exit code of a run that came to no end of its own."""
INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code that a shell reports for a program that Ctrl-C ended."""
_QUIET_S: Final = 0.2
"""Seconds for killed programs to end, so that none writes to the folder while it is removed."""


class Interruption:
    """What Ctrl-C and its like do to a run: they end its pause, else cancel it, and the next one ends it at once."""

    def __init__(self) -> None:
        self._kept: anyio.Event | None = None
        self.scope = anyio.CancelScope()
        self.folder: Path | None = None
        """The folder of the run, once there is one."""

    async def watch(self, *, task_status: TaskStatus[None]) -> None:
        """Handle signals until cancelled."""
        with anyio.open_signal_receiver(*lifecycle.stop_signals(), signal.SIGQUIT) as signals:
            task_status.started()
            async for number in signals:
                if self._kept is not None and not self._kept.is_set():
                    self._kept.set()
                elif not self.scope.cancel_called:
                    _print_line("interrupted: its programs are stopped now; Ctrl-C again ends them at once")
                    self.scope.cancel()
                else:
                    await self._end_at_once(number)

    async def pause(self) -> None:
        """Wait for a signal, which lets the run go on to its end."""
        self._kept = anyio.Event()
        await self._kept.wait()

    async def _end_at_once(self, number: signal.Signals) -> None:
        kill_programs()
        await anyio.sleep(_QUIET_S)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        _print_line(f"ended at once: its programs were killed{_describe_removal(self.folder)}")
        os._exit(128 + number)


class FolderRun(Protocol):
    """One run of a demo in a folder of its own."""

    async def run(self, root: Path, interruption: Interruption) -> int:
        """Run; returns the exit code."""
        ...


async def run_in_folder(demo: FolderRun) -> int:
    """Run ``demo`` in a temporary folder that is removed at its end, and whatever signal ends it."""
    code, interruption = _FAILED, Interruption()
    async with anyio.create_task_group() as tasks:
        await tasks.start(interruption.watch)
        root = interruption.folder = _temporary_folder()
        try:
            with interruption.scope:
                code = await demo.run(root, interruption)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        tasks.cancel_scope.cancel()
    if not interruption.scope.cancelled_caught:
        return code
    _print_line(f"cleaned up: its cluster and its programs have ended{_describe_removal(root)}")
    return INTERRUPTED


def _describe_removal(folder: Path | None) -> str:
    if folder is None:
        return ""
    if folder.exists():
        return f"; the folder {folder} could not be removed: remove it"
    return f", and the folder {folder} is removed, with their logs and simulated cards"


def _print_line(text: str) -> None:
    """Write a line on standard error, below the line that shows what is waited for."""
    with suppress(OSError):  # the terminal may have gone
        click.echo(f"\nkerf demo: {text}", err=True)


def _temporary_folder() -> Path:
    """Create a private folder with a short path, because of the unix sockets in it (sun_path has 108 bytes)."""
    root = Path(tempfile.mkdtemp(prefix="kerf-"))
    if len(str(root)) <= _LONGEST_ROOT:
        return root
    root.rmdir()
    return Path(tempfile.mkdtemp(prefix="kerf-", dir="/tmp"))
