"""Debian's packages of QEMU and of a kernel with headers and source, unpacked into the cache; none is installed.

All that these packages need is fetched, too, whatever the machine has installed: QEMU runs with the packages' own
libraries.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PACKAGES: Final = ("qemu-system-x86", "linux-image-6.12-amd64", "linux-headers-6.12-amd64", "linux-source-6.12")
"""Of Debian 12 (its security updates)."""
_REMEDY: Final = (
    "QEMU and the kernel are taken from Debian's packages: apt-get and dpkg-deb are needed, an x86-64 machine, and the "
    f"servers of Debian 12, which have {' and '.join(PACKAGES)}"
)
_DOWNLOAD_S: Final = 1200
"""The time limit of a download of some 380 MB, and of unpacking it."""


class NoKernelError(RuntimeError):
    """The guest cannot be made; the message has the remedy."""


def unpack_packages(cache: Path) -> Path:
    """Return the folder with the packages' files, which is kept in ``cache``. Raises NoKernelError."""
    kept = cache / "root"
    if kept.exists():
        return kept
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoKernelError(_REMEDY)
    archives = cache / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    status = cache / "status"
    status.touch()  # nothing is installed
    install = (
        *("apt-get", "install", "--download-only", "-qq", "--yes", "--no-install-recommends"),
        *(
            "-o",
            "Debug::NoLocking=true",
            "-o",
            f"Dir::State::status={status}",
            "-o",
            f"Dir::Cache::archives={archives}",
        ),
        *PACKAGES,
    )
    try:
        _call(install)
    except NoKernelError:  # there are no package lists yet, or old ones
        _call(("apt-get", "update", "-qq"))
        _call(install)
    partial = cache / f"root.{os.getpid()}"
    for archive in sorted(archives.glob("*.deb")):
        _call(("dpkg-deb", "-x", str(archive), str(partial)))
    shutil.rmtree(archives)
    return partial.rename(kept)


def find_loader(root: Path) -> tuple[str, ...]:
    """Return the words before a program of the packages that has it run with their libraries. Raises NoKernelError."""
    folders = [root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu"]
    for folder in folders:
        loader = folder / "ld-linux-x86-64.so.2"
        if loader.exists():
            return str(loader), "--library-path", ":".join(map(str, folders))
    raise NoKernelError(f"{root} has no C library: remove this folder, and start again")


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
    if done.returncode:
        raise NoKernelError(f"{' '.join(command)} failed: {done.stderr.strip()}\n{_REMEDY}")
