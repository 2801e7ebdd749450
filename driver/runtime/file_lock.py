"""Locks between processes: flock(2) on a directory, or on a file, which is made where there is none.

The kernel frees a lock when its holder ends, however that happens.
"""

import fcntl
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self


class FileLock:
    """A lock that this process holds until ``release`` is called or its context ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = ExitStack()
        self._held.callback(_close, descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def write(self, content: str) -> None:
        """Replace the content of the locked file, which other processes may read."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, content.encode(), 0)

    def release(self) -> None:
        """Free the lock. A second call does nothing: by then the descriptor may be another file's."""
        self._held.close()


def acquire(path: Path) -> FileLock:
    """Wait for the lock, which blocks the thread. Raises OSError when the file cannot be opened."""
    descriptor = _open(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return FileLock(descriptor)


def try_acquire(path: Path) -> FileLock | None:
    """Take the lock, or return None when another process holds it.

    Raises OSError when the file cannot be opened or locked.
    """
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        _close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return FileLock(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock exclusively. The test takes it shared, so that two tests do not see each other.

    Raises OSError when the file cannot be opened.
    """
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        _close(descriptor)
    return False


def _close(descriptor: int) -> None:
    with suppress(OSError):  # the descriptor is free, and with it the lock, whatever close(2) says
        os.close(descriptor)


def _open(path: Path) -> int:
    kind = os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_CREAT
    return os.open(path, kind | os.O_CLOEXEC, 0o600)
