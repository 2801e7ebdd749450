"""The contract suite notices backends that break a rule, and passes the example."""

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from test_acme_npu import TestAcmeBackend

from kerf_dra.driver.testing import KillableJournal, ProcessKilled
from tests.testing.broken_backends import BROKEN

__all__ = ["TestAcmeBackend"]  # collected here: the example passes

ROOT = Path(__file__).parents[2]


def test_each_backend_that_breaks_a_rule_fails_the_test_that_says_it() -> None:
    # One test for all of them, in one process: each starts no pytest of its own.
    rules = {f"Test{backend.__name__}::{rule}" for backend, rule in BROKEN.items()}
    failed = list_failures(rules)
    assert [rule for rule in sorted(rules) if not any(f"::{rule}" in line for line in failed)] == []


def list_failures(rules: Collection[str]) -> list[str]:
    """Return the lines with the names of those of the tests ``rules`` that fail on the broken backends."""
    tests = [f"tests/testing/broken_backends.py::{rule}" for rule in rules]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:randomly", *tests],
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
