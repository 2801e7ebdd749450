"""Failures of the cards of a node, and histories with faults of the reclaimer itself.

In ``make test`` both are short. ``make test-long`` has ten thousand failures and a thousand histories, with
``PROFILE=all`` ten thousand. The judges are in ``simulation`` and ``cluster``: no pod of another card is evicted, no
claim is allocated on a withheld card, no card is reset while a claim holds something of it, none is reset twice by one
plan, and at rest nothing is tainted and every tenant has its pod.
"""

from random import Random
from typing import Final

import anyio
import pytest

from tests.conftest import IS_LONG, PROFILE, SEED

from .simulation import Simulation

FAILURES: Final = 10_000 if IS_LONG else 50
HISTORIES: Final = {"long": 1_000, "all": 10_000}.get(PROFILE, 20)
LIMIT_S: Final = {"long": 3600, "all": 7200}.get(PROFILE, 600)
"""Seconds for one of the tests: ten thousand histories take half an hour of one core."""
STEPS: Final = 30
"""The steps of a history: some four failures."""


async def run_failures(simulation: Simulation, failures: int) -> None:
    while simulation.failures < failures:
        await simulation.step(fails=0.5, kills=0.0)
    await simulation.settle()
    simulation.judge_rest()


@pytest.mark.property
@pytest.mark.timeout(LIMIT_S)
def test_failures_of_cards_cost_the_pods_of_these_cards_and_no_others() -> None:
    simulation = Simulation(chance=Random(SEED if IS_LONG else 0))
    anyio.run(run_failures, simulation, FAILURES)
    assert len(simulation.resets) > FAILURES / 5
    assert len(simulation.evicted) > FAILURES / 2


async def run_history(seed: int) -> int:
    simulation = Simulation(chance=Random(seed))
    for _ in range(STEPS):
        await simulation.step(fails=0.2, kills=0.5)
    await simulation.settle()
    simulation.judge_rest()
    return len(simulation.resets)


@pytest.mark.property
@pytest.mark.timeout(LIMIT_S)
def test_whatever_becomes_of_the_reclaimer_no_card_is_reset_that_a_claim_holds_and_none_stays_withheld() -> None:
    first = SEED if IS_LONG else 0
    resets = 0
    for seed in range(first, first + HISTORIES):
        try:
            resets += anyio.run(run_history, seed)
        except Exception as error:
            error.add_note(f"the history of seed {seed}")
            raise
    assert resets > HISTORIES / 2
