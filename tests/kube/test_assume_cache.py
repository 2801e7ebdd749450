"""The newer of stored and assumed object counts, and no assumed object outlives its deletion."""

import pytest

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.kube.assume_cache import DELETED_UIDS, UNSEEN_S, AssumeCache
from kerf_dra.driver.kube.store import ObjectChange, Store


def node(version: str, uid: str = "u", name: str = "n") -> Node:
    return Node(metadata=ObjectMeta(name=name, uid=uid, resource_version=version))


class Watched:
    """A store that an informer would fill, and the cache over it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.store: Store[Node] = Store()
        self.cache = AssumeCache(self.store, monotonic=lambda: self.now)

    def show(self, value: Node) -> None:
        old = self.store.get(value.ref)
        self.store.put(value)
        self.cache.on_change(ObjectChange(value.ref, old, value))

    def delete(self, ref: ObjectRef) -> None:
        old = self.store.get(ref)
        self.store.remove(ref)
        self.cache.on_change(ObjectChange(ref, old, None))


OLD, OURS, LATER = node("9"), node("10"), node("11")
REF = OLD.ref


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_without_an_answer_the_store_is_what_there_is(watched: Watched) -> None:
    assert watched.cache.get(REF) is None
    watched.show(OLD)
    assert watched.cache.get(REF) is OLD
    assert watched.cache.values() == (OLD,)


@pytest.mark.parametrize("stored", [OLD, None], ids=["changed", "created"])
def test_an_answer_counts_until_the_store_shows_it_or_something_newer(watched: Watched, stored: Node | None) -> None:
    if stored is not None:
        watched.show(stored)
    assert watched.cache.assume(OURS)
    assert watched.cache.get(REF) is OURS
    assert watched.cache.values() == (OURS,)
    watched.show(OLD)
    assert watched.cache.get(REF) is OURS
    watched.show(LATER)
    assert watched.cache.get(REF) is LATER
    assert watched.cache.values() == (LATER,)


def test_the_store_counts_as_soon_as_it_is_newer(watched: Watched) -> None:
    """The informer puts an object into the store before it calls the event handler."""
    watched.show(OLD)
    watched.cache.assume(OURS)
    watched.store.put(LATER)
    assert watched.cache.get(REF) is LATER


def test_an_answer_that_is_not_newer_is_not_assumed(watched: Watched) -> None:
    watched.show(LATER)
    assert not watched.cache.assume(OURS)
    assert not watched.cache.assume(LATER)
    assert watched.cache.get(REF) is LATER


def test_versions_are_numbers_and_a_text_that_is_none_is_older_than_all(watched: Watched) -> None:
    watched.show(node("9"))
    assert watched.cache.assume(node("10"))
    assert not watched.cache.assume(node("x"))


def test_a_deletion_ends_what_is_assumed_of_that_object_alone(watched: Watched) -> None:
    watched.show(OLD)
    watched.cache.assume(OURS)
    watched.delete(REF)
    assert watched.cache.get(REF) is None
    watched.show(node("12", uid="second"))
    third = node("14", uid="third")
    watched.cache.assume(third)
    watched.delete(REF)
    assert watched.cache.get(REF) is third


def test_an_answer_that_comes_after_the_objects_end_is_not_assumed(watched: Watched) -> None:
    watched.show(OURS)
    watched.delete(REF)
    assert not watched.cache.assume(LATER)
    assert watched.cache.get(REF) is None
    assert watched.cache.assume(node("12", uid="another of the name"))


def test_an_object_that_the_store_never_shows_is_not_assumed_for_ever(watched: Watched) -> None:
    """It came and went while the watch was away, and the next list does not have it."""
    watched.cache.assume(OURS)
    watched.now = UNSEEN_S
    assert watched.cache.get(REF) is OURS
    watched.now = UNSEEN_S + 1
    assert watched.cache.get(REF) is None
    assert watched.cache.values() == ()


def test_a_change_stays_assumed_however_long_the_watch_is_away(watched: Watched) -> None:
    """Else a device that was given away in it would look free."""
    watched.show(OLD)
    watched.cache.assume(OURS)
    watched.now = 10 * UNSEEN_S
    assert watched.cache.get(REF) is OURS


def test_of_deleted_objects_only_the_latest_are_remembered(watched: Watched) -> None:
    for number in range(DELETED_UIDS + 1):
        value = node("1", uid=f"u{number}", name=f"n{number}")
        watched.show(value)
        watched.delete(value.ref)
    assert watched.cache.assume(node("2", uid="u0", name="n0"))
    assert not watched.cache.assume(node("2", uid="u1", name="n1"))
