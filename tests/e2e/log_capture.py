"""Capture of the logs of all parts of a cluster when a test on it fails."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tools.realcluster.cluster import Cluster

KEPT: Final = Path(os.environ.get("KERF_E2E_LOGS", "/tmp/kerf-e2e-logs"))
"""The folder for the logs of failed tests."""
_FAILED_AFTERWARDS: Final = pytest.StashKey[int]()
"""The failures that ``note_failure`` saw in this process."""


@contextmanager
def note_failure(session: pytest.Session) -> Iterator[None]:
    """Note that what follows a test has failed: pytest counts it only after the cluster is gone, if it was the last."""
    try:
        yield
    except BaseException:
        session.stash[_FAILED_AFTERWARDS] = session.stash.get(_FAILED_AFTERWARDS, 0) + 1
        raise


def _count_failures(session: pytest.Session) -> int:
    return session.testsfailed + session.stash.get(_FAILED_AFTERWARDS, 0)


@contextmanager
def keep_logs_on_failure(cluster: Cluster, session: pytest.Session, name: str) -> Iterator[None]:
    """Copy the logs to the folder ``name`` if a test of this process fails within the context."""
    failed = _count_failures(session)
    try:
        yield
    finally:
        if _count_failures(session) > failed:
            target = KEPT / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(cluster.paths.logs, target)
            print(f"\nlogs of all parts: {target}")
