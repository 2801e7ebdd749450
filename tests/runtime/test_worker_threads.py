"""Threads for calls that block: used again, limited in number, and waited for when their caller is cancelled."""

import threading
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest

from kerf_dra.driver.runtime.worker_threads import LimitedCalls, Report, WorkerThreads

LONGEST_S = 60.0


@pytest.fixture
def threads() -> Iterator[WorkerThreads]:
    pool = WorkerThreads()
    yield pool
    pool.close()


def test_idle_threads_are_used_again_and_end_when_the_pool_is_closed() -> None:
    pool, names = WorkerThreads(), list[int]()
    for _ in range(3):
        done = threading.Event()

        def work(done: threading.Event = done) -> Report:
            names.append(threading.get_ident())
            return done.set

        pool.start(work)
        assert done.wait(LONGEST_S)
    assert len(set(names)) == 1
    [thread] = [thread for thread in threading.enumerate() if thread.ident == names[0]]
    assert thread.daemon, "a hanging one does not keep the process"
    pool.close()
    thread.join(LONGEST_S)
    assert not thread.is_alive()


async def test_a_call_returns_or_raises_what_its_function_does_in_another_thread(threads: WorkerThreads) -> None:
    calls = LimitedCalls(1, start=threads.start)
    assert await calls.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(OSError, match="the disk is full"):
        await calls.run(_fail, OSError("the disk is full"))


async def test_no_more_calls_run_at_once_than_may(threads: WorkerThreads) -> None:
    calls, ends, begun = LimitedCalls(2, start=threads.start), threading.Event(), list[int]()

    def work(number: int) -> int:
        begun.append(number)
        assert ends.wait(LONGEST_S)
        return number

    async with anyio.create_task_group() as group:
        for number in range(2):
            group.start_soon(calls.run, work, number)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.01) as waiting:
            await calls.run(work, 2)
        assert waiting.cancelled_caught
        ends.set()
    assert await calls.run(work, 3) == 3
    assert sorted(begun) == [0, 1, 3]


async def test_a_caller_that_is_cancelled_waits_for_the_end(threads: WorkerThreads) -> None:
    calls, began, may_end, done = (
        LimitedCalls(1, start=threads.start),
        threading.Event(),
        threading.Event(),
        list[str](),
    )

    def work() -> None:
        began.set()
        assert may_end.wait(LONGEST_S)
        done.append("written")

    async with anyio.create_task_group() as group:
        group.start_soon(calls.run, work)
        assert await anyio.to_thread.run_sync(began.wait, LONGEST_S)
        group.cancel_scope.cancel()
        may_end.set()
    assert done == ["written"]


def _fail(error: BaseException) -> None:
    raise error
