"""What survives the tests of its group is tried with those of all others, and nothing is tried twice."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from tools.mutants.__main__ import _run
from tools.mutants.baseline import Baseline
from tools.mutants.groups import Group
from tools.mutants.operators import Mutant, find_mutants
from tools.mutants.report import Report
from tools.mutants.trials import Trial, Verdict, Workplace

SOURCE = b"def f():\n    one()\n    two()\n    three()\n"
FIRST, SECOND = (find_mutants(f"{name}.py", SOURCE) for name in ("first", "second"))
GROUPS = [Group(name=name, modules=(f"{name}.py",), tests=(f"tests/{name}",)) for name in ("first", "second")]


def baseline(name: str, *tests_by_line: Sequence[str]) -> Baseline:
    lines = {2 + index: frozenset(tests) for index, tests in enumerate(tests_by_line)}
    durations_s = {test: 1.0 for tests in tests_by_line for test in tests}
    return Baseline(durations_s=durations_s, tests={f"{name}.py": lines})


class Place:
    """A workplace in which a test whose name says so kills each mutant that it executes."""

    def __init__(self) -> None:
        self.tried: list[tuple[str, int, list[str], Verdict]] = []

    def measure(self, group: Group, *, may_fail: bool = False) -> Baseline:
        if group.name == "first":
            return baseline("first", ["killer"], ["idle"], [])
        if group.name == "second":
            return baseline("second", ["killer"], ["killer"], ["killer"])
        assert (may_fail, group.modules, group.tests) == (True, ("first.py", "second.py"), ("tests",))
        return baseline("first", ["killer", "other"], ["idle", "killer-elsewhere"], ["idle-elsewhere"])

    def try_all(self, mutants: Sequence[Mutant], known: Baseline, killed: Verdict = Verdict.KILLED) -> Iterator[Trial]:
        for mutant in mutants:
            tests = known.find_tests(mutant)
            self.tried.append((mutant.path, mutant.line, tests, killed))
            verdict = killed if any("killer" in test for test in tests) else Verdict.SURVIVED
            yield Trial(mutant=mutant, verdict=verdict, tests=len(tests), seconds=0.0)


@pytest.mark.parametrize("every_test", [False, True])
def test_survivors_are_tried_with_the_tests_of_others_if_that_is_asked(every_test: bool, tmp_path: Path) -> None:
    place, report = Place(), Report(tmp_path / "results")
    drawn = {"first": FIRST, "second": SECOND}
    _run(cast("Workplace", place), GROUPS, drawn, every_test, report)
    assert len(place.tried) == (8 if every_test else 6)
    assert place.tried[6:] == (
        [
            ("first.py", 3, ["killer-elsewhere"], Verdict.KILLED_BY_OTHERS),
            ("first.py", 4, ["idle-elsewhere"], Verdict.KILLED_BY_OTHERS),
        ]
        if every_test
        else []
    )
    assert [mutant.line for mutant in report.find_survivors()] == ([4] if every_test else [3, 4])


def test_without_survivors_the_tests_of_others_are_not_measured(tmp_path: Path) -> None:
    place = Place()
    _run(cast("Workplace", place), GROUPS[1:], {"second": SECOND}, True, Report(tmp_path / "results"))
    assert [tests for _, _, tests, _ in place.tried] == [["killer"]] * 3
