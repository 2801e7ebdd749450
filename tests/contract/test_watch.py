"""Watches, as far as informers rely on them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import anyio
import pytest

from tests.contract.conftest import HISTORY
from tests.contract.documents import config_map
from tools.realcluster.api import Api, Document, StatusError

PATIENCE_S = 90.0


@asynccontextmanager
async def watching(server: Api, space: str, version: str, **query: str) -> AsyncIterator[AsyncIterator[Document]]:
    """Events of the test's own ConfigMaps since ``version``."""
    selected = {"labelSelector": f"of={space}", "resourceVersion": version, **query}
    with anyio.fail_after(PATIENCE_S):
        async with server.watch("v1", "ConfigMap", **selected) as events:
            yield events


async def listed(server: Api, space: str) -> str:
    """The version of the list."""
    answer = await server.request("GET", await server.path("v1", "ConfigMap", space))
    return str(answer["metadata"]["resourceVersion"])


def of(space: str) -> Document:
    return {"labels": {"of": space}}


def told(event: Document) -> tuple[str, str, str | None]:
    return event["type"], event["object"]["metadata"]["name"], event["object"].get("data", {}).get("x")


async def test_every_change_since_a_list_is_told_in_order(server: Api, space: str) -> None:
    await server.create(config_map("before", space, **of(space)))
    version = await listed(server, space)
    await server.create(config_map("a", space, {"x": "1"}, **of(space)))
    async with watching(server, space, version) as events:
        await server.patch("v1", "ConfigMap", "a", {"data": {"x": "2"}}, space)
        await server.create(config_map("b", space, **of(space)))
        await server.delete("v1", "ConfigMap", "a", space)
        seen = [await anext(events) for _ in range(4)]
    assert [told(event) for event in seen] == [
        ("ADDED", "a", "1"),
        ("MODIFIED", "a", "2"),
        ("ADDED", "b", None),
        ("DELETED", "a", "2"),
    ]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))
    async with watching(server, space, str(versions[1])) as events:
        assert told(await anext(events)) == ("ADDED", "b", None), "a watch goes on after any version that was seen"


async def test_what_leaves_the_selection_is_deleted_for_the_watcher(server: Api, space: str) -> None:
    version = await listed(server, space)
    await server.create(config_map("a", space, **of(space)))
    async with watching(server, space, version) as events:
        await server.patch("v1", "ConfigMap", "a", {"metadata": {"labels": {"of": "others"}}}, space)
        await server.patch("v1", "ConfigMap", "a", {"metadata": {"labels": {"of": space}}}, space)
        seen = [await anext(events) for _ in range(3)]
    assert [event["type"] for event in seen] == ["ADDED", "DELETED", "ADDED"]


async def test_a_watch_ends_when_it_was_asked_to(server: Api, space: str) -> None:
    async with watching(server, space, await listed(server, space), timeoutSeconds="1") as events:
        assert [event async for event in events] == []


async def test_a_bookmark_says_how_far_a_silent_watch_has_come(server: Api, space: str, bookmark_s: float) -> None:
    version = await listed(server, space)
    await server.create(config_map("other", space))
    newest = await listed(server, space)
    with anyio.fail_after(bookmark_s):
        async with watching(server, space, version, allowWatchBookmarks="true") as events:
            mark = await anext(events)
    assert mark["type"] == "BOOKMARK"
    assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(newest)


async def test_a_version_that_is_forgotten_is_expired(
    server: Api, space: str, forget: Callable[[], Awaitable[None]]
) -> None:
    await server.create(config_map("a", space, **of(space)))
    for number in range(HISTORY + 1):
        await server.patch("v1", "ConfigMap", "a", {"data": {"x": str(number)}}, space)
    await forget()
    try:
        async with watching(server, space, "1") as events, aclosing(events):  # type: ignore[type-var]
            event = await anext(events)
    except StatusError as error:
        status = error.status
    else:
        assert event["type"] == "ERROR"
        status = event["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith("too old resource version: 1")


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_without_a_version_begins_with_what_there_is(server: Api, space: str, version: str) -> None:
    await server.create(config_map("a", space, **of(space)))
    async with watching(server, space, version) as events:
        assert told(await anext(events)) == ("ADDED", "a", None)
