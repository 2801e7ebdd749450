"""The handover between instances of the plugin: one at a time is active, and calls to the others wait.

Two active instances would undo each other's work on hardware, records and files. In a rolling update they overlap, and
the old one hands over to the new one (docs/rolling-update.md): the active instance holds the instance lock, and another
one that wants it holds the queue lock, both flock(2) in the state directory. The kubelet may call either, so each has a
proxy in front, where calls wait until its instance is active.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import anyio

from kerf_dra.api.dra.health import DeviceHealth
from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.kubeletplugin.claims.record_lifecycle import StoppingError
from kerf_dra.driver.kubeletplugin.plugin import NodePlugin
from kerf_dra.driver.runtime.file_lock import FileLock, is_held, try_acquire
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)

LOCK: Final = "lock"
"""Name of the file that the active instance locks; its content is the process id, and a line with the profile."""
QUEUE: Final = "queue"
"""Name of the file that an instance locks to request a handover."""
POLL_S: Final = 0.5
"""Interval between two checks of the locks: short beside the kubelet's deadline of 45 s, and it seldom wakes an idle
process."""


class LockError(PermanentError):
    """The instance lock cannot be acquired."""


class AlreadyRunningError(LockError):
    """Another process holds the instance lock."""

    def __init__(self, path: Path, pid: str) -> None:
        super().__init__(
            f"another kubelet plugin ({f'process {pid}' if pid else 'process unknown'}) holds {path}: stop it, give "
            "this one an --instance of its own to take over"
        )


class ForeignProfileError(LockError):
    """The plugin of another profile, which is no instance of this one, works for the same driver on this node."""

    def __init__(self, directory: Path, profile: str, other: str, pid: str) -> None:
        super().__init__(
            f"the plugin of the profile {other} (process {pid or 'unknown'}) works in {directory} on this node already,"
            f" so the profile {profile} cannot: give the profiles nodes of their own, or make one profile of both"
        )


class InstanceLock:
    """The lock of the active instance, shared by the instances of one state ``directory``, and the queue for it."""

    def __init__(self, directory: Path, profile: str = "") -> None:
        """Make the directory when it is not there. Raises LockError when it cannot be made.

        Instances of different profiles do not hand over to one another: they have different hardware.
        """
        self._profile = profile
        self._directory = directory
        self._lock = directory / LOCK
        self._queue = directory / QUEUE
        with _lock_errors(self._lock):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def holder(self) -> str:
        """The id of the process that holds, or last held, the instance lock; empty: unknown."""
        return self._read_holder()[0]

    def acquire_nowait(self) -> FileLock:
        """Take the lock.

        Raises ForeignProfileError when the plugin of another profile holds it, AlreadyRunningError when another
        process does, LockError when it cannot be made.
        """
        lock = self._try_acquire()
        if lock is None:
            self._refuse_foreign_profile()
            raise AlreadyRunningError(self._lock, self.holder)
        return lock

    async def acquire(self, *, may_request: Callable[[], bool]) -> FileLock:
        """Wait for the lock, and request a handover as soon as ``may_request`` returns True.

        An instance that does not request one lets those that do go first. Raises LockError when a lock cannot be made,
        and ForeignProfileError instead of requesting a handover of another profile's plugin.
        """
        request: FileLock | None = None
        try:
            while True:
                with _lock_errors(self._queue):
                    if request is None and may_request():
                        self._refuse_foreign_profile()
                        request = try_acquire(self._queue)
                    is_next = request is not None or not is_held(self._queue)
                if is_next and (lock := self._try_acquire()) is not None:
                    return lock
                await anyio.sleep(POLL_S)
        finally:
            if request is not None:
                request.release()

    async def wait_for_request(self) -> None:
        """Return when another instance requests a handover.

        While that cannot be determined, this one stays active: a disk that fails for a moment is no reason to end.
        Raises LockError when the directory is gone, and the records with it: a start makes it again.
        """
        problems = ProblemLog(_log)
        while True:
            try:
                if is_held(self._queue):
                    return
            except FileNotFoundError as error:
                raise LockError(
                    f"{self._directory} is gone: this instance ends, and its next start makes it"
                ) from error
            except OSError as error:
                problems.note("queue", f"{self._queue}: no other instance can take over now: {error.strerror}")
            else:
                problems.clear("queue")
            await anyio.sleep(POLL_S)

    def _refuse_foreign_profile(self) -> None:
        pid, other = self._read_holder()
        if self._profile and other and other != self._profile and is_held(self._lock):
            raise ForeignProfileError(self._directory, self._profile, other, pid)

    def _read_holder(self) -> tuple[str, str]:
        """Return process id and profile of the last holder, empty where unknown."""
        try:
            lines = [*self._lock.read_text(errors="replace").splitlines(), "", ""]
        except OSError:
            return "", ""
        return lines[0].strip(), lines[1].strip()

    def _try_acquire(self) -> FileLock | None:
        with _lock_errors(self._lock), ExitStack() as on_error:
            lock = try_acquire(self._lock)
            if lock is not None:
                on_error.enter_context(lock)
                lock.write(f"{os.getpid()}\n" + (f"{self._profile}\n" if self._profile else ""))
            on_error.pop_all()
        return lock


class ActiveInstanceProxy:
    """Forwards the kubelet's calls to this instance's NodePlugin while it is active; other calls wait.

    The kubelet bounds how long they wait.
    """

    def __init__(self) -> None:
        self._plugin: NodePlugin | None = None
        self._is_closed = False
        self._change = Notifier()

    def activate(self, plugin: NodePlugin) -> None:
        """Forward calls to ``plugin`` from now on."""
        self._plugin = plugin
        self._change.notify()

    def deactivate(self) -> None:
        """Let calls that come from now on wait. Calls that were forwarded go on."""
        self._plugin = None

    def close(self) -> None:
        """Fail all calls that wait, because the instance ends: then the kubelet tries another one."""
        self._is_closed = True
        self._change.notify()

    async def prepare_when_active(self, claim: ClaimRef) -> PreparedClaim:
        while True:
            plugin = await self._wait_for_plugin()
            try:
                return await plugin.preparer.prepare_claim(claim)
            except StoppingError:
                if self._is_final(plugin):
                    raise

    async def unprepare_when_active(self, claim: ClaimRef) -> None:
        while True:
            plugin = await self._wait_for_plugin()
            try:
                return await plugin.preparer.unprepare_claim(claim)
            except StoppingError:
                if self._is_final(plugin):
                    raise

    def report_health(self) -> Sequence[DeviceHealth] | None:
        """Return the health of every device in use; None: another instance is active and knows it."""
        return self._plugin.report_health() if self._plugin is not None else None

    async def _wait_for_plugin(self) -> NodePlugin:
        while True:
            change = self._change.next_event
            if self._plugin is not None:
                return self._plugin
            if self._is_closed:
                raise StoppingError
            await change.wait()

    def _is_final(self, plugin: NodePlugin) -> bool:
        """Whether ``plugin`` stops with the process; else it hands over, and its calls wait for the next activation."""
        return self._is_closed or self._plugin is plugin


@contextmanager
def _lock_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = f"cannot be made: {error.strerror}; make its directory writable, or choose another"
        raise LockError(f"{path}: {reason}") from error
