"""A device is idle after a time without use, as far as samples say so, and does not change to and fro."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.kubeletplugin.backends.base import DeviceSample
from kerf_dra.driver.kubeletplugin.usage.idleness import IdleRules, IdleState, add_sample

RULES = IdleRules(idle_after_s=60.0, interval_s=15.0)
UNUSED, USED = DeviceSample(processes=0), DeviceSample(processes=1)
NOTHING = DeviceSample(memory_bytes=5)


def busy(part: float, processes: int = 1) -> DeviceSample:
    return DeviceSample(processes=processes, busy=part)


def follow(samples: Sequence[tuple[float, DeviceSample]], rules: IdleRules = RULES) -> IdleState | None:
    state: IdleState | None = None
    for at, sample in samples:
        state = add_sample(state, sample, at, rules)
    return state


def find_idle_since(*samples: tuple[float, DeviceSample]) -> float | None:
    state = follow(samples)
    return None if state is None else state.idle_since


CASES = {
    "nothing was sampled": ([], None),
    "no process for a shorter time": ([(0, UNUSED), (59, UNUSED)], None),
    "no process for the time": ([(5, UNUSED), (50, UNUSED), (65, UNUSED)], 5),
    "a process, which may wait for a person": ([(0, USED), (600, USED)], None),
    "a process that hardly computes": ([(0, busy(0.009)), (60, busy(0.0))], 0),
    "a process that computes a little": ([(0, busy(0.01)), (60, busy(0.01))], None),
    "a process that has ended since it computed": ([(0, UNUSED), (60, busy(0.5, processes=0))], None),
    "a process begins": ([(0, UNUSED), (60, UNUSED), (75, USED)], None),
    "an idle device computes for a moment": ([(0, busy(0)), (60, busy(0)), (75, busy(0.04))], 0),
    "an idle device computes": ([(0, busy(0)), (60, busy(0)), (75, busy(0.05))], None),
    "the time begins again after a use": ([(0, UNUSED), (30, USED), (45, UNUSED), (104, UNUSED)], None),
    "and ends": ([(0, UNUSED), (30, USED), (45, UNUSED), (105, UNUSED)], 45),
    "samples that say nothing": ([(0, NOTHING), (600, NOTHING)], None),
    "one that says nothing between others": ([(0, UNUSED), (30, NOTHING), (60, UNUSED)], 0),
    "one that says nothing of an idle device": ([(0, UNUSED), (60, UNUSED), (75, NOTHING)], 0),
    "nothing is said for too long": ([(0, UNUSED), (60, UNUSED), (361, NOTHING)], None),
    "a time without samples": ([(0, UNUSED), (300, UNUSED)], 0),
    "too long a time without samples": ([(0, UNUSED), (301, UNUSED)], None),
    "the clock is set back": ([(100, UNUSED), (40, UNUSED), (100, UNUSED)], 40),
}


@pytest.mark.parametrize("case", CASES)
def test_a_device_is_idle_since_it_was_used_last(case: str) -> None:
    samples, since = CASES[case]
    assert find_idle_since(*samples) == since


def test_a_few_samples_may_be_missing_however_long_the_interval_is() -> None:
    rules = IdleRules(idle_after_s=60.0, interval_s=3600.0)
    state = follow([(0, UNUSED), (4 * 3600, UNUSED)], rules)
    assert state is not None
    assert state.idle_since == 0
    assert follow([(0, UNUSED), (4 * 3600 + 1, UNUSED)], rules) == IdleState(sampled_at=14401, quiet_since=14401)


def test_without_a_time_a_device_is_idle_at_once() -> None:
    state = follow([(7, UNUSED)], IdleRules(idle_after_s=0.0, interval_s=15.0))
    assert state is not None
    assert state.idle_since == 7


SAMPLES = st.builds(DeviceSample, processes=st.none() | st.integers(0, 2), busy=st.none() | st.floats(0, 1))


@given(st.lists(st.tuples(st.floats(0.01, 400), SAMPLES), max_size=30))
def test_an_idle_device_was_quiet_in_every_sample_of_the_time(steps: list[tuple[float, DeviceSample]]) -> None:
    at, state, seen = 0.0, None, list[tuple[float, DeviceSample]]()
    for passed, sample in steps:
        at += passed
        seen.append((at, sample))
        state = add_sample(state, sample, at, RULES)
        if state is None or state.idle_since is None:
            continue
        since = state.idle_since
        assert at - since >= RULES.idle_after_s
        answers = [one for when, one in seen if when >= since and (one.processes, one.busy) != (None, None)]
        assert all(one.busy < 0.05 if one.busy is not None else one.processes == 0 for one in answers)
        assert answers
