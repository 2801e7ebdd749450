"""Trials of mutants: each runs the tests that execute its line, until one fails."""

import ast
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tools.mutants import baseline, processes
from tools.mutants.baseline import Baseline
from tools.mutants.groups import Group
from tools.mutants.operators import Mutant

_KEPT: Final = processes.TREE / "build" / "mutants"
"""Where baselines are kept."""
_BASELINE_LIMIT_S: Final = 1800.0
_EVERY_TEST_LIMIT_S: Final = 7200.0
"""All tests of Kerf, in one process and with their lines measured, on a busy machine."""
_SLOWER: Final = 5.0
"""How many times as long as before a test may take: a mutant may wait for what never comes."""
_LEAST_LIMIT_S: Final = 10.0
"""The limit of a fast test, and what starting takes, on a busy machine."""


class Verdict(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    KILLED_BY_OTHERS = "killed by tests of others"
    SURVIVED = "survived"
    NOT_EXECUTED = "not executed by any test"

    @property
    def is_killed(self) -> bool:
        return self in (Verdict.KILLED, Verdict.KILLED_BY_OTHERS)


class BaselineFailedError(Exception):
    """The tests do not pass without a change: nothing can be said of mutants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A mutant and its end."""

    mutant: Mutant
    verdict: Verdict
    tests: int
    """How many tests execute its line."""
    seconds: float


class Workplace:
    """Copies of the working tree, one for each of ``jobs`` processes at a time."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder = folder
        self._jobs = jobs
        self._trees = [folder / str(number) for number in range(jobs)]
        for name in processes.FORK_IMPORTS:
            __import__(name)
        processes.copy_tree(self._trees[0])

    def measure(self, group: Group, *, may_fail: bool = False) -> Baseline:
        """Run the tests of ``group`` without a change, or read what they executed before.

        Raises BaselineFailedError if one fails, unless some may.
        """
        kept = _KEPT / f"{group.name}-{baseline.digest(self._trees[0], group.modules, group.tests)}.json"
        if not kept.exists():
            result, output = self._folder / "baseline.json", self._folder / "baseline.txt"
            work = partial(baseline.record, group.modules, group.tests, result, may_fail=may_fail)
            limit_s = _EVERY_TEST_LIMIT_S if may_fail else _BASELINE_LIMIT_S
            code = processes.Process(self._trees[0], output, work, limit_s=limit_s).wait()
            if code != 0 and not (may_fail and code == pytest.ExitCode.TESTS_FAILED):
                end = output.read_text(errors="replace")[-4000:]
                raise BaselineFailedError(f"{group.name}: exit code {code}\n{end}")
            _KEPT.mkdir(parents=True, exist_ok=True)
            shutil.move(result, kept)
        for tree in self._trees[1:]:
            if not tree.exists():
                processes.copy_tree(tree, self._trees[0])
        return baseline.read(kept)

    def try_all(self, mutants: Sequence[Mutant], known: Baseline, killed: Verdict = Verdict.KILLED) -> Iterator[Trial]:
        """Yield the trials of ``mutants`` as they end, with the verdict ``killed`` if a test fails."""
        waiting = list(reversed(mutants))
        running: dict[Path, _RunningTrial] = {}
        try:
            while waiting or running:
                for tree in self._trees:
                    if tree not in running and waiting:
                        mutant = waiting.pop()
                        tests = known.find_tests(mutant)
                        if tests:
                            running[tree] = _RunningTrial(tree, mutant, tests, known.durations_s, killed)
                        else:
                            yield Trial(mutant=mutant, verdict=Verdict.NOT_EXECUTED, tests=0, seconds=0.0)
                time.sleep(processes.POLL_S)
                for tree, trial in list(running.items()):
                    if (ended := trial.poll()) is not None:
                        del running[tree]
                        yield ended
        finally:
            for trial in running.values():
                trial.abandon()


class _RunningTrial:
    """A mutant that is in place in one copy of the tree, and the process that tests it."""

    def __init__(
        self, tree: Path, mutant: Mutant, tests: Sequence[str], durations_s: Mapping[str, float], killed: Verdict
    ) -> None:
        self._mutant = mutant
        self._killed = killed
        self._tests = tests
        self._output = tree.with_suffix(".txt")
        self._file = tree / mutant.path
        self._source, self._stat = self._file.read_bytes(), self._file.stat()
        changed = mutant.apply(self._source)
        ast.parse(changed)  # an operator that makes no Python would count as killed
        self._file.write_bytes(changed)
        os.utime(self._file, ns=(self._stat.st_atime_ns, self._stat.st_mtime_ns + 10**9))  # compiled files are outdated
        slowest = max(durations_s.get(test, 0.0) for test in tests)
        whole = sum(durations_s.get(test, 0.0) for test in tests)
        limit_s = max(_LEAST_LIMIT_S, _SLOWER * slowest)
        work = partial(_run_tests, tests, limit_s, tree.with_suffix(".tmp"))
        self._process = processes.Process(tree, self._output, work, limit_s=_LEAST_LIMIT_S + limit_s + _SLOWER * whole)

    def poll(self) -> Trial | None:
        code = self._process.poll()
        if code is None:
            return None
        self._restore()
        if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED, processes.NOT_BEGUN):
            raise RuntimeError(f"{self._mutant.path}:{self._mutant.line}: {self._output.read_text(errors='replace')}")
        return Trial(
            mutant=self._mutant,
            verdict=Verdict.SURVIVED if code == 0 else self._killed,
            tests=len(self._tests),
            seconds=time.monotonic() - self._process.begun_at,
        )

    def abandon(self) -> None:
        self._process.kill()
        self._restore()

    def _restore(self) -> None:
        self._file.write_bytes(self._source)
        os.utime(self._file, ns=(self._stat.st_atime_ns, self._stat.st_mtime_ns))


def _run_tests(tests: Sequence[str], limit_s: float, temporary: Path) -> int:
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    arguments = ["-x", "--no-header", "--tb=short", f"--timeout={limit_s}", f"--basetemp={temporary}"]
    return processes.run_pytest([*arguments, *files], _Selection(tests))


class _Selection:
    """A plugin of pytest that runs exactly these tests, in their order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._order = {test: index for index, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])


@contextmanager
def workplace(jobs: int) -> Iterator[Workplace]:
    """A workplace in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="kerf-mutants-") as folder:
        yield Workplace(Path(folder), jobs)
