"""Brings ``nvidia-cdi-hook`` to the host: a runtime runs hooks there, where neither Kerf nor Python is.

An image of the plugin has the program, built from its Go module with cgo. The plugin copies it into its own folder of
the kubelet's, which has the same path on the host and in the plugin's container.
"""

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from kerf_dra.api.errors import PermanentError

HOOK_NAME: Final = "nvidia-cdi-hook"
_MODE: Final = 0o755
"""Runtimes run hooks as root; others may look which version it is."""


class CdiHookMissingError(PermanentError):
    """There is no ``nvidia-cdi-hook`` to copy, without which no container can use CUDA."""


def install_cdi_hook(source: Path, folder: Path | None) -> Path:
    """Copy the program at ``source`` into ``folder``, unless this copy is there already, and return the copy's path.

    None: the program is on the host already, at the same path. A container that starts meanwhile runs the old program
    or the new one, never a part. Raises CdiHookMissingError when ``source`` is no program that can be read, and OSError
    when it cannot be written.
    """
    content = _read(source)
    if folder is None:
        return source
    target = folder / HOOK_NAME
    if _is_installed(target, content):
        return target
    descriptor, temporary = tempfile.mkstemp(prefix=f".{HOOK_NAME}-", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as copy:
            copy.write(content)
            copy.flush()
            os.fchmod(copy.fileno(), _MODE)
            os.fsync(copy.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def find_cdi_hook(source: Path, folder: Path | None) -> Path:
    """Return where the program is that containers run, or will be once it is installed; change nothing.

    Raises CdiHookMissingError when it is nowhere.
    """
    target = source if folder is None else folder / HOOK_NAME
    if not target.is_file():
        _read(source)
    return target


def _read(source: Path) -> bytes:
    try:
        content = source.read_bytes()
    except OSError as error:
        raise CdiHookMissingError(
            f"there is no {HOOK_NAME} at {source} ({error.strerror}): install nvidia-container-toolkit v1.20 or later,"
            " or name another place of the program in the field cdiHook of the backend's configuration"
        ) from error
    if not content:
        raise CdiHookMissingError(f"{source} is empty: is the image damaged?")
    return content


def _is_installed(target: Path, content: bytes) -> bool:
    try:
        status = target.lstat()
        return (
            stat.S_ISREG(status.st_mode)
            and stat.S_IMODE(status.st_mode) == _MODE
            and status.st_size == len(content)
            and target.read_bytes() == content
        )
    except OSError:
        return False
