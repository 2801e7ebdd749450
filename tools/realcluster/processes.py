"""Programs that outlive the process that started them, recorded in files and ended by PID, never by name.

A pid alone is no identity, it is used again: the time at which the kernel started the process goes with it.
"""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import msgspec

_POLL_S: Final = 0.05
_CHILD_S: Final = 10.0
"""The time limit for a launcher to start its child, which takes milliseconds."""
_STOP_S: Final = 15.0
"""The grace period after SIGTERM: the API server waits some seconds for its watches."""


class PartDiedError(RuntimeError):
    """A program ended while it was needed."""


class _Started(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one program."""

    pid: int
    """The PID of the program itself, outside of any PID namespace."""
    since: int
    """The start time in clock ticks after boot (proc_pid_stat(5), field 22)."""
    launcher: int
    """The PID of the launcher, which ends with the program; that of the program without a launcher."""


class Processes:
    """The programs of one cluster, with records in ``directory`` and output in ``logs``."""

    def __init__(self, directory: Path, logs: Path) -> None:
        self._directory = directory
        self._logs = logs

    @property
    def names(self) -> Sequence[str]:
        """The names of the programs that were started and not ended here, in the order of starting."""
        files = sorted(self._directory.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        return [file.stem for file in files]

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (),
    ) -> None:
        """Start ``command`` in a session of its own; its output is appended to its log.

        ``launcher`` goes before it, for programs that fork once to enter a namespace (``nsenter``, ``unshare``): what
        is remembered, and signalled, is their child.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        log = os.open(self._logs / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            pid = _spawn([*launcher, *command], environment or os.environ, log)
        finally:
            os.close(log)
        program = _only_child(pid) if launcher else pid
        started = _Started(pid=program, since=_since(program) or 0, launcher=pid)
        self._file(name).write_bytes(msgspec.json.encode(started))

    def is_running(self, name: str) -> bool:
        started = self._read(name)
        return started is not None and _since(started.pid) == started.since

    def pid(self, name: str) -> int:
        """Raises PartDiedError when it does not run."""
        started = self._read(name)
        if started is None or _since(started.pid) != started.since:
            raise PartDiedError(f"{name} does not run; its log ends:\n{self.tail(name)}")
        return started.pid

    def signal(self, name: str, number: signal.Signals) -> None:
        """Raises PartDiedError when it does not run."""
        os.kill(self.pid(name), number)

    async def stop(self, name: str, *, grace_s: float = _STOP_S) -> None:
        """End a program with SIGTERM, and with SIGKILL after ``grace_s``; does nothing when it does not run."""
        if self.is_running(name):
            self.signal(name, signal.SIGTERM)
            with anyio.move_on_after(grace_s):
                await self._ended(name)
        await self.kill(name)

    async def kill(self, name: str) -> None:
        """End a program with SIGKILL, and wait until it is gone."""
        if self.is_running(name):
            self.signal(name, signal.SIGKILL)
            await self._ended(name)
        started = self._read(name)
        if started is not None:
            _reap(started.launcher)
            self._file(name).unlink()

    async def kill_all(self) -> None:
        """Kill all programs, the last one started first."""
        for name in reversed(self.names):
            await self.kill(name)

    def tail(self, name: str, lines: int = 20) -> str:
        """Return the last lines of a program's log."""
        with suppress(FileNotFoundError):
            text = (self._logs / f"{name}.log").read_text(errors="replace")
            return "\n".join(text.splitlines()[-lines:])
        return "(no log)"

    async def _ended(self, name: str) -> None:
        while self.is_running(name):  # noqa: ASYNC110  (the kernel notifies only parents)
            await anyio.sleep(_POLL_S)

    def _read(self, name: str) -> _Started | None:
        try:
            return msgspec.json.decode(self._file(name).read_bytes(), type=_Started)
        except FileNotFoundError:
            return None

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.json"


def _spawn(command: Sequence[str], environment: Mapping[str, str], log: int) -> int:
    """Start ``command`` detached; ``subprocess`` would warn that the child is never waited for."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.posix_spawnp(
            command[0],
            list(command),
            dict(environment),
            setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
        )
    finally:
        os.close(null)


def _only_child(pid: int) -> int:
    deadline = time.monotonic() + _CHILD_S
    while time.monotonic() < deadline:
        children = _children(pid)
        if children:
            return children[0]
        if _since(pid) is None:
            break
        time.sleep(_POLL_S / 10)
    raise PartDiedError(f"process {pid} has started nothing")


def _children(pid: int) -> list[int]:
    """Return the children of a process (``/proc/PID/task/TID/children``, proc(5))."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _since(pid: int) -> int | None:
    """Return when the process started; None when it does not exist or is a zombie.

    The first of its threads may be left while others still end: until they have, files and ports are not given back.
    """
    _reap(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, threads, since = fields[0], int(fields[17]), int(fields[19])
    return None if state == "X" or (state == "Z" and threads <= 1) else since


def _reap(pid: int) -> None:
    """Wait for ended children, which stay zombies until then."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
