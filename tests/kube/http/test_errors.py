import json
from typing import Any

import pytest

from kerf_dra.api.errors import KerfError, PermanentError, TransientError
from kerf_dra.driver.kube.http.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    MissingObject,
    NotFoundError,
    ServerError,
    StatusError,
    ThrottledError,
    UnauthorizedError,
    build_status_error,
)


def body(**fields: Any) -> bytes:
    return json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", **fields}).encode()


@pytest.mark.parametrize(
    ("status", "reason", "leaf", "kind"),
    [
        (400, "BadRequest", InvalidError, PermanentError),
        (401, "Unauthorized", UnauthorizedError, PermanentError),
        (403, "Forbidden", ForbiddenError, PermanentError),
        (404, "NotFound", NotFoundError, KerfError),
        (405, "MethodNotAllowed", StatusError, KerfError),
        (409, "AlreadyExists", AlreadyExistsError, KerfError),
        (409, "Conflict", ConflictError, TransientError),
        (409, "", ConflictError, TransientError),
        (410, "Expired", ExpiredError, TransientError),
        (410, "Gone", ExpiredError, TransientError),
        (422, "Invalid", InvalidError, PermanentError),
        (429, "TooManyRequests", ThrottledError, TransientError),
        (500, "InternalError", ServerError, TransientError),
        (504, "Timeout", ServerError, TransientError),
    ],
)
def test_a_status_becomes_the_error_that_says_what_to_do(
    status: int, reason: str, leaf: type[StatusError], kind: type[KerfError]
) -> None:
    error = build_status_error("GET /x", status, body(code=status, reason=reason, message="because"))
    assert type(error) is leaf
    assert isinstance(error, kind)
    assert not (isinstance(error, TransientError) and isinstance(error, PermanentError))
    assert (error.status, error.reason, str(error)) == (status, reason, f"GET /x: {status} because")


MISSING = {"name": "training", "group": "resource.k8s.io", "kind": "resourceclaims"}


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (body(reason="NotFound", details=MISSING), MissingObject("resource.k8s.io", "resourceclaims", "training")),
        (body(reason="NotFound", details={"name": "node-1", "kind": "nodes"}), MissingObject("", "nodes", "node-1")),
        (body(reason="NotFound", details={}), None),
        (body(reason="NotFound"), None),
        (body(details=MISSING), None),
        (json.dumps({"reason": "NotFound", "details": MISSING}).encode(), None),
        (json.dumps({"kind": "Problem", "reason": "NotFound", "details": MISSING}).encode(), None),
        (b"404 page not found\n", None),
        (b"", None),
    ],
    ids=["claim", "node", "no details", "nothing", "no reason", "no kind", "another kind", "a proxy", "empty"],
)
def test_only_the_api_servers_own_word_says_which_object_is_missing(
    answer: bytes, missing: MissingObject | None
) -> None:
    error = build_status_error("GET /x", 404, answer)
    assert isinstance(error, NotFoundError)
    assert error.missing == missing


def test_the_error_event_of_a_watch_carries_its_own_code() -> None:
    assert isinstance(build_status_error("GET /x", 0, body(code=410, reason="Expired")), ExpiredError)


@pytest.mark.parametrize("text", [b"<html>Bad\n  Gateway</html>", b"\xff\xfe", b"", b"[]", b'{"code": "x"}'])
def test_a_body_that_is_no_status_is_shown_as_it_is(text: bytes) -> None:
    error = build_status_error("GET /x", 502, text)
    assert isinstance(error, ServerError)
    assert str(error) == f"GET /x: 502 {' '.join(text.decode(errors='replace').split())}".rstrip()


def test_a_long_body_is_cut() -> None:
    assert len(str(build_status_error("GET /x", 500, b"x" * 10**6))) < 600


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [
        ("7", 3, 7.0),
        (None, 3, 3.0),
        (None, 0, None),
        ("Fri, 20 Nov 2026 08:30:00 GMT", 3, 3.0),
        ("0", 0, 0.0),
    ],
)
def test_the_time_to_wait_comes_from_the_header_else_from_the_status(
    header: str | None, details: int, expected: float | None
) -> None:
    error = build_status_error("GET /x", 429, body(code=429, details={"retryAfterSeconds": details}), header)
    assert error.retry_after_s == expected
