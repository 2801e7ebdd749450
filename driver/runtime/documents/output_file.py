"""Replaces a small file as a whole, durably: after any crash there is the content of before or of after."""

import os
from pathlib import Path


def replace_durably(path: Path, content: bytes, temporary: Path, *, mode: int) -> None:
    """Replace the file at ``path``, and make its folder. ``temporary`` is beside it, and has one writer.

    What an interrupted write has left there, or a link, is removed. Raises OSError; the earlier file then remains.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
