import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.errors import PermanentError, TransientError
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.metrics import REGISTRY
from kerf_dra.driver.runtime.work_queue import WorkQueue
from tests.runtime.virtual_time import VIRTUAL_TIME

STEADY = Backoff(first_s=1, factor=2, limit_s=8, jitter=0)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class Log:
    """Work that records when it had which key, and fails as configured."""

    def __init__(self, *, takes_s: float = 0.0) -> None:
        self.done: list[tuple[str, float]] = []
        self.failures: dict[str, list[BaseException]] = {}
        self.takes_s = takes_s
        self.running: set[str] = set()
        self.most_running = 0
        self.began = anyio.current_time()

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.done]

    async def work(self, key: str) -> None:
        assert key not in self.running, "two workers have one key"
        self.running.add(key)
        self.most_running = max(self.most_running, len(self.running))
        self.done.append((key, round(anyio.current_time() - self.began, 6)))
        await anyio.sleep(self.takes_s)
        self.running.remove(key)
        if self.failures.get(key):
            raise self.failures[key].pop(0)


async def during(
    queue: WorkQueue[str], log: Log, seconds: float, then: Callable[[], Coroutine[Any, Any, None]], *, workers: int = 2
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: queue.run(log.work, workers=workers))
        await then()
        await anyio.sleep(seconds)
        group.cancel_scope.cancel()


async def nothing() -> None:
    pass


async def test_a_key_added_often_is_worked_on_once() -> None:
    queue, log = WorkQueue[str](), Log()
    for _ in range(100):
        queue.add("a")
    assert len(queue._due) == 1
    await during(queue, log, 10, nothing)
    assert log.keys == ["a"]
    assert len(queue._due) == 0


async def test_keys_are_served_in_the_order_in_which_they_came() -> None:
    queue, log = WorkQueue[str](), Log()
    for key in "dacb":
        queue.add(key)
    await during(queue, log, 1, nothing, workers=1)
    assert log.keys == list("dacb")


async def test_a_key_added_while_it_is_worked_on_is_worked_on_once_more() -> None:
    queue, log = WorkQueue[str](), Log(takes_s=5)

    async def add_during_work() -> None:
        queue.add("a")
        await anyio.sleep(1)
        queue.add("a")
        queue.add("a")

    await during(queue, log, 60, add_during_work)
    assert log.done == [("a", 0), ("a", 5)]


async def test_a_delayed_key_waits_and_the_earlier_time_wins() -> None:
    queue, log = WorkQueue[str](), Log()
    queue.add("late", after_s=30)
    queue.add("sooner", after_s=30)
    queue.add("sooner", after_s=10)
    queue.add("sooner", after_s=20)
    await during(queue, log, 60, nothing)
    assert log.done == [("sooner", 10), ("late", 30)]


async def test_a_time_that_an_earlier_one_replaced_is_forgotten() -> None:
    queue, log = WorkQueue[str](), Log()

    async def add_now_and_later() -> None:
        queue.add("a", after_s=10)
        queue.add("a")
        await anyio.sleep(1)
        queue.add("a", after_s=30)

    await during(queue, log, 60, add_now_and_later)
    assert log.done == [("a", 0), ("a", 31)]


async def test_a_delayed_key_that_falls_due_while_it_is_worked_on_is_not_lost() -> None:
    queue, log = WorkQueue[str](), Log(takes_s=5)

    async def add_with_delay() -> None:
        queue.add("a")
        await anyio.sleep(1)
        queue.add("a", after_s=2)

    await during(queue, log, 60, add_with_delay)
    assert log.done == [("a", 0), ("a", 5)]


async def test_a_slow_key_holds_up_no_other() -> None:
    queue, log = WorkQueue[str](), Log(takes_s=5)
    for key in "abc":
        queue.add(key)
    await during(queue, log, 60, nothing, workers=2)
    assert log.done == [("a", 0), ("b", 0), ("c", 5)]
    assert log.most_running == 2


@pytest.mark.parametrize("error", [TransientError("busy"), ValueError("a defect"), asyncio.CancelledError()])
async def test_failed_work_is_repeated_after_growing_delays_until_it_succeeds(error: BaseException) -> None:
    """A cancellation that is not the queue's own end is a failure as any other: it ended all workers without a word."""
    queue, log = WorkQueue[str](retries=STEADY), Log()
    log.failures["a"] = [error] * 5
    queue.add("a")
    await during(queue, log, 100, nothing)
    assert log.done == [("a", 0), ("a", 1), ("a", 3), ("a", 7), ("a", 15), ("a", 23)]


async def test_success_forgets_earlier_failures() -> None:
    queue, log = WorkQueue[str](retries=STEADY), Log()
    log.failures["a"] = [TransientError("1"), TransientError("2")]

    async def fail_again() -> None:
        queue.add("a")
        await anyio.sleep(50)
        log.failures["a"] = [TransientError("3")]
        queue.add("a")

    await during(queue, log, 50, fail_again)
    assert log.done == [("a", 0), ("a", 1), ("a", 3), ("a", 50), ("a", 51)]


async def test_work_that_cannot_succeed_is_reported_and_dropped_until_it_is_added_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue, log = WorkQueue[str](retries=STEADY), Log()
    log.failures["a"] = [PermanentError("forbidden")]

    async def add_again() -> None:
        queue.add("a")
        await anyio.sleep(50)
        queue.add("a")

    await during(queue, log, 50, add_again)
    assert log.done == [("a", 0), ("a", 50)]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "a: forbidden; not tried again until something changes")
    ]


async def test_an_added_key_does_not_wait_for_its_own_back_off() -> None:
    queue, log = WorkQueue[str](retries=STEADY), Log()
    log.failures["a"] = [TransientError("busy")]

    async def add_during_back_off() -> None:
        queue.add("a")
        await anyio.sleep(0.5)
        queue.add("a")

    await during(queue, log, 50, add_during_back_off)
    assert log.done == [("a", 0), ("a", 0.5)]


Step = tuple[str, float, float]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 3), st.floats(0, 3)), max_size=20), st.integers(1, 3))
async def test_every_key_is_worked_on_after_it_was_last_added(steps: list[Step], workers: int) -> None:
    queue, log = WorkQueue[str](), Log(takes_s=0.7)
    last: dict[str, float] = {}

    async def add_all() -> None:
        for key, pause_s, after_s in steps:
            await anyio.sleep(pause_s)
            queue.add(key, after_s=after_s)
            last[key] = anyio.current_time() - log.began

    await during(queue, log, 100, add_all, workers=workers)
    for key, added_at in last.items():
        assert max(at for done, at in log.done if done == key) >= added_at - 1e-6
    assert len(log.done) <= len(steps)


async def test_a_key_that_was_taken_when_all_ended_is_worked_on_when_it_goes_on() -> None:
    """A controller that loses its leadership and wins it back goes on with the same queue."""
    queue: WorkQueue[str] = WorkQueue(retries=STEADY)
    log = Log()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: queue.run(log.work, workers=2))
        await anyio.wait_all_tasks_blocked()
        queue.add("a")
        while queue._due:  # until it is taken; its work has not begun then
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    log.running.clear()
    log.done.clear()
    queue.add("a")
    await during(queue, log, 1, nothing)
    assert log.keys[-1:] == ["a"]
    assert len(queue._due) == 0


async def test_ne_13_a_named_queue_says_how_long_keys_wait_and_work_and_how_many_fail() -> None:
    """Of three keys and one worker of three seconds: one fails for good, one once, one never."""
    queue: WorkQueue[str] = WorkQueue(name="ne-13", retries=STEADY)

    def value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"kerf_work_queue_{name}", {"queue": "ne-13", **labels}) or 0.0

    log = Log(takes_s=3)
    log.failures = {"crashes": [RuntimeError("a defect")], "again": [TransientError("not yet")], "never": []}
    log.failures["never"] = [PermanentError("no")]
    failing: list[float] = []

    async def add() -> None:
        for key in ("done", "again", "never", "crashes"):
            queue.add(key)
        await anyio.sleep(12.5)
        failing.append(value("failing"))

    await during(queue, log, 10, add, workers=1)
    assert [key for key, _ in log.done] == ["done", "again", "never", "crashes", "again", "crashes"]
    assert value("wait_seconds_count") == 6
    # They wait 0, 3, 6 and 9 s for the worker; tried again a second after they failed, 5 and 2 s more.
    assert value("wait_seconds_sum") == pytest.approx(0 + 3 + 6 + 9 + 5 + 2)
    outcomes = {each: value("work_seconds_count", outcome=each) for each in ("done", "retried", "refused", "crashed")}
    assert outcomes == {"done": 3, "retried": 1, "refused": 1, "crashed": 1}
    assert value("work_seconds_sum", outcome="done") == pytest.approx(9)
    assert failing == [3], "the refused one, the one that crashed, and the one that is being tried again"
    assert value("failing") == 0, "a queue that has ended has none"
