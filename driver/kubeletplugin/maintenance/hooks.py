"""Hooks: programs of a node that are run for a free card, such as one that loads a card's firmware.

A CardMaintenance gives the name alone. The program is a file of that name in a folder that only root may write; it gets
no arguments, and learns of the card from variables that the plugin sets from what the card itself says. No shell is
involved. At its end, or at its time limit, all processes of its process group are killed.
"""

import os
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from kerf_dra.api.errors import TransientError
from kerf_dra.api.kerf.card_maintenance import is_hook_name
from kerf_dra.api.model.printable_text import to_one_line

HOOK_LIMIT_S: Final = 1800.0
"""The longest time of a hook: half an hour, more than the firmware of a card takes to be written."""
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_CHUNK: Final = 2**16
"""Bytes of one read: what a pipe of Linux holds."""
_TAIL: Final = 4096
"""The bytes of output that are kept, the last: a hook may write without end."""
_LAST_LINES: Final = 5
"""The lines of output that the status has."""
_MAX_LINE: Final = 160
"""The characters of such a line, two lines of a terminal: all of them fit into a message of a status (1024)."""
_POLL_S: Final = 0.1
"""Seconds between two looks whether the hook has ended: a child of it may keep its output open."""
_PAUSE_S: Final = 0.01
"""Seconds between two reads: a hook that floods is slowed down by its pipe, and takes no processor of the plugin."""
_MOST_LEFT: Final = 32
"""Reads after its end: more than a pipe holds, and no more where a process that has left its group floods on."""
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The programs that a hook finds by name: those of the system, whatever the plugin's own environment says."""


class HookUnavailableError(TransientError):
    """A hook cannot be run: it is not there, or others than root may write it. Nothing was run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """How a hook has ended."""

    exit_code: int | None
    """None: it was killed at its time limit. Negative: it died of that signal."""
    last_lines: tuple[str, ...]
    """The last lines of its output, each in one line of printable text."""

    def describe(self) -> str:
        """Return the same for people."""
        said = f": {' | '.join(self.last_lines)}" if self.last_lines else ""
        if self.exit_code is None:
            return f"did not end within {HOOK_LIMIT_S:g} s and was killed{said}"
        return f"ended with exit code {self.exit_code}{said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFolder:
    """The folder of a node's hooks."""

    path: Path
    owner: int = 0
    """The user ID of the only account that may write it: root's."""
    limit_s: float = HOOK_LIMIT_S

    def find(self, name: str) -> Path:
        """Return the path of a hook. Raises HookUnavailableError."""
        if not is_hook_name(name):
            raise HookUnavailableError(f"{name!r:.80} is no name of a hook: letters, digits and dashes")
        self.check()
        path = self.path / name
        found = self._check_entry(path, "hook")
        if not stat.S_ISREG(found.st_mode) or not found.st_mode & stat.S_IXUSR:
            raise HookUnavailableError(f"hook {path} is no executable file: chmod 0755, and no link")
        return path

    def check(self) -> None:
        """Raise HookUnavailableError unless only root may write the folder and those above it."""
        if not self.path.is_absolute():
            raise HookUnavailableError(f"folder {self.path} of hooks is no absolute path")
        found = self._check_entry(self.path, "folder of hooks")
        if not stat.S_ISDIR(found.st_mode):
            raise HookUnavailableError(f"folder of hooks {self.path} is no folder, or a link")
        for above in self.path.parents:
            mode = above.stat().st_mode
            if mode & _WRITABLE_BY_OTHERS and not mode & stat.S_ISVTX:
                raise HookUnavailableError(f"others than root may write {above}, above the folder of hooks: chmod go-w")

    def run(self, name: str, variables: Mapping[str, str]) -> HookResult:
        """Run a hook to its end, or until its limit. Raises HookUnavailableError."""
        path = self.find(name)
        try:
            process = subprocess.Popen(  # noqa: S603  (a file that only root may write)
                [str(path)],
                env={"PATH": _PATH, **variables},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise HookUnavailableError(f"hook {path} cannot be run: {error.strerror}") from error
        assert process.stdout is not None
        with process.stdout as output:
            os.set_blocking(output.fileno(), False)
            has_ended, tail = False, b""
            try:
                has_ended, tail = _follow(process.pid, output, time.monotonic() + self.limit_s)
            finally:
                with suppress(ProcessLookupError):  # not reaped yet, so the number is still that of its group
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for _ in range(_MOST_LEFT):
                tail = (tail + (chunk := _read(output)))[-_TAIL:]
                if not chunk:
                    break
        lines = [_shorten(to_one_line(line)) for line in tail.decode(errors="replace").splitlines() if line.strip()]
        return HookResult(exit_code=process.returncode if has_ended else None, last_lines=tuple(lines[-_LAST_LINES:]))

    def _check_entry(self, path: Path, what: str) -> os.stat_result:
        try:
            found = path.lstat()
        except FileNotFoundError as error:
            raise HookUnavailableError(f"there is no {what} {path}: put it there, with root as its owner") from error
        except OSError as error:
            raise HookUnavailableError(f"{what} {path}: {error.strerror}") from error
        if stat.S_ISLNK(found.st_mode):
            raise HookUnavailableError(f"{what} {path} is a symbolic link: put the file itself there")
        if found.st_uid != self.owner or found.st_mode & _WRITABLE_BY_OTHERS:
            raise HookUnavailableError(f"others than root may write {what} {path}: chown root, chmod go-w")
        return found


def _follow(pid: int, output: IO[bytes], end: float) -> tuple[bool, bytes]:
    """Read what a hook writes until it has ended or the time is over; returns whether it has, and the end of that."""
    tail = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while time.monotonic() < end:
            if _has_ended(pid):
                return True, tail
            selector.select(min(_POLL_S, max(0.0, end - time.monotonic())))
            tail = (tail + _read(output))[-_TAIL:]
            time.sleep(_PAUSE_S)
    return False, tail


def _shorten(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 1]}…"


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; it stays a zombie, so that its number is no other process's yet."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _read(output: IO[bytes]) -> bytes:
    """Return what there is to read; empty: nothing now, or no more."""
    try:
        return os.read(output.fileno(), _CHUNK)
    except BlockingIOError:
        return b""
