"""Builds NVIDIA's driver, and keeps the verdict on all comparisons of a run."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.nvidia_driver.differences import Verdict, read_table
from tests.oracle.nvidia_driver.models import EVERY_MODEL
from tools.realcluster.builds import build_nvidia_driver


@pytest.fixture(scope="session")
def program() -> Path:
    """The kubelet plugin of NVIDIA's driver."""
    assert os.geteuid() == 0, "this oracle makes mounts in a namespace of its own: run it as root"
    return build_nvidia_driver()


@pytest.fixture(scope="session")
def verdict(pytestconfig: pytest.Config) -> Iterator[Verdict]:
    """The verdict, which is printed at the end. When all models were compared, every row of the table is needed."""
    verdict = Verdict(read_table())
    yield verdict
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{len(verdict.models)} models: {verdict}")
    assert verdict.models != EVERY_MODEL or not verdict.unused, f"rows that explain nothing: {verdict.unused}"
