"""Kinds of what a cache keeps of large objects."""

import json

import pytest

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.wire import Kind, UndecodableObjectError, projected_kind
from kerf_dra.driver.kube.watch_decoder import decode_event, decode_page


def node(name: str, **changes: object) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"zone": "a"}, "annotations": {"long": "text"}}, **changes}


class Recorder:
    """Keeps names and labels, and notes the objects that were given as a whole."""

    def __init__(self) -> None:
        self.whole: list[Node] = []
        self.kind: Kind[Node] = projected_kind(NODES, Node, self._project)

    def _project(self, whole: Node) -> Node:
        self.whole.append(whole)
        return Node(metadata=ObjectMeta(name=whole.metadata.name, labels=whole.metadata.labels))


def test_what_is_listed_and_what_a_watch_shows_is_projected() -> None:
    recorder = Recorder()
    metadata = {"resourceVersion": "7", "continue": "next"}
    page = decode_page(recorder.kind, json.dumps({"metadata": metadata, "items": [node("a"), node("b")]}).encode())
    event = decode_event(
        recorder.kind,
        "GET",
        json.dumps({"type": "ADDED", "object": {"apiVersion": "v1", "kind": "Node", **node("c")}}).encode(),
    )
    assert event.object is not None
    assert (page.metadata.resource_version, page.metadata.continue_) == ("7", "next")
    kept = [*page.items, event.object]
    assert [one.metadata for one in kept] == [ObjectMeta(name=name, labels={"zone": "a"}) for name in "abc"]
    assert [one.metadata.annotations for one in recorder.whole] == [{"long": "text"}] * 3


def test_an_object_that_cannot_be_read_hides_no_other_of_its_page() -> None:
    kind = Recorder().kind
    items = [node("a"), node("broken", spec={"unschedulable": "?"}), node("b")]
    page = decode_page(kind, json.dumps({"items": items}).encode())
    assert [one.metadata.name for one in page.items] == ["a", "b"]
    assert [ref.name for ref in page.unreadable] == ["broken"]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"items": {}}', b"\xff", b'{"items": [' + b"[" * 100_000])
def test_what_is_no_list_is_our_error(body: bytes) -> None:
    with pytest.raises(UndecodableObjectError, match="NodeList of v1"):
        Recorder().kind.decode_list(body)


def test_a_null_list_is_empty() -> None:
    assert Recorder().kind.decode_list(b'{"metadata":{},"items":null}').items == ()


def test_a_projection_is_never_written() -> None:
    kind = Recorder().kind
    with pytest.raises(TypeError, match="Node a is a projection"):
        kind.encode(kind.decode(json.dumps(node("a")).encode()))
