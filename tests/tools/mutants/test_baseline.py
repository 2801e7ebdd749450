"""A baseline is measured again when Kerf, its tests or what they share change, and not when other tests do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants.baseline import digest

TREE = Path(__file__).parents[3]
MODULES = ["driver/claims/steps.py"]
TESTS = ["tests/claims", "tests/attack/test_files.py"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "driver/claims/steps.py",
        "cdi/store.py",
        "tests/claims/test_steps.py",
        "tests/attack/test_files.py",
        "tests/attack/test_other.py",
        "tests/kube/test_client.py",
        "tests/kube/server.py",
        "docs/index.md",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "is_measured_again"),
    [
        ("driver/claims/steps.py", True),
        ("cdi/store.py", True),
        ("tests/claims/test_steps.py", True),
        ("tests/attack/test_files.py", True),
        ("tests/kube/server.py", True),
        ("tests/attack/test_other.py", False),
        ("tests/kube/test_client.py", False),
        ("docs/index.md", False),
    ],
)
def test_a_baseline_is_measured_again_when_what_it_was_made_of_changes(
    changed: str, is_measured_again: bool, tree: Path
) -> None:
    before = digest(tree, MODULES, TESTS)
    assert digest(tree, MODULES, TESTS) == before
    (tree / changed).write_text("changed")
    assert (digest(tree, MODULES, TESTS) != before) is is_measured_again


def test_other_modules_or_tests_have_another_baseline(tree: Path) -> None:
    choices = [(MODULES, TESTS), (["cdi/store.py"], TESTS), (MODULES, TESTS[:1]), ([], [*MODULES, *TESTS])]
    assert len({digest(tree, *choice) for choice in choices}) == len(choices)


LATE = """
from pathlib import Path

def test_steady():
    pass

def test_late():
    mark = Path(__file__).with_name("mark")
    is_late = not mark.exists()
    mark.touch()
    assert not is_late

def test_broken():
    assert {is_whole}
"""


@pytest.mark.parametrize(("is_whole", "code"), [(True, 0), (False, 1)], ids=["one is late", "one is broken"])
def test_a_test_that_fails_once_judges_no_mutant_and_one_that_fails_twice_fails_the_baseline(
    is_whole: bool, code: int, tmp_path: Path
) -> None:
    (tmp_path / "test_late.py").write_text(LATE.format(is_whole=is_whole))
    words = "import sys; from pathlib import Path; from tools.mutants.baseline import record"
    words += "; sys.exit(record([], ['test_late.py'], Path('result.json'), may_fail=False))"
    environment = {**os.environ, "PYTHONPATH": str(TREE)}
    command = [sys.executable, "-c", words]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False)
    assert ran.returncode == code, ran.stdout.decode()
    names = json.loads((tmp_path / "result.json").read_text())["names"]
    assert names == ["", "test_late.py::test_steady", *(["test_late.py::test_broken"] if is_whole else [])]
