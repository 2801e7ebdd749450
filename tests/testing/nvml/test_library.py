"""The stand-in's library: its compilation, and the symbols that it has."""

import ctypes
import re
import threading
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml import library as adapter
from kerf_dra.driver.testing.nvml import NoCompilerError, build_library
from tests.fakes.nvml import NEEDS_COMPILER

SUFFIXES = ("", "V", "_v2", "_v3")
"""What versions of a function add to its name."""


def compiler(folder: Path, text: str) -> dict[str, str]:
    """Return an environment with an empty cache and with a compiler that is this shell script."""
    script = folder / "compiler"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return {"XDG_CACHE_HOME": str(folder / "cache"), "CC": str(script)}


@NEEDS_COMPILER
def test_every_function_that_the_backend_calls_is_there() -> None:
    library = ctypes.CDLL(str(build_library()))
    called = {*re.findall(r'"(nvml\w+)"', Path(adapter.__file__).read_text())}
    assert len(called) > 20
    assert not {name for name in called if not any(hasattr(library, name + suffix) for suffix in SUFFIXES)}


def test_processes_that_compile_at_once_get_one_whole_library(tmp_path: Path) -> None:
    environment = compiler(tmp_path, 'while [ "$1" != -o ]; do shift; done; echo whole > "$2"')
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(build_library(environment))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*found}) == 1
    assert found[0].read_text() == "whole\n"
    assert [*found[0].parent.iterdir()] == [found[0]]
    assert build_library({**environment, "CC": "there-is-none"}) == found[0]


def test_what_the_compiler_says_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoCompilerError, match="compiler fails for NVIDIA's stand-in: no such header"):
        build_library(compiler(tmp_path, "echo no such header >&2; exit 1"))


def test_without_a_compiler_one_line_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoCompilerError, match=r"install a C compiler \(cc\), or set CC") as caught:
        build_library({"XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)})
    assert "\n" not in str(caught.value)
