"""The contract suite notices backends that break a rule, and passes the example."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_acme_npu import TestAcmeBackend

from driver.testing import KillableJournal, ProcessKilled
from tests.testing.broken_backends import BROKEN

__all__ = ["TestAcmeBackend"]  # collected here: the example passes

ROOT = Path(__file__).parents[2]


def test_each_backend_that_breaks_a_rule_fails_the_test_that_says_it() -> None:
    # One test for all of them: two workers of xdist would each run the suite on every broken backend.
    failed = list_failures()
    missed = [
        f"{backend.__name__}: {rule}"
        for backend, rule in BROKEN.items()
        if not any(f"::Test{backend.__name__}::{rule}" in line for line in failed)
    ]
    assert missed == []


def list_failures() -> list[str]:
    """Return the names of the tests that fail on the broken backends."""
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rf",
            "--tb=no",
            "-p",
            "no:randomly",
            "tests/testing/broken_backends.py",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    return run.stdout.splitlines()


def test_a_journal_kills_at_the_chosen_write_and_keeps_what_was_written_before() -> None:
    journal = KillableJournal()
    journal.write(first=1)
    journal.kill_at(2)
    journal.write(second=2)
    with pytest.raises(ProcessKilled):
        journal.write(third=3)
    assert journal.notes == {"first": 1, "second": 2}
    journal.write(third=3)
    journal.kill_at(1, is_kept=True)
    with pytest.raises(ProcessKilled):
        journal.write(first=4)
    assert journal.notes == {"first": 4, "second": 2, "third": 3}


def test_a_journal_refuses_what_a_checkpoint_cannot_keep() -> None:
    with pytest.raises(TypeError):
        KillableJournal().write(partition={1, 2})
