"""One plugin for each state directory: two would undo each other's work."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from api.errors import PermanentError

FILE_NAME: Final = "lock"


class LockError(PermanentError):
    """The lock cannot be had."""


class AlreadyRunningError(LockError):
    """Another process holds the lock."""

    def __init__(self, path: Path, pid: str) -> None:
        self.path = path
        super().__init__(
            f"another kubelet plugin ({f'process {pid}' if pid else 'process unknown'}) holds {path}: stop it, or give "
            "this one another driver name and state directory"
        )


@contextmanager
def sole_instance(directory: Path) -> Iterator[None]:
    """Hold the lock of ``directory``, which is made when it is not there; the kernel lets go however the process ends.

    Raises AlreadyRunningError, naming the process, when another one holds it, LockError when the file cannot be made.
    """
    path = directory / FILE_NAME
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LockError(
            f"{path}: cannot be made: {error.strerror}; make its directory writable, or choose another"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunningError(path, os.read(descriptor, 32).decode(errors="replace").strip()) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
