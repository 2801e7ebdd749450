"""A bounded folder of fetched files, each named by its SHA-256.

A file appears under its name complete and checked, or not at all: it is written under another name, and renamed. Which
files are needed the caller says; the others go first, the oldest first, when there is no room.
"""

import os
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

_PARTIAL: Final = ".partial-"
"""How names of files begin that are not complete."""
_PARTIAL_S: Final = 24 * 3600.0
"""The age of incomplete files that a process has left which was killed: no fetch takes a day."""


class NoRoomError(Exception):
    """A file does not fit beside those that are needed."""


class ImageCache:
    """The files of one folder; other processes may have it, too."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes

    def has(self, sha256: str) -> bool:
        """Whether there is such a file, whatever is in it; a link is none."""
        try:
            return stat.S_ISREG((self.folder / sha256).lstat().st_mode)
        except OSError:
            return False

    @contextmanager
    def open(self, sha256: str) -> Iterator[int]:
        """Open a file; yields its descriptor. Raises OSError where there is none, or what is there is no file."""
        descriptor = os.open(self.folder / sha256, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError("it is not a file")
            yield descriptor
        finally:
            os.close(descriptor)

    def store(
        self,
        sha256: str,
        write: Callable[[BinaryIO], None],
        check: Callable[[int], None],
        needed: Collection[str],
    ) -> None:
        """Store what ``write`` writes, once ``check`` accepts it by its descriptor, in place of what is not ``needed``.

        Raises NoRoomError, OSError, and what the two functions raise; then nothing is stored.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_old_partials()
        descriptor, name = tempfile.mkstemp(prefix=_PARTIAL, dir=self.folder)
        try:
            with os.fdopen(descriptor, "w+b", buffering=0) as file:
                write(file)
                os.fsync(file.fileno())
                check(file.fileno())
                self._make_room(os.fstat(file.fileno()).st_size, {*needed, sha256})
                Path(name).replace(self.folder / sha256)
        finally:
            with suppress(FileNotFoundError):
                Path(name).unlink()

    def remove(self, sha256: str) -> None:
        """Remove a file that turned out to be another one."""
        with suppress(FileNotFoundError):
            (self.folder / sha256).unlink()

    def count_needed_bytes(self, needed: Collection[str]) -> int:
        """Return the bytes of the files that are there and ``needed``."""
        return sum(size for name, size, _ in self._list() if name in needed)

    def _make_room(self, size: int, needed: Collection[str]) -> None:
        found = sorted(self._list(), key=lambda one: one[2])
        total = sum(one[1] for one in found) + size
        for name, old_size, _ in found:
            if total <= self.max_bytes:
                return
            if name not in needed:
                self.remove(name)
                total -= old_size
        if total > self.max_bytes:
            raise NoRoomError(f"it has {size} bytes, and {self.folder} takes {self.max_bytes} in all")

    def _list(self) -> Iterator[tuple[str, int, float]]:
        """Yield the name, the size and the time of each complete file."""
        with suppress(FileNotFoundError):
            for entry in os.scandir(self.folder):
                if not entry.name.startswith(_PARTIAL):
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        yield entry.name, found.st_size, found.st_mtime

    def _remove_old_partials(self) -> None:
        limit = time.time() - _PARTIAL_S
        for file in self.folder.glob(f"{_PARTIAL}*"):
            with suppress(FileNotFoundError):
                if file.stat().st_mtime < limit:
                    file.unlink()
