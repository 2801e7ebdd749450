"""The stand-in's shared library: compiled from ``source`` at its first use, into a cache that processes share."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.testing.nvml.layout import compiler_definitions

SONAME: Final = "libnvidia-ml.so.1"
"""The name by which every program, nvidia-ml-py too, loads NVML."""
_SOURCE: Final = Path(__file__).parent / "source"
_FLAGS: Final = ("-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden")
_SUFFIXES: Final = (".c", ".h")
_TIMEOUT_S: Final = 120.0
"""Far above the second that compiling takes."""


class NoCompilerError(PermanentError):
    """A library cannot be compiled: there is no C compiler, or it fails."""


def build_library(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the compiled library. Raises NoCompilerError."""
    definitions = compiler_definitions()
    return compile_library("NVIDIA's stand-in", _SOURCE, SONAME, definitions=definitions, environment=environment)


def compile_library(
    subject: str,
    source: Path,
    name: str,
    *,
    definitions: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """Return the path of the C library of the files in ``source``, compiled now if it is not in the cache.

    The cache is ``kerf/nvml`` in ``$XDG_CACHE_HOME``; what is there is named after the sources, so that other versions
    have other files. Processes that compile at once do it for themselves, and the last one's file stays. ``name`` is
    the library's soname, and ``$CC`` names another compiler than ``cc``. Raises NoCompilerError, which names
    ``subject``.
    """
    sources = sorted(source.glob("*.c"))
    arguments = [*_FLAGS, f"-Wl,-soname,{name}", *definitions]
    digest = hashlib.sha256(" ".join(arguments).encode())
    for file in sorted(path for path in source.iterdir() if path.suffix in _SUFFIXES):
        digest.update(file.read_bytes())
    library = _cache(environment) / f"{digest.hexdigest()[:16]}.so"
    if library.exists():
        return library
    compiler = shutil.which(environment.get("CC", "cc"), path=environment.get("PATH"))
    if compiler is None:
        raise NoCompilerError(f"{subject} is compiled at its first use: install a C compiler (cc), or set CC")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        built = Path(folder, name)
        command = [compiler, *arguments, "-o", str(built), *map(str, sources), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)  # noqa: S603
        if done.returncode != 0:
            raise NoCompilerError(f"{compiler} fails for {subject}: {done.stderr.strip()[:2000]}")
        built.replace(library)
    return library


def _cache(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path(environment.get("HOME", tempfile.gettempdir()), ".cache")) / "kerf" / "nvml"
