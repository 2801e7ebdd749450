"""``make quick`` runs the tests that a change touches, and not the others."""

from pathlib import Path

import pytest

from tools.affected_tests import find_touched, main, read_imports

IMPORTS = {
    "kerf_dra.driver.low": set[str](),
    "kerf_dra.driver.high": {"kerf_dra.driver.low"},
    "kerf_dra.driver.other": set[str](),
    "tests": set[str](),
    "tests.conftest": {"kerf_dra.driver.other"},
    "tests.test_low": {"kerf_dra.driver.low"},
    "tests.test_high": {"kerf_dra.driver.high"},
    "tests.test_other": {"tests.conftest"},
}


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("driver/low.py", {"tests/test_low.py", "tests/test_high.py"}),
        ("driver/high.py", {"tests/test_high.py"}),
        ("driver/other.py", {"tests/test_other.py"}),
        ("tests/test_low.py", {"tests/test_low.py"}),
        ("docs/page.md", set()),
    ],
)
def test_what_imports_a_changed_module_at_any_number_of_steps_is_touched(changed: str, touched: set[str]) -> None:
    assert find_touched([Path(changed)], IMPORTS) == touched


@pytest.mark.parametrize(
    ("changed", "test"),
    [
        ("driver/runtime/backoff.py", "tests/runtime/test_backoff.py"),
        ("driver/cli/cluster/migrate.py", "tests/cli/test_migrate.py"),  # imported by an f-string
        ("cdi/cache.py", "tests/cdi/test_cache.py"),  # imported on first use, by a string
        ("driver/families/gpu/data/mig.json", "tests/families/test_catalogs.py"),  # no module: its package counts
        ("tests/conftest.py", "tests/runtime/test_backoff.py"),
    ],
)
def test_the_tests_of_a_module_are_touched_by_its_change(changed: str, test: str) -> None:
    assert test in find_touched([Path(changed)], read_imports())


def test_a_change_of_one_program_leaves_most_tests_alone() -> None:
    assert "tests/cdi/test_names.py" not in find_touched([Path("driver/cel/cost.py")], read_imports())


def test_without_a_change_it_says_how_to_name_an_earlier_revision(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.affected_tests.list_changed", lambda *_: [])
    assert main([]) == 1
    assert "BASE=HEAD~1" in capsys.readouterr().err
