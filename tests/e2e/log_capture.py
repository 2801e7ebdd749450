"""Logs of all parts of a cluster are kept when a test on it fails."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.realcluster.cluster import Cluster

KEPT: Final = Path(os.environ.get("KERF_E2E_LOGS", "/tmp/kerf-e2e-logs"))
"""Where the logs of failed tests go."""


@contextmanager
def logs_kept(cluster: Cluster, session: pytest.Session, name: str) -> Iterator[None]:
    """In a folder ``name``, if a test of this process fails in between."""
    failed = session.testsfailed
    try:
        yield
    finally:
        if session.testsfailed > failed:
            target = KEPT / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(cluster.places.logs, target)
            print(f"\nlogs of all parts: {target}")
