"""The baseline: every test of a group passes, and which of them execute each line of its modules.

Contexts of coverage.py give, for every line, the tests that were running when it was executed. A line that is executed
when its module is imported belongs to every test that executes any line of the module.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import coverage
import pytest

from tools.mutants.operators import Mutant
from tools.mutants.processes import run_pytest

MARKS: Final = "not long and not realcluster and not oracle and not gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What the tests of a group execute."""

    durations_s: Mapping[str, float]
    """Of each test, by its id."""
    tests: Mapping[str, Mapping[int, frozenset[str]]]
    """The ids of the tests that execute a line, by file and line."""

    def find_tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute a mutant's line, the fastest first."""
        lines = self.tests.get(mutant.path, {})
        found = {test for line in mutant.lines for test in lines.get(line, ())}
        if "" in found:  # executed by the import
            found = {test for tests in lines.values() for test in tests} - {""}
        return sorted(found, key=lambda test: (self.durations_s.get(test, 0.0), test))


def record(paths: Sequence[str], tests: Sequence[str], result: Path) -> int:
    """Run ``tests`` and write what they execute of the modules ``paths`` to ``result``. Returns pytest's exit code."""
    os.environ["COVERAGE_CORE"] = "ctrace"  # the newer core of Python 3.12 knows no contexts
    measured = coverage.Coverage(
        data_file=None, config_file=False, include=[str(Path(path).resolve()) for path in paths]
    )
    recorder = _Recorder(measured)
    measured.start()
    try:
        code = run_pytest(["-x", "-m", MARKS, *tests], recorder)
    finally:
        measured.stop()
    data = measured.get_data()
    lines = {path: data.contexts_by_lineno(str(Path(path).resolve())) for path in paths}
    result.write_text(json.dumps({"durations_s": recorder.durations_s, "lines": lines}), encoding="utf-8")
    return code


def read(result: Path) -> Baseline:
    document = json.loads(result.read_text(encoding="utf-8"))
    tests = {
        path: {int(line): frozenset(sys.intern(test) for test in tests) for line, tests in lines.items()}
        for path, lines in document["lines"].items()
    }
    return Baseline(durations_s=document["durations_s"], tests=tests)


class _Recorder:
    """A plugin of pytest that switches coverage's context with the test, and measures each test."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.durations_s: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._measured.switch_context(item.nodeid)
        begun = time.perf_counter()
        result = yield
        self.durations_s[item.nodeid] = time.perf_counter() - begun
        return result
