import json

import pytest

from kerf_dra.api.core.v1 import NODES
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.wire import UndecodableObjectError
from kerf_dra.driver.kube.http.errors import ExpiredError, ServerError
from kerf_dra.driver.kube.watch_decoder import EventType, decode_event, decode_page

CALL = "GET /api/v1/nodes"
NODE = {"apiVersion": "v1", "kind": "Node"}
GOOD = {**NODE, "metadata": {"name": "n1", "resourceVersion": "7"}, "spec": {"future": True}}
ODD = {**NODE, "metadata": {"name": "n2", "resourceVersion": "8"}, "spec": {"taints": "?"}}


def line(type_: str, value: object) -> bytes:
    return json.dumps({"type": type_, "object": value}).encode()


@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED", "DELETED"])
def test_an_event_has_its_object_and_where_to_go_on(type_: str) -> None:
    event = decode_event(NODES, CALL, line(type_, GOOD))
    assert event.object is not None
    assert (event.type, event.ref, event.resource_version) == (EventType(type_), ObjectRef("", "n1"), "7")


def test_a_bookmark_has_only_where_to_go_on() -> None:
    event = decode_event(NODES, CALL, line("BOOKMARK", {**NODE, "metadata": {"resourceVersion": "9"}}))
    assert (event.type, event.ref, event.object, event.resource_version) == (EventType.BOOKMARK, None, None, "9")


def test_an_unreadable_object_is_named_all_the_same() -> None:
    event = decode_event(NODES, CALL, line("MODIFIED", ODD))
    assert (event.ref, event.object, event.resource_version) == (ObjectRef("", "n2"), None, "8")
    assert isinstance(event.unreadable, UndecodableObjectError)


@pytest.mark.parametrize(("code", "error"), [(410, ExpiredError), (500, ServerError)])
def test_an_error_event_is_raised_as_its_status(code: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"{CALL}: {code} too bad"):
        decode_event(NODES, CALL, line("ERROR", {"kind": "Status", "code": code, "message": "too bad"}))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>",
        b"{}",
        line("RENAMED", GOOD),
        line("ADDED", 3),
        line("BOOKMARK", []),
        line("DELETED", {**GOOD, "kind": "Pod"}),
        line("MODIFIED", {**GOOD, "apiVersion": "v2"}),
        line("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
    ],
)
def test_what_is_no_event_is_an_error(text: bytes) -> None:
    with pytest.raises(UndecodableObjectError):
        decode_event(NODES, CALL, text)


def test_a_page_keeps_its_readable_objects_and_names_the_others() -> None:
    page = decode_page(NODES, json.dumps({"metadata": {"continue": "more"}, "items": [GOOD, ODD]}).encode())
    assert [value.metadata.name for value in page.items] == ["n1"]
    assert list(page.unreadable) == [ObjectRef("", "n2")]
    assert page.metadata.continue_ == "more"


@pytest.mark.parametrize("text", [b"", b"<html>", b'{"items": "?"}', b'{"items": [3]}'])
def test_what_is_no_page_is_an_error(text: bytes) -> None:
    with pytest.raises(UndecodableObjectError):
        decode_page(NODES, text)


def test_a_page_may_have_no_items_at_all() -> None:
    assert decode_page(NODES, b'{"metadata": {"resourceVersion": "1"}, "items": null}').items == ()
