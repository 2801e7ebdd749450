"""Watches over HTTP: what is sent, from where on, and how they end."""

import re
from typing import Any

import anyio
import pytest

from tests.local.apiserver.api_client import IN_TIME_S, TABLE, Api, Cluster

MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, label: str = "", **data: str) -> dict[str, Any]:
    labels = {"labels": {"l": label}} if label else {}
    return {"metadata": {"name": name, **labels}, "data": data}


async def revision(api: Api) -> str:
    return str((await api.get(MAPS)).body["metadata"]["resourceVersion"])


async def test_a_watch_from_a_revision_shows_what_came_after_it(api: Api) -> None:
    await api.made(MAPS, config_map("before"))
    since = await revision(api)
    await api.made(MAPS, config_map("a"))
    await api.merge(f"{MAPS}/a", {"data": {"k": "v"}})
    async with api.watch(MAPS, f"resourceVersion={since}") as watch:
        assert await watch.some(2) == [("ADDED", "a"), ("MODIFIED", "a")]
        await api.delete(f"{MAPS}/a")
        deleted = await watch.next()
        assert (deleted["type"], deleted["object"]["data"]) == ("DELETED", {"k": "v"})
        assert int(deleted["object"]["metadata"]["resourceVersion"]) > int(since) + 2


async def test_a_watch_in_protobuf_has_the_same_events_in_frames_and_ends_with_the_same_error(api: Api) -> None:
    await api.made(MAPS, config_map("a", k="v"))
    since = await revision(api)
    accept = "application/vnd.kubernetes.protobuf"
    async with api.watch(MAPS, "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                         Accept=f"{accept};stream=watch") as watch:  # fmt: skip
        assert watch.response.headers["Content-Type"] == f"{accept};stream=watch"
        added, bookmark = await watch.next_frame(), await watch.next_frame()
        assert (added["type"], added["object"]) == ("ADDED", (await api.get(f"{MAPS}/a")).body)
        assert (bookmark["type"], bookmark["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", since)
        await api.delete(f"{MAPS}/a")
        deleted = await watch.next_frame()
        assert (deleted["type"], deleted["object"]["data"]) == ("DELETED", {"k": "v"})
    api.forget_history()
    async with api.watch(MAPS, f"resourceVersion={since}", Accept=accept) as watch:
        ended = await watch.next_frame()
        assert (ended["type"], ended["object"]["reason"], ended["object"]["code"]) == ("ERROR", "Expired", 410)


@pytest.mark.parametrize("query", ["", "resourceVersion=0"])
async def test_a_watch_without_revision_begins_with_what_is_there(api: Api, query: str) -> None:
    await api.made(MAPS, config_map("a"))
    async with api.watch(MAPS, query) as watch:
        assert await watch.some(1) == [("ADDED", "a")]
        await api.made(MAPS, config_map("b"))
        assert await watch.some(1) == [("ADDED", "b")]


async def test_a_write_that_changes_nothing_is_no_event(api: Api) -> None:
    await api.made(MAPS, config_map("a", k="v"))
    async with api.watch(MAPS, f"resourceVersion={await revision(api)}") as watch:
        await api.merge(f"{MAPS}/a", {"data": {"k": "v"}})
        await api.merge(f"{MAPS}/a", {"data": {"k": "w"}})
        assert (await watch.next())["object"]["data"] == {"k": "w"}


async def test_objects_that_begin_or_cease_to_match_are_added_or_deleted(api: Api) -> None:
    await api.made(MAPS, config_map("in", "1", k="old"))
    await api.made(MAPS, config_map("out", "2"))
    async with api.watch(MAPS, f"labelSelector=l=1&resourceVersion={await revision(api)}") as watch:
        await api.merge(f"{MAPS}/out", {"metadata": {"labels": {"l": "1"}}})
        assert await watch.some(1) == [("ADDED", "out")]
        await api.merge(f"{MAPS}/out", {"data": {"k": "v"}})
        assert await watch.some(1) == [("MODIFIED", "out")]
        left = (await api.merge(f"{MAPS}/in", {"metadata": {"labels": {"l": "3"}}, "data": {"k": "new"}})).body
        event = await watch.next()
        # As it was when it still matched, at the revision at which it ceased to.
        assert (event["type"], event["object"]["data"]) == ("DELETED", {"k": "old"})
        assert event["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
        await api.merge(f"{MAPS}/in", {"data": {"k": "unseen"}})
        await api.delete(f"{MAPS}/in")
        await api.delete(f"{MAPS}/out")
        assert await watch.some(1) == [("DELETED", "out")]


async def test_a_watch_of_one_object_or_namespace_sees_no_other(api: Api) -> None:
    await api.made("/api/v1/namespaces", {"metadata": {"name": "other"}})
    since = await revision(api)
    async with (
        api.watch(MAPS, f"fieldSelector=metadata.name=b&resourceVersion={since}") as one,
        api.watch("/api/v1/namespaces/other/configmaps", f"resourceVersion={since}") as other,
        api.watch("/api/v1/configmaps", f"resourceVersion={since}") as everywhere,
    ):
        await api.made(MAPS, config_map("a"))
        await api.made(MAPS, config_map("b"))
        await api.made("/api/v1/namespaces/other/configmaps", config_map("c"))
        assert await one.some(1) == [("ADDED", "b")]
        assert await other.some(1) == [("ADDED", "c")]
        assert await everywhere.some(3) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_a_forgotten_past_is_an_error_event_and_the_end(api: Api) -> None:
    await api.made(MAPS, config_map("a"))
    api.forget_history()
    async with api.watch(MAPS, "resourceVersion=1") as watch:
        event = await watch.next()
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert event["object"]["message"] == "too old resource version: 1 (6)"
        assert await watch.next() is None


async def test_a_watcher_that_falls_behind_the_history_is_told_so(cluster: Cluster) -> None:
    async with cluster(history=3) as api:
        since = await revision(api)
        for number in range(6):
            await api.made(MAPS, config_map(f"m{number}"))
        async with api.watch(MAPS, f"resourceVersion={since}") as watch:
            assert (await watch.next())["object"]["reason"] == "Expired"


async def test_bookmarks_tell_how_far_an_idle_watcher_has_seen(cluster: Cluster) -> None:
    query = "allowWatchBookmarks=true&resourceVersion=5"
    async with cluster(bookmark_interval_s=0.01) as api, api.watch(MAPS, query) as watch:
        await api.made("/api/v1/nodes", {"metadata": {"name": "n"}})  # another kind moves the revision on
        latest = api.server.storage.revision
        while int((event := await watch.next())["object"]["metadata"]["resourceVersion"]) < latest:
            assert event["type"] == "BOOKMARK"
        assert (event["type"], event["object"]["kind"]) == ("BOOKMARK", "ConfigMap")
        await api.made(MAPS, config_map("a"))
        while (event := await watch.next())["type"] == "BOOKMARK":
            pass
        assert event["object"]["metadata"]["name"] == "a"


async def test_initial_events_end_with_a_marked_bookmark(api: Api) -> None:
    await api.made(MAPS, config_map("a"))
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with api.watch(MAPS, query) as watch:
        assert await watch.some(1) == [("ADDED", "a")]
        bookmark = await watch.next()
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert bookmark["object"]["metadata"]["resourceVersion"] == await revision(api)


async def test_a_watch_ends_when_its_time_is_over(cluster: Cluster) -> None:
    async with cluster(max_watch_s=0.01) as api, api.watch(MAPS) as watch:
        assert await watch.next() is None


async def test_a_watch_ends_with_the_server(cluster: Cluster) -> None:
    async with cluster() as api, api.watch(MAPS) as watch:
        with anyio.fail_after(IN_TIME_S):
            api.server._watch_notifier.close()
            assert await watch.next() is None


async def test_a_table_watch_sends_a_row_for_each_change(api: Api) -> None:
    async with api.watch(MAPS, f"resourceVersion={await revision(api)}", Accept=TABLE) as watch:
        await api.made(MAPS, config_map("a", k="v"))
        table = (await watch.next())["object"]
        name, entries, age = table["rows"][0]["cells"]
        assert (table["kind"], name, entries) == ("Table", "a", "1")
        assert re.fullmatch(r"\d+s", age), "a second may end meanwhile"


async def test_many_watchers_share_one_encoding(api: Api) -> None:
    since = await revision(api)
    async with anyio.create_task_group() as group:
        seen: list[str] = []

        async def follow() -> None:
            async with api.watch(MAPS, f"resourceVersion={since}") as watch:
                seen.append((await watch.some(1))[0][1])

        for _ in range(20):
            group.start_soon(follow)
        await api.made(MAPS, config_map("a"))
    assert seen == ["a"] * 20
    stored = api.server.storage.items(("", "configmaps"))[0]  # type: ignore[arg-type]
    assert len(stored._wire) == 1


async def test_versions_are_watched_in_their_own_shape(api: Api) -> None:
    claims = "/apis/resource.k8s.io/{}/namespaces/default/resourceclaims"
    since = (await api.get(claims.format("v1"))).body["metadata"]["resourceVersion"]
    async with (
        api.watch(claims.format("v1"), f"resourceVersion={since}") as new,
        api.watch(claims.format("v1beta1"), f"resourceVersion={since}") as old,
    ):
        requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
        await api.made(claims.format("v1"), {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
        (request,) = (await new.next())["object"]["spec"]["devices"]["requests"]
        assert request["exactly"]["deviceClassName"] == "gpu"
        event = (await old.next())["object"]
        assert event["apiVersion"] == "resource.k8s.io/v1beta1"
        assert event["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu"
