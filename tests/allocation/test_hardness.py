"""Problems that are exponential for a depth-first search are decided correctly in few steps."""

import pytest

from driver.allocation import AllocatedState, Budget, DoesNotFit, Fits
from tests.allocation.builders import decide
from tests.allocation.hard_cases.crossed import CROSSED
from tests.allocation.hard_cases.families import FAMILIES
from tests.allocation.hard_cases.linked import LINKED
from tests.allocation.result_check import faults

ALL = {**FAMILIES, **LINKED, **CROSSED}
FEW = Budget(steps=3000)
"""Some tenths of a second. Each of these would take a plain search far more than a lifetime at size 32."""


@pytest.mark.parametrize("size", [4, 8, 16, 32])
@pytest.mark.parametrize("name", ALL)
def test_hard_questions_are_decided_in_few_steps(name: str, size: int) -> None:
    case = ALL[name](size)
    outcome = decide(case.slices, *case.claims, budget=FEW)
    assert isinstance(outcome, Fits if case.fits else DoesNotFit), outcome
    if isinstance(outcome, Fits):
        assert not faults(case.slices, case.claims, outcome.results, AllocatedState())
