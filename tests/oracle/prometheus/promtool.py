"""promtool, Prometheus' own judge of rules and expressions: the machine's, or that of Debian's package ``prometheus``.

The package is unpacked and not installed, because it would start a server.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

_PACKAGE: Final = "prometheus"
_REMEDY: Final = f"install the package {_PACKAGE} (Debian's name), or put promtool on the PATH"
_DOWNLOAD_S: Final = 600
"""The time limit of a download of some 30 MB, and of the package lists before it."""


class NoPromtoolError(RuntimeError):
    """There is no promtool, and none can be had; the message has the remedy."""


def find_promtool(folder: Path, cache: Path) -> Path:
    """Return the program: that on the PATH, that in ``cache``, or one that is unpacked below ``folder`` and kept there.

    Raises NoPromtoolError.
    """
    if found := shutil.which("promtool"):
        return Path(found)
    kept = cache / "promtool"
    if kept.exists():
        return kept
    if shutil.which("apt-get") is None:
        raise NoPromtoolError(f"there is no promtool: {_REMEDY}")
    try:
        _call("apt-get", "download", "-qq", _PACKAGE, folder=folder)
    except NoPromtoolError:  # there are no package lists yet, or old ones
        _call("apt-get", "update", "-qq", folder=folder)
        _call("apt-get", "download", "-qq", _PACKAGE, folder=folder)
    [archive] = folder.glob("*.deb")
    _call("dpkg-deb", "-x", archive.name, ".", folder=folder)
    cache.mkdir(parents=True, exist_ok=True)
    partial = shutil.copy(folder / "usr/bin/promtool", cache / f"promtool.{os.getpid()}")
    return Path(partial).rename(kept)


def _call(*command: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
    if done.returncode:
        raise NoPromtoolError(f"{' '.join(command)} failed: {done.stderr.strip()}\nthere is no promtool: {_REMEDY}")
