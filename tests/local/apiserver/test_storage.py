"""The revision counter, the bounded history, and lists at earlier revisions."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.storage import (
    ExpiredRevisionError,
    GroupResource,
    ObjectKey,
    Storage,
    StorageEvent,
    StoredObject,
)

PODS = GroupResource("", "pods")
NODES = GroupResource("", "nodes")


def body(name: str, **spec: object) -> JsonObject:
    return {"metadata": {"name": name}, "spec": spec}


def key(name: str, namespace: str = "a") -> ObjectKey:
    return ObjectKey(namespace, name)


def test_every_change_gets_a_revision_of_its_own_over_all_kinds() -> None:
    storage = Storage(history=10)
    first = storage.put(PODS, key("p"), body("p"))
    second = storage.put(NODES, key("n", ""), body("n"))
    third = storage.remove(PODS, key("p"))
    assert [first.revision, second.revision, third.revision] == [2, 3, 4]
    assert first.body["metadata"]["resourceVersion"] == "2"


def test_a_stored_body_is_not_changed_by_its_giver() -> None:
    storage = Storage(history=10)
    given_body = body("p")
    storage.put(PODS, key("p"), given_body)
    assert "resourceVersion" not in given_body["metadata"]


def test_items_come_in_the_order_of_namespace_and_name() -> None:
    storage = Storage(history=10)
    for namespace, name in (("b", "a"), ("a", "z"), ("a", "c")):
        storage.put(PODS, ObjectKey(namespace, name), body(name))
    assert [stored.key for stored in storage.items(PODS)] == [("a", "c"), ("a", "z"), ("b", "a")]
    assert [stored.key.name for stored in storage.items(PODS, "b")] == ["a"]


def test_a_removed_object_goes_at_the_revision_of_its_removal() -> None:
    storage = Storage(history=10)
    storage.put(PODS, key("p"), body("p", a=1))
    last = storage.remove(PODS, key("p"))
    assert last.body["metadata"]["resourceVersion"] == "3"
    assert storage.get(PODS, key("p")) is None
    with pytest.raises(KeyError):
        storage.remove(PODS, key("p"))


def test_history_ends_at_its_horizon() -> None:
    storage = Storage(history=2)
    for number in range(4):
        storage.put(PODS, key("p"), body("p", n=number))
    assert [event.revision for event in storage.events_after(PODS, 3)] == [4, 5]
    with pytest.raises(ExpiredRevisionError, match=r"too old resource version: 2 \(3\)"):
        storage.events_after(PODS, 2)
    with pytest.raises(ExpiredRevisionError):
        storage.items(PODS, revision=2)


def test_other_kinds_changes_do_not_age_a_history() -> None:
    storage = Storage(history=2)
    storage.put(PODS, key("p"), body("p"))
    for number in range(9):
        storage.put(NODES, key("n", ""), body("n", n=number))
    assert len(storage.events_after(PODS, 1)) == 1


def test_the_listener_sees_every_change_in_order_with_old_and_new() -> None:
    seen: list[tuple[GroupResource, StorageEvent]] = []
    storage = Storage(history=10, listener=lambda resource, event: seen.append((resource, event)))
    storage.put(PODS, key("p"), body("p", n=1))
    storage.put(PODS, key("p"), body("p", n=2))
    storage.remove(PODS, key("p"))
    shapes = [(event.old is not None, event.new is not None) for _, event in seen]
    assert shapes == [(False, True), (True, True), (True, False)]
    assert [event.last.body["spec"] for _, event in seen] == [{"n": 1}, {"n": 2}, {"n": 2}]


def test_an_object_is_encoded_once_for_each_version() -> None:
    encoded: list[str] = []

    def converter(name: str) -> Callable[[JsonObject], JsonObject]:
        def convert(document: JsonObject) -> JsonObject:
            encoded.append(name)
            return document

        return convert

    old, new = converter("old"), converter("new")
    stored = Storage(history=1).put(PODS, key("p"), body("p"))
    for _ in range(3):
        stored.encode(old), stored.encode(new), stored.encode(None)
    assert encoded == ["old", "new"]


def test_the_same_body_at_another_revision_is_made_once() -> None:
    stored = Storage(history=1).put(PODS, key("p"), body("p"))
    assert stored.at_revision(9) is stored.at_revision(9)
    assert stored.at_revision(9).body["metadata"]["resourceVersion"] == "9"


OPERATIONS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=25)


@given(OPERATIONS)
def test_the_past_is_listed_as_it_was(operations: list[tuple[str, bool]]) -> None:
    storage = Storage(history=100)
    kept: dict[str, int] = {}
    snapshots: dict[int, dict[str, int]] = {storage.revision: {}}
    for step, (name, keep) in enumerate(operations):
        if keep:
            storage.put(PODS, key(name), body(name, at=step))
            kept[name] = step
        elif kept.pop(name, None) is not None:
            storage.remove(PODS, key(name))
        snapshots[storage.revision] = dict(sorted(kept.items()))
    for revision, expected in snapshots.items():
        items = storage.items(PODS, revision=revision)
        assert [(each.key.name, each.body["spec"]["at"]) for each in items] == list(expected.items())


@given(OPERATIONS, st.integers(0, 30))
def test_a_snapshot_and_the_changes_since_give_the_present(operations: list[tuple[str, bool]], start: int) -> None:
    storage = Storage(history=100)
    follower: dict[ObjectKey, StoredObject] = {}
    cursor = storage.revision
    for step, (name, keep) in enumerate(operations):
        if keep:
            storage.put(PODS, key(name), body(name, at=step))
        elif storage.get(PODS, key(name)):
            storage.remove(PODS, key(name))
        if step == start:
            follower = {stored.key: stored for stored in storage.items(PODS)}
            cursor = storage.revision
    for event in storage.events_after(PODS, cursor):
        if event.new:
            follower[event.key] = event.new
        else:
            follower.pop(event.key)
    assert sorted(follower) == [stored.key for stored in storage.items(PODS)]
    assert [follower[each.key] for each in storage.items(PODS)] == storage.items(PODS)
