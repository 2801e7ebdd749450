"""The kernel's own identity of this boot: records of another one say nothing about hardware and processes."""

from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The file of it (random(4)); the same in every container."""


def read_boot_id() -> str:
    """Return the ID of the present boot. Raises OSError where ``/proc`` is missing."""
    return BOOT_ID.read_text(encoding="ascii").strip()
