import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.model.devices import (
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    Pool,
    SliceContent,
)
from kerf_dra.api.model.metadata import OwnerReference
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.resource import registry
from kerf_dra.api.resource.kinds import ResourceKinds
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kube.http.write_history import WriteHistory
from kerf_dra.driver.kube.slice_publisher import PublishSettings
from tests.kube.awaited_publisher import AwaitedPublisher
from tests.kube.memory_server import Json, MemoryServer, answering, failing, hanging, unreachable
from tests.runtime.virtual_time import VIRTUAL_TIME

OWNER = OwnerReference(api_version="v1", kind="Node", name="n1", uid="node-uid")
SETTINGS = PublishSettings(min_interval_s=5, repair_delay_s=30, sight_timeout_s=10, refused_retry_s=60)
SLICES = "resourceslices"
ONE = Quantity(1)
ALL_KINDS = [registry.load_kinds(version) for version in registry.VERSIONS]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


def pool(*slices: str, name: str = "n1/gpu") -> Pool:
    """One slice for each text, one device for each letter."""
    parts = (SliceContent(devices=tuple(Device(name=letter) for letter in text)) for text in slices)
    return Pool(name=name, slices=tuple(parts))


class Published:
    """A running publisher, and the problems that it reported."""

    def __init__(self, server: MemoryServer, kinds: ResourceKinds = ALL_KINDS[0], client: Client | None = None) -> None:
        self.problems: list[str] = []
        self.publisher = AwaitedPublisher(
            client or server.client(),
            kinds,
            driver="gpu.kerf.dev",
            node_name="n1",
            owner=OWNER,
            settings=SETTINGS,
            on_problem=self.problems.append,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[AwaitedPublisher]:
        async with anyio.create_task_group() as group:
            group.start_soon(self.publisher.run)
            yield self.publisher
            group.cancel_scope.cancel()


def contents(server: MemoryServer, name: str = "n1/gpu") -> list[str]:
    """Return the letters of each slice of one pool, in the scheduler's order."""
    values = [value for (_, _, _), value in sorted(server.objects.items()) if value["spec"]["pool"]["name"] == name]
    return ["".join(device["name"] for device in value["spec"].get("devices", ())) for value in values]


def writes(server: MemoryServer) -> list[str]:
    return [request.method for _, request in server.requests if request.method != "GET"]


def foreign(name: str, *, pool_name: str = "n1/gpu", driver: str = "gpu.kerf.dev", node: str = "n1") -> Json:
    place = {"name": pool_name, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": driver, "nodeName": node, "pool": place}}


@pytest.mark.parametrize("kinds", ALL_KINDS, ids=lambda kinds: kinds.version)
async def test_pools_are_on_the_server_once_they_are_published(server: MemoryServer, kinds: ResourceKinds) -> None:
    published = Published(server, kinds)
    async with published.running() as publisher:
        publisher.publish([pool("ab", "c"), pool("x", name="n1/fpga")])
        with anyio.fail_after(1):
            await publisher.wait_published()
    assert published.problems == []
    assert len(server.objects) == 3
    assert {request.path for _, request in server.requests if request.method == "POST"} == {
        f"/apis/resource.k8s.io/{kinds.version}/resourceslices"
    }


async def test_a_watch_that_does_not_show_own_writes_is_replaced_by_a_list(server: MemoryServer) -> None:
    """Silent for good, as after a bookmark of the future, it had each plan made from what there was before."""
    async with Published(server).running() as publisher:
        await anyio.sleep(1)
        server.mute = True
        publisher.publish([pool("ab", "c")])
        await anyio.sleep(60)
        assert (publisher.is_settled, contents(server)) == (True, ["ab", "c"])
        publisher.publish([pool("x")])
        await anyio.sleep(60)
        assert (publisher.is_settled, contents(server)) == (True, ["x"])
        assert writes(server) == ["POST", "POST", "DELETE", "PUT"], "none from what was there before"


async def test_nothing_is_touched_before_the_first_publish(server: MemoryServer) -> None:
    server.put(SLICES, foreign("left-by-an-older-process"))
    async with Published(server).running() as publisher:
        await anyio.sleep(3600)
        assert writes(server) == []
        publisher.publish([])
        await publisher.wait_published()
    assert server.objects == {}


async def test_slices_of_an_earlier_process_are_taken_over_without_a_write(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("ab", "c")])
        await publisher.wait_published()
    before = len(writes(server))
    async with Published(server).running() as publisher:
        publisher.publish([pool("ab", "c")])
        await publisher.wait_published()
        await anyio.sleep(3600)
    assert len(writes(server)) == before


async def test_it_is_settled_only_while_the_server_has_what_was_published_last(server: MemoryServer) -> None:
    """Until then what was published before may still arrive: nobody may rely on what the server has."""
    seen: list[tuple[str, bool]] = []
    async with Published(server).running() as publisher:

        def look(when: str) -> None:
            seen.append((when, publisher.is_settled))

        look("start")
        publisher.publish([pool("ab")])
        look("to be created")
        await publisher.wait_published()
        look("created")
        server.faults.append(failing(answering(422, "Invalid"), method="PUT", times=2))
        publisher.publish([pool("a")])
        await anyio.sleep(SETTINGS.refused_retry_s + SETTINGS.min_interval_s)
        assert contents(server) == ["ab"]
        look("refused")
        await publisher.wait_published()
        assert contents(server) == ["a"]
        look("changed")
        publisher.publish([])
        look("to be deleted")
        await publisher.wait_published()
        look("deleted")
    assert [when for when, is_settled in seen if is_settled] == ["created", "changed", "deleted"]


async def test_slices_stay_when_the_process_ends(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("ab")])
        await publisher.wait_published()
    assert contents(server) == ["ab"]


async def test_of_many_contents_in_a_short_time_the_first_and_the_last_are_written(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("a")])
        await publisher.wait_published()
        for letter in "bcdefgh":
            publisher.publish([pool(letter)])
            await anyio.sleep(0.1)
        await publisher.wait_published()
        assert contents(server) == ["h"]
    assert writes(server) == ["POST", "PUT"]


async def test_a_pool_is_written_at_once_when_it_was_not_for_a_while(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("a")])
        await anyio.sleep(60)
        publisher.publish([pool("b")])
        with anyio.fail_after(0.1):
            await publisher.wait_published()


async def test_a_pool_that_changes_all_the_time_is_written_every_min_interval(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        for round_ in range(6000):
            publisher.publish([pool("abcdefghij"[round_ % 10])])
            await anyio.sleep(0.01)
        await publisher.wait_published()
    times = [at for at, request in server.requests if request.method != "GET"]
    assert 12 <= len(times) <= 14
    assert all(later - earlier >= SETTINGS.min_interval_s - 1e-6 for earlier, later in pairwise(times))


async def test_a_pool_does_not_wait_for_the_interval_of_another(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("a"), pool("x", name="n1/fpga")])
        await anyio.sleep(60)
        publisher.publish([pool("b"), pool("x", name="n1/fpga")])
        await publisher.wait_published()
        publisher.publish([pool("b"), pool("y", name="n1/fpga")])
        with anyio.fail_after(0.1):
            await publisher.wait_published()


async def test_slices_that_the_kubelet_deletes_are_back_within_the_interval(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("ab", "c", "d")])
        await publisher.wait_published()
        await anyio.sleep(1)
        for _, _, name in list(server.objects):
            server.remove(SLICES, name)
        await anyio.sleep(SETTINGS.min_interval_s)
        assert contents(server) == ["ab", "c", "d"]
        await anyio.sleep(60)
        for _, _, name in list(server.objects):
            server.remove(SLICES, name)
        await anyio.sleep(0.1)
        assert contents(server) == ["ab", "c", "d"], "at once, after a while"


async def test_somebody_who_deletes_all_the_time_makes_no_storm(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("a")])
        for _ in range(600):
            await anyio.sleep(0.1)
            for _, _, name in list(server.objects):
                server.remove(SLICES, name)
    assert len(writes(server)) <= 60 / SETTINGS.min_interval_s + 2


@pytest.mark.parametrize("pool_name", ["n1/gpu", "n1/other"])
async def test_a_slice_that_somebody_else_adds_is_removed_after_a_delay(server: MemoryServer, pool_name: str) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("a")])
        await anyio.sleep(3600)
        server.put(SLICES, foreign("theirs", pool_name=pool_name))
        await anyio.sleep(SETTINGS.repair_delay_s - 1)
        assert (SLICES, "", "theirs") in server.objects
        await anyio.sleep(2)
        assert (SLICES, "", "theirs") not in server.objects


async def test_a_slice_that_somebody_changes_is_put_right_after_a_delay(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("a")])
        await anyio.sleep(3600)
        ((_, _, name),) = server.objects
        changed = server.objects[SLICES, "", name]
        server.put(SLICES, {**changed, "spec": {**changed["spec"], "devices": [{"name": "theirs"}]}})
        await anyio.sleep(SETTINGS.repair_delay_s - 1)
        assert contents(server) == ["theirs"]
        await anyio.sleep(2)
        assert contents(server) == ["a"]


async def test_a_slice_that_changes_when_it_is_about_to_be_removed_is_left_alone_for_another_delay(
    server: MemoryServer,
) -> None:
    """Its name may be another one's by then, and its content what somebody has just put right. The rest is written."""
    async with Published(server).running() as publisher:
        publisher.publish([pool("a")])
        await publisher.wait_published()
        before = server.put(SLICES, foreign("theirs"))["metadata"]

        def change_first(request: HttpRequest) -> None:
            if request.method == "DELETE" and server.objects[SLICES, "", "theirs"]["metadata"] == before:
                server.put(SLICES, foreign("theirs"))

        server.faults.append(change_first)
        await anyio.sleep(SETTINGS.repair_delay_s - 1)
        publisher.publish([pool("b")])
        await anyio.sleep(SETTINGS.repair_delay_s - 1)
        assert len(server.sent("DELETE")) == 1
        assert contents(server) == ["b", ""]
        await anyio.sleep(2)
        assert contents(server) == ["b"]
    body = json.loads(server.sent("DELETE")[0].body or b"")
    assert body["preconditions"] == {"uid": before["uid"], "resourceVersion": before["resourceVersion"]}


@pytest.mark.parametrize("stranger", [{"driver": "gpu.nvidia.com"}, {"node": "n2"}], ids=["driver", "node"])
async def test_slices_of_other_drivers_and_nodes_are_left_alone(server: MemoryServer, stranger: dict[str, str]) -> None:
    server.put(SLICES, foreign("theirs", **stranger))
    async with Published(server).running() as publisher:
        publisher.publish([])
        await publisher.wait_published()
        await anyio.sleep(3600)
    assert (SLICES, "", "theirs") in server.objects


async def test_a_pool_that_vanishes_is_removed_at_once(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("a", "b"), pool("x", name="n1/fpga")])
        await anyio.sleep(60)
        publisher.publish([pool("x", name="n1/fpga")])
        with anyio.fail_after(0.1):
            await publisher.wait_published()
        assert contents(server) == []
        assert contents(server, "n1/fpga") == ["x"]


async def test_an_invalid_pool_is_refused_with_every_problem_and_changes_nothing(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("a")])
        await publisher.wait_published()
        with pytest.raises(InvalidDocumentError, match=r"pool n1/gpu: devices\[b\]: two devices have this name"):
            publisher.publish([pool("ab", "b")])
        await anyio.sleep(3600)
        assert contents(server) == ["a"]


def dropping(*fields: str) -> Any:
    """Return the function by which a server with a feature gate off drops fields."""

    def keep(value: Json) -> Json:
        devices = [
            {key: part for key, part in device.items() if key not in fields} for device in value["spec"]["devices"]
        ]
        return {**value, "spec": {**value["spec"], "devices": devices}}

    return keep


PARTITIONED = Pool(
    name="n1/gpu",
    slices=(
        SliceContent(
            devices=(
                Device(
                    name="a",
                    consumes_counters=(
                        DeviceCounterConsumption(counter_set="card", counters={"x": Counter(value=Quantity(1))}),
                    ),
                    taints=(DeviceTaint(key="gpu.kerf.dev/ill", effect="NoSchedule"),),
                ),
            ),
            shared_counters=(CounterSet(name="card", counters={"x": Counter(value=Quantity(1))}),),
        ),
        SliceContent(devices=(Device(name="b", taints=(DeviceTaint(key="gpu.kerf.dev/ill", effect="NoSchedule"),)),)),
    ),
)


@pytest.mark.parametrize("kinds", ALL_KINDS[:2], ids=lambda kinds: kinds.version)
async def test_fields_that_the_server_drops_are_named_with_their_gate_once_and_not_fought_for(
    server: MemoryServer, kinds: ResourceKinds
) -> None:
    server.on_write = dropping("taints", "consumesCounters")
    published = Published(server, kinds)
    async with published.running() as publisher:
        publisher.publish([PARTITIONED])
        await publisher.wait_published()
        await anyio.sleep(3600)
        assert publisher.dropped_fields == {"devices[].consumesCounters", "devices[].taints"}
    (problem,) = published.problems
    assert problem == (
        "the API server dropped devices[].consumesCounters, devices[].taints from ResourceSlices: "
        "switch on the feature gate DRADeviceTaints and DRAPartitionableDevices"
    )
    assert writes(server) == ["POST", "POST"]


async def test_once_nothing_is_dropped_any_more_nothing_is_said_to_be(server: MemoryServer) -> None:
    server.on_write = dropping("taints", "consumesCounters")
    async with Published(server).running() as publisher:
        publisher.publish([PARTITIONED])
        await publisher.wait_published()
        publisher.publish([pool("a")])
        await publisher.wait_published()
        assert publisher.dropped_fields == set()


async def test_times_that_the_server_gives_taints_are_no_loss_and_no_reason_to_write(server: MemoryServer) -> None:
    def stamp(value: Json) -> Json:
        for device in value["spec"]["devices"]:
            for taint in device.get("taints", ()):
                taint.setdefault("timeAdded", "2026-11-20T08:00:00Z")
        return value

    server.on_write = stamp
    published = Published(server)
    async with published.running() as publisher:
        publisher.publish([PARTITIONED])
        await publisher.wait_published()
        publisher.publish([PARTITIONED])
        await anyio.sleep(3600)
    assert (published.problems, writes(server)) == ([], ["POST", "POST"])


@pytest.mark.parametrize(
    "fault",
    [
        failing(unreachable, method="POST", times=3),
        failing(answering(500), method="POST", times=3),
        failing(answering(409, "AlreadyExists"), method="POST", times=3),
    ],
    ids=["unreachable", "500", "already exists"],
)
async def test_a_failed_write_is_tried_again_soon(server: MemoryServer, fault: Any) -> None:
    server.faults.append(fault)
    published = Published(server)
    async with published.running() as publisher:
        publisher.publish([pool("a", "b")])
        with anyio.fail_after(2):
            await publisher.wait_published()
    assert published.problems == []


async def test_a_write_whose_answer_is_lost_is_not_done_twice(server: MemoryServer) -> None:
    real_call = server.call
    lost = 0

    async def lose_the_first_answer(request: Any) -> bytes:
        nonlocal lost
        answer = await real_call(request)
        if request.method == "POST" and not lost:
            lost += 1
            raise unreachable(request)
        return answer

    server.call = lose_the_first_answer  # type: ignore[method-assign]
    async with Published(server).running() as publisher:
        publisher.publish([pool("a", "b")])
        await publisher.wait_published()
    assert contents(server) == ["a", "b"]
    assert len(server.objects) == 2


async def test_what_was_written_before_a_write_that_failed_is_not_written_again_while_the_watch_lags(
    server: MemoryServer,
) -> None:
    """Seen where 200 nodes began to publish to an API server on two busy cores: half of all writes were repetitions."""
    async with Published(server).running() as publisher:
        publisher.publish([])
        await publisher.wait_published()
        server.faults.append(failing(unreachable, method="GET"))
        server.cut()
        server.faults.append(lambda request: answering(500)(request) if len(writes(server)) == 2 else None)
        publisher.publish([pool("a", "b")])
        await anyio.sleep(2)
        assert writes(server) == ["POST", "POST"]
        server.faults.clear()
        await publisher.wait_published()
    assert contents(server) == ["a", "b"]
    assert writes(server) == ["POST"] * 3


async def test_a_refused_write_is_reported_once_and_tried_again_slowly(
    server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults.append(failing(answering(403, "Forbidden"), method="POST"))
    published = Published(server)
    async with published.running() as publisher:
        publisher.publish([pool("a")])
        await anyio.sleep(3600)
        assert len(published.problems) == 1
        assert "pool n1/gpu cannot be published: POST" in published.problems[0]
        assert 50 <= len(writes(server)) <= 62
        server.faults.clear()
        await anyio.sleep(SETTINGS.refused_retry_s)
        assert contents(server) == ["a"]
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


async def test_a_watch_that_shows_nothing_delays_a_later_publish_but_does_not_stop_it(server: MemoryServer) -> None:
    async with Published(server).running() as publisher:
        publisher.publish([pool("a")])
        await publisher.wait_published()
        server.faults.append(failing(hanging, method="GET"))
        server.cut()
        await anyio.sleep(60)
        publisher.publish([pool("b")])
        await anyio.sleep(1)
        assert contents(server) == ["b"]
        server.faults.clear()


LETTERS = st.lists(st.sampled_from(["", "a", "ab", "b"]), max_size=3).filter(
    lambda texts: len("".join(texts)) == len(set("".join(texts)))
)
STEPS: st.SearchStrategy[tuple[str, list[str]]] = st.one_of(
    st.tuples(st.just("publish"), LETTERS),
    st.tuples(st.sampled_from(["delete", "add", "forget", "cut", "fail", "restart", "wait"]), st.just(list[str]())),
)


@given(st.lists(STEPS, max_size=15), LETTERS)
async def test_whatever_happens_the_last_pools_come_to_be_on_the_server(
    steps: list[tuple[str, list[str]]], last: list[str]
) -> None:
    server = MemoryServer()
    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()
        publisher = Published(server).publisher

        async def run(it: AwaitedPublisher, until: anyio.CancelScope) -> None:
            with until:
                await it.run()

        group.start_soon(run, publisher, scope)
        for step, texts in steps:
            match step:
                case "publish":
                    publisher.publish([pool(*texts)])
                case "delete" if server.objects:
                    server.remove(SLICES, min(server.objects)[2])
                case "add":
                    server.put(SLICES, foreign("theirs"))
                case "forget":
                    server.forget()
                case "cut":
                    server.cut()
                case "fail":
                    server.faults = [failing(unreachable, times=2)]
                case "restart":
                    scope.cancel()
                    scope, publisher = anyio.CancelScope(), Published(server).publisher
                    group.start_soon(run, publisher, scope)
                case _:
                    await anyio.sleep(2)
            await anyio.sleep(0.01)
        publisher.publish([pool(*last)])
        await anyio.sleep(600)
        assert contents(server) == (last or [""])
        with anyio.fail_after(1):
            await publisher.wait_published()
        assert len({value["spec"]["pool"]["generation"] for value in server.objects.values()}) == 1
        group.cancel_scope.cancel()


async def test_slices_that_only_get_another_generation_are_not_taken_for_undone_ones(server: MemoryServer) -> None:
    """The counters of a pool stay while devices in several slices change: with each change they are written again."""
    history = WriteHistory()
    published = Published(server, client=server.client(history))
    counters = SliceContent(shared_counters=(CounterSet(name="gpu-0", counters={"slice-0": Counter(value=ONE)}),))
    async with published.running() as publisher:
        for number in range(8):
            changed = pool("abcdefgh"[number], "stuvwxyz"[number])
            with anyio.fail_after(60):
                publisher.publish([Pool(name=changed.name, slices=(counters, *changed.slices))])
                await publisher.wait_published()
            assert contents(server) == ["", "abcdefgh"[number], "stuvwxyz"[number]]
    assert history.take_loops() == []
