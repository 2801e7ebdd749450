"""Generated clusters, judged by kube-scheduler's allocator and by ours: the same devices, the same failures."""

import os

import pytest

from tests.conformance.allocator import answer, compare
from tests.oracle.allocator.clusters import case
from tests.oracle.judging import Judge

pytestmark = pytest.mark.oracle

CASES = int(os.environ.get("KERF_ORACLE_CASES", "300"))
"""Few when pytest alone runs them; ``python -m tests.oracle allocator --cases N`` sets the number."""
FIRST = int(os.environ.get("KERF_ORACLE_SEED", "0"))

LIMIT_S = 2.0
"""For each case: the judge's search is exponential, and some small cases take it hours."""
MOST_UNDECIDED = 0.02
"""The share of cases that the judge may fail to decide, so that its silence is not taken for agreement."""


def test_generated_clusters_get_the_devices_that_the_scheduler_gives_them(judge: Judge) -> None:
    disagreements: list[str] = []
    fitting = undecided = 0
    for seed in range(FIRST, FIRST + CASES):
        question = case(seed)
        theirs = judge.ask({**question, "op": "allocate", "limit": LIMIT_S})
        if theirs["errorKind"] == "timeout":
            undecided += 1
            continue
        fitting += theirs["results"] is not None
        disagreement = compare({**question, "expect": theirs}, answer(question))
        if disagreement:
            disagreements.append(f"{question['name']}: {disagreement}")
    assert not disagreements, "\n".join(disagreements)
    assert fitting > CASES * 0.15, "the cases have become too odd: few of them fit"
    assert undecided <= max(1, CASES * MOST_UNDECIDED)
