"""Pages of one consistent list, and lists whose revision has expired."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerf_dra.driver.local.apiserver.http.query_options import ListOptions
from kerf_dra.driver.local.apiserver.kinds.core import CORE_KINDS
from kerf_dra.driver.local.apiserver.kinds.types import ResourceType
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError
from kerf_dra.driver.local.apiserver.registry.read import list_objects
from kerf_dra.driver.local.apiserver.storage import ObjectKey, Storage
from tests.local.apiserver.api_client import Api, Cluster

MAPS = "/api/v1/namespaces/default/configmaps"
CONFIG_MAPS: ResourceType = next(type_ for type_ in CORE_KINDS if type_.plural == "configmaps")


async def fill(api: Api, *names: str) -> None:
    for name in names:
        await api.made(MAPS, {"metadata": {"name": name, "labels": {"first": name[0]}}})


def names(body: Any) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


async def test_pages_follow_one_another_and_say_how_many_remain(api: Api) -> None:
    await fill(api, "a", "b", "c", "d", "e")
    first = (await api.get(f"{MAPS}?limit=2")).body
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 3)
    second = (await api.get(f"{MAPS}?limit=2&continue={first['metadata']['continue']}")).body
    assert names(second) == ["c", "d"]
    third = (await api.get(f"{MAPS}?limit=2&continue={second['metadata']['continue']}")).body
    assert (names(third), third["metadata"]) == (["e"], {"resourceVersion": first["metadata"]["resourceVersion"]})


async def test_every_page_shows_the_revision_of_the_first(api: Api) -> None:
    await fill(api, "a", "b", "c", "d")
    first = (await api.get(f"{MAPS}?limit=2")).body
    await api.delete(f"{MAPS}/c")
    await api.merge(f"{MAPS}/d", {"data": {"k": "new"}})
    await fill(api, "bb")
    second = (await api.get(f"{MAPS}?limit=9&continue={first['metadata']['continue']}")).body
    assert names(second) == ["c", "d"]
    assert "data" not in second["items"][1]


async def test_a_selected_list_does_not_count_what_remains(api: Api) -> None:
    await fill(api, "a1", "a2", "b1")
    metadata = (await api.get(f"{MAPS}?limit=1&labelSelector=first=a")).body["metadata"]
    assert "continue" in metadata
    assert "remainingItemCount" not in metadata


async def test_an_expired_token_is_answered_with_one_that_goes_on_with_the_present(api: Api) -> None:
    await fill(api, "a", "b", "c")
    token = (await api.get(f"{MAPS}?limit=1")).body["metadata"]["continue"]
    await api.delete(f"{MAPS}/b")
    api.forget_history()
    expired = await api.get(f"{MAPS}?limit=9&continue={token}")
    assert (expired.status, expired.body["reason"]) == (410, "Expired")
    assert expired.body["message"].startswith("The provided continue parameter is too old")
    rest = (await api.get(f"{MAPS}?continue={expired.body['metadata']['continue']}")).body
    assert names(rest) == ["c"]


async def test_a_token_of_nobody_is_refused(api: Api) -> None:
    answer = await api.get(f"{MAPS}?continue=abc")
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert "continue key is not valid" in answer.body["message"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["a", "b", "c"]),
        ("resourceVersion=0", ["a", "b", "c"]),
        ("resourceVersion=7", ["a", "b", "c"]),
        ("resourceVersion=7&resourceVersionMatch=NotOlderThan", ["a", "b", "c"]),
        ("resourceVersion=7&resourceVersionMatch=Exact", ["a", "b"]),
        ("resourceVersion=7&limit=500", ["a", "b"]),
    ],
)
async def test_a_list_is_as_old_as_it_is_asked_to_be(api: Api, query: str, expected: list[str]) -> None:
    await fill(api, "a", "b", "c")
    assert names((await api.get(f"{MAPS}?{query}")).body) == expected


async def test_a_list_of_the_future_times_out(api: Api) -> None:
    answer = await api.get(f"{MAPS}?resourceVersion=999")
    assert (answer.status, answer.body["reason"]) == (504, "Timeout")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert answer.headers["Retry-After"] == "1"


async def test_a_list_of_a_forgotten_past_is_expired(cluster: Cluster) -> None:
    async with cluster(history=2) as api:
        await fill(api, "a", "b", "c", "d")
        answer = await api.get(f"{MAPS}?resourceVersion=6&resourceVersionMatch=Exact")
        assert (answer.status, answer.body["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("query", "cause"),
    [
        ("resourceVersionMatch=Exact", "is forbidden unless resourceVersion is provided"),
        ("resourceVersionMatch=Exact&resourceVersion=0", 'is forbidden for resourceVersion "0"'),
        ("resourceVersionMatch=Later&resourceVersion=1", 'Unsupported value: "Later"'),
        ("resourceVersionMatch=Exact&resourceVersion=1&continue=x", "is forbidden when continue is provided"),
        ("watch=1&resourceVersionMatch=Exact&resourceVersion=1", "forbidden for watch unless sendInitialEvents"),
        ("watch=1&sendInitialEvents=1", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ("watch=1&continue=x", "continue is forbidden for watch"),
    ],
)
async def test_parameters_that_do_not_go_together_are_refused(api: Api, query: str, cause: str) -> None:
    answer = await api.get(f"{MAPS}?{query}")
    assert answer.status == 422
    assert any(cause in each for each in answer.causes)


CHANGES = st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=8)


@settings(max_examples=100)
@given(CHANGES, st.lists(CHANGES, min_size=1, max_size=6), st.integers(1, 3))
def test_whatever_changes_between_pages_the_list_is_that_of_the_first(
    before: list[tuple[str, bool]], between: list[list[tuple[str, bool]]], limit: int
) -> None:
    storage = Storage(history=1000)

    def change(changes: list[tuple[str, bool]]) -> None:
        for name, keep in changes:
            key = ObjectKey("default", name)
            if keep:
                storage.put(CONFIG_MAPS.store, key, {"metadata": {"name": name}})
            elif storage.get(CONFIG_MAPS.store, key):
                storage.remove(CONFIG_MAPS.store, key)

    change(before)
    expected = storage.items(CONFIG_MAPS.store)
    page = list_objects(storage, CONFIG_MAPS, "", ListOptions.parse({"limit": str(limit)}))
    listed = list(page.items)
    for changes in [*between, *([[]] * 6)]:
        if "continue" not in page.metadata:
            break
        change(changes)
        query = {"limit": str(limit), "continue": page.metadata["continue"]}
        page = list_objects(storage, CONFIG_MAPS, "", ListOptions.parse(query))
        listed += page.items
    assert listed == expected


def test_a_continued_list_of_a_lost_history_is_expired() -> None:
    storage = Storage(history=1)
    for name in "abc":
        storage.put(CONFIG_MAPS.store, ObjectKey("default", name), {"metadata": {"name": name}})
    token = list_objects(storage, CONFIG_MAPS, "", ListOptions.parse({"limit": "1"})).metadata["continue"]
    for _ in range(3):
        storage.put(CONFIG_MAPS.store, ObjectKey("default", "a"), {"metadata": {"name": "a"}})
    with pytest.raises(ApiStatusError) as refusal:
        list_objects(storage, CONFIG_MAPS, "", ListOptions.parse({"continue": token}))
    assert refusal.value.code == 410
