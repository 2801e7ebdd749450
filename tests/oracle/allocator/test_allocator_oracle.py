"""Generated clusters, judged by kube-scheduler's allocator and by ours: the same devices, the same failures."""

import os
from collections import Counter
from collections.abc import Iterable

import pytest

from api.model.base import JsonObject
from tests.conformance.allocator import answer, compare
from tests.oracle.allocator.clusters import case, spoiled
from tests.oracle.judge import Judge

pytestmark = pytest.mark.oracle

CASES = int(os.environ.get("KERF_ORACLE_CASES", "300"))
"""Few when pytest alone runs them; ``python -m tests.oracle allocator --cases N`` sets the number."""
FIRST = int(os.environ.get("KERF_ORACLE_SEED", "0"))

LIMIT_S = 2.0
"""For each case: the judge's search is exponential, and some small cases take it hours."""
MOST_UNDECIDED = 0.02
"""The share of cases that the judge may fail to decide, so that its silence is not taken for agreement."""


def disagreements(judge: Judge, questions: Iterable[JsonObject]) -> tuple[list[str], Counter[str]]:
    """What the two say differently, and how often the judge fits, decides nothing or panics."""
    found: list[str] = []
    counts: Counter[str] = Counter()
    for question in questions:
        theirs = judge.ask({**question, "op": "allocate", "limit": LIMIT_S})
        ours = answer(question)
        kind = theirs["errorKind"] or ("fits" if theirs["results"] is not None else "does not fit")
        counts[kind] += 1
        disagreement = None
        if kind not in ("timeout", "panic"):
            disagreement = compare({**question, "expect": theirs}, ours)
        if disagreement:
            found.append(f"{question['name']}: {disagreement}")
    return found, counts


def test_generated_clusters_get_the_devices_that_the_scheduler_gives_them(judge: Judge) -> None:
    found, counts = disagreements(judge, map(case, range(FIRST, FIRST + CASES)))
    assert not found, "\n".join(found)
    assert counts["fits"] > CASES * 0.15, "the cases have become too odd: few of them fit"
    assert counts["timeout"] <= max(1, CASES * MOST_UNDECIDED)


def test_amounts_that_make_no_sense_are_judged_alike(judge: Judge) -> None:
    found, counts = disagreements(judge, map(spoiled, range(FIRST, FIRST + CASES // 10)))
    assert not found, "\n".join(found)
    assert counts["panic"] < CASES // 10 * 0.1
