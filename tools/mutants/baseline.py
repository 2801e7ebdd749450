"""The baseline: every test of a group passes, and which of them execute each line of its modules.

It is kept in ``build/mutants`` for as long as neither Kerf nor its tests change.

Contexts of coverage.py give, for every line, the tests that were running when it was executed. A line that is executed
when its module is imported belongs to every test that executes any line of the module.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import coverage
import pytest

from tools.mutants.operators import Mutant
from tools.mutants.processes import run_pytest
from tools.sources import PRODUCT

MARKS: Final = "not long and not realcluster and not oracle and not gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What the tests of a group execute."""

    durations_s: Mapping[str, float]
    """Of each test, by its id."""
    tests: Mapping[str, Mapping[int, frozenset[str]]]
    """The ids of the tests that execute a line, by file and line."""
    excluded: frozenset[str] = frozenset()
    """The ids of tests that are not to be run."""

    def without(self, other: Self) -> Self:
        """Return the same without the tests of another baseline."""
        return replace(self, excluded=frozenset(other.durations_s))

    def find_tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute a mutant's line: first those of its module, of these the fastest first."""
        lines = self.tests.get(mutant.path, {})
        found = {test for line in mutant.lines for test in lines.get(line, ())}
        if "" in found:  # executed by the import
            found = {test for tests in lines.values() for test in tests} - {""}
        mirror = f"test_{Path(mutant.path).stem}.py"
        return sorted(
            found - self.excluded,
            key=lambda test: (Path(test.partition("::")[0]).name != mirror, self.durations_s.get(test, 0.0), test),
        )


def digest(tree: Path, paths: Sequence[str], tests: Sequence[str]) -> str:
    """Return what stays the same as long as Kerf, these tests, what all tests share, and the choice of both do."""
    found = hashlib.sha256(json.dumps([paths, tests]).encode())
    for file in (file for folder in (*PRODUCT, "tests") for file in sorted((tree / folder).rglob("*"))):
        name = file.relative_to(tree).as_posix()
        is_test = name.startswith("tests/") and file.name.startswith("test_")
        is_left_out = "__pycache__" in file.parts or (is_test and not name.startswith(tuple(tests)))
        if file.is_file() and not is_left_out:
            found.update(f"{name}\n".encode() + file.read_bytes())
    return found.hexdigest()[:16]


def record(paths: Sequence[str], tests: Sequence[str], result: Path, *, may_fail: bool) -> int:
    """Run ``tests`` and write what they execute of the modules ``paths`` to ``result``. Returns pytest's exit code.

    A test that fails is left out, and run once more, alone: on a busy machine one may be late. If it fails then, too,
    so does the baseline, unless tests may fail.
    """
    os.environ["COVERAGE_CORE"] = "ctrace"  # the newer core of Python 3.12 knows no contexts
    measured = coverage.Coverage(
        data_file=None, config_file=False, include=[str(Path(path).resolve()) for path in paths]
    )
    recorder = _Recorder(measured)
    measured.start()
    try:
        code = run_pytest(["-m", MARKS, *tests], recorder)
        if recorder.failed and not may_fail:
            code = run_pytest(["-x", *sorted(recorder.failed)], object())
    finally:
        measured.stop()
    data = measured.get_data()
    lines = {path: data.contexts_by_lineno(str(Path(path).resolve())) for path in paths}
    result.write_text(json.dumps(_compress(lines, recorder)), encoding="utf-8")
    return code


def _compress(lines: Mapping[str, Mapping[int, Sequence[str]]], recorder: "_Recorder") -> dict[str, object]:
    """Return a document in which a test's id occurs once: a line may be executed by thousands of tests."""
    names = ["", *(test for test in recorder.durations_s if test not in recorder.failed)]
    numbers = {name: number for number, name in enumerate(names)}
    found = {
        path: {line: [numbers[test] for test in tests if test in numbers] for line, tests in by_line.items()}
        for path, by_line in lines.items()
    }
    return {"names": names, "durations_s": recorder.durations_s, "lines": found}


def read(result: Path) -> Baseline:
    document = json.loads(result.read_text(encoding="utf-8"))
    names = document["names"]
    tests = {
        path: {int(line): frozenset(names[number] for number in numbers) for line, numbers in lines.items()}
        for path, lines in document["lines"].items()
    }
    return Baseline(durations_s=document["durations_s"], tests=tests)


class _Recorder:
    """A plugin of pytest that switches coverage's context with the test, measures each, and notes those that fail."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.durations_s: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._measured.switch_context(item.nodeid)
        begun = time.perf_counter()
        result = yield
        self.durations_s[item.nodeid] = time.perf_counter() - begun
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
