"""The kernel's own identity of this boot: records of another one say nothing about hardware and processes."""

from pathlib import Path
from typing import Final

from kerf_dra.api.errors import PermanentError

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The file of it (random(4)); the same in every container."""


class BootUnknownError(PermanentError):
    """The kernel does not say which boot this is: without it records of the hardware cannot be trusted."""


def read_boot_id() -> str:
    """Return the ID of the present boot. Raises BootUnknownError."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError as error:
        raise BootUnknownError(
            f"{BOOT_ID} cannot be read ({error.strerror}): Kerf needs Linux, and a /proc that is not hidden"
        ) from error
