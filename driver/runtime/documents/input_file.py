"""Reads files that a user or an administrator names: the one reader of programs and commands.

The path may be wrong: a device without end, a pipe into which nothing is written, a disk image. So only regular files,
pipes and terminals are read, up to a number of bytes and for a limited time. A read of a regular file that hangs, as on
a network file system whose server is gone, cannot be ended.
"""

import errno
import io
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 16 * 2**20
"""The most bytes of a document: ten times the largest object that an API server keeps."""
SILENCE_S: Final = 60.0
"""The longest wait for the next bytes of a pipe: slower than any program that renders manifests is."""
TOTAL_S: Final = 600.0
"""The longest time for all bytes of a pipe, so that one that trickles ends too."""

_POLL_S: Final = 0.1
"""The longest wait between two looks at the clock."""
_CHUNK: Final = 2**16
"""Bytes of one read: what a pipe of Linux holds."""
_NULL_DEVICE: Final = os.makedev(1, 3)
"""The number of ``/dev/null``, by which people name an empty file."""
_STANDARD_INPUT: Final = "standard input"


class UnreadableFileError(OSError):
    """A file is not one that is read: it is no file or pipe, too large, or nothing came from it in time."""

    def __init__(self, number: int, reason: str, path: str) -> None:
        super().__init__(number, reason, path)

    def __str__(self) -> str:
        return f"{self.strerror}"


def read_file(path: Path, *, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.monotonic) -> bytes:
    """Return the content of the file or pipe at ``path``. ``clock`` returns seconds.

    Raises OSError where it cannot be opened or read, and UnreadableFileError, which is one, where it is neither file
    nor pipe, has more than ``max_bytes`` bytes, or does not end in time.
    """
    with _open(path) as descriptor:
        return _read(descriptor, str(path), max_bytes, clock)


def read_regular_file(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of the file at ``path``, for files that no person names one by one.

    Raises OSError, and UnreadableFileError where it is no regular file, or has more than ``max_bytes`` bytes.
    """
    with _open(path) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableFileError(errno.EINVAL, "is not a regular file", str(path))
        return _read(descriptor, str(path), max_bytes, time.monotonic)


def read_standard_input(*, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.monotonic) -> bytes:
    """Return what comes from standard input. Raises as ``read_file`` does."""
    if sys.stdin is None:
        raise UnreadableFileError(errno.EBADF, "is closed", _STANDARD_INPUT)
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:  # a stream in memory, which never waits
        data = sys.stdin.buffer.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise _too_large(_STANDARD_INPUT, max_bytes) from None
        return data
    return _read(descriptor, _STANDARD_INPUT, max_bytes, clock)


def describe_read_error(error: Exception) -> str:
    """Return what is wrong with a file, for a message that names the file."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


@contextmanager
def _open(path: Path) -> Iterator[int]:
    """Open a file. Without O_NONBLOCK opening a pipe waits until another program writes to it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int, name: str, max_bytes: int, clock: Callable[[], float]) -> bytes:
    status = os.fstat(descriptor)
    _check_kind(descriptor, status, name)
    size = min(max(status.st_size + 1, _CHUNK), max_bytes + 1)
    started = clock()
    chunks: list[bytes] = []
    rest = max_bytes + 1
    while rest:
        _wait(descriptor, name, started, clock)
        try:
            chunk = os.read(descriptor, min(size, rest))
        except BlockingIOError:  # another reader of the pipe was faster
            continue
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        rest -= len(chunk)
    raise _too_large(name, max_bytes)


def _check_kind(descriptor: int, status: os.stat_result, name: str) -> None:
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        raise UnreadableFileError(errno.EISDIR, "is a directory, not a file", name)
    is_device = stat.S_ISCHR(mode) and status.st_rdev != _NULL_DEVICE and not os.isatty(descriptor)
    if is_device or stat.S_ISBLK(mode):
        raise UnreadableFileError(errno.EINVAL, "is a device, not a file", name)


def _wait(descriptor: int, name: str, started: float, clock: Callable[[], float]) -> None:
    """Wait until there is something to read, or the end. Raises UnreadableFileError when that takes too long."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    silent_since = clock()
    if silent_since >= started + TOTAL_S:
        raise UnreadableFileError(errno.ETIMEDOUT, f"did not end within {TOTAL_S:g} s", name)
    while not poll.poll(_POLL_S * 1000):
        if clock() >= silent_since + SILENCE_S:
            raise UnreadableFileError(errno.ETIMEDOUT, f"is a pipe from which nothing came for {SILENCE_S:g} s", name)


def _too_large(name: str, max_bytes: int) -> UnreadableFileError:
    return UnreadableFileError(errno.EFBIG, f"has more than {max_bytes} bytes", name)
