"""Builds the oracle with both releases of the Go library, and asks it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
RELEASES = {"1.1.0": "release-1.1.0.mod", "1.1.1": "go.mod"}
"""The library's releases, and the module file that demands each."""

# A build from nothing, module downloads included, on a slow machine.
_BUILD_TIMEOUT_S = 600


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "oracle: asks another implementation; needs its toolchain (python -m tests.oracle)"
    )


class Oracle:
    """One release of the Go library, answering records (see ``main.go``)."""

    def __init__(self, binary: Path) -> None:
        self._process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **record: Any) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(record).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the oracle is gone; the last record was {record}"
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()


def _build(release: str, folder: Path) -> Path:
    go = shutil.which("go")
    assert go, "the oracle needs the Go toolchain"
    binary = folder / f"oracle-{release}"
    command = [go, "build", "-mod=readonly", f"-modfile={RELEASES[release]}", "-o", str(binary), "."]
    environment = {**os.environ, "GOWORK": "off"}
    subprocess.run(command, cwd=HERE, env=environment, check=True, timeout=_BUILD_TIMEOUT_S)
    return binary


def _running(release: str, factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    oracle = Oracle(_build(release, factory.mktemp("oracle")))
    yield oracle
    oracle.close()


@pytest.fixture(scope="session")
def release_1_1_0(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    yield from _running("1.1.0", tmp_path_factory)


@pytest.fixture(scope="session")
def release_1_1_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    yield from _running("1.1.1", tmp_path_factory)
