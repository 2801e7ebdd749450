"""What another program undoes each time is written three times, then at intervals, and reported once."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kerf_dra.api.core.v1 import EVENTS, NODES, Node, ObjectReference
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.kube.events import EventReporter, report_undone_writes
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import ServerError
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kube.http.write_history import LONGEST_PAUSE_S, MOST, UndoneWriteError, WriteHistory
from tests.kube.memory_server import MemoryServer, answering, failing
from tests.runtime.virtual_time import VIRTUAL_TIME

LABELS = {"kerf": "yes"}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@dataclass
class Opponents:
    """A program that writes two nodes, and another one that undoes that."""

    server: MemoryServer
    client: Client
    history: WriteHistory

    def put(self, name: str = "n", **labels: str) -> None:
        """Undo what was written."""
        self.server.put("nodes", {"metadata": {"name": name, "labels": labels}})

    def replace(self, name: str = "n") -> None:
        """Delete the object and create another one."""
        self.server.remove("nodes", name)
        self.put(name)

    def version(self, name: str) -> str:
        return str(self.server.objects["nodes", "", name]["metadata"]["resourceVersion"])

    async def is_refused(self, write: Callable[["Opponents"], Awaitable[object]]) -> bool:
        try:
            await write(self)
        except UndoneWriteError:
            return True
        return False


@pytest.fixture
async def opponents() -> AsyncIterator[Opponents]:
    server, history = MemoryServer(), WriteHistory()
    client = Client(Access(server="http://memory"), user_agent="test/1", transport=server, history=history)
    place = Opponents(server, client, history)
    for name in ("n", "m"):
        place.put(name)
    async with anyio.create_task_group() as group:
        events = EventReporter(server.client(), component="test", instance="one")
        group.start_soon(events.run)
        group.start_soon(report_undone_writes, history, events)
        yield place
        group.cancel_scope.cancel()


async def patch(place: Opponents, name: str = "n", labels: dict[str, str] = LABELS) -> None:
    body = {"metadata": {"labels": labels, "resourceVersion": place.version(name)}}
    await place.client.patch(NODES, name, body, type=PatchType.MERGE)


async def apply(place: Opponents) -> None:
    await place.client.apply(NODES, {"metadata": {"name": "n", "labels": LABELS}}, field_manager="test")


async def patch_status(place: Opponents) -> None:
    time = f"2026-01-01T00:00:{int(anyio.current_time()) % 60:02}Z"
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": time}]
    body = {"status": {"conditions": conditions}}
    await place.client.patch(NODES, "n", body, type=PatchType.MERGE, subresource="status")


async def update(place: Opponents) -> None:
    held = await place.client.get(NODES, "n")
    await place.client.update(NODES, Node(metadata=held.metadata))


async def create(place: Opponents) -> None:
    await place.client.create(NODES, Node(metadata=ObjectMeta(name="new", labels=LABELS)))


async def delete(place: Opponents) -> None:
    await place.client.delete(NODES, "n", resource_version=place.version("n"))


def remove_new(place: Opponents) -> None:
    place.server.remove("nodes", "new")


Undo = Callable[[Opponents], Any]
LOOPS: dict[str, tuple[Callable[[Opponents], Awaitable[object]], Undo]] = {
    "a merge patch": (patch, Opponents.put),
    "an apply": (apply, Opponents.put),
    "a status with times": (patch_status, Opponents.put),
    "an update": (update, Opponents.put),
    "a creation": (create, remove_new),
    "a deletion": (delete, Opponents.put),
}


@pytest.mark.parametrize("loop", LOOPS)
async def test_what_is_undone_three_times_is_refused_and_reported_once(loop: str, opponents: Opponents) -> None:
    """Two programs that disagreed wrote for ever, as fast as they heard of each other."""
    write, undo = LOOPS[loop]
    refused = []
    for _ in range(10):
        refused.append(await opponents.is_refused(write))
        if not refused[-1]:
            undo(opponents)
        await anyio.sleep(1)
    assert refused == [False] * MOST + [True] * (10 - MOST)
    await anyio.sleep(60)
    (event,) = (await opponents.server.client().list(EVENTS)).items
    assert (event.reason, event.count, event.involved_object.kind) == ("WriteUndone", 1, "Node")
    assert f"another program has undone what Kerf writes of Node {event.involved_object.name} 3 times" in event.message


async def test_it_is_tried_again_after_longer_and_longer_pauses(opponents: Opponents) -> None:
    began, sent = anyio.current_time(), []
    while anyio.current_time() - began < 7200:
        if not await opponents.is_refused(patch):
            sent.append(anyio.current_time() - began)
            opponents.put()
        await anyio.sleep(1)
    pauses = [round(later - earlier) for earlier, later in pairwise(sent)]
    assert pauses[: MOST + 4] == [1, 1, 30, 60, 120, 240, 480]
    assert set(pauses[MOST + 4 :]) == {LONGEST_PAUSE_S}
    assert len((await opponents.server.client().list(EVENTS)).items) == 1


@pytest.mark.parametrize("gap_s", [30, 180, LONGEST_PAUSE_S - 1])
async def test_a_slow_loop_is_reported_too(gap_s: float, opponents: Opponents) -> None:
    for _ in range(MOST + 1):
        assert not await opponents.is_refused(patch)
        opponents.put()
        await anyio.sleep(gap_s)
    assert len((await opponents.server.client().list(EVENTS)).items) == 1


async def alternate(place: Opponents) -> None:
    await patch(place)
    await patch(place, labels={"kerf": "no"})


async def write_another_object(place: Opponents) -> None:
    await patch(place)
    place.replace()


async def write_rarely(place: Opponents) -> None:
    await patch(place)
    await anyio.sleep(LONGEST_PAUSE_S)


async def write_claims_in_turn(place: Opponents) -> None:
    """As the status of a claim that each of some pods uses for a while."""
    body = [{"op": "add", "path": "/status/devices", "value": []}]
    place.server.json["/api/v1/nodes/n"] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "7"},
    }
    await place.client.patch(NODES, "n", body, type=PatchType.JSON)
    await anyio.sleep(10)


async def ask_only(place: Opponents) -> None:
    await place.client.create(NODES, Node(metadata=ObjectMeta(name="new")), dry_run=True)
    place.server.remove("nodes", "new")  # this server stores it


async def fail(place: Opponents) -> None:
    place.server.faults.append(failing(answering(500), method="PATCH", times=1))
    with pytest.raises(ServerError):
        await patch(place)


@pytest.mark.parametrize("write", [alternate, write_another_object, write_rarely, write_claims_in_turn, ask_only, fail])
async def test_writes_that_nobody_undoes_are_no_loop(
    write: Callable[[Opponents], Awaitable[object]], opponents: Opponents
) -> None:
    for _ in range(3 * MOST):
        assert not await opponents.is_refused(write)
    await anyio.sleep(60)
    assert (await opponents.server.client().list(EVENTS)).items == ()


async def test_a_loop_of_weeks_is_tried_again_as_often_as_one_of_hours(opponents: Opponents) -> None:
    """A pause that doubled without end was no number any more after a thousand of them."""
    for _ in range(2000):
        await opponents.is_refused(patch)
        opponents.put()
        await anyio.sleep(LONGEST_PAUSE_S / 2)
    assert 990 < len(opponents.server.sent("PATCH")) < 1010


async def test_a_refusal_says_what_was_undone_and_when_it_is_tried_again(opponents: Opponents) -> None:
    for _ in range(MOST):
        await patch(opponents)
    with pytest.raises(UndoneWriteError, match=r"PATCH /api/v1/nodes/n: another program .* 3 times .* after 30 s"):
        await patch(opponents)


async def test_one_object_is_no_other(opponents: Opponents) -> None:
    for _ in range(MOST):
        await patch(opponents)
        await patch(opponents, "m")
    assert await opponents.is_refused(patch)
    assert not await opponents.is_refused(create)


async def test_the_event_may_be_about_what_a_person_looks_at() -> None:
    server, history = MemoryServer(), WriteHistory()
    client = Client(Access(server="http://memory"), user_agent="test/1", transport=server, history=history)
    place = Opponents(server, client, history)
    place.put()
    about = ObjectReference(api_version="v1", kind="Node", name="m", uid="uid")
    events = EventReporter(server.client(), component="test", instance="two")
    async with anyio.create_task_group() as group:
        group.start_soon(events.run)
        group.start_soon(report_undone_writes, history, events, about)
        for _ in range(MOST + 1):
            await place.is_refused(patch)
        await anyio.sleep(1)
        group.cancel_scope.cancel()
    (event,) = (await server.client().list(EVENTS)).items
    assert (event.involved_object, "of Node n 3 times" in event.message) == (about, True)


TEXTS = st.text(max_size=8) | st.sampled_from(
    ['"generation":1', ",}", '{"path":"/metadata/resourceVersion"}', 'a"resourceVersion":"', "\\", '\\"timeAdded":']
)
KEYS = st.sampled_from(["spec", "labels", "generations", 'a"generation', "path"])
DOCUMENTS = st.recursive(
    TEXTS | st.integers() | st.none() | st.booleans(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(KEYS, each, max_size=3),
    max_leaves=12,
)
TIMES = {"resourceVersion": "7", "lastTransitionTime": "then", "timeAdded": None, "generation": 3}


def build_write(body: object, content_type: str = "application/json") -> bytes:
    """Return the digest of the write of ``body``."""
    history = WriteHistory(now=lambda: 0.0)
    request = HttpRequest(
        method="PUT",
        path="/api/v1/nodes/n",
        resource="nodes",
        query={},
        body=msgspec.json.encode(body, order="deterministic"),
        content_type=content_type,
        is_object_read=False,
    )
    return history.begin(NODES, request, ObjectRef("", "n")).digest


@given(DOCUMENTS, st.dictionaries(KEYS, TEXTS, max_size=3), st.sets(st.sampled_from(sorted(TIMES))))
def test_two_writes_are_the_same_if_only_versions_and_times_differ(
    document: object, labels: dict[str, str], times: set[str]
) -> None:
    stamped = {**labels, **{name: TIMES[name] for name in times}}
    assert build_write([document, stamped, {"x": stamped}]) == build_write([document, labels, {"x": labels}])


@given(DOCUMENTS, DOCUMENTS)
def test_writes_of_different_content_are_different(one: object, other: object) -> None:
    """A comma before a bracket within a text is nothing that the API server or Kerf writes."""
    bodies = [msgspec.json.encode(each, order="deterministic") for each in (one, other)]
    assume(len({body.replace(b",}", b"}").replace(b",]", b"]") for body in bodies}) == len(bodies))
    assert build_write({"spec": one}) != build_write({"spec": other})


@pytest.mark.parametrize("version", ["1", "22"])
def test_the_version_that_a_json_patch_tests_does_not_make_it_another_write(version: str) -> None:
    change = {"op": "replace", "path": "/status/devices", "value": [{"pool": "a"}]}
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    patches = [[change], [test, change], [change, test]]
    assert len({build_write(patch, PatchType.JSON.value) for patch in patches}) == 1
