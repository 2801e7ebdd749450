import logging
from itertools import pairwise
from random import Random
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.store import ObjectChange
from tests.kube.memory_server import MemoryServer, answering, failing, unreachable
from tests.runtime.virtual_time import VIRTUAL_TIME

HOUR_S = 3600.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def node(name: str, *, label: str = "", broken: bool = False) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"zone": label}}, "spec": {"unschedulable": "?"} if broken else {}}


def label(value: Node | None) -> str | None:
    return None if value is None else value.metadata.labels["zone"]


class Followed:
    """An informer on a server, and the changes that it delivered."""

    def __init__(self, server: MemoryServer) -> None:
        self.changes: list[tuple[str, str | None, str | None]] = []
        self.mirror: dict[ObjectRef, Node] = {}
        self.informer = Informer(
            server.client(),
            NODES,
            indexers={"zone": lambda value: value.metadata.labels.values()},
            on_change=self._changed,
            random=Random(0),
        )

    def _changed(self, change: ObjectChange[Node]) -> None:
        assert change.old == self.mirror.get(change.ref), "a change starts from what was told before"
        assert change.new == self.informer.store.get(change.ref), "the store has it before it is told"
        self.changes.append((change.ref.name, label(change.old), label(change.new)))
        if change.new is None:
            del self.mirror[change.ref]
        else:
            self.mirror[change.ref] = change.new

    @property
    def names(self) -> list[str]:
        return sorted(ref.name for ref in self.informer.store.refs())

    async def start(self, group: TaskGroup) -> None:
        group.start_soon(self.informer.run)
        await self.informer.wait_synced()


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


async def test_the_store_has_the_whole_list_when_it_is_synced_and_follows_from_there(server: MemoryServer) -> None:
    server.page = 2
    for name in "abcde":
        server.put("nodes", node(name))
    followed = Followed(server)
    states = [followed.informer.synced]
    async with anyio.create_task_group() as group:
        await followed.start(group)
        states.append(followed.informer.synced)
        assert states == [False, True]
        assert followed.names == list("abcde")
        server.put("nodes", node("f"))
        server.put("nodes", node("a", label="east"))
        server.remove("nodes", "b")
        await anyio.sleep(1)
        assert followed.names == list("acdef")
        assert followed.changes[5:] == [("f", None, ""), ("a", "", "east"), ("b", "", None)]
        assert [value.metadata.name for value in followed.informer.store.indexed("zone", "east")] == ["a"]
        group.cancel_scope.cancel()
    assert len([request for request in server.sent("GET") if "watch" not in request.query]) == 3, "pages of 2 for 5"


async def test_a_lost_watch_goes_on_where_it_stopped_without_a_list(server: MemoryServer) -> None:
    followed = Followed(server)
    async with anyio.create_task_group() as group:
        await followed.start(group)
        server.put("nodes", node("a"))
        await anyio.sleep(1)
        server.cut()
        server.put("nodes", node("b"))
        await anyio.sleep(HOUR_S)
        assert followed.changes == [("a", None, ""), ("b", None, "")]
        group.cancel_scope.cancel()
    assert len([request for request in server.sent("GET") if "watch" not in request.query]) == 1


async def test_after_an_expired_version_the_difference_is_told(server: MemoryServer) -> None:
    for name in ("changed", "gone", "reborn", "same"):
        server.put("nodes", node(name, label="old"))
    followed = Followed(server)
    async with anyio.create_task_group() as group:
        await followed.start(group)
        followed.changes.clear()
        server.faults.append(failing(unreachable))
        server.cut()
        await anyio.sleep(1)
        server.put("nodes", node("changed", label="1"))
        server.put("nodes", node("changed", label="2"))
        server.remove("nodes", "gone")
        server.remove("nodes", "reborn")
        server.put("nodes", node("reborn", label="new"))
        server.put("nodes", node("added", label="new"))
        server.put("nodes", node("missed", label="new"))
        server.remove("nodes", "missed")
        server.forget()
        server.faults.clear()
        await anyio.sleep(HOUR_S)
        group.cancel_scope.cancel()
    assert set(followed.changes) == {
        ("added", None, "new"),
        ("changed", "old", "2"),
        ("gone", "old", None),
        ("reborn", "old", None),
        ("reborn", None, "new"),
    }
    assert len(followed.changes) == 5
    assert followed.changes.index(("reborn", "old", None)) < followed.changes.index(("reborn", None, "new"))


async def test_it_tells_up_to_which_version_the_store_has_all_changes(server: MemoryServer) -> None:
    # so that a reader of the server itself knows whether an object that is not in the store is new, or gone
    server.put("nodes", node("listed"))
    followed = Followed(server)
    assert followed.informer.version == 0
    async with anyio.create_task_group() as group:
        await followed.start(group)
        assert followed.informer.version == server.version
        server.put("nodes", node("watched"))
        await anyio.sleep(1)
        before = server.version
        assert followed.informer.version == before
        server.faults.append(failing(unreachable))
        server.cut()
        await anyio.sleep(1)
        server.put("nodes", node("missed"))
        server.remove("nodes", "missed")
        server.forget()
        await anyio.sleep(HOUR_S)
        assert followed.informer.version == before, "nothing of what is missing has been shown"
        server.faults.clear()
        await anyio.sleep(HOUR_S)
        assert followed.informer.version == server.version
        group.cancel_scope.cancel()
    assert followed.names == ["listed", "watched"]


async def test_a_server_that_is_back_and_has_forgotten_is_listed_at_once(server: MemoryServer) -> None:
    """A restarted API server says 410 to the first watch: after a long absence that was waited for once more."""
    followed = Followed(server)
    async with anyio.create_task_group() as group:
        await followed.start(group)
        server.faults.append(failing(unreachable))
        server.cut()
        await anyio.sleep(HOUR_S)
        server.put("nodes", node("a"))
        server.forget()
        server.faults.clear()
        back = len(server.requests)
        await anyio.sleep(HOUR_S)
        group.cancel_scope.cancel()
    expired, listed = server.requests[back : back + 2]
    assert followed.names == ["a"]
    assert listed[0] - expired[0] < 1


async def test_a_bookmark_moves_the_place_to_go_on_from(server: MemoryServer) -> None:
    followed = Followed(server)
    async with anyio.create_task_group() as group:
        await followed.start(group)
        await anyio.sleep(1)
        server.put("pods", node("other-kind"))
        server.bookmark()
        await anyio.sleep(1)
        server.forget()
        server.cut()
        await anyio.sleep(HOUR_S)
        group.cancel_scope.cancel()
    assert len([request for request in server.sent("GET") if "watch" not in request.query]) == 1, "no second list"


@pytest.mark.parametrize(
    "fault",
    [
        failing(answering(500), method="GET"),
        failing(answering(410, "Expired"), method="GET"),
        failing(unreachable, method="GET"),
        failing(answering(403, "Forbidden"), method="GET"),
        failing(answering(429, "TooManyRequests", retry_after_s=1), method="GET"),
    ],
    ids=["500", "410", "unreachable", "403", "429"],
)
@pytest.mark.parametrize("what", ["everything", "watch"])
async def test_a_server_that_fails_is_asked_less_than_once_a_second_after_the_first_few(
    server: MemoryServer, fault: Any, what: str
) -> None:
    server.faults.append(lambda request: fault(request) if what == "everything" or "watch" in request.query else None)
    informer = Followed(server).informer
    with anyio.move_on_after(HOUR_S):
        await informer.run()
    times = [at for at, request in server.requests if "watch" in request.query or what == "everything"]
    assert len(times) >= HOUR_S / 70, "but it is asked for ever"
    assert all(later - earlier >= 1 for earlier, later in pairwise(times[1:]))
    assert all(later - earlier >= 20 for earlier, later in pairwise(times[8:]))


async def test_a_permission_that_is_missing_for_long_is_warned_of_once(
    server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults.append(failing(answering(403, "Forbidden"), method="GET"))
    with anyio.move_on_after(HOUR_S):
        await Followed(server).informer.run()
    (warning,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert warning.getMessage().startswith("cannot follow nodes: GET /api/v1/nodes: ")


async def test_a_permission_that_is_withdrawn_and_given_again_costs_no_change(
    server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        server.put("nodes", node(name))
    followed = Followed(server)
    async with anyio.create_task_group() as group:
        group.start_soon(followed.informer.run)
        await followed.informer.wait_synced()
        server.faults.append(failing(answering(403, "Forbidden"), method="GET"))
        server.cut()
        server.remove("nodes", "a")
        await anyio.sleep(HOUR_S)
        assert sorted(ref.name for ref in followed.informer.store.refs()) == ["a", "b"], "what was read stays"
        server.faults.clear()
        await anyio.sleep(2 * 60)
        assert [ref.name for ref in followed.informer.store.refs()] == ["b"]
        group.cancel_scope.cancel()
    assert caplog.text.count("cannot follow nodes") <= 2


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_hot_loop(server: MemoryServer) -> None:
    informer = Followed(server).informer

    async def keep_ending() -> None:
        while True:
            server.bookmark()  # even though every watch brings something
            server.end()
            await anyio.sleep(0.01)

    with anyio.move_on_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(informer.run)
            group.start_soon(keep_ending)
    assert len(server.requests) < 80


async def test_a_watch_that_the_server_ends_after_a_while_is_renewed_at_once(server: MemoryServer) -> None:
    followed = Followed(server)
    async with anyio.create_task_group() as group:
        await followed.start(group)
        for _ in range(5):
            await anyio.sleep(HOUR_S)
            server.end()
            await anyio.sleep(0.001)
            assert server.streams == 1
        group.cancel_scope.cancel()


@pytest.mark.parametrize(("asked_s", "waited_s"), [(50, 50), (3600, 60)])
async def test_it_waits_as_long_as_the_server_asks_but_no_longer_than_a_minute(
    asked_s: int, waited_s: int, server: MemoryServer
) -> None:
    server.faults.append(failing(answering(503, "ServiceUnavailable", retry_after_s=asked_s), times=1))
    followed = Followed(server)
    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        await followed.start(group)
        group.cancel_scope.cancel()
    assert waited_s <= anyio.current_time() - began < waited_s + 10


async def test_an_unreadable_object_is_reported_once_and_hides_no_other(
    server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.put("nodes", node("a"))
    server.put("nodes", node("odd", broken=True))
    followed = Followed(server)
    async with anyio.create_task_group() as group:
        await followed.start(group)
        assert followed.names == ["a"]
        server.put("nodes", node("odd", broken=True))
        server.put("nodes", node("b"))
        await anyio.sleep(1)
        assert followed.names == ["a", "b"]
        server.put("nodes", node("odd"))
        await anyio.sleep(1)
        assert followed.names == ["a", "b", "odd"]
        assert server.streams == 1
        group.cancel_scope.cancel()
    reports = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(reports) == 1
    assert reports[0].startswith("Node odd: cannot read a Node of v1")


async def test_of_an_object_that_became_unreadable_the_last_readable_state_stays_until_it_is_deleted(
    server: MemoryServer,
) -> None:
    server.put("nodes", node("a", label="known"))
    followed = Followed(server)
    async with anyio.create_task_group() as group:
        await followed.start(group)
        server.put("nodes", node("a", broken=True))
        await anyio.sleep(1)
        assert followed.names == ["a"]
        server.forget()
        server.put("nodes", node("b"))
        server.forget()
        server.cut()  # now from a list
        await anyio.sleep(HOUR_S)
        assert followed.names == ["a", "b"]
        server.remove("nodes", "a")
        await anyio.sleep(1)
        assert followed.names == ["b"]
        group.cancel_scope.cancel()


async def test_lists_that_are_compared_with_the_watch_find_nothing_where_the_watch_is_right(
    server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Though something changes every few seconds, and the server is away now and then, also while one is compared."""
    followed, random = Followed(server), Random(1)
    async with anyio.create_task_group() as group:
        await followed.start(group)
        for step in range(2400):
            name = random.choice("abcd")
            if step % 5 == 0 and ("nodes", "", name) in server.objects:
                server.remove("nodes", name)
            else:
                server.put("nodes", node(name, broken=step % 7 == 0))
            server.faults = [failing(unreachable)] if step % 50 > 40 else []
            if step % 50 == 41:
                server.cut()
            await anyio.sleep(random.uniform(0, 60))
        server.faults = []
        await anyio.sleep(600)
        there = {name for (_, _, name), value in server.objects.items() if not value["spec"]}
        assert there <= set(followed.names)
        group.cancel_scope.cancel()
    lists = len([request for request in server.sent("GET") if "watch" not in request.query])
    assert 2 <= lists <= 8, "a few in twenty hours"
    assert "has missed changes" not in caplog.text


async def test_an_informer_that_is_told_to_lists_again_and_goes_on(server: MemoryServer) -> None:
    followed = Followed(server)
    async with anyio.create_task_group() as group:
        await followed.start(group)
        server.mute = True
        server.put("nodes", node("a"))
        await anyio.sleep(1)
        assert followed.names == []
        server.mute = False
        followed.informer.relist()
        await anyio.sleep(2)
        assert followed.names == ["a"]
        server.put("nodes", node("b"))
        await anyio.sleep(1)
        assert followed.names == ["a", "b"]
        assert server.streams == 1
        group.cancel_scope.cancel()


NAMES = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.sampled_from(["1", "2", "3"])),
    st.tuples(st.just("remove"), NAMES, st.none()),
    st.tuples(st.sampled_from(["forget", "cut", "end", "bookmark", "sleep", "down", "up"]), st.none(), st.none()),
)


@given(st.lists(STEPS, max_size=40), st.integers(1, 4))
async def test_whatever_happens_the_store_comes_to_equal_the_server(
    steps: list[tuple[str, str | None, str | None]], page: int
) -> None:
    server = MemoryServer(page=page)
    followed = Followed(server)
    async with anyio.create_task_group() as group:
        group.start_soon(followed.informer.run)
        for step, name, zone in steps:
            match step:
                case "put":
                    server.put("nodes", node(str(name), label=str(zone)))
                case "remove" if ("nodes", "", str(name)) in server.objects:
                    server.remove("nodes", str(name))
                case "forget":
                    server.forget()
                case "cut":
                    server.cut()
                case "end":
                    server.end()
                case "bookmark":
                    server.bookmark()
                case "down":
                    server.faults = [failing(unreachable)]
                case "up":
                    server.faults = []
                case _:
                    await anyio.sleep(0.3)
        server.faults = []
        await anyio.sleep(120)
        there = {name: value["metadata"]["resourceVersion"] for (_, _, name), value in server.objects.items()}
        known = {value.metadata.name: value.metadata.resource_version for value in followed.informer.store.values()}
        assert known == there
        assert followed.mirror == {value.ref: value for value in followed.informer.store.values()}
        group.cancel_scope.cancel()
