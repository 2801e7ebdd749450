"""Oracles in Go: a program built from the module beside the tests, which reads and writes JSON lines."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

_BUILD_TIMEOUT_S = 1500
"""The time limit of a build without caches on a slow machine, including downloads."""


def build(module: Path, binary: Path, module_file: str = "go.mod", package: str = ".") -> Path:
    """Build a package of the Go module in ``module``, or of one it depends on, with the dependencies of
    ``module_file``, and return ``binary``.
    """
    go = shutil.which("go")
    assert go, "the oracle needs the Go toolchain"
    command = [go, "build", "-mod=readonly", f"-modfile={module_file}", "-o", str(binary), package]
    subprocess.run(command, cwd=module, env={**os.environ, "GOWORK": "off"}, check=True, timeout=_BUILD_TIMEOUT_S)
    return binary


class Judge:
    """A running oracle process, which answers one record at a time."""

    def __init__(self, binary: Path, arguments: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen([binary, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the oracle's answer to ``record``."""
        return self.ask_encoded([json.dumps(record).encode()])

    def ask_encoded(self, parts: Iterable[bytes]) -> Mapping[str, Any]:
        """Return the answer to a record given as JSON in parts, which need not fit in memory together."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for part in parts:
            self._process.stdin.write(part)
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the oracle has ended"
        answer: Mapping[str, Any] = json.loads(line)
        return answer
