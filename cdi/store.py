"""Writes and removes spec files atomically: readers see a whole file or none, also after a crash.

Readers watch the directory and parse every file that ends in ``.json`` or ``.yaml``, hidden ones too. So a file is
created under a temporary name with neither ending, in the same directory (readers up to release 1.1.0 do not notice a
rename from another one), synced, made readable for rootless readers, and renamed. Every write makes every reader scan
all directories again, hence a file that already has the content is not touched.

A crash leaves at most a temporary file, which readers ignore and ``sweep`` removes.
"""

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

from kerf_dra.cdi.document.encoder import encode_json
from kerf_dra.cdi.errors import StoreError
from kerf_dra.cdi.spec import Spec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@+-]{0,199}")
"""The characters of vendor, class and identity (``kerf_dra.cdi.names``) and others that are harmless in a file name.
There is no slash, and a letter or digit comes first, which excludes hidden files and ``..``. A temporary name adds 24
bytes, and Linux accepts 255."""
_QUOTED = 80
"""The characters of a name that is refused which its error quotes."""
_EXTENSION = ".json"
_TEMPORARY = re.compile(r"\.(?P<name>[A-Za-z0-9].*)\.json\.[0-9a-f]{16}\.tmp")
_FILE_MODE = 0o644
"""The mode of spec files, regardless of the driver's umask, because rootless readers are not root."""
_DIRECTORY_MODE = 0o755

STALE_AFTER_S = 60.0
"""The age, in seconds, at which a temporary file counts as abandoned by its writer: writing takes milliseconds."""


class Filesystem:
    """The system calls with which ``Store`` changes the disk; tests derive from it to simulate failures."""

    def create(self, path: Path) -> int:
        """Open a new file for writing. Raises FileExistsError when there is one."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def write(self, descriptor: int, content: bytes) -> None:
        while content:
            content = content[os.write(descriptor, content) :]

    def make_readable(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)  # noqa: PTH104 - beside its siblings of os, whose errors it shares

    def unlink(self, path: Path) -> None:
        os.unlink(path)  # noqa: PTH108 - as above

    def sync_directory(self, path: Path) -> None:
        """Make renames and removals in the directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class VolatileFilesystem(Filesystem):
    """A file system that syncs nothing, for an owner who writes every file again after a power failure.

    Readers still see whole files. After a power failure a file may be missing or empty, and a removed one back.
    """

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


class Store:
    """The spec files of one directory, by name without extension; each name has one writer.

    The first ``write`` creates the directory with mode 0755. Every method raises StoreError when the file system
    refuses, and when a name is no safe file name.
    """

    def __init__(self, directory: Path, filesystem: Filesystem | None = None) -> None:
        self.directory = directory
        self._filesystem = filesystem or Filesystem()

    def path(self, name: str) -> Path:
        """Return the path of the file ``name``. Raises StoreError when it is no safe file name."""
        if not _NAME.fullmatch(name) or name.endswith((".json", ".yaml")):
            raise StoreError(
                self.directory / Path(name or "?").name[:_QUOTED],
                f"{name[:_QUOTED]!r} cannot name a spec file",
                "use 1 to 200 letters, digits and _.:@+-, starting with a letter or digit, without .json or .yaml",
            )
        return self.directory / f"{name}{_EXTENSION}"

    def write(self, name: str, spec: Spec) -> bool:
        """Write ``spec`` to the file ``name``; False: the file had that content and was not touched.

        On return the content survives a power failure, as far as ``Filesystem`` syncs. Raises InvalidSpecError, with
        nothing changed, when ``spec`` is invalid.
        """
        target, content = self.path(name), encode_json(spec)
        is_there = _has_content(target, content)
        try:
            if not is_there:
                self._make_directory()
                _remove_empty_directory(target)
                self._replace(target, content)
            # Also if the file existed: the call that renamed it may have failed here.
            self._filesystem.sync_directory(self.directory)
        except OSError as error:
            raise _store_error(error, target, "written") from error
        return not is_there

    def remove(self, name: str) -> bool:
        """Remove the file ``name``; False: it did not exist."""
        target = self.path(name)
        try:
            _remove_empty_directory(target)
            self._filesystem.unlink(target)
            self._filesystem.sync_directory(self.directory)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _store_error(error, target, "removed") from error
        return True

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of the files, sorted, that ``write`` could have written."""
        found = (file.removesuffix(_EXTENSION) for file in self._files() if file.endswith(_EXTENSION))
        return sorted(name for name in found if name.startswith(prefix) and _NAME.fullmatch(name))

    def sweep(self, prefix: str = "", now: Callable[[], float] = time.time) -> list[Path]:
        """Remove and return the temporary files that crashed writers left for names with ``prefix``.

        A file younger than ``STALE_AFTER_S`` is kept: it may still have its writer. One that cannot be looked at or
        removed keeps no other from being removed; then the first such error is raised.
        """
        swept, refused = [], list[StoreError]()
        for file in self._files():
            temporary = _TEMPORARY.fullmatch(file)
            path = self.directory / file
            try:
                if temporary and temporary["name"].startswith(prefix) and _is_stale(path, now()):
                    self._remove_temporary(path)
                    swept.append(path)
            except StoreError as error:
                refused.append(error)
        if refused:
            raise refused[0]
        return swept

    def _make_directory(self) -> None:
        if not self.directory.is_dir():
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.chmod(_DIRECTORY_MODE)

    def _replace(self, target: Path, content: bytes) -> None:
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
        try:
            descriptor = self._filesystem.create(temporary)
            try:
                self._filesystem.write(descriptor, content)
                self._filesystem.make_readable(descriptor, _FILE_MODE)
                self._filesystem.sync(descriptor)
            finally:
                self._filesystem.close(descriptor)
            self._filesystem.rename(temporary, target)
        except OSError:
            self._discard(temporary)
            raise

    def _discard(self, temporary: Path) -> None:
        try:
            self._filesystem.unlink(temporary)
        except OSError:
            pass  # It was never created, or the disk fails and the caller raises that error; ``sweep`` tries again.

    def _remove_temporary(self, path: Path) -> None:
        try:
            self._filesystem.unlink(path)
        except FileNotFoundError:
            pass  # its writer was slow, and has renamed it
        except OSError as error:
            raise _store_error(error, path, "removed") from error

    def _files(self) -> list[str]:
        try:
            return sorted(path.name for path in self.directory.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _store_error(error, self.directory, "listed") from error


def _is_stale(path: Path, now: float) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _store_error(error, path, "read") from error
    return stat.S_ISREG(status.st_mode) and now - status.st_mtime > STALE_AFTER_S


def _has_content(target: Path, content: bytes) -> bool:
    """Whether the file has the content and mode that ``write`` would give it."""
    try:
        status = target.lstat()
        is_ours = stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == _FILE_MODE
        return is_ours and status.st_size == len(content) and target.read_bytes() == content
    except OSError:
        return False


def _remove_empty_directory(target: Path) -> None:
    """Remove an empty directory in the place of a file: a runtime that mounts a file that is gone leaves one."""
    try:
        target.rmdir()  # refused for anything else, also for a link
    except OSError:
        pass  # there is none, or the next call says what is in the way


_REMEDIES = {
    errno.EACCES: "run as a user that may write there",
    errno.EPERM: "run as a user that may write there",
    errno.EROFS: "mount the directory writable",
    errno.ENOSPC: "free space on that file system",
    errno.EDQUOT: "free space on that file system, or raise the quota",
    errno.ENOTDIR: "a file stands where a directory is needed; remove it",
    errno.EEXIST: "a file stands where a directory is needed; remove it",
    errno.EISDIR: "a directory has the file's name; remove it",
    errno.ENOENT: "the directory was deleted, maybe under a mount: restart, so that it is mounted again",
}


def _store_error(error: OSError, path: Path, verb: str) -> StoreError:
    remedy = _REMEDIES.get(error.errno or 0, "check the directory and its disk, then try again")
    return StoreError(path, f"could not be {verb}: {error.strerror or error}", remedy)
