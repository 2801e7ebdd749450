"""Which files of a folder are written in place, by inotify(7): readers may see such a file half written."""

import ctypes
import os
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kerf_dra.api.errors import KerfError

_MODIFY: Final = 0x2
"""IN_MODIFY of inotify(7)."""
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
"""IN_NONBLOCK and IN_CLOEXEC, which are those of open(2)."""
_EVENT: Final = struct.Struct("iIII")
"""``struct inotify_event`` before the name."""
_MOST_BYTES: Final = 1 << 20
"""What is read of events: a claim has a file or two, and an event some tens of bytes."""


class WatchError(KerfError):
    """The kernel does not watch a folder."""


class ModifiedFiles:
    """The files of the folders that are written in place while they are watched."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def names(self) -> Collection[str]:
        """Return the names of the files that were written so far since the last call."""
        try:
            data = os.read(self._descriptor, _MOST_BYTES)
        except BlockingIOError:
            return frozenset()
        return frozenset(_read_names(data))


@contextmanager
def watching(folders: Sequence[Path]) -> Iterator[ModifiedFiles]:
    """Watch the folders inside. Raises WatchError."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(_FLAGS)
    if descriptor < 0:
        raise WatchError(f"folders cannot be watched: {os.strerror(ctypes.get_errno())}")
    try:
        for folder in folders:
            if libc.inotify_add_watch(descriptor, os.fsencode(folder), _MODIFY) < 0:
                raise WatchError(f"{folder} cannot be watched: {os.strerror(ctypes.get_errno())}")
        yield ModifiedFiles(descriptor)
    finally:
        os.close(descriptor)


def _read_names(data: bytes) -> Iterator[str]:
    offset = 0
    while offset < len(data):
        *_, length = _EVENT.unpack_from(data, offset)
        offset += _EVENT.size
        yield os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
        offset += length
