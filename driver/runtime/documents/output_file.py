"""Replaces a small file as a whole: whenever the process ends, there is the content of before or of after."""

import os
from contextlib import suppress
from pathlib import Path


def replace_durably(path: Path, content: bytes, temporary: Path, *, mode: int) -> None:
    """Replace the file at ``path`` so that it survives a power cut too, and make its folder.

    ``temporary`` and errors: as of ``replace_whole``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_whole(path, content, temporary, mode=mode, is_synced=True)
    sync_folder(path.parent)


def replace_whole(path: Path, content: bytes, temporary: Path, *, mode: int, is_synced: bool = False) -> None:
    """Replace the file at ``path``. ``temporary`` is beside it, and has one writer.

    What an interrupted write has left there, or a link, is removed. Where it is not synced, a power cut may leave an
    earlier content, or none. Raises OSError; the earlier file then remains.
    """
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def discard_unfinished(temporary: Path) -> None:
    """Remove what a killed writer has left at ``temporary``; for its one writer, before anything is read.

    What cannot be removed is no reason not to read the file: the next write says so.
    """
    with suppress(OSError):
        temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
