"""Judges written in Go: built from the module beside their tests, asked one JSON record a line."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

_BUILD_TIMEOUT_S = 600
"""A build from nothing, module downloads included, on a slow machine."""


def build(module: Path, binary: Path, module_file: str = "go.mod") -> Path:
    """Build the Go module in the folder ``module`` as ``module_file`` locks it; gives ``binary`` back."""
    go = shutil.which("go")
    assert go, "the oracle needs the Go toolchain"
    command = [go, "build", "-mod=readonly", f"-modfile={module_file}", "-o", str(binary), "."]
    subprocess.run(command, cwd=module, env={**os.environ, "GOWORK": "off"}, check=True, timeout=_BUILD_TIMEOUT_S)
    return binary


class Judge:
    """A running oracle."""

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
        """The answer to one record."""
        return self.ask_encoded([json.dumps(record).encode()])

    def ask_encoded(self, parts: Iterable[bytes]) -> Mapping[str, Any]:
        """The answer to a record given as JSON in parts, which need not be in memory together."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for part in parts:
            self._process.stdin.write(part)
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the oracle is gone"
        answer: Mapping[str, Any] = json.loads(line)
        return answer
