"""A process that tries a mutant tells how it has ended, whatever the mutant does to pytest."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutants.processes import NOT_BEGUN, Process

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
