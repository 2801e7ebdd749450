"""Fixtures of the example backend."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.testing.installed_example import install


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a Python in which the example is installed."""
    return install(tmp_path_factory.mktemp("site"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, because sockets lie in it."""
    with TemporaryDirectory(prefix="npu", dir="/tmp") as name:
        yield Path(name)
