"""A directory that is the root of a file system for a program that looks below it, as for a process after chroot(2).

NVIDIA's driver may be installed on the host or below a directory, by a driver container or by a cloud provider, and a
plugin in a container sees all of it at yet another path. Symbolic links of such a tree are meant for its own root:
``/lib64 -> /usr/lib64`` of a driver container is not the host's ``/usr/lib64``. So they are followed here, one part of
a path after the other (path_resolution(7)), and none leads outside.
"""

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_MAX_LINKS: Final = 40
"""Symbolic links in one resolution, as in Linux (MAXSYMLINKS); more are taken for a circle."""
_PLAIN_PATH: Final = re.compile(r"/|(/[A-Za-z0-9._+@=~-]+)+")
"""Paths that hooks take as they are: they split their arguments at ``,`` and ``::``. No file of a driver has others."""


class FileIdentity(NamedTuple):
    """What a file has to itself (stat(2)); the time is there because numbers are given out again."""

    device: int
    inode: int
    modified_ns: int


def identify_file(path: Path | None) -> FileIdentity | None:
    """Return what distinguishes a file from another one at its path, links followed; None: there is none."""
    try:
        status = None if path is None else path.stat()
    except OSError:
        return None
    return None if status is None else FileIdentity(status.st_dev, status.st_ino, status.st_mtime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRoot:
    """A root. Paths below it are strings that begin with a slash, ``/`` being the root itself."""

    path: Path
    """The directory as this process sees it."""
    host_path: str = ""
    """The directory as the container runtime sees it, where it is another path than for this process."""

    def resolve(self, path: str) -> str | None:
        """Return ``path`` without symbolic links, ``.`` and ``..``; None: nothing is there, or its links go in a
        circle.
        """
        done: list[str] = []
        todo = path.split("/")[::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del done[-1:]
                continue
            try:
                target = str(self._locate([*done, part]).readlink())
            except OSError as error:
                if error.errno != errno.EINVAL:
                    return None
                done.append(part)  # it is there, and no link
                continue
            links += 1
            if links > _MAX_LINKS:
                return None
            if target.startswith("/"):
                done.clear()
            todo.extend(target.split("/")[::-1])
        return "/" + "/".join(done)

    def find(self, folder: str, pattern: str = "*") -> list[str]:
        """Return the paths in ``folder`` whose names match ``pattern`` as in a shell, sorted; links are not resolved.

        A folder that is missing or cannot be read has none.
        """
        return [_join(folder, entry.name) for entry in self._list(folder) if fnmatch.fnmatchcase(entry.name, pattern)]

    def find_links(self, folder: str) -> Iterator[tuple[str, str]]:
        """Yield the path and the target of each symbolic link in ``folder``, which has no links in its own path.

        Links that no hook could be given are left out.
        """
        for entry in self._list(folder):
            if not entry.is_symlink():
                continue
            path = _join(folder, entry.name)
            try:
                target = str(self._locate(path.split("/")).readlink())
            except OSError:
                continue
            if is_plain_path(path) and is_plain_path(f"/{target.lstrip('/')}"):
                yield path, target

    def resolve_file(self, path: str, *, is_executable: bool = False) -> str | None:
        """Return ``path`` without symbolic links if a file is there that is no directory; None: there is none.

        ``is_executable``: a user may execute it. Files that no hook could be given are left out.
        """
        found = self.resolve(path)
        if found is None or not is_plain_path(found):
            return None
        mode = self._mode(found)
        if mode is None or stat.S_ISDIR(mode) or (is_executable and not mode & 0o111):
            return None
        return found

    def read_text(self, path: str) -> str | None:
        """Return the content of a file; None: there is none that can be read."""
        found = self.resolve(path)
        if found is None:
            return None
        try:
            return self._locate(found.split("/")).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def on_host(self, path: str) -> str:
        """Return ``path`` as the container runtime sees it."""
        root = (self.host_path or str(self.path)).rstrip("/")
        return root + path

    def __str__(self) -> str:
        return self.host_path or str(self.path)

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        there = self.resolve(folder)
        if there is None:
            return []
        try:
            with os.scandir(self._locate(there.split("/"))) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError:
            return []

    def _mode(self, path: str) -> int | None:
        try:
            return self._locate(path.split("/")).lstat().st_mode
        except OSError:
            return None

    def _locate(self, parts: list[str]) -> Path:
        return self.path.joinpath(*filter(None, parts))


def is_plain_path(path: str) -> bool:
    """Whether hooks take ``path`` as it is, and every document can hold it."""
    return _PLAIN_PATH.fullmatch(path) is not None


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"
