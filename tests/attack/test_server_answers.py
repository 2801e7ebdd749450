"""What one answer of the API server, or of a proxy before it, may be: rows of ``kinds.toml``, sent as bytes."""

import socket
import struct
from contextlib import suppress
from dataclasses import replace
from typing import Final, Literal

import anyio
import anyio.abc
import msgspec
import pytest

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kube.http.client import Client
from tests.attack.kinds import cases
from tests.attack.test_api_server_faults import Bytes
from tests.kube.http_stub import QUICK

PATIENT: Final = replace(QUICK, longest_answer=2**16)
IMPATIENT: Final = replace(QUICK, attempts=2, attempt_timeout_s=0.02, object_timeout_s=0.02)
"""For answers that do not end: nobody knows that but by waiting."""
LONGEST_MESSAGE: Final = 700
"""Characters of an error: a log line of a call that fails, however long the answer was."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST in place of FIN."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the server sends, and what comes of it; texts are bytes as ISO 8859-1."""

    status: str = "200 OK"
    headers: tuple[str, ...] = ()
    body: str = ""
    times: int = 1
    """How often the body is repeated."""
    length: int | None = None
    """The length that the header says; by default the body's own."""
    raw: str | None = None
    """All bytes, in place of those above."""
    then: Literal["close", "reset", "hang", "trickle"] = "close"
    call: Literal["get", "list", "create", "version"] = "get"
    raises: str = ""
    """The class of the error; empty: the call succeeds."""
    says: str = ""
    asks: int | None = None
    """The number of requests; by default it does not matter."""

    def encode(self) -> bytes:
        if self.raw is not None:
            return self.raw.encode("latin-1")
        body = self.body.encode("latin-1") * self.times
        length = len(body) if self.length is None else self.length
        head = [f"HTTP/1.1 {self.status}", "Connection: close", f"Content-Length: {length}", *self.headers, "", ""]
        return "\r\n".join(head).encode("latin-1") + body

    async def send(self, stream: anyio.abc.ByteStream) -> None:
        await stream.send(self.encode())
        if self.then == "reset":
            raw: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if self.then == "hang":
            await anyio.sleep_forever()
        while self.then == "trickle":
            await anyio.sleep(0.001)
            await stream.send(b" ")


async def call(client: Client, verb: str) -> object:
    match verb:
        case "list":
            return await client.list(NODES)
        case "create":
            return await client.create(NODES, Node(metadata=ObjectMeta(name="n")))
        case "version":
            return await client.get_json("/version")
        case _:
            return await client.get(NODES, "n")


async def quietly(answer: Answer, stream: anyio.abc.ByteStream) -> None:
    try:
        await answer.send(stream)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the client has read enough


@pytest.mark.parametrize("answer", cases("test_server_answers.py::test_an_answer_is_what_it_says_or_an_error", Answer))
async def test_an_answer_is_what_it_says_or_an_error(answer: Answer, caplog: pytest.LogCaptureFixture) -> None:
    server = Bytes({"/": [lambda stream: quietly(answer, stream)]})
    error: KerfError | None = None
    async with server.client(IMPATIENT if answer.then in {"hang", "trickle"} else PATIENT) as client:
        try:
            await call(client, answer.call)
        except KerfError as raised:
            error = raised
        while answer.then in {"hang", "trickle"} and not server.asked:
            with suppress(KerfError):  # on a busy machine that time may pass before anything is sent
                await call(client, answer.call)
    message = str(error or "")
    assert (type(error).__name__ if error else "") == answer.raises, message
    assert answer.says in message
    assert len(message) <= LONGEST_MESSAGE
    for line in (message, *(record.getMessage() for record in caplog.records)):
        assert line.isprintable(), "a log line of its own, without control characters"
    assert len({line.partition("?")[0] for line in server.asked}) == 1, "nothing else is asked, wherever it points"
    assert answer.asks in {None, len(server.asked)}
