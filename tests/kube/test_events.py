import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from kerf_dra.api.core.v1 import ObjectReference
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.kube.memory_server import Json, MemoryServer, answering, failing, hanging, unreachable
from tests.runtime.virtual_time import VIRTUAL_TIME

CLAIM = ObjectReference(
    api_version="resource.k8s.io/v1", kind="ResourceClaim", namespace="default", name="training", uid="u1"
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@asynccontextmanager
async def reporting(server: MemoryServer) -> AsyncIterator[EventReporter]:
    reporter = EventReporter(
        server.client(),
        component="kerf-kubelet-plugin",
        instance="n1",
        now=lambda: datetime(2026, 11, 20, 8, 30, tzinfo=UTC),
    )
    async with anyio.create_task_group() as group:
        group.start_soon(reporter.run)
        yield reporter
        group.cancel_scope.cancel()


def events(server: MemoryServer) -> list[Json]:
    return list(server.objects.values())


def dropped() -> float:
    return REGISTRY.get_sample_value("kerf_events_dropped_total") or 0.0


async def test_an_event_says_what_about_which_object_and_by_whom(server: MemoryServer) -> None:
    async with reporting(server) as reporter:
        reporter.report(CLAIM, type="Warning", reason="PrepareFailed", message="the card is busy")
        await anyio.sleep(1)
    (event,) = events(server)
    assert event.pop("metadata").keys() >= {"name", "namespace"}
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "namespace": "default",
            "name": "training",
            "uid": "u1",
        },
        "type": "Warning",
        "reason": "PrepareFailed",
        "message": "the card is busy",
        "count": 1,
        "firstTimestamp": "2026-11-20T08:30:00Z",
        "lastTimestamp": "2026-11-20T08:30:00Z",
        "source": {"component": "kerf-kubelet-plugin"},
        "reportingComponent": "kerf-kubelet-plugin",
        "reportingInstance": "n1",
    }


async def test_a_repeated_event_is_one_object_that_counts(server: MemoryServer) -> None:
    async with reporting(server) as reporter:
        for _ in range(100):
            reporter.report(CLAIM, type="Warning", reason="PrepareFailed", message="busy")
            await anyio.sleep(0.1)
        await anyio.sleep(60)
    (event,) = events(server)
    assert event["count"] == 100
    assert len(server.requests) <= 3, "the first one, and one each 10 s"


async def test_different_events_are_different_objects(server: MemoryServer) -> None:
    async with reporting(server) as reporter:
        reporter.report(CLAIM, type="Warning", reason="PrepareFailed", message="busy")
        reporter.report(CLAIM, type="Warning", reason="PrepareFailed", message="broken")
        reporter.report(CLAIM, type="Normal", reason="Prepared", message="")
        await anyio.sleep(1)
    assert len(events(server)) == 3


async def test_an_event_that_the_server_forgot_is_made_anew(server: MemoryServer) -> None:
    async with reporting(server) as reporter:
        reporter.report(CLAIM, type="Normal", reason="Prepared", message="")
        await anyio.sleep(3600)
        ((_, namespace, name),) = server.objects
        server.remove("events", name, namespace)
        reporter.report(CLAIM, type="Normal", reason="Prepared", message="")
        await anyio.sleep(1)
    (event,) = events(server)
    assert event["type"] == "Normal"
    assert event["count"] == 1


async def test_events_about_cluster_scoped_objects_are_in_the_default_namespace(server: MemoryServer) -> None:
    async with reporting(server) as reporter:
        reporter.report(ObjectReference(kind="Node", name="n1"), type="Normal", reason="Published", message="")
        await anyio.sleep(1)
    assert [namespace for _, namespace, _ in server.objects] == ["default"]


async def test_long_messages_and_names_are_cut_to_what_the_server_takes(server: MemoryServer) -> None:
    async with reporting(server) as reporter:
        about = ObjectReference(kind="ResourceClaim", namespace="default", name="n" * 253)
        reporter.report(about, type="Normal", reason="Prepared", message="m" * 5000)
        await anyio.sleep(1)
    (event,) = events(server)
    assert len(event["message"]) == 1024
    assert len(event["metadata"]["name"]) <= 253


@pytest.mark.parametrize("fault", [unreachable, answering(500), answering(429, retry_after_s=30)])
async def test_an_event_waits_while_the_server_is_away_and_still_counts(server: MemoryServer, fault: Any) -> None:
    server.faults.append(failing(fault))
    async with reporting(server) as reporter:
        for _ in range(3):
            reporter.report(CLAIM, type="Normal", reason="Prepared", message="")
            await anyio.sleep(60)
        server.faults.clear()
        await anyio.sleep(120)
    assert [event["count"] for event in events(server)] == [3]


async def test_an_event_whose_creation_had_no_answer_is_one_object_however_often_it_is_tried(
    server: MemoryServer,
) -> None:
    """Each answer was the page of a proxy, and each try made another Event."""
    answer, tries = server.call, 3

    async def call(request: HttpRequest) -> bytes:
        nonlocal tries
        made = await answer(request)
        tries -= request.method == "POST"
        return made if tries < 0 else b"<html>"

    server.call = call  # type: ignore[method-assign]
    async with reporting(server) as reporter:
        for _ in range(2):
            reporter.report(CLAIM, type="Normal", reason="Prepared", message="")
        await anyio.sleep(3600)
        reporter.report(CLAIM, type="Normal", reason="Prepared", message="")
        await anyio.sleep(60)
    assert [event["count"] for event in events(server)] == [3]


async def test_an_event_that_is_refused_is_dropped_and_counted(server: MemoryServer) -> None:
    before = dropped()
    server.faults.append(failing(answering(403, "Forbidden")))
    async with reporting(server) as reporter:
        reporter.report(CLAIM, type="Normal", reason="Prepared", message="")
        await anyio.sleep(3600)
    assert (len(server.requests), dropped() - before) == (1, 1)


async def test_reporting_never_blocks_and_keeps_only_the_newest_when_the_server_hangs(server: MemoryServer) -> None:
    before = dropped()
    server.faults.append(failing(hanging))
    async with reporting(server) as reporter:
        for number in range(1000):
            reporter.report(CLAIM, type="Normal", reason="Prepared", message=str(number))
        await anyio.sleep(1)
        assert dropped() - before == 1000 - 256


async def test_an_event_that_others_displace_while_it_is_being_written_is_no_error(
    server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect once: what was written and no longer waited ended the write with a KeyError."""

    def displaced(value: Json) -> Json:
        server.on_write = lambda value: value
        for number in range(256):
            reporter.report(CLAIM, type="Normal", reason="Prepared", message=str(number))
        return value

    server.on_write = displaced
    async with reporting(server) as reporter:
        reporter.report(CLAIM, type="Normal", reason="Prepared", message="the first")
        await anyio.sleep(3600)
    assert len(events(server)) == 257
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
