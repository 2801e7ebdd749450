"""Builds the oracle and starts it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.judge import Judge, build


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "oracle: asks another implementation; needs its toolchain (python -m tests.oracle)"
    )


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(build(Path(__file__).parent, tmp_path_factory.mktemp("oracle") / "oracle")) as running:
        yield running
