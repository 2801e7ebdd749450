"""``python -m tools.mutants [GROUP …] [--sample N] [--seed N] [--jobs N]``: a sample of mutants of each group is tried.

The same seed takes the same mutants, as long as their lines stay. Fails when fewer than 95 % of them die, without those
of ``equivalent.toml``.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tools.mutants.groups import EquivalentMutant, Group, read_equivalent, read_groups
from tools.mutants.operators import Mutant
from tools.mutants.trials import BaselineFailedError, Trial, Verdict, Workplace, workplace

_DEADLY_SHARE: Final = 0.95
_EQUIVALENT: Final = "equivalent"


def main(arguments: Sequence[str]) -> int:
    groups = {group.name: group for group in read_groups()}
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("group", nargs="*", help=f"of {', '.join(groups)} (default: all)")
    parser.add_argument("--sample", type=int, default=30, help="mutants of each group (default: 30; 0: all)")
    parser.add_argument("--module", default="", help="only of modules whose path has this in it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes at a time")
    parsed = parser.parse_args(arguments)
    if unknown := {*parsed.group} - groups.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; groups are {', '.join(groups)}")
    equivalent = read_equivalent()
    counts: dict[str, Counter[str]] = {}
    with workplace(parsed.jobs) as place:
        for name in parsed.group or groups:
            sample = _sample(groups[name].find_mutants(), parsed.module, parsed.seed, parsed.sample)
            _run_group(place, groups[name], sample, equivalent, counts)
    return _report(counts)


def _sample(mutants: Iterable[Mutant], module: str, seed: int, size: int) -> list[Mutant]:
    chosen = sorted((mutant for mutant in mutants if module in mutant.path), key=lambda mutant: mutant.rank(seed))
    return chosen[: size or None]


def _run_group(
    place: Workplace,
    group: Group,
    sample: Sequence[Mutant],
    equivalent: Sequence[EquivalentMutant],
    counts: dict[str, Counter[str]],
) -> None:
    """Try the mutants of one group, and add to the ``counts`` of their modules what became of them."""
    begun = time.monotonic()
    try:
        known = place.measure(group)
    except BaselineFailedError as error:
        raise SystemExit(f"without any change the tests fail: {error}") from error
    tried, killed = [], 0
    for mutant in sample:
        count = counts.setdefault(mutant.path, Counter())
        if any(entry.is_of(mutant) for entry in equivalent):
            count[_EQUIVALENT] += 1
        else:
            tried.append(mutant)
    for trial in place.try_all(tried, known):
        counts[trial.mutant.path][trial.verdict] += 1
        killed += trial.verdict is Verdict.KILLED
        if trial.verdict is not Verdict.KILLED:
            _print_survivor(trial)
    seconds = time.monotonic() - begun
    print(f"{group.name}: {killed} of {len(tried)} killed in {seconds:.0f} s", flush=True)


def _print_survivor(trial: Trial) -> None:
    mutant = trial.mutant
    print(f"\n{mutant.path}:{mutant.line}: {trial.verdict} ({mutant.operator} in {mutant.function or 'the module'})")
    print(f"  - {mutant.before}\n  + {mutant.after}\n  tests: {trial.tests}, {trial.seconds:.1f} s", flush=True)


def _report(counts: dict[str, Counter[str]]) -> int:
    width = max((len(path) for path in counts), default=0)
    print(f"\n{'module':<{width}}  tried  killed  survived  equivalent")
    for path, count in sorted(counts.items()):
        print(_row(path.ljust(width), count))
    whole: Counter[str] = Counter()
    for count in counts.values():
        whole.update(count)
    print(_row("all".ljust(width), whole))
    tried = whole.total() - whole[_EQUIVALENT]
    share = whole[Verdict.KILLED] / tried if tried else 1.0
    print(f"{share:.1%} of {tried} are killed; {_DEADLY_SHARE:.0%} must be")
    return 0 if share >= _DEADLY_SHARE else 1


def _row(name: str, count: Counter[str]) -> str:
    survived = count[Verdict.SURVIVED] + count[Verdict.NOT_EXECUTED]
    tried = count.total() - count[_EQUIVALENT]
    return f"{name}  {tried:5}  {count[Verdict.KILLED]:6}  {survived:8}  {count[_EQUIVALENT]:10}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
