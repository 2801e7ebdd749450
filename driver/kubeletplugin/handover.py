"""Whose turn it is to work: one instance of the plugin at a time touches hardware, records and files.

Two instances would undo each other's work. In a rolling update they overlap, and the old one hands over to the new one
(docs/rolling-update.md).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import anyio

from api.errors import PermanentError
from driver.runtime.file_lock import FileLock, is_held, try_acquire

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

    def __init__(self, lock: FileLock, queue: Path) -> None:
        self._lock = lock
        self._queue = queue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Another instance may work from now on. What has ended already is left alone."""
        self._lock.release()

    async def asked(self) -> None:
        """Returns when another instance asks for its turn."""
        with _lock_errors(self._queue):
            while not is_held(self._queue):  # noqa: ASYNC110  (a lock sets no event)
                await anyio.sleep(POLL_S)


class Turns:
    """The turns of the instances that share ``directory``."""

    def __init__(self, directory: Path) -> None:
        """Makes the directory when it is not there. Raises LockError when it cannot be made."""
        self._lock = directory / LOCK
        self._queue = directory / QUEUE
        with _lock_errors(self._lock):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

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
        asking: FileLock | None = None
        try:
            while True:
                with _lock_errors(self._queue):
                    if asking is None and may_ask():
                        asking = try_acquire(self._queue)
                    is_next = asking is not None or not is_held(self._queue)
                if is_next and (turn := self._try_take()) is not None:
                    return turn
                await anyio.sleep(POLL_S)
        finally:
            if asking is not None:
                asking.release()

    def _try_take(self) -> Turn | None:
        with _lock_errors(self._lock):
            lock = try_acquire(self._lock)
        if lock is None:
            return None
        lock.write(f"{os.getpid()}\n")
        return Turn(lock, self._queue)


@contextmanager
def _lock_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = f"cannot be made: {error.strerror}; make its directory writable, or choose another"
        raise LockError(f"{path}: {reason}") from error
