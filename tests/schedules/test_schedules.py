"""Random schedules of faults: whatever befalls a node, no two claims have the same hardware, and none is lost."""

import os
from collections.abc import Iterator

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, FoundPartition
from kerf_dra.driver.kubeletplugin.claims import hardware
from kerf_dra.driver.partitions.geometry import Partition
from tests.conftest import PROFILE, SEED
from tests.fakes.nvml import NEEDS_COMPILER
from tests.ownership.history import Called, Event
from tests.ownership.judge import Rule
from tests.schedules.player import play_all, play_in_processes, player_in_memory

pytestmark = NEEDS_COMPILER

COUNT = 10_000
"""Schedules of `make test-long`."""
SHARE = 500
"""Those of one test: half a minute, so that no process is left with a long one in the end."""


@pytest.fixture(autouse=True)
def environment_of_one_test() -> Iterator[None]:
    """Take back the choice of a machine after the test."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_any_schedule_keeps_every_partition_to_one_claim_and_comes_to_rest(first: int) -> None:
    assert [str(failure) for failure in play_all(range(first, first + 10))] == []


@pytest.mark.long
@pytest.mark.skipif(PROFILE == "default", reason="make test-long")
@pytest.mark.parametrize("first", range(0, COUNT, SHARE))
def test_ten_thousand_schedules_keep_every_partition_to_one_claim(first: int) -> None:
    seeds = range(SEED + first, SEED + first + SHARE)
    assert [str(failure) for failure in play_in_processes(seeds, processes=1)] == []


def test_a_plugin_that_takes_every_partition_for_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedules would notice: without the note of what was there before, somebody else's is given to claims."""

    def find_any(partition: Partition, survey: CardSurvey, *_: object) -> FoundPartition | None:
        return next((found for found in survey.partitions if found.matches(partition)), None)

    monkeypatch.setattr(hardware, "find_ours", find_any)
    failures = (failure for seed in range(30, 44) for failure in play_all([seed]))
    assert any(rule in failure.reason for failure in failures for rule in (Rule.FOREIGN_KEPT, Rule.FOREIGN_WITHHELD))


def test_a_seed_gives_the_same_schedule_each_time() -> None:
    def play() -> list[Event]:
        with player_in_memory() as player:
            return list(player.play(3).judge.latest)

    first = play()
    assert first == play()
    assert any(isinstance(event, Called) for event in first)
