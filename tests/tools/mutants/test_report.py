"""What a run of mutants reports: a line for each trial, the survivors, and shares without the equivalent ones."""

import json
from pathlib import Path

import pytest

from tools.mutants.operators import Mutant, find_mutants
from tools.mutants.report import Report
from tools.mutants.trials import Trial, Verdict

MUTANTS = find_mutants("a.py", b"def f():\n" + b"".join(b"    call%d()\n" % number for number in range(40)))


def trial(mutant: Mutant, verdict: Verdict) -> Trial:
    return Trial(mutant=mutant, verdict=verdict, tests=3, seconds=1.25)


def test_a_later_trial_of_a_survivor_counts_and_each_trial_has_its_line(tmp_path: Path) -> None:
    report = Report(tmp_path / "results")
    verdicts = [Verdict.KILLED, Verdict.SURVIVED, Verdict.NOT_EXECUTED]
    for mutant, verdict in zip(MUTANTS, verdicts, strict=False):
        report.add(trial(mutant, verdict))
    assert report.find_survivors() == MUTANTS[1:3]
    report.add(trial(MUTANTS[1], Verdict.KILLED_BY_OTHERS))
    assert report.find_survivors() == MUTANTS[2:3]
    lines = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    assert [(line["before"], line["verdict"]) for line in lines] == [
        ("call0()", "killed"),
        ("call1()", "survived"),
        ("call2()", "not executed by any test"),
        ("call1()", "killed by tests of others"),
    ]


@pytest.mark.parametrize(("survivors", "is_enough"), [(2, True), (3, False)], ids=["95 %", "92.5 %"])
def test_a_run_fails_when_too_few_die_and_equivalent_ones_do_not_count(
    survivors: int, is_enough: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(None)
    for mutant in find_mutants("b.py", b"def f():\n    a()\n    b()\n"):
        report.add_equivalent(mutant)
    for number, mutant in enumerate(MUTANTS):
        killed = Verdict.KILLED_BY_OTHERS if number % 2 else Verdict.KILLED
        report.add(trial(mutant, Verdict.SURVIVED if number < survivors else killed))
    assert report.print_summary() is is_enough
    printed = capsys.readouterr().out
    assert f"{(40 - survivors) / 40:.1%} of 40 are killed by any test that was tried" in printed
    assert f"{(20 - (survivors + 1) // 2) / 40:.1%} of 40 are killed by tests of their group" in printed
