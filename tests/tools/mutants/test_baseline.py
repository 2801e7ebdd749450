"""A baseline is measured again when Kerf, its tests or what they share change, and not when other tests do."""

from pathlib import Path

import pytest

from tools.mutants.baseline import digest

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
