"""A program that undoes what the plugin publishes, each time at once: neither writes for ever, and a person hears it.

One of two pools is contested; the other one must be published as ever.
"""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kerf_dra.api.core.v1 import EVENTS
from kerf_dra.api.model.devices import Device, Pool, SliceContent
from kerf_dra.api.model.metadata import OwnerReference
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.kube.events import EventReporter, report_undone_writes
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.write_history import WriteHistory
from kerf_dra.driver.kube.slice_publisher import PublishSettings, SlicePublisher
from tests.kube.memory_server import Json, MemoryServer
from tests.runtime.virtual_time import VIRTUAL_TIME

SLICES = "resourceslices"
CONTESTED, QUIET = "n1/gpu", "n1/fpga"
MOST_AN_HOUR = 24
"""Writes of the contested pool of two slices: without a limit 118 to 1,440, as the kind is."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def find(server: MemoryServer, pool: str) -> dict[str, Json]:
    slices = {name: value for (kind, _, name), value in server.objects.items() if kind == SLICES}
    return {name: value for name, value in slices.items() if value["spec"]["pool"]["name"] == pool}


def delete_all(server: MemoryServer) -> None:
    for name in find(server, CONTESTED):
        server.remove(SLICES, name)


def empty_all(server: MemoryServer) -> None:
    for value in find(server, CONTESTED).values():
        if value["spec"].get("devices"):
            server.put(SLICES, {**value, "spec": {**value["spec"], "devices": []}})


def take_owner(server: MemoryServer) -> None:
    for value in find(server, CONTESTED).values():
        if value["metadata"].get("ownerReferences"):
            server.put(SLICES, {**value, "metadata": {"name": value["metadata"]["name"]}})


def add_another(server: MemoryServer) -> None:
    if "foreign" not in find(server, CONTESTED):
        pool = {"name": CONTESTED, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.kerf.dev", "nodeName": "n1", "pool": pool}
        server.put(SLICES, {"metadata": {"name": "foreign"}, "spec": spec})


def raise_generation(server: MemoryServer) -> None:
    for value in find(server, CONTESTED).values():
        pool = value["spec"]["pool"]
        if value["spec"].get("devices"):
            raised = {**pool, "generation": pool["generation"] + 1}
            server.put(SLICES, {**value, "spec": {**value["spec"], "pool": raised, "devices": []}})


UNDO: dict[str, Callable[[MemoryServer], None]] = {
    "slices deleted": delete_all,
    "slices emptied": empty_all,
    "owners taken": take_owner,
    "slices added": add_another,
    "generations raised": raise_generation,
}


@pytest.mark.parametrize("kind", UNDO)
async def test_what_is_undone_each_time_is_written_at_intervals_and_reported(kind: str) -> None:
    server, history = MemoryServer(), WriteHistory()
    client = Client(Access(server="http://memory"), user_agent="test/1", transport=server, history=history)
    problems: list[Any] = []
    publisher = SlicePublisher(
        client,
        KINDS,
        driver="gpu.kerf.dev",
        node_name="n1",
        owner=OwnerReference(api_version="v1", kind="Node", name="n1", uid="uid"),
        settings=PublishSettings(),
        on_problem=problems.append,
    )

    async def undo() -> None:
        while True:
            UNDO[kind](server)
            await anyio.sleep(0.5)

    async with anyio.create_task_group() as group:
        events = EventReporter(server.client(), component="test", instance="n1")
        group.start_soon(events.run)
        group.start_soon(report_undone_writes, history, events)
        group.start_soon(publisher.run)
        publisher.publish([pool(CONTESTED, "ab", "c"), pool(QUIET, "x")])
        await anyio.sleep(10)
        group.start_soon(undo)
        await anyio.sleep(600)
        publisher.publish([pool(CONTESTED, "ab", "c"), pool(QUIET, "xy")])
        await anyio.sleep(60)
        assert [len(value["spec"]["devices"]) for value in find(server, QUIET).values()] == [2]
        before = count_writes(server)
        await anyio.sleep(3600)
        assert 0 < count_writes(server) - before <= MOST_AN_HOUR
        found = (await server.client().list(EVENTS)).items
        assert {event.reason for event in found} == {"WriteUndone"}
        assert 1 <= len(found) <= 3, "one for each object that is contested"
        group.cancel_scope.cancel()
    assert problems == []


def pool(name: str, *slices: str) -> Pool:
    contents = (SliceContent(devices=tuple(Device(name=letter) for letter in text)) for text in slices)
    return Pool(name=name, slices=tuple(contents))


def count_writes(server: MemoryServer) -> int:
    return sum(request.method != "GET" and request.resource == SLICES for _, request in server.requests)
