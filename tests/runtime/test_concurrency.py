"""Concurrent items, and single flight by key: shared by equal calls, queued for others, not cancelled with callers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from kerf_dra.api.errors import PermanentError, TransientError
from kerf_dra.driver.runtime.concurrency import SingleFlight, for_each


class StoppingError(TransientError):
    """What callers get once there is no more work."""


class Gate:
    """A gate that blocks tasks until it is opened."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()

    async def pass_through(self) -> None:
        self.reached.set()
        await self.opened.wait()


class Work:
    """Counts how often it was begun and ended; waits at its gate."""

    def __init__(self, result: str = "done", error: Exception | None = None) -> None:
        self.gate = Gate()
        self.begun = 0
        self.ended = 0
        self.result = result
        self.error = error

    async def __call__(self) -> str:
        self.begun += 1
        await self.gate.pass_through()
        self.ended += 1
        if self.error is not None:
            raise self.error
        return self.result


@asynccontextmanager
async def single_flight() -> AsyncIterator[SingleFlight[str, str]]:
    async with anyio.create_task_group() as tasks:
        yield SingleFlight(tasks, stopping=StoppingError)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
async def test_each_is_worked_on_once(count: int) -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        await anyio.lowlevel.checkpoint()
        done.append(number)

    await for_each(work, range(count))
    assert sorted(done) == list(range(count))


async def test_results_come_in_the_order_of_the_items() -> None:
    first_may_end = anyio.Event()

    async def work(number: int) -> int:
        if number == 0:
            await first_may_end.wait()
        first_may_end.set()
        return 10 * number

    assert await for_each(work, range(2)) == [0, 10]


async def test_none_waits_for_another() -> None:
    second_has_begun = anyio.Event()

    async def work(number: int) -> None:
        if number == 1:
            second_has_begun.set()
        with anyio.fail_after(60):
            await second_has_begun.wait()

    await for_each(work, range(2))


async def test_a_call_for_the_same_work_joins_it() -> None:
    work, results = Work(), []
    async with single_flight() as flights, anyio.create_task_group() as callers:

        async def call() -> None:
            results.append(await flights.do("key", "prepare", work))

        for _ in range(3):
            callers.start_soon(call)
        await work.gate.reached.wait()
        await anyio.wait_all_tasks_blocked()
        work.gate.opened.set()
    assert (work.begun, results) == (1, ["done"] * 3)


async def test_work_of_different_keys_runs_at_once() -> None:
    one, other = Work("one"), Work("other")
    async with single_flight() as flights, anyio.create_task_group() as callers:
        callers.start_soon(flights.do, "one", "prepare", one)
        callers.start_soon(flights.do, "other", "prepare", other)
        await one.gate.reached.wait()
        await other.gate.reached.wait()
        one.gate.opened.set()
        other.gate.opened.set()


async def test_other_work_for_the_key_waits_its_turn() -> None:
    prepare, unprepare = Work(), Work()
    unprepare.gate.opened.set()
    async with single_flight() as flights, anyio.create_task_group() as callers:
        callers.start_soon(flights.do, "key", "prepare", prepare)
        callers.start_soon(flights.do, "key", "unprepare", unprepare)
        await anyio.wait_all_tasks_blocked()
        assert unprepare.begun == 0
        prepare.gate.opened.set()
    assert (prepare.ended, unprepare.ended) == (1, 1)


async def test_work_goes_on_when_its_caller_is_cancelled_and_the_next_call_gets_its_result() -> None:
    work = Work()
    async with single_flight() as flights:
        with anyio.CancelScope() as caller:
            async with anyio.create_task_group() as callers:
                callers.start_soon(flights.do, "key", "prepare", work)
                await work.gate.reached.wait()
                caller.cancel()
        work.gate.opened.set()
        assert await flights.do("key", "prepare", work) == "done"
    assert work.begun == 1


async def test_an_error_reaches_every_caller_and_is_not_remembered() -> None:
    failing, working = Work(error=PermanentError("no")), Work()
    failing.gate.opened.set()
    working.gate.opened.set()
    async with single_flight() as flights:
        for _ in range(2):
            with pytest.raises(PermanentError, match="no"):
                await flights.do("key", "prepare", failing)
        assert await flights.do("key", "prepare", working) == "done"


async def test_an_unexpected_error_reaches_the_caller_and_stops_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    failing, working = Work(error=ZeroDivisionError("oops")), Work()
    failing.gate.opened.set()
    working.gate.opened.set()
    async with single_flight() as flights:
        with pytest.raises(ZeroDivisionError):
            await flights.do("key", "prepare", failing)
        assert await flights.do("other", "prepare", working) == "done"
    assert "prepare failed unexpectedly" in caplog.text


async def test_cancelling_the_application_does_not_interrupt_work() -> None:
    work = Work()
    with anyio.CancelScope() as application:
        async with single_flight() as flights, anyio.create_task_group() as callers:
            callers.start_soon(flights.do, "key", "prepare", work)
            await work.gate.reached.wait()
            application.cancel()
            work.gate.opened.set()
    assert work.ended == 1


async def test_draining_waits_for_work_and_takes_no_more() -> None:
    work, late = Work(), Work()
    async with single_flight() as flights, anyio.create_task_group() as callers:
        callers.start_soon(flights.do, "key", "prepare", work)
        await work.gate.reached.wait()
        callers.start_soon(flights.drain, 60)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(StoppingError):
            await flights.do("other", "prepare", late)
        work.gate.opened.set()
    assert (work.ended, late.begun) == (1, 0)


async def test_draining_cancels_what_does_not_end_in_time() -> None:
    work = Work()
    async with single_flight() as flights, anyio.create_task_group() as callers:

        async def call() -> None:
            with pytest.raises(StoppingError):
                await flights.do("key", "prepare", work)

        callers.start_soon(call)
        await work.gate.reached.wait()
        await flights.drain(0)
    assert work.ended == 0
