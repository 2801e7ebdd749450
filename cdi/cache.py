"""A cache of the spec directories of a machine.

``refresh`` compares every file's status (device, inode, size, times) with that of the last refresh and reads the files
that changed; unchanged files are not opened. Polling is used instead of inotify because it finds what inotify watchers
miss (a rename from another directory, a link whose target changes, a directory that is deleted and created again) and
needs neither descriptors nor a thread.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from kerf_dra.cdi.catalog import Catalog, SpecFile
from kerf_dra.cdi.document.decoder import Document, read
from kerf_dra.cdi.document.document_tree import MAX_BYTES
from kerf_dra.cdi.errors import Finding
from kerf_dra.cdi.names import Semantics

DEFAULT_DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The directory of permanent files and that of files removed by a boot (SPEC.md); the latter has priority."""

_EXTENSIONS = (".json", ".yaml")
_READ_AT_MOST = MAX_BYTES + 1
"""The number of bytes read: one more than ``read`` accepts, so that ``read`` rejects larger files."""
_SETTLED_AFTER_NS = 50_000_000
"""The nanoseconds after which a change of a file shows in its times, which advance with the kernel's timer (4 ms at
the coarsest usual setting). A younger file is read again by the next refresh."""

_Signature: TypeAlias = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The changes of a refresh; device names are qualified and sorted."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    """The devices whose edits or whose file are different now."""
    errors: Mapping[Path, tuple[str, ...]]
    """The new errors, by the path of the file or directory."""


class Cache:
    """The content of the spec files in ``directories``, the lowest priority first.

    Reading never fails: files that cannot be used are in ``catalog.errors``.
    """

    def __init__(
        self,
        directories: Sequence[Path] = DEFAULT_DIRECTORIES,
        *,
        semantics: Semantics = "1.1",
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.directories = tuple(directories)
        self.semantics: Semantics = semantics
        self.catalog = Catalog(files=(), directory_errors={})
        self._clock_ns = clock_ns
        self._known: dict[tuple[int, str], tuple[_Signature | None, SpecFile]] = {}
        self.refresh()

    def refresh(self) -> Difference | None:
        """Read the files that changed and return the difference; None: nothing changed."""
        errors: dict[Path, str] = {}
        known = {}
        for priority, directory in enumerate(self.directories):
            if self.semantics == "1.1" and directory.is_symlink():
                errors[directory] = "is a symbolic link, which readers up to release 1.1.0 pass over"
            for name in _names(directory, errors):
                known[priority, name] = self._file(directory, name, priority)
        files = tuple(file for _, file in known.values())
        before, after = self.catalog, Catalog(files=files, directory_errors=errors)
        self._known = known
        if (before.files, before.directory_errors) == (after.files, after.directory_errors):
            return None
        self.catalog = after
        return compare_catalogs(before, after)

    def _file(self, directory: Path, name: str, priority: int) -> tuple[_Signature | None, SpecFile]:
        signature, file = self._known.get((priority, name), (None, None))
        if file is not None and signature is not None and signature == _signature(file.path):
            return signature, file
        path = directory / name
        status, data = _read(path)
        if isinstance(data, Finding):
            document = Document(spec=None, findings=(data,))
        else:
            document = read(data, semantics=self.semantics)
        is_settled = status is not None and self._clock_ns() - status.st_mtime_ns > _SETTLED_AFTER_NS
        kept = _signature_of(status) if status is not None and is_settled else None
        return kept, SpecFile(path=path, priority=priority, document=document)


def compare_catalogs(before: Catalog, after: Catalog) -> Difference:
    """Return the difference between two catalogs."""
    old, new = before.devices, after.devices
    return Difference(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
        errors={path: found for path, found in after.errors.items() if before.errors.get(path) != found},
    )


def watch(
    cache: Cache, *, interval_s: float = 1.0, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Difference]:
    """Refresh ``cache`` every ``interval_s`` seconds, without end, and yield each difference."""
    while True:
        change = cache.refresh()
        if change is not None:
            yield change
        sleep(interval_s)


def _names(directory: Path, errors: dict[Path, str]) -> list[str]:
    """Return the names of the files that readers consider: hidden ones too, but none in subdirectories."""
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(_EXTENSIONS) and not _is_directory(entry)]
    except FileNotFoundError:
        return []
    except OSError as error:
        errors[directory] = f"cannot be read: {error.strerror}"
        return []
    return sorted(names)


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _signature(path: Path) -> _Signature | None:
    try:
        return _signature_of(path.stat())
    except OSError:
        return None


def _signature_of(status: os.stat_result) -> _Signature:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read_file(path: Path) -> bytes | Finding:
    """Return the content of a file, at most what ``read`` accepts; a path that is no regular file never blocks."""
    return _read(path)[1]


def _read(path: Path) -> tuple[os.stat_result | None, bytes | Finding]:
    """Return the file's status when it was read, and its content."""
    try:
        # Without O_NONBLOCK opening a FIFO blocks until another process writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return None, _unreadable("it is no regular file")
            return status, _read_descriptor(descriptor, status.st_size)
        finally:
            os.close(descriptor)
    except OSError as error:
        return None, _unreadable(error.strerror or str(error))


def _read_descriptor(descriptor: int, size: int) -> bytes:
    """Read a file of about ``size`` bytes to its end, or as far as ``read`` accepts."""
    data = os.read(descriptor, min(size + 1, _READ_AT_MOST))
    # The file may have grown, and a read may be short: only an empty read means the end.
    while len(data) < _READ_AT_MOST and (more := os.read(descriptor, _READ_AT_MOST - len(data))):
        data += more
    return data


def _unreadable(reason: str) -> Finding:
    return Finding(code="unreadable", path="", message=f"cannot be read: {reason}")
