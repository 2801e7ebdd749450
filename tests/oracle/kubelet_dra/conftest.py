"""Builds the kubelet's DRA manager as a program."""

from pathlib import Path

import pytest

from tools.realcluster.builds import build_with_kubernetes


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "oracle: asks another implementation; needs its toolchain (python -m tests.oracle)"
    )


@pytest.fixture(scope="session")
def program() -> Path:
    """The program, with the versions of the modules of a real cluster."""
    return build_with_kubernetes(Path(__file__).parent)
