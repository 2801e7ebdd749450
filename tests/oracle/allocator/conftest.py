"""Builds the oracle and starts it."""

from collections.abc import Iterator

import pytest

from tests.oracle.allocator import MODULE
from tests.oracle.judge import Judge, build


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "oracle: asks another implementation; needs its toolchain (python -m tests.oracle)"
    )


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    # The experimental copy: the only one that knows every feature.
    binary = build(MODULE, tmp_path_factory.mktemp("oracle") / "oracle")
    with Judge(binary, ["-implementation", "experimental"]) as running:
        yield running
