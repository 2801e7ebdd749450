"""Capture of the logs of all parts of a cluster when a test on it fails."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.realcluster.cluster import Cluster

KEPT: Final = Path(os.environ.get("KERF_E2E_LOGS", "/tmp/kerf-e2e-logs"))
"""The folder for the logs of failed tests."""


@contextmanager
def keep_logs_on_failure(cluster: Cluster, session: pytest.Session, name: str) -> Iterator[None]:
    """Copy the logs to the folder ``name`` if a test of this process fails within the context."""
    failed = session.testsfailed
    try:
        yield
    finally:
        if session.testsfailed > failed:
            target = KEPT / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(cluster.paths.logs, target)
            print(f"\nlogs of all parts: {target}")
