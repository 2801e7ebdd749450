"""Whose turn it is to work: one instance of the plugin at a time touches hardware, records and files.

Two instances would undo each other's work. In a rolling update they overlap, and the old one hands over to the new one
(docs/rolling-update.md). The locks are flock(2)'s: the kernel lets go of them however a process ends.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import anyio

from api.errors import PermanentError

LOCK: Final = "lock"
"""Held by the instance that works; its content is the process id."""
QUEUE: Final = "queue"
"""Held by an instance that asks for its turn."""
POLL_S: Final = 0.5
"""How often to look: little beside the kubelet's deadline of 45 s, and it wakes an idle process as seldom."""


class LockError(PermanentError):
    """The lock cannot be had."""


class AlreadyRunningError(LockError):
    """Another process holds the lock."""

    def __init__(self, path: Path, pid: str) -> None:
        self.path = path
        super().__init__(
            f"another kubelet plugin ({f'process {pid}' if pid else 'process unknown'}) holds {path}: stop it, give "
            "this one an --instance of its own to take over, or another driver name and state directory"
        )


class Turn:
    """The right to work, until it ends; its context ends it."""

    def __init__(self, descriptor: int, queue: Path) -> None:
        self._held = ExitStack()
        self._held.callback(os.close, descriptor)
        self._queue = queue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Another instance may work from now on. What has ended already is left alone."""
        self._held.close()

    async def asked(self) -> None:
        """Returns when another instance asks for its turn."""
        while not _is_held(self._queue):  # noqa: ASYNC110  (a lock sets no event)
            await anyio.sleep(POLL_S)


class Turns:
    """The turns of the instances that share ``directory``."""

    def __init__(self, directory: Path) -> None:
        """Makes the directory when it is not there. Raises LockError when it cannot be made."""
        self._lock = directory / LOCK
        self._queue = directory / QUEUE
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unmakeable(self._lock, error) from error

    def take(self) -> Turn:
        """The turn, now. Raises AlreadyRunningError, naming the process that has it, and LockError."""
        turn = self._try_take()
        if turn is None:
            raise AlreadyRunningError(self._lock, self.holder)
        return turn

    @property
    def holder(self) -> str:
        """Id of the process that has, or last had, the turn; empty: unknown."""
        return self._lock.read_text(errors="replace").strip() if self._lock.exists() else ""

    async def wait(self, *, may_ask: Callable[[], bool]) -> Turn:
        """The turn, once it is free; whoever has it is asked for it as soon as ``may_ask``.

        Who does not ask stands back for those who do. Raises LockError.
        """
        asking: int | None = None
        try:
            while True:
                if asking is None and may_ask():
                    asking = _try_lock(self._queue)
                if (asking is not None or not _is_held(self._queue)) and (turn := self._try_take()) is not None:
                    return turn
                await anyio.sleep(POLL_S)
        finally:
            if asking is not None:
                os.close(asking)

    def _try_take(self) -> Turn | None:
        descriptor = _try_lock(self._lock)
        if descriptor is None:
            return None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return Turn(descriptor, self._queue)


def _try_lock(path: Path, operation: int = fcntl.LOCK_EX) -> int | None:
    """An open descriptor that holds the lock; None when another one holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unmakeable(path, error) from error
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _is_held(path: Path) -> bool:
    """Whether somebody holds the lock exclusively. Looking shares it, so that those who look do not meet."""
    descriptor = _try_lock(path, fcntl.LOCK_SH)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def _unmakeable(path: Path, error: OSError) -> LockError:
    return LockError(f"{path}: cannot be made: {error.strerror}; make its directory writable, or choose another")
