"""Builds the oracle with both releases of the Go library, and starts it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.judge import Judge, build

MODULE = Path(__file__).parent


@pytest.fixture(scope="session")
def release_1_1_0(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(build(MODULE, tmp_path_factory.mktemp("oracle") / "oracle", "release-1.1.0.mod")) as running:
        yield running


@pytest.fixture(scope="session")
def release_1_1_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(build(MODULE, tmp_path_factory.mktemp("oracle") / "oracle")) as running:
        yield running
