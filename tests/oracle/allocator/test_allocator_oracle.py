"""Generated clusters: kube-scheduler's allocator and Kerf's allocate the same devices and fail with the same errors."""

import os
from collections import Counter
from collections.abc import Iterable

import pytest

from kerf_dra.api.model.base import JsonObject
from tests.conformance.allocator import answer, compare
from tests.oracle.allocator.clusters import generate_case, generate_case_with_invalid_amounts
from tests.oracle.judge import Judge

pytestmark = pytest.mark.oracle

CASES = int(os.environ.get("KERF_ORACLE_CASES", "300"))
"""The number of generated cases; ``python -m tests.oracle allocator --cases N`` sets it."""
FIRST = int(os.environ.get("KERF_ORACLE_SEED", "0"))

LIMIT_S = 2.0
"""The oracle's time limit per case: its search is exponential, and some small cases take it hours."""
MOST_UNDECIDED = 0.02
"""The share of cases that the oracle may leave undecided, because an undecided case compares nothing."""


def disagreements(judge: Judge, questions: Iterable[JsonObject]) -> tuple[list[str], Counter[str]]:
    """Return the disagreements, and how often the oracle fits, does not fit, times out or panics."""
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
    found, counts = disagreements(judge, map(generate_case, range(FIRST, FIRST + CASES)))
    assert not found, "\n".join(found)
    assert counts["fits"] > CASES * 0.15, "too few of the generated cases fit"
    assert counts["timeout"] <= max(1, CASES * MOST_UNDECIDED)


def test_amounts_that_make_no_sense_are_judged_alike(judge: Judge) -> None:
    found, counts = disagreements(judge, map(generate_case_with_invalid_amounts, range(FIRST, FIRST + CASES // 10)))
    assert not found, "\n".join(found)
    assert counts["panic"] < CASES // 10 * 0.1
