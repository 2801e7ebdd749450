"""Locks between processes: flock(2) on a file, which is made where there is none, or on a directory.

The kernel frees a lock when its holder ends, however that happens.
"""

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Self


class FileLock:
    """A lock that this process holds until ``release``, or until the end of its context."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = ExitStack()
        self._held.callback(os.close, descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def write(self, content: str) -> None:
        """Replace the content of the locked file, which whoever waits for the lock may read."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, content.encode(), 0)

    def release(self) -> None:
        """Free the lock, once: by the second time its descriptor may be another file's."""
        self._held.close()


def acquire(path: Path) -> FileLock:
    """The lock, once it is free; blocks the thread. Raises OSError."""
    descriptor = _open(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return FileLock(descriptor)


def try_acquire(path: Path, *, shared: bool = False) -> FileLock | None:
    """The lock, or None when somebody else holds it. Several may hold it ``shared``. Raises OSError."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return FileLock(descriptor)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock exclusively. Looking shares it, so that those who look do not meet.

    Raises OSError.
    """
    lock = try_acquire(path, shared=True)
    if lock is None:
        return True
    lock.release()
    return False


def _open(path: Path) -> int:
    kind = os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_CREAT
    return os.open(path, kind | os.O_CLOEXEC, 0o600)
