"""The stand-in's shared library: compiled from ``source`` at its first use, into a cache that processes share."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from api.errors import PermanentError
from driver.testing.nvml.layout import compiler_definitions

SONAME: Final = "libnvidia-ml.so.1"
"""The name by which every program, nvidia-ml-py too, loads NVML."""
_SOURCE: Final = Path(__file__).parent / "source"
_FLAGS: Final = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden")
_TIMEOUT_S: Final = 120.0
"""Far above the second that compiling takes."""


class NoCompilerError(PermanentError):
    """The stand-in cannot be compiled: there is no C compiler, or it fails."""


def build_library(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the compiled library, compiled now if it is not in the cache.

    The cache is ``kerf/nvml`` in ``$XDG_CACHE_HOME``; what is there is named after the sources, so that other versions
    have other files. Processes that compile at once do it for themselves, and the last one's file stays. ``$CC`` names
    another compiler than ``cc``. Raises NoCompilerError.
    """
    sources = sorted(_SOURCE.glob("*.c"))
    arguments = [*_FLAGS, f"-Wl,-soname,{SONAME}", *compiler_definitions()]
    digest = hashlib.sha256(" ".join(arguments).encode())
    for file in sorted(_SOURCE.iterdir()):
        digest.update(file.read_bytes())
    library = _cache(environment) / f"{digest.hexdigest()[:16]}.so"
    if library.exists():
        return library
    compiler = shutil.which(environment.get("CC", "cc"), path=environment.get("PATH"))
    if compiler is None:
        raise NoCompilerError("NVIDIA's stand-in is compiled at its first use: install a C compiler (cc), or set CC")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        built = Path(folder, SONAME)
        command = [compiler, *arguments, "-o", str(built), *map(str, sources), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)  # noqa: S603
        if done.returncode != 0:
            raise NoCompilerError(f"{compiler} fails for NVIDIA's stand-in: {done.stderr.strip()[:2000]}")
        built.replace(library)
    return library


def _cache(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path(environment.get("HOME", tempfile.gettempdir()), ".cache")) / "kerf" / "nvml"
