"""A folder in memory, for tests that write a node's state hundreds of times: a sync costs nothing there."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

MEMORY: Final = Path("/dev/shm")
"""Where files are in memory, on Linux."""


def memory_folder() -> "TemporaryDirectory[str]":
    """A new folder, in memory where there is such a place; it is removed in the end."""
    return TemporaryDirectory(prefix="kerf-", dir=MEMORY if MEMORY.is_dir() else None)
