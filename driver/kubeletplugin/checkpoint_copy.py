"""Copies a checkpoint, so that it can be read beside the plugin that has it open.

Of a SQLite database with a log, ``checkpoint.db`` alone is an old state: what was written last is in the log. To open
the files where they are would change them: who closes the database last folds the log into it and removes the log. So
the files are copied, all of them, and the copy is opened as the plugin would open it, digest included.

Files that a plugin changes while they are copied may not fit together. Then the copy is made again.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from kerf_dra.api.checkpoint.v1 import CheckpointError
from kerf_dra.driver.kubeletplugin.claims.checkpoint import checkpoint_digest
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import FILE_NAME, Checkpoint, open_checkpoint

_LOG: Final = f"{FILE_NAME}-wal"
_FILES: Final = (FILE_NAME, _LOG, checkpoint_digest.FILE_NAME)
"""Not the index of the log (``-shm``): SQLite makes it again."""
_TRIES: Final = 20
"""A copy takes less than a millisecond, a claim writes for a few: twenty in a row are no coincidence."""
_MISSING: Final = "name the folder of a plugin's state; the plugin makes a checkpoint when it starts"
_Fingerprint: TypeAlias = tuple[tuple[int, ...] | None, ...]


def has_checkpoint(folder: Path) -> bool:
    """Whether a plugin has begun a checkpoint in ``folder``, whole or not. Raises OSError."""
    return any((folder / name).exists() for name in _FILES)


@contextmanager
def open_copy(folder: Path, *, boot_id: str) -> Iterator[Checkpoint]:
    """Open a copy of the checkpoint in ``folder``, of which nothing is left afterwards.

    Raises CheckpointError when the plugin could not open it in the boot ``boot_id`` either, and OSError.
    """
    with TemporaryDirectory(prefix="kerf-checkpoint-") as name:
        copy_checkpoint(folder, Path(name), boot_id=boot_id)
        with open_checkpoint(Path(name), boot_id=boot_id) as checkpoint:
            yield checkpoint


def copy_checkpoint(folder: Path, target: Path, *, boot_id: str) -> None:
    """Copy the checkpoint in ``folder`` to the empty directory ``target``: database with its log folded in, digest.

    Raises CheckpointError when the plugin could not open it in the boot ``boot_id`` either, and OSError.
    """
    for left in reversed(range(_TRIES)):
        before = _fingerprint(folder)
        try:
            _copy_files(folder, target)
            with open_checkpoint(target, boot_id=boot_id):
                return  # the end of the only connection folds the log in
        except CheckpointError as error:
            if not left or _fingerprint(folder) == before:
                where = error.where.replace(str(target), str(folder))
                raise CheckpointError(where, error.reason.replace(str(target), str(folder)), error.remedy) from error
        for path in target.iterdir():
            path.unlink()


def _copy_files(folder: Path, target: Path) -> None:
    """Copy the files that are there. Raises CheckpointError when there is no database, or one that is no file."""
    database = folder / FILE_NAME
    if not database.exists():
        raise CheckpointError(str(database), "there is none", _MISSING)
    for name in _FILES:
        try:
            descriptor = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        with os.fdopen(descriptor, "rb") as source:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise CheckpointError(str(folder / name), "it is not a file", _MISSING)
            made = os.open(target / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(made, "wb") as copy:
                copy.write(source.read(found.st_size))  # no more: a log may grow as fast as it is read


def _fingerprint(folder: Path) -> _Fingerprint:
    """Return what changes whenever one of the files does."""

    def read(path: Path) -> tuple[int, ...] | None:
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    return tuple(read(folder / name) for name in _FILES)
