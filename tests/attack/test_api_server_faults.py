"""What a broken, restored, overloaded or hostile API server can do: it neither silences nor fills the client."""

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import anyio
import anyio.abc
import pytest

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kube.http.client import Client, ClientSettings
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import (
    AnswerTooLargeError,
    ExpiredError,
    UnexpectedAnswerError,
    UnreachableError,
    build_status_error,
)
from kerf_dra.driver.kube.informer import Informer
from tests.kube.http_stub import IMPATIENT, QUICK

MIB = 2**20
Answer = Callable[[anyio.abc.ByteStream], Awaitable[None]]

NODE = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"u","resourceVersion":"7"}}'
EVENT = b'{"type":"ADDED","object":%s}\n' % NODE
LIST = b'{"apiVersion":"v1","kind":"NodeList","metadata":{"resourceVersion":"7"},"items":[%s]}' % NODE
TOO_LARGE = (
    b'{"kind":"Status","status":"Failure","reason":"Timeout","code":504,'
    b'"message":"Timeout: Too large resource version: 900, current: 7",'
    b'"details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],'
    b'"retryAfterSeconds":1}}'
)


@dataclass
class Bytes:
    """A server of bytes: whatever is asked of a path gets the path's answers in turn, the last one for ever."""

    answers: dict[str, list[Answer]]
    asked: list[str] = field(default_factory=list)
    """The request lines."""
    url: str = ""

    async def handle(self, stream: anyio.abc.SocketStream) -> None:
        try:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            self.asked.append(head.split(b"\r\n")[0].decode())
            answers = next(these for path, these in self.answers.items() if f" {path}" in self.asked[-1])
            await (answers.pop(0) if len(answers) > 1 else answers[0])(stream)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass  # the client has gone: it was cancelled, or reads no further
        finally:
            with anyio.CancelScope(shield=True):  # cancelled halfway, it would keep the socket until its buffer is sent
                await stream.aclose()

    @asynccontextmanager
    async def client(self, settings: ClientSettings = QUICK) -> AsyncIterator[Client]:
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            group.start_soon(listener.serve, self.handle)
            async with Client(Access(server=f"http://127.0.0.1:{port}"), user_agent="t/1", settings=settings) as client:
                yield client
            await anyio.wait_all_tasks_blocked()  # every connection has its handler, which closes it
            group.cancel_scope.cancel()


def sends(*parts: bytes) -> Answer:
    async def answer(stream: anyio.abc.ByteStream) -> None:
        for part in parts:
            await stream.send(part)

    return answer


def responds(body: bytes, *, status: bytes = b"200 OK", headers: bytes = b"") -> Answer:
    return sends(
        b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n" % (status, len(body), headers), body
    )


def streams(*chunks: bytes, rest: bytes = b"") -> Answer:
    """A chunked answer with ``rest`` after its chunks."""
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    return sends(head, *(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks), rest)


async def hangs(_stream: anyio.abc.ByteStream) -> None:
    await anyio.sleep_forever()


async def follow(client: Client) -> list[str]:
    """Return the names in a watch, until it ends or fails."""
    names: list[str] = []
    async with aclosing(client.watch(NODES, resource_version="1")) as events:
        async for event in events:
            assert event.ref is not None
            names.append(event.ref.name)
    return names


@pytest.mark.parametrize(
    "rest", [b"zz\r\n", b"-1\r\n", b"5\r\nab", b"\xff\xfe\r\n", b"ffffffffffffffffff\r\n"], ids=str
)
async def test_a_watch_whose_chunks_are_corrupt_ends(rest: bytes) -> None:
    async with Bytes({"/": [streams(EVENT, rest=rest)]}).client(IMPATIENT) as client:
        with pytest.raises(UnreachableError):
            await follow(client)


@pytest.mark.parametrize(
    "answer",
    [
        sends(b"\x16\x03\x01\x02\x00"),
        sends(b"HTTP/1.1 2000 OK\r\n\r\n"),
        sends(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
        sends(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 10**5),
        streams(NODE, rest=b"zz\r\n"),
        sends(),
    ],
    ids=["tls", "status", "length", "header", "chunk", "nothing"],
)
async def test_bytes_that_are_no_http_are_an_answer_that_did_not_come(answer: Answer) -> None:
    async with Bytes({"/": [answer]}).client(IMPATIENT) as client:
        with pytest.raises(UnreachableError):
            await client.get(NODES, "n")


async def hear_of(server: Bytes, name: str) -> None:
    """Wait until an informer of nodes has heard of one."""
    heard = anyio.Event()
    async with server.client(IMPATIENT) as client, anyio.create_task_group() as group:
        informer = Informer(client, NODES, on_change=lambda change: heard.set() if change.ref.name == name else None)
        group.start_soon(informer.run)
        with anyio.fail_after(120):
            await heard.wait()
        group.cancel_scope.cancel()


async def test_an_informer_hears_the_next_event_after_a_corrupt_one() -> None:
    later = EVENT.replace(b'"n"', b'"later"').replace(b'"7"', b'"8"')
    server = Bytes({"/api/v1/nodes?watch": [streams(EVENT, rest=b"zz\r\n"), streams(later)], "/": [responds(LIST)]})
    await hear_of(server, "later")


async def test_an_informer_lists_again_when_the_server_has_not_reached_its_version() -> None:
    # etcd was restored from a backup: the resource versions of before are in the future.
    server = Bytes(
        {
            "/api/v1/nodes?watch": [responds(TOO_LARGE, status=b"504 Gateway Timeout"), hangs],
            "/": [responds(LIST.replace(b'"n"', b'"before"')), responds(LIST)],
        }
    )
    await hear_of(server, "n")


@pytest.mark.parametrize("status", [504, 0], ids=["answer", "event"])
def test_a_version_of_the_future_is_one_to_list_again_for(status: int) -> None:
    assert isinstance(build_status_error("GET /", status, TOO_LARGE), ExpiredError)


async def test_no_answer_is_unpacked() -> None:
    packed = gzip.compress(b" " * 64 * MIB)
    assert len(packed) < MIB // 8
    server = Bytes({"/": [responds(packed, headers=b"Content-Encoding: gzip\r\n")]})
    async with server.client() as client:
        with pytest.raises(UnexpectedAnswerError):
            await client.get(NODES, "n")


@pytest.mark.parametrize("size", [3 * MIB, 40 * MIB])
async def test_an_answer_is_read_up_to_a_limit(size: int) -> None:
    limits = replace(QUICK, longest_answer=2 * MIB)
    async with Bytes({"/": [responds(b" " * size)]}).client(limits) as client:
        with pytest.raises(AnswerTooLargeError, match=r"^GET /api/v1/nodes/n: the answer is longer than 2 MiB"):
            await client.get(NODES, "n")


async def test_a_line_of_a_watch_is_read_up_to_a_limit() -> None:
    limits = replace(QUICK, longest_answer=2 * MIB)
    async with Bytes({"/": [streams(EVENT, *(b"x" * MIB for _ in range(4)))]}).client(limits) as client:
        with pytest.raises(AnswerTooLargeError):
            await follow(client)


@pytest.mark.parametrize("readable", [500, 100, 10, 0])
async def test_a_list_whose_pages_are_too_large_is_read_in_smaller_ones(readable: int) -> None:
    """A page of 500 slices has 20 MiB and more: with many shares all lists were read ten objects at a time."""
    large = LIST.replace(b'"name"', b'"annotations":{"a":"%s"},"name"' % (b"x" * 3 * MIB))
    limits = replace(QUICK, longest_answer=2 * MIB)
    answers = {size: responds(LIST if size <= readable else large) for size in (500, 100, 10)}
    server = Bytes({f"/api/v1/nodes?limit={size}": [answer] for size, answer in answers.items()})
    async with server.client(limits) as client:
        if readable:
            assert [node.metadata.name for node in (await client.list(NODES)).items] == ["n"]
        else:
            with pytest.raises(AnswerTooLargeError):
                await client.list(NODES)


async def test_reads_that_hang_keep_no_slice_from_being_published_and_give_way() -> None:
    limits = replace(QUICK, calls_at_once=2, attempts=1)
    server = Bytes({"/api/v1/nodes/hangs": [hangs], "/api/v1/nodes/n": [responds(NODE)], "/": [responds(NODE)]})
    ended: list[str] = []

    async def hang(client: Client) -> None:
        with pytest.raises(UnreachableError):
            await client.get(NODES, "hangs")
        ended.append("hung")

    async def read(client: Client) -> None:
        while "read" not in ended:
            with suppress(UnreachableError):  # on a busy machine it may miss the time that those which hang have
                await client.get(NODES, "n")
                ended.append("read")

    async with server.client(limits) as client, anyio.create_task_group() as group:
        group.start_soon(hang, client)
        group.start_soon(hang, client)
        await anyio.wait_all_tasks_blocked()
        await client.create(NODES, Node(metadata=ObjectMeta(name="n")))
        assert ended == [], "a write has a budget of its own"
        group.cancel_scope.cancel()
    async with server.client(replace(limits, object_timeout_s=0.2)) as client, anyio.create_task_group() as group:
        group.start_soon(hang, client)
        group.start_soon(hang, client)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(read, client)
    assert ended[0] == "hung", "a read waits for the first of those that hang"
    assert sorted(ended[1:]) == ["hung", "read"]
