"""A process that tries a mutant tells how it has ended, whatever the mutant does to pytest."""

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tools.mutants.processes import NOT_BEGUN, Process, copy_tree

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12: it forks with threads
LIMIT_S = 60.0


def wait(process: Process) -> int:
    while (code := process.poll()) is None:
        time.sleep(0.01)
    return code


def _raise() -> int:
    raise RuntimeWarning("coroutine 'WorkQueue._work_on' was never awaited")


@pytest.mark.parametrize(
    ("work", "code"),
    [(lambda: 0, 0), (lambda: 1, int(pytest.ExitCode.TESTS_FAILED)), (_raise, int(pytest.ExitCode.INTERNAL_ERROR))],
    ids=["tests pass", "a test fails", "pytest itself fails"],
)
def test_the_exit_code_is_that_of_the_work(work: Callable[[], int], code: int, tmp_path: Path) -> None:
    """A mutant of which a test failed, and then pytest itself, ended the whole run."""
    process = Process(tmp_path, tmp_path / "output", work, limit_s=LIMIT_S)
    assert wait(process) == code
    process.kill()  # it has ended: nothing is killed


def test_a_process_that_cannot_begin_is_told_from_one_whose_work_fails(tmp_path: Path) -> None:
    process = Process(tmp_path / "missing", tmp_path / "output", lambda: 0, limit_s=LIMIT_S)
    assert wait(process) == NOT_BEGUN


def test_a_mutant_that_must_die_dies_in_each_copy_of_the_tree(tmp_path: Path) -> None:
    """A copy without the links of ``kerf_dra``, or whose links lead elsewhere, would test what was not changed."""
    copy_tree(tmp_path / "0")
    copy_tree(tmp_path / "1", tmp_path / "0")
    for tree in (tmp_path / "0", tmp_path / "1"):
        (tree / "driver/runtime/backoff.py").write_text("MUTANT = 86")
        process = Process(tree, tree.with_suffix(".txt"), _import_mutant, limit_s=LIMIT_S)
        assert wait(process) == 86, tree.with_suffix(".txt").read_text()


def _import_mutant() -> int:
    return cast("int", importlib.import_module("kerf_dra.driver.runtime.backoff").MUTANT)
