"""Debian's packages of XRT and of what it needs, unpacked into a cache."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

PACKAGES: Final = ("libxrt1", "libxrt-dev", "libprotobuf32", "libboost-filesystem1.74.0")
"""Of Debian 12; the last two are needed by the first."""
_REMEDY: Final = "XRT is taken from Debian 12's packages: apt-get and dpkg-deb are needed, and their servers"
_DOWNLOAD_S: Final = 600
"""The time limit of a download of some 6 MB, and of the package lists before it."""


class NoXrtError(RuntimeError):
    """The packages cannot be had; the message has the remedy."""


def unpack_xrt(folder: Path, cache: Path) -> Path:
    """Return the folder with the packages' files, unpacked in ``folder`` and kept in ``cache``. Raises NoXrtError."""
    kept = cache / "root"
    if kept.exists():
        return kept
    if shutil.which("apt-get") is None:
        raise NoXrtError(_REMEDY)
    try:
        _call("apt-get", "download", "-qq", *PACKAGES, folder=folder)
    except NoXrtError:  # there are no package lists yet, or old ones
        _call("apt-get", "update", "-qq", folder=folder)
        _call("apt-get", "download", "-qq", *PACKAGES, folder=folder)
    unpacked = folder / f"root.{os.getpid()}"
    for archive in sorted(folder.glob("*.deb")):
        _call("dpkg-deb", "-x", archive.name, unpacked.name, folder=folder)
    [libraries] = unpacked.glob("usr/lib/*-linux-gnu")
    (unpacked / "xrt").mkdir()
    (unpacked / "xrt/lib").symlink_to(f"../{libraries.relative_to(unpacked)}")
    cache.mkdir(parents=True, exist_ok=True)
    partial = cache / unpacked.name
    shutil.copytree(unpacked, partial, symlinks=True)
    return partial.rename(kept)


def _call(*command: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
    if done.returncode:
        raise NoXrtError(f"{' '.join(command)} failed: {done.stderr.strip()}\n{_REMEDY}")
