"""One control daemon of MPS: started, adopted, given its limits, asked whether it answers, and ended.

All calls block, each for a bounded time. Processes are found by what they are, not by a number that was written down: a
daemon and its servers are the processes of these names whose environment has the daemon's pipe folder. So a daemon is
adopted, and ended, also by another process than the one that started it.
"""

import errno
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.mps.documents import DaemonFolder
from kerf_dra.driver.mps.driver_programs import DriverProgram, ProgramFailedError

CONTROL: Final = "nvidia-cuda-mps-control"
PIPE_VARIABLE: Final = "CUDA_MPS_PIPE_DIRECTORY"
LOG_VARIABLE: Final = "CUDA_MPS_LOG_DIRECTORY"
_NAMES: Final = (CONTROL, "nvidia-cuda-mps-server")
COMMAND_S: Final = 5.0
"""Limit of one command: a daemon answers within milliseconds."""
_QUIT_S: Final = 5.0
"""Time for a daemon and its servers to end by themselves; no process uses the device any more."""
_POLL_S: Final = 0.05
_FOLDER_MODE: Final = 0o755
"""Servers run with the numbers of the clients' users, and have to find their pipes."""
_LOG_MODE: Final = 0o644
_NOT_A_FILE: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOENT})
"""The errors of opening a link, a socket or a pipe, a folder, and what has just gone."""
_PERCENTAGE: Final = re.compile(r"(?:\d{1,2}|100)(?:\.\d{1,9})?", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,10}", re.ASCII)
"""The number of a process."""
_MAX_SERVERS: Final = 256
"""The most servers of a daemon, which has one for each user of its device at a time: more than a node has pods."""
_LARGEST_LOG: Final = 2**20
"""Bytes of a log before it is turned over: an hour of a talkative server."""
_ORDINAL: Final = "0"
"""The device's number for the daemon, which sees no other (``CUDA_VISIBLE_DEVICES``)."""


class ControlDaemon:
    """The daemon of one device; there may be none."""

    def __init__(self, folder: DaemonFolder, driver_root: Path, *, command_s: float = COMMAND_S) -> None:
        """``driver_root`` has the driver's files; ``command_s`` is the limit of one command, in seconds."""
        self._folder = folder
        self._command_s = command_s
        variables = {
            "CUDA_VISIBLE_DEVICES": folder.device,
            PIPE_VARIABLE: str(folder.pipe),
            LOG_VARIABLE: str(folder.log),
        }
        self._program = DriverProgram(driver_root, CONTROL, variables)
        self._child: subprocess.Popen[bytes] | None = None
        """The daemon, if this process has started it."""
        self._exit_code: int | None = None
        self._pid = 0
        """The number of a daemon that another process has started, when it was seen last."""

    @property
    def pid(self) -> int:
        """The number of the daemon's process; 0: there is none."""
        if self._child is not None:
            if self._child.poll() is None:
                return self._child.pid
            self._exit_code, self._child = self._child.returncode, None
        if not self._pid or self._name_process(self._pid) != CONTROL:
            self._pid = next((pid for pid, name in self._list_processes() if name == CONTROL), 0)
        return self._pid

    def describe_end(self) -> str:
        """Return how the daemon has ended."""
        how = "" if self._exit_code is None else f" with exit code {self._exit_code}"
        return f"the MPS control daemon has ended{how}; its log is in {self._folder.log}"

    def start(self) -> None:
        """Start the daemon, after the end of what an earlier one has left. Raises ProgramFailedError and OSError."""
        self._kill_rest()
        self._remove_pipe()
        for path in (self._folder.pipe, self._folder.log):
            _make_folder(path)
        self._child = self._program.start("-f")
        self._pid = 0

    def set_limits(self, *, active_thread_percentage: int, pinned_memory_mib: int | None) -> None:
        """Set what no client may exceed: those of servers that run, and of those to come.

        Raises ProgramFailedError, also when the daemon took another percentage.
        """
        percentage = f"{active_thread_percentage}"
        servers = self._list_servers()
        self._ask(f"set_default_active_thread_percentage {percentage}")
        for server in servers:
            self._ask(f"set_active_thread_percentage {server} {percentage}")
        if pinned_memory_mib is not None:
            limit = f"{_ORDINAL} {pinned_memory_mib}M"
            self._ask(f"set_default_device_pinned_mem_limit {limit}")
            for server in servers:
                self._ask(f"set_device_pinned_mem_limit {server} {limit}")
        taken = self.check()
        if taken != active_thread_percentage:
            raise ProgramFailedError(f"{CONTROL} has taken {taken:g} % of the threads in place of {percentage} %")

    def check(self) -> float:
        """Return the daemon's active-thread percentage. Raises ProgramFailedError when it does not answer."""
        answer = self._ask("get_default_active_thread_percentage").strip()
        if not _PERCENTAGE.fullmatch(answer):
            raise ProgramFailedError(f"{CONTROL} answers {to_one_line(answer)!r:.80} in place of a percentage")
        return float(answer)

    def _list_servers(self) -> list[str]:
        """Return the numbers of the daemon's servers, which become parts of commands. Raises ProgramFailedError."""
        servers = self._ask("get_server_list").split()
        if len(servers) > _MAX_SERVERS or not all(_NUMBER.fullmatch(server) for server in servers):
            answer = to_one_line(" ".join(servers))
            raise ProgramFailedError(f"{CONTROL} answers {answer!r:.80} in place of the numbers of its servers")
        return servers

    def end(self) -> None:
        """End the daemon and its servers; none there is success. Its logs stay.

        Raises ProgramFailedError when a process does not end even when it is killed.
        """
        if self.pid:
            with suppress(ProgramFailedError):  # what does not answer is killed
                self._ask("quit")
            self._wait_for_end(_QUIT_S)
        self._kill_rest()
        self._remove_pipe()

    def bound_logs(self) -> None:
        """Keep each log and one turn before it below a size. Raises OSError."""
        with suppress(FileNotFoundError), _open_folder(self._folder.log) as folder:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if entry.name.endswith(".log")]
            for name in names:
                _bound_log(folder, name)

    def _ask(self, command: str) -> str:
        answer = self._program.run(commands=f"{command}\n", timeout_s=self._command_s)
        if "unknown" in answer.lower() or "malformed" in answer.lower() or "invalid" in answer.lower():
            raise ProgramFailedError(f"{CONTROL} refuses {command!r}: {to_one_line(answer):.200}")
        return answer

    def _kill_rest(self) -> None:
        for pid, _ in self._list_processes():
            with suppress(ProcessLookupError):
                self._kill(pid)
        if not self._wait_for_end(_QUIT_S):
            rest = ", ".join(f"{name} {pid}" for pid, name in self._list_processes())
            raise ProgramFailedError(f"{rest} of {self._folder.device} does not end though it was killed")

    def _kill(self, pid: int) -> None:
        """Kill the process, once it is known that the number is still its own."""
        descriptor = os.pidfd_open(pid)
        try:
            if self._name_process(pid):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)

    def _wait_for_end(self, limit_s: float) -> bool:
        """Return whether all processes have ended in time."""
        end = time.monotonic() + limit_s
        while self.pid or any(self._list_processes()):
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_S)
        return True

    def _list_processes(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the name of each process of this device's daemon."""
        for path in Path("/proc").iterdir():
            if path.name.isdecimal() and (name := self._name_process(int(path.name))):
                yield int(path.name), name

    def _name_process(self, pid: int) -> str:
        """Return the name of a process of this device's daemon; empty: it is another, or has ended."""
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            name = next((name for name in _NAMES if any(word.endswith(name.encode()) for word in words[:2])), "")
            # A client that sends one command has no option, and ends by itself.
            if not name or (name == CONTROL and b"-f" not in words and b"-d" not in words):
                return ""
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        return name if f"{PIPE_VARIABLE}={self._folder.pipe}".encode() in environment else ""

    def _remove_pipe(self) -> None:
        """Remove the folder of sockets with all that is in it: containers can write there. No link is followed."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._folder.pipe)


def _make_folder(path: Path) -> None:
    """Make a folder that servers may read. Raises OSError, also where a link or another file has its place."""
    with suppress(FileExistsError):
        path.mkdir(parents=True)
    with _open_folder(path) as folder:
        os.fchmod(folder, _FOLDER_MODE)


@contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    """Yield a descriptor of the folder at ``path``. Raises OSError for a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _bound_log(folder: int, name: str) -> None:
    """Keep the end of a log that is too large as the one turn before it, and empty it. Raises OSError.

    Servers write here with the numbers of the containers' users, so whatever is not a file of its own is left alone: a
    link, or one more name of a file elsewhere.
    """
    try:
        log = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return
        raise
    with os.fdopen(log, "r+b", buffering=0) as stream:
        status = os.fstat(log)
        # The writer keeps its file open, so it is emptied, not moved; its next line may leave a hole before it.
        is_large = status.st_blocks * 512 > _LARGEST_LOG
        if is_large and stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            stream.seek(-min(status.st_size, _LARGEST_LOG), os.SEEK_END)
            _keep_turn(folder, f"{name}.1", stream.read(_LARGEST_LOG))
            os.ftruncate(log, 0)


def _keep_turn(folder: int, name: str, content: bytes) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _LOG_MODE, dir_fd=folder)
    with os.fdopen(made, "wb") as turn:
        turn.write(content)
