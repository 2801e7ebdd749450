"""``python -m tools.mutants [GROUP …] [--sample N | --total N] [--operators KIND] [--every-test] [--results FILE]``

A sample of the mutants of each group is tried. The same seed takes the same mutants, as long as their lines stay. Fails
when fewer than 95 % of them die, without those of ``equivalent.toml``.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tools.mutants import samples
from tools.mutants.baseline import Baseline
from tools.mutants.groups import Group, join_groups, read_equivalent, read_groups
from tools.mutants.operators import Mutant
from tools.mutants.report import Report
from tools.mutants.trials import BaselineFailedError, Verdict, Workplace, workplace


def main(arguments: Sequence[str]) -> int:
    groups = {group.name: group for group in read_groups()}
    parser = _build_parser(groups)
    parsed = parser.parse_args(arguments)
    if unknown := {*parsed.group} - groups.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; groups are {', '.join(groups)}")
    chosen = [groups[name] for name in parsed.group or groups]
    report = Report(parsed.results)
    try:
        with workplace(parsed.jobs) as place:
            _run(place, chosen, _draw(chosen, parsed), parsed.every_test, report)
    except BaselineFailedError as error:
        raise SystemExit(f"without any change the tests fail: {error}") from error
    return 0 if report.print_summary() else 1


def _build_parser(groups: Iterable[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("group", nargs="*", help=f"of {', '.join(groups)} (default: all)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--sample", type=int, default=30, help="mutants of each group (default: 30; 0: all)")
    size.add_argument("--total", type=int, help="mutants of all groups, in turn of each group and operator")
    parser.add_argument("--operators", choices=samples.OPERATORS, default="token", help="their kind (default: token)")
    parser.add_argument("--every-test", action="store_true", help="try what survives with the tests of all groups, too")
    parser.add_argument("--module", default="", help="only of modules whose path has this in it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("--results", type=Path, help="a file to which each trial is appended as it ends (JSON lines)")
    return parser


def _draw(groups: Sequence[Group], parsed: argparse.Namespace) -> dict[str, list[Mutant]]:
    is_of_kind = samples.OPERATORS[parsed.operators]
    found = {
        group.name: [each for each in group.find_mutants() if parsed.module in each.path and is_of_kind(each)]
        for group in groups
    }
    if parsed.total is not None:
        return samples.take_over_groups(found, parsed.seed, parsed.total)
    return {name: samples.take(mutants, parsed.seed, parsed.sample) for name, mutants in found.items()}


def _run(
    place: Workplace, groups: Sequence[Group], drawn: Mapping[str, Sequence[Mutant]], every_test: bool, report: Report
) -> None:
    """Try the mutants that were drawn of each group, and what survives with the tests of all folders."""
    equivalent = read_equivalent()
    known: dict[str, Baseline] = {}
    for group in groups:
        name = group.name
        known[name] = place.measure(group)
        tried = [mutant for mutant in drawn[name] if not any(entry.is_of(mutant) for entry in equivalent)]
        for mutant in set(drawn[name]) - set(tried):
            report.add_equivalent(mutant)
        _try(place, name, tried, known[name], report)
    survivors = report.find_survivors()
    if every_test and survivors:
        everything = place.measure(join_groups(groups), may_fail=True)
        for name, baseline in known.items():
            others = everything.without(baseline)
            alive = [mutant for mutant in drawn[name] if mutant in survivors and others.find_tests(mutant)]
            _try(place, f"{name}, tests of others", alive, others, report, killed=Verdict.KILLED_BY_OTHERS)


def _try(
    place: Workplace,
    name: str,
    mutants: Sequence[Mutant],
    known: Baseline,
    report: Report,
    killed: Verdict = Verdict.KILLED,
) -> None:
    begun, count = time.monotonic(), 0
    for trial in place.try_all(mutants, known, killed):
        report.add(trial)
        count += trial.verdict.is_killed
    print(f"{name}: {count} of {len(mutants)} killed in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
