"""Work for which no caller waits begins after the callers have their answers, and is not put off for ever."""

import anyio
import anyio.lowlevel
import pytest

from kerf_dra.driver.runtime.concurrency import LONGEST_YIELD_S, UnansweredCalls
from tests.runtime.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


async def make_calls(calls: UnansweredCalls, *lengths_s: float) -> None:
    """Make calls one after the other, each while the one before still waits."""
    async with anyio.create_task_group() as group:
        for length_s in lengths_s:
            group.start_soon(make_call, calls, length_s)


async def make_call(calls: UnansweredCalls, length_s: float) -> None:
    with calls.counted():
        await anyio.sleep(length_s)


async def measure_wait(calls: UnansweredCalls) -> float:
    began = anyio.current_time()
    await calls.let_go_first()
    return round(anyio.current_time() - began, 6)


@pytest.mark.parametrize(
    ("lengths_s", "waits_s"),
    [((), 0.0), ((0.5,), 0.5), ((0.2, 1.5), 1.5), ((0.5, 60.0), LONGEST_YIELD_S)],
    ids=["no call", "one", "until the last of two", "one that hangs"],
)
async def test_other_work_begins_when_no_call_waits_or_calls_have_gone_first_long_enough(
    lengths_s: tuple[float, ...], waits_s: float
) -> None:
    calls = UnansweredCalls()
    async with anyio.create_task_group() as group:
        group.start_soon(make_calls, calls, *lengths_s)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        assert await measure_wait(calls) == waits_s
        group.cancel_scope.cancel()


async def test_calls_that_come_without_a_pause_put_other_work_off_once() -> None:
    calls = UnansweredCalls()
    async with anyio.create_task_group() as group:
        group.start_soon(make_calls, calls, *(number / 2 for number in range(1, 40)))
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        assert [await measure_wait(calls) for _ in range(3)] == [LONGEST_YIELD_S, 0.0, 0.0]
        group.cancel_scope.cancel()


async def test_after_a_pause_calls_go_first_again() -> None:
    calls = UnansweredCalls()
    await make_call(calls, 10 * LONGEST_YIELD_S)
    async with anyio.create_task_group() as group:
        group.start_soon(make_call, calls, 0.25)
        await anyio.lowlevel.checkpoint()
        assert await measure_wait(calls) == 0.25
