"""Calls to hardware: one at a time for each card, cards at the same time, and a call that hangs keeps only its card."""

import asyncio
import threading
from collections.abc import Iterator

import anyio
import pytest

from kerf_dra.api.errors import TransientError
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    CardChange,
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    HardwareRefusedError,
)
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.backends.survey_validation import ContradictorySurveyError
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.runtime import logs, metrics
from kerf_dra.driver.runtime.notifier import Notifier
from tests.fakes.cards import gpu
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.wait import until

CARD_EVENT = CardChange(card_uuid="GPU-0")
AT = 1_800_000_000
"""Unix time of every call: 2027-01-15T08:00:00Z."""


class Surveyed(FakeBackend):
    """Hardware whose survey is what a test says."""

    answer: CardSurvey | Exception = CardSurvey(card_uuid="GPU-0")

    def survey(self, card_uuid: str) -> CardSurvey:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class NotifiedCounter(Notifier):
    """A notifier that counts how often it is notified."""

    times = 0

    def notify(self) -> None:
        self.times += 1
        super().notify()


class Node:
    """Two cards, and calls on them that hang until ``release`` is set."""

    def __init__(self, *, call_timeout_s: float = LONGEST_S) -> None:
        self.release = threading.Event()
        self.begun = 0
        self.running = 0
        self.backend = Surveyed([gpu(0), gpu(1)])
        self.executor = CardExecutor(
            {"fake": self.backend},
            call_timeout_s=call_timeout_s,
            discovery_timeout_s=call_timeout_s,
            now=lambda: AT,
        )
        self.stuck_changed = self.executor.stuck_changed = NotifiedCounter()

    def hang(self) -> str:
        self.begun += 1
        self.running += 1
        self.release.wait(LONGEST_S)
        self.running -= 1
        return "late"

    def be_patient(self) -> None:
        """From now on calls that do not hang may take as long as a busy machine needs."""
        be_patient(self.executor)

    async def call(self, card: str) -> str:
        async with self.executor.lock(card) as locked:
            return await locked.call("prepare", self.hang)


def be_patient(executor: CardExecutor) -> None:
    executor._call_timeout_s = LONGEST_S
    for queue in (*executor._cards.values(), *executor._backend_queues.values()):
        queue._limit_s = LONGEST_S


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.release.set()
    node.executor.close()


@pytest.fixture
def impatient() -> Iterator[Node]:
    node = Node(call_timeout_s=0.01)
    yield node
    node.release.set()
    node.executor.close()


async def test_a_card_does_one_call_at_a_time_and_different_cards_work_at_the_same_time(node: Node) -> None:
    """FP-11."""
    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            for card in ("GPU-0", "GPU-0", "GPU-1"):
                group.start_soon(node.call, card)
            await until(lambda: node.running == 2)
            await anyio.wait_all_tasks_blocked()
            assert node.running == 2, "the second call for GPU-0 waits"
            node.release.set()
    assert (node.running, node.executor.stuck, node.stuck_changed.times) == (0, {}, 0)


async def test_a_call_raises_what_its_function_raises_and_sees_the_context_of_its_caller(node: Node) -> None:
    seen: list[object] = []

    def fail() -> None:
        seen.append(threading.current_thread() is threading.main_thread())
        raise ZeroDivisionError("oops")

    with logs.context(claim="training"), pytest.raises(ZeroDivisionError, match="oops"):
        async with node.executor.lock("GPU-0") as card:
            await card.call("prepare", fail)
    assert seen == [False], "it runs in a worker thread"
    assert not node.executor.stuck


async def test_a_call_that_hangs_keeps_its_card_only_until_it_returns(impatient: Node) -> None:
    node = impatient
    with pytest.raises(HardwareBusyError, match=r"^card GPU-0: prepare gave no answer within 0\.01 s$"):
        await node.call("GPU-0")
    reason = "card GPU-0 does not answer: prepare, begun at 2027-01-15T08:00:00Z, has not returned"
    assert dict(node.executor.stuck) == {"GPU-0": reason}
    assert (node.executor.has_hanging_calls, node.stuck_changed.times) == (True, 1)
    node.be_patient()
    with pytest.raises(HardwareBusyError, match=reason):
        await node.call("GPU-0")
    async with node.executor.lock("GPU-1") as card:
        assert await card.call("survey", lambda: "at once") == "at once"
    node.release.set()
    with anyio.fail_after(LONGEST_S):
        await until(lambda: not node.executor.stuck)
    assert (node.executor.has_hanging_calls, node.stuck_changed.times) == (False, 2)
    async with node.executor.lock("GPU-0") as card:
        assert await card.call("survey", lambda: "again") == "again"


async def test_whoever_waits_for_a_card_that_becomes_stuck_is_told_at_once(impatient: Node) -> None:
    node, errors = impatient, list[str]()

    async def call() -> None:
        try:
            await node.call("GPU-0")
        except HardwareBusyError as error:
            errors.append(str(error))

    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(call)
    assert [("gave no answer" in error, "has not returned" in error) for error in errors] == [
        (True, False),
        (False, True),
        (False, True),
    ]
    await until(lambda: node.running == 1)  # its thread may begin after its time
    node.release.set()
    await until(lambda: not node.executor.stuck)
    assert node.begun == 1


async def test_a_call_whose_caller_is_cancelled_keeps_its_card_until_it_returns(node: Node) -> None:
    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            group.start_soon(node.call, "GPU-0")
            await until(lambda: node.running == 1)
            group.cancel_scope.cancel()
        assert node.executor.has_hanging_calls
        node.release.set()
        await until(lambda: not node.executor.has_hanging_calls)


def gauges() -> tuple[float, float]:
    names = "kerf_hardware_queue_length", "kerf_stuck_cards"
    waiting, stuck = (metrics.REGISTRY.get_sample_value(name) for name in names)
    assert waiting is not None
    assert stuck is not None
    return waiting, stuck


async def test_calls_that_wait_count_over_all_executors_of_the_process(node: Node) -> None:
    other = Node()
    waiting, stuck = gauges()
    with anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            for each, calls in ((node, 3), (other, 2)):
                for _ in range(calls):
                    group.start_soon(each.call, "GPU-0")
            await until(lambda: node.running == other.running == 1)
            await anyio.wait_all_tasks_blocked()
            assert gauges() == (waiting + 3, stuck), "two for one executor's card, and one for the other's"
            other.release.set()
            await until(lambda: other.running == 0 and gauges()[0] == waiting + 2)
            group.cancel_scope.cancel()
    assert gauges()[0] == waiting, "whoever is cancelled waits no more"
    node.release.set()
    await until(lambda: not node.executor.stuck)
    other.executor.close()


async def test_stuck_cards_count_over_all_executors_of_the_process(impatient: Node) -> None:
    node, other = impatient, Node(call_timeout_s=0.01)
    before = gauges()[1]
    for each, card in ((node, "GPU-0"), (node, "GPU-1"), (other, "GPU-0")):
        with pytest.raises(HardwareBusyError, match="gave no answer"):
            await each.call(card)
    assert gauges()[1] == before + 3
    with pytest.raises(HardwareBusyError, match="has not returned"):
        await other.call("GPU-0")
    assert gauges()[1] == before + 3, "a card that is refused is not counted again"
    with anyio.fail_after(LONGEST_S):
        other.release.set()
        await until(lambda: not other.executor.stuck)
        assert gauges()[1] == before + 2, "the other executor's cards hang on"
        node.release.set()
        await until(lambda: not node.executor.stuck)
    assert gauges()[1] == before
    other.executor.close()


async def test_a_backend_that_hangs_is_no_stuck_card(impatient: Node) -> None:
    before = gauges()[1]
    impatient.backend.discover = impatient.hang  # type: ignore[assignment,method-assign]
    with pytest.raises(HardwareBusyError, match="gave no answer"):
        await impatient.executor.discover("fake")
    assert gauges()[1] == before


async def test_more_calls_may_hang_than_a_pool_of_threads_has(impatient: Node) -> None:
    node = impatient
    for number in range(50):
        with pytest.raises(HardwareBusyError):
            await node.call(f"GPU-{number}")
    assert len(node.executor.stuck) == 50
    await until(lambda: node.running == 50)  # a thread may begin after its call's time


async def test_a_survey_is_applied_while_its_card_is_locked(node: Node) -> None:
    applied: list[CardSurvey] = []

    def apply(survey: CardSurvey) -> None:
        applied.append(survey)
        assert node.executor._cards["GPU-0"].lock.locked()

    await node.executor.survey_under_lock("fake", "GPU-0", apply)
    assert applied == [CardSurvey(card_uuid="GPU-0")]


async def test_a_card_that_is_away_is_not_surveyed(node: Node) -> None:
    node.backend.answer = CardAbsentError("GPU-0 has fallen off the bus")
    with pytest.raises(CardAbsentError):
        await node.executor.survey_under_lock("fake", "GPU-0", lambda survey: None)


def found(id_: str, start: int, size: int) -> FoundPartition:
    return FoundPartition(id=id_, profile=f"{size}g", placement=Placement(start, size))


CONTRADICTIONS = {
    "overlapping partitions": ((found("gi-1", 0, 2), found("gi-2", 1, 1)), "gi-1 and gi-2 overlap"),
    "two equal ids": ((found("gi-1", 0, 1), found("gi-1", 1, 1)), "two partitions have the id gi-1"),
    "units beyond the card": ((found("gi-1", 2, 4),), "gi-1 has units 2 to 5, outside of the card's 4 units"),
    "units before the card": ((found("gi-1", -1, 1),), "outside of the card's 4 units"),
    "no units": ((found("gi-1", 0, 0),), "outside of the card's 4 units"),
    "no id": ((found("", 0, 1),), "has no id"),
}


@pytest.mark.parametrize(("partitions", "reason"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
async def test_a_survey_that_contradicts_itself_is_refused_by_name(
    node: Node, partitions: tuple[FoundPartition, ...], reason: str
) -> None:
    await node.executor.discover("fake")
    node.backend.answer = CardSurvey(card_uuid="GPU-0", partitions=partitions)
    with pytest.raises(ContradictorySurveyError, match=f"the survey of card GPU-0 cannot be true: .*{reason}"):
        await node.executor.survey_under_lock("fake", "GPU-0", lambda survey: None)
    assert issubclass(ContradictorySurveyError, TransientError), "the next survey may be right"


async def test_a_survey_of_another_card_is_refused(node: Node) -> None:
    with pytest.raises(ContradictorySurveyError, match="it is of card GPU-0"):
        await node.executor.survey_under_lock("fake", "GPU-1", lambda survey: None)


async def test_a_discovery_that_hangs_is_given_up_and_its_backends_cards_work_on(impatient: Node) -> None:
    node = impatient
    node.backend.discover = node.hang  # type: ignore[assignment,method-assign]
    with pytest.raises(HardwareBusyError, match=r"backend fake: discover gave no answer within 0\.01 s"):
        await node.executor.discover("fake")
    with pytest.raises(HardwareBusyError, match="backend fake does not answer: discover, begun at"):
        await node.executor.discover("fake")
    assert not node.executor.has_hanging_calls, "no card may still be changed"
    node.be_patient()
    await node.executor.survey_under_lock("fake", "GPU-0", lambda survey: None)
    node.backend.tell(CARD_EVENT)
    assert list(await node.executor.wait_for_events("fake")) == [CARD_EVENT]


async def test_a_backend_is_asked_for_events_only_when_it_is_open(node: Node) -> None:
    """NVML without a driver has none, and said so at once: the plugin asked again, 12,000 times a second."""
    asked: list[str] = []
    node.backend.open = lambda: asked.append("open")  # type: ignore[method-assign]

    def wait_for_events(timeout_s: float) -> list[CardChange]:
        asked.append("events")
        return []

    node.backend.wait_for_events = wait_for_events  # type: ignore[method-assign]
    async with anyio.create_task_group() as group:
        group.start_soon(node.executor.wait_for_events, "fake")
        await anyio.wait_all_tasks_blocked()
        await node.executor.discover("fake")
    assert asked == ["open", "events"]


@pytest.mark.parametrize("returned", [None, 3, "changed", [None], {"card": "GPU-0"}])
async def test_what_is_no_sequence_of_events_is_refused_by_the_backends_name(node: Node, returned: object) -> None:
    await node.executor.discover("fake")
    node.backend.wait_for_events = lambda timeout_s: returned  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(
        HardwareRefusedError, match=r"^backend fake: wait_for_events returned .*, which are not events$"
    ):
        await node.executor.wait_for_events("fake")


async def test_a_backend_is_opened_in_a_thread_before_its_cards_are_discovered_and_closed_at_the_end(
    node: Node,
) -> None:
    node.backend.is_open = False
    await node.executor.discover("fake")
    assert node.backend.is_open
    await node.executor.close_backends()
    assert not node.backend.is_open


async def test_a_backend_that_was_closed_is_opened_before_the_next_discovery(node: Node) -> None:
    opened: list[bool] = []
    node.backend.open = lambda: opened.append(True)  # type: ignore[method-assign]
    for _ in range(2):
        await node.executor.discover("fake")
        await node.executor.discover("fake")
        await node.executor.close_backends()
    assert len(opened) == 2


async def test_a_wait_for_events_that_takes_its_time_is_no_hanging_call(node: Node) -> None:
    limits: list[float] = []

    def wait(timeout_s: float) -> tuple[()]:
        limits.append(timeout_s)
        return ()

    node.backend.wait_for_events = wait  # type: ignore[method-assign]
    await node.executor.discover("fake")  # opens the backend
    await node.executor.wait_for_events("fake")
    assert limits[0] < node.executor._backend_queues["fake", "wait_for_events"]._limit_s


async def test_an_executor_that_is_closed_ends_its_threads(node: Node) -> None:
    before = set(threading.enumerate())
    async with node.executor.lock("GPU-0") as card:
        await card.call("survey", node.backend.survey, "GPU-0")
    (made,) = set(threading.enumerate()) - before
    node.executor.close()
    made.join(LONGEST_S)
    assert not made.is_alive()


async def test_a_backend_that_cannot_be_opened_is_tried_again_by_the_next_discovery(node: Node) -> None:
    failures = [OSError("the driver is not loaded")]

    def open_with_failures() -> None:
        if failures:
            raise failures.pop()

    node.backend.open = open_with_failures  # type: ignore[method-assign]
    with pytest.raises(OSError, match="not loaded"):
        await node.executor.discover("fake")
    assert await node.executor.discover("fake")


@pytest.mark.parametrize(
    ("error", "expected"),
    [(CardAbsentError("no driver"), CardAbsentError), (RuntimeError("no driver"), HardwareBusyError)],
)
async def test_a_backend_that_could_not_be_opened_is_not_asked_for_a_survey(
    node: Node, error: Exception, expected: type[Exception]
) -> None:
    """Its cards are absent only where its error says so."""
    failures, found = [error], list[CardSurvey]()

    def open_with_failures() -> None:
        if failures:
            raise failures.pop()

    node.backend.open = open_with_failures  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        await node.executor.discover("fake")
    with pytest.raises(expected, match="backend fake is not open: no driver"):
        await node.executor.survey_under_lock("fake", "GPU-0", found.append)
    assert found == []
    await node.executor.discover("fake")
    await node.executor.survey_under_lock("fake", "GPU-0", found.append)
    assert [survey.card_uuid for survey in found] == ["GPU-0"]


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
async def test_what_would_end_a_process_or_a_task_fails_the_call_alone(node: Node, raised: BaseException) -> None:
    def end() -> None:
        raise raised

    async with node.executor.lock("GPU-0") as card:
        with pytest.raises(HardwareRefusedError, match=f"card GPU-0: prepare raised {type(raised).__name__}"):
            await card.call("prepare", end)
    assert await _call_at_once(node) == "done"


async def _call_at_once(node: Node) -> str:
    async with node.executor.lock("GPU-0") as card:
        return await card.call("prepare", lambda: "done")


async def test_a_backend_is_not_closed_for_good_while_a_survey_runs(node: Node) -> None:
    closed = anyio.Event()

    def hang(card_uuid: str) -> CardSurvey:
        node.hang()
        return CardSurvey(card_uuid=card_uuid)

    async def close() -> None:
        await node.executor.close_backends()
        closed.set()

    node.backend.survey = hang  # type: ignore[method-assign]
    async with anyio.create_task_group() as group:
        group.start_soon(node.executor.survey_under_lock, "fake", "GPU-0", lambda _: None)
        await until(lambda: node.running == 1)
        group.start_soon(close)
        await anyio.wait_all_tasks_blocked()
        assert not closed.is_set()
        node.release.set()
        with anyio.fail_after(LONGEST_S):
            await closed.wait()
