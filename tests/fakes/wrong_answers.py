"""What a proxy, a cache or a broken API server may answer in place of the right document."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Json: TypeAlias = dict[str, Any]

HTML: Final = b"<html><head><title>Welcome to nginx!</title></head></html>"
_FAILURE: Final = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


class Answer(NamedTuple):
    """A status code and a body."""

    code: int
    body: bytes


def _metadata(**fields: str) -> Callable[[Json], Answer]:
    """The document with other metadata."""
    return lambda right: _ok({**right, "metadata": {**right.get("metadata", {}), **fields}})


def _ok(body: object) -> Answer:
    return Answer(200, json.dumps(body).encode())


def _without_status(right: Json) -> Answer:
    return _ok({name: value for name, value in right.items() if name != "status"})


def _deallocated(right: Json) -> Answer:
    return _ok({**right, "status": {**right.get("status", {}), "allocation": None}})


def _unreserved(right: Json) -> Answer:
    return _ok({**right, "status": {**right.get("status", {}), "reservedFor": []}})


def _as_list(right: Json) -> Answer:
    listed = {"apiVersion": right.get("apiVersion"), "kind": f"{right.get('kind')}List", "items": [right]}
    return _ok({**listed, "metadata": {"resourceVersion": "9"}})


REFUSED: Final[Mapping[str, Callable[[Json], Answer]]] = {
    "an empty object": lambda _: _ok({}),
    "an empty list": lambda _: _ok([]),
    "null": lambda _: _ok(None),
    "an empty text": lambda _: _ok(""),
    "nothing": lambda _: Answer(200, b""),
    "a number": lambda _: _ok(7),
    "another kind": lambda right: _ok({**right, "kind": "ConfigMap"}),
    "no kind": lambda right: _ok({name: value for name, value in right.items() if name != "kind"}),
    "another API version": lambda right: _ok({**right, "apiVersion": "example.com/v1"}),
    "no metadata": lambda right: _ok({**right, "metadata": {}}),
    "metadata that is null": lambda right: _ok({**right, "metadata": None}),
    "another name": _metadata(name="another"),
    "another namespace": _metadata(namespace="another"),
    "no UID": _metadata(uid=""),
    "no resource version": _metadata(resourceVersion=""),
    "a list of objects": lambda right: _ok([right]),
    "a List": _as_list,
    "a Status of success": lambda _: _ok({**_FAILURE, "status": "Success", "reason": "", "code": 200}),
    "a Status of failure": lambda _: _ok(_FAILURE),
    "a page": lambda _: Answer(200, HTML),
    "half of it": lambda right: Answer(200, json.dumps(right).encode()[:-20]),
    "two of it": lambda right: Answer(200, json.dumps(right).encode() * 2),
}
"""Answers of one object that are not the object asked for."""

PLAUSIBLE: Final[Mapping[str, Callable[[Json], Answer]]] = {
    "another UID": _metadata(uid="another"),
    "an older version": _metadata(resourceVersion="1"),
    "an older version without status": lambda right: _without_status({**right, "metadata": _at(right, "1")}),
    "a newer version without status": lambda right: _without_status({**right, "metadata": _at(right, "900000")}),
    "a claim of another cluster": lambda right: _metadata(uid="another")({**right, "metadata": _at(right, "900000")}),
    "no status": _without_status,
    "an allocation that is null": _deallocated,
    "no reservation": _unreserved,
    "404 of a proxy": lambda _: Answer(404, HTML),
    "404 without a body": lambda _: Answer(404, b""),
    "404 that names nothing": lambda _: Answer(404, json.dumps(_FAILURE).encode()),
}
"""Answers about a claim that have its name and say that it has ended, or that it is another one."""


def _at(right: Json, version: str) -> Json:
    return {**right.get("metadata", {}), "resourceVersion": version}


WRONG: Final = {**REFUSED, **PLAUSIBLE}
