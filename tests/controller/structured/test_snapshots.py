"""Own writes over a cache: believed until the cache moves, and not for ever."""

from msgspec.structs import replace

from api.core.v1 import Node
from api.model.metadata import ObjectMeta
from driver.controller.structured.snapshot import TRUST_S, OwnWrites


def node(version: str, uid: str = "u") -> Node:
    return Node(metadata=ObjectMeta(name="n", uid=uid, resource_version=version))


class Clock:
    """Seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


OLD, OURS, LATER = node("1"), node("2"), node("3")


def test_without_a_write_the_cache_is_what_there_is() -> None:
    own: OwnWrites[Node] = OwnWrites(Clock())
    assert own.over(OLD.ref, OLD) is OLD
    assert own.over(OLD.ref, None) is None


def test_our_write_covers_the_state_it_was_decided_on() -> None:
    own: OwnWrites[Node] = OwnWrites(Clock())
    own.note(OLD, OURS)
    assert own.over(OLD.ref, OLD) is OURS
    own.note(None, OURS)
    assert own.over(OLD.ref, None) is OURS


def test_a_cache_that_shows_something_else_is_believed() -> None:
    for shown in (OURS, LATER, None, replace(OLD, metadata=ObjectMeta(name="n", uid="other", resource_version="1"))):
        own: OwnWrites[Node] = OwnWrites(Clock())
        own.note(OLD, OURS)
        assert own.over(OLD.ref, shown) is shown
        assert own.over(OLD.ref, OLD) is OLD


def test_what_came_and_went_before_the_cache_was_read_is_gone() -> None:
    """A watch delivered that our new object appeared and was deleted: the cache looks as it did before our write."""
    own: OwnWrites[Node] = OwnWrites(Clock())
    own.note(None, OURS)
    own.moved(OURS.ref)
    assert own.over(OURS.ref, None) is None


def test_a_write_that_the_cache_never_shows_is_not_believed_for_ever() -> None:
    clock = Clock()
    own: OwnWrites[Node] = OwnWrites(clock)
    own.note(None, OURS)
    clock.now = TRUST_S
    assert own.over(OURS.ref, None) is OURS
    clock.now = TRUST_S + 1
    assert own.over(OURS.ref, None) is None
