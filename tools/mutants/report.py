"""What became of the mutants of a run: a line of a file for each as it ends, survivors in full, and a table."""

import json
from collections import Counter
from pathlib import Path
from typing import Final

from tools.mutants.operators import Mutant
from tools.mutants.trials import Trial, Verdict

DEADLY_SHARE: Final = 0.95
"""What must die of the mutants that can: a sample of 30 may have one survivor."""
_EQUIVALENT: Final = "equivalent"


class Report:
    """Counts the ends of mutants, and writes each to ``results`` if that is a file."""

    def __init__(self, results: Path | None) -> None:
        self._results = results
        self._ends: dict[Mutant, str] = {}

    def add_equivalent(self, mutant: Mutant) -> None:
        self._ends[mutant] = _EQUIVALENT

    def add(self, trial: Trial) -> None:
        """Note the end of a mutant; a later trial of the same mutant replaces it."""
        mutant = trial.mutant
        self._ends[mutant] = trial.verdict
        if self._results is not None:
            fields = ("path", "line", "operator", "function", "before", "after", "occurrence")
            document = {name: getattr(mutant, name) for name in fields}
            document |= {"verdict": trial.verdict, "tests": trial.tests, "seconds": round(trial.seconds, 1)}
            with self._results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(document) + "\n")
        if not trial.verdict.is_killed:
            print(f"\n{mutant.path}:{mutant.line}: {trial.verdict} ({mutant.operator} in {_place(mutant)})")
            print(f"  - {mutant.before}\n  + {mutant.after}\n  tests: {trial.tests}, {trial.seconds:.1f} s", flush=True)

    def find_survivors(self) -> list[Mutant]:
        alive = (Verdict.SURVIVED, Verdict.NOT_EXECUTED)
        return [mutant for mutant, end in self._ends.items() if end in alive]

    def print_summary(self) -> bool:
        """Print a table of modules and one of operators. Returns whether enough mutants died."""
        for title, counts in (("module", self._count("path")), ("operator", self._count("operator"))):
            width = max((len(name) for name in (title, *counts)), default=0)
            print(f"\n{title:<{width}}  tried  killed  by others  survived  equivalent")
            for name, count in sorted(counts.items()):
                print(_row(name.ljust(width), count))
        whole = Counter(self._ends.values())
        tried = whole.total() - whole[_EQUIVALENT]
        by_group, by_any = whole[Verdict.KILLED], sum(whole[verdict] for verdict in _KILLS)
        print(f"{_share(by_group, tried):.1%} of {tried} are killed by tests of their group")
        share = _share(by_any, tried)
        print(f"{share:.1%} of {tried} are killed by any test that was tried; {DEADLY_SHARE:.0%} must be")
        return share >= DEADLY_SHARE

    def _count(self, field: str) -> dict[str, Counter[str]]:
        counts: dict[str, Counter[str]] = {}
        for mutant, end in self._ends.items():
            counts.setdefault(getattr(mutant, field), Counter())[end] += 1
        return counts


_KILLS: Final = [verdict for verdict in Verdict if verdict.is_killed]


def _share(killed: int, tried: int) -> float:
    return killed / tried if tried else 1.0


def _place(mutant: Mutant) -> str:
    return mutant.function or "the module"


def _row(name: str, count: Counter[str]) -> str:
    survived = count[Verdict.SURVIVED] + count[Verdict.NOT_EXECUTED]
    tried = count.total() - count[_EQUIVALENT]
    killed, others = count[Verdict.KILLED], count[Verdict.KILLED_BY_OTHERS]
    return f"{name}  {tried:5}  {killed:6}  {others:9}  {survived:8}  {count[_EQUIVALENT]:10}"
