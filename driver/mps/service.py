"""Keeps a control daemon for each request of the kubelet plugin, until it is stopped: then the daemons go on.

A daemon that dies is started again, with growing delays; one that does not answer for long is ended first. A daemon
that runs when this process starts is taken over, so that no client notices a restart.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from kerf_dra.api.errors import KerfError, PermanentError
from kerf_dra.driver.mps.control_daemon import COMMAND_S, ControlDaemon
from kerf_dra.driver.mps.documents import (
    LOCK,
    SHARED_MEMORY,
    DaemonFolder,
    DaemonRequest,
    DaemonState,
    UnreadableDocumentError,
    list_folders,
    remove_document,
    write_document,
)
from kerf_dra.driver.mps.driver_programs import ProgramFailedError
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.file_lock import try_acquire

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.2
"""Seconds between two looks at the requests: a pod's start waits so long, and a look is a few calls of microseconds."""
_CHECK_S: Final = 10.0
"""Seconds between two questions to a daemon, each of which starts a process."""
_RETRY_S: Final = 0.2
"""Seconds after which a daemon that has not answered is asked again: one that starts takes some tenths of a second."""
_SILENCE_S: Final = 30.0
"""Seconds without an answer after which a daemon is ended and started again: its end is the end of its clients."""
_STARTS: Final = "the MPS control daemon starts"
_RESTARTS: Final = Backoff(first_s=0.5, factor=2, limit_s=60, jitter=0.2)
_SHARED_MEMORY_MODE: Final = 0o1777
"""As ``/dev/shm``: clients of all users make files in it."""


class FolderInUseError(PermanentError):
    """Another process keeps the daemons of the folder."""


class DaemonKeeper:
    """Keeps the daemon of one device as its request wants it. Its calls block."""

    def __init__(
        self,
        folder: DaemonFolder,
        driver_root: Path,
        *,
        now: Callable[[], float] = time.monotonic,
        command_s: float = COMMAND_S,
    ) -> None:
        self._folder = folder
        self._now = now
        self._daemon = ControlDaemon(folder, driver_root, command_s=command_s)
        self._request = ""
        """The id of the last request that was carried out; empty: of none, since the daemon is not ready."""
        self._refused = ""
        """The id of the last request that was tried."""
        self._next_check = self._next_start = now()
        self._last_answer = now()
        self._delays = _RESTARTS.delays()
        self._starts = 0
        self._was_ready = False
        """Whether the daemon has had a request's limits, so that there may be clients."""
        self._state: DaemonState | None = None

    def step(self) -> bool:
        """Do what is due, and return whether a daemon is wanted.

        Raises UnwritableDocumentError, UnreadableDocumentError where it is not known whether one is, and OSError.
        """
        try:
            request = self._folder.read_request()
        except UnreadableDocumentError as error:  # a daemon that runs goes on
            self._write("", error=str(error))
            return True
        if request is None:
            self._folder.check_root()  # else a file system that is not mounted would end what clients use
            return not self._end()
        try:
            self._keep(request)
        except ProgramFailedError as error:
            self._fail(str(error))
        self._daemon.bound_logs()
        return True

    def _keep(self, request: DaemonRequest) -> None:
        now = self._now()
        if self._state is None:
            self._read_earlier_state(request)
        if not self._daemon.pid or now - self._last_answer > _SILENCE_S:
            if now < self._next_start:
                if not self._daemon.pid and self._starts:
                    self._fail(self._daemon.describe_end())
                return
            self._next_start = now + next(self._delays)
            self._request = ""
            reason = f"{self._describe_failure()}, and is started again" if self._starts else _STARTS
            self._starts += 1
            self._write("", error=reason)
            self._daemon.start()
            self._next_check = self._last_answer = self._now()
        if now >= self._next_check or request.id not in (self._request, self._refused):
            self._check(request)

    def _check(self, request: DaemonRequest) -> None:
        """Ask the daemon whether it answers, and give it the limits of a request that is new to it."""
        self._next_check, self._refused = self._now() + _RETRY_S, request.id
        if request.id == self._request:
            self._daemon.check()
            self._delays = _RESTARTS.delays()
        else:
            self._daemon.set_limits(
                active_thread_percentage=request.active_thread_percentage,
                pinned_memory_mib=request.pinned_memory_mib,
            )
        self._request, self._last_answer, self._next_check = request.id, self._now(), self._now() + _CHECK_S
        self._was_ready = True
        self._write(request.id)

    def _describe_failure(self) -> str:
        """Return why a daemon that was there has to be started again."""
        if self._daemon.pid:
            return f"the MPS control daemon has not answered for {_SILENCE_S:g} s"
        return self._daemon.describe_end()

    def _read_earlier_state(self, request: DaemonRequest) -> None:
        """Go on from what an earlier keeper has written: its daemon may have ended together with it."""
        with suppress(UnreadableDocumentError):
            state = self._folder.read_state()
            if state is not None and (state.is_failing or state.request == request.id):
                self._starts, self._was_ready = state.restarts + 1, True

    def _fail(self, error: str) -> None:
        self._request = ""
        self._write("", error=error)

    def _end(self) -> bool:
        """End the daemon that has no request, and return whether nothing is left of it."""
        try:
            self._daemon.end()
        except ProgramFailedError as error:
            self._write("", error=str(error))
            return False
        if self._state is not None or self._folder.state.exists():
            _log.info("the MPS control daemon of %s has ended", self._folder.device)
        remove_document(self._folder.state)
        return True

    def _write(self, request: str, error: str = "") -> None:
        state = DaemonState(
            request=request,
            is_ready=not error,
            pid=self._daemon.pid,
            restarts=max(0, self._starts - 1),
            error=error,
            is_failing=self._was_ready and bool(error),
        )
        if state == self._state:
            return
        write_document(self._folder.state, state)
        self._state = state
        if error == _STARTS:
            _log.info("MPS of %s: %s", self._folder.device, error)
        elif error:
            _log.warning("MPS of %s: %s", self._folder.device, error)
        else:
            _log.info("MPS of %s is ready, with process %d", self._folder.device, state.pid)


async def run(root: Path, driver_root: Path, shared_memory: Path | None = None) -> None:
    """Keep the daemons of the requests in ``root`` until cancelled.

    ``driver_root`` has the driver's files; ``shared_memory`` is the folder that daemons have as ``/dev/shm``, None: one
    in ``root``. Raises FolderInUseError, and OSError when a folder cannot be made.
    """
    _make_folders(root, shared_memory or root / SHARED_MEMORY)
    lock = try_acquire(root / LOCK)
    if lock is None:
        raise FolderInUseError(f"another process keeps the MPS control daemons of {root}")
    with lock:
        kept: set[str] = set()
        async with anyio.create_task_group() as tasks:
            while True:
                for folder in await to_thread.run_sync(list_folders, root):
                    if folder.device not in kept and (folder.request.exists() or folder.state.exists()):
                        kept.add(folder.device)
                        tasks.start_soon(_keep, folder, driver_root, kept)
                await anyio.sleep(_POLL_S)


def _make_folders(root: Path, shared_memory: Path) -> None:
    for folder in (root, shared_memory):
        folder.mkdir(parents=True, exist_ok=True)
    shared_memory.chmod(_SHARED_MEMORY_MODE)


async def _keep(folder: DaemonFolder, driver_root: Path, kept: set[str]) -> None:
    """Keep the daemon of one device until it is no longer wanted."""
    keeper = DaemonKeeper(folder, driver_root)
    is_wanted = True
    while is_wanted:
        delay_s = _POLL_S
        try:
            is_wanted = await to_thread.run_sync(keeper.step)
        except (KerfError, OSError) as error:
            _log.error("MPS of %s: %s", folder.device, error)
            delay_s = _CHECK_S  # such as a full disk: nothing can be said to the plugin
        await anyio.sleep(delay_s)
    kept.discard(folder.device)
