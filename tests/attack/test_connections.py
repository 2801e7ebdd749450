"""Whoever can reach a port of Kerf opens connections and says nothing, little or too much."""

import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import aiohttp
import anyio
import grpc.aio
import msgspec
import pytest
import yaml
from anyio.abc import SocketStream
from prometheus_client import CollectorRegistry

from kerf_dra.driver.kubeletplugin.grpc import server
from kerf_dra.driver.runtime import lifecycle
from kerf_dra.driver.runtime.probes import Probes
from tests.attack.kinds import cases

MANIFESTS = Path(__file__).parents[2] / "deploy/manifests"
MANY = 400
CROWD = 2_000
LONG_S = 3600.0
LONGEST_S = 60.0
"""Of what takes tenths of a second on an idle machine."""
KUBELETS_IDLE_MS = 30 * 60 * 1000
"""After this time without a call grpc-go's clients end a connection (``defaultDialOptions``), and so do kubelets."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a client of HTTP/2 says first, with empty settings (RFC 9113, 3.4): to gRPC its connection is established."""


@asynccontextmanager
async def serving(connection_s: float = LONG_S) -> AsyncIterator[int]:
    probes = Probes(CollectorRegistry(), connection_s=connection_s)
    async with anyio.create_task_group() as group:
        address = await group.start(probes.serve, "127.0.0.1:0")
        yield int(address.rpartition(":")[2])
        group.cancel_scope.cancel()


async def until_closed(stream: SocketStream) -> bytes:
    received = b""
    try:
        while True:
            received += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return received


async def is_alive(port: int) -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/healthz") as response:
        return response.status == 200


async def until_alive(port: int) -> None:
    """Ask until there is an answer: on a loaded machine a request may take longer than its connection may."""
    while True:
        with suppress(aiohttp.ClientError):
            if await is_alive(port):
                return


async def test_silent_connections_take_no_more_descriptors_than_a_few_and_keep_no_probe_out() -> None:
    async with serving() as port, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)) for _ in range(MANY)]
        assert await is_alive(port)
        closed = 0

        async def count(stream: SocketStream) -> None:
            nonlocal closed
            await until_closed(stream)
            closed += 1
            if closed >= MANY - 64:
                enough.set()

        enough = anyio.Event()
        async with anyio.create_task_group() as group:
            for stream in silent:
                group.start_soon(count, stream)
            await enough.wait()
            group.cancel_scope.cancel()
        assert await is_alive(port)


@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: "])
async def test_a_request_that_does_not_come_ends_its_connection(sent: bytes) -> None:
    async with serving(connection_s=0.25) as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        if sent:
            await stream.send(sent)
        assert await until_closed(stream) == b""
        await until_alive(port)


async def test_an_answer_ends_its_connection() -> None:
    async with serving() as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await until_closed(stream)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 10_000 + b"\r\n",
    ],
    ids=["path", "header", "headers"],
)
async def test_a_request_that_is_too_large_is_refused_and_ends_its_connection(request_: bytes) -> None:
    async with serving() as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        try:
            await stream.send(request_)
        except anyio.BrokenResourceError:  # the server has closed it before it read all
            pass
        assert (await until_closed(stream))[:12] in {b"HTTP/1.1 400", b"HTTP/1.0 400", b""}
        assert await is_alive(port)


async def test_a_body_is_not_waited_for() -> None:
    async with serving() as port, await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n" + b"a" * 1000)
        assert (await until_closed(stream)).startswith(b"HTTP/1.1 405")


@contextmanager
def as_many_open_files_as_allowed() -> Iterator[None]:
    """Let the process open as many files as a program of Kerf may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        lifecycle._raise_open_files()
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def call_the_plugin(path: Path, *, wait_for_ready: bool) -> None:
    """Call over a new connection, as a kubelet that has just started; its calls do not wait for one."""
    async with grpc.aio.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/none/None")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(b"", wait_for_ready=wait_for_ready, timeout=LONGEST_S)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_connections_to_the_plugins_socket_are_few_and_those_that_say_nothing_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(server.OPTIONS) | {"grpc.server_handshake_timeout_ms": 250}
    monkeypatch.setattr(server, "OPTIONS", tuple(options.items()))
    path = tmp_path / "dra.sock"
    async with server.serving_at(path, {}, grace_s=0), AsyncExitStack() as stack:
        async with anyio.create_task_group() as group:  # it ends when the server has closed them all
            for _ in range(MANY):
                stream = await stack.enter_async_context(await anyio.connect_unix(path))
                group.start_soon(until_closed, stream)
        await call_the_plugin(path, wait_for_ready=True)  # a loaded machine may need more than one handshake


class Crowd(msgspec.Struct, frozen=True):
    """Whether each of many connections is established to gRPC, or says nothing."""

    speaks: bool


@pytest.mark.parametrize(
    "crowd",
    cases("test_connections.py::test_the_kubelets_call_is_answered_while_2000_connections_are_open", Crowd),
)
async def test_the_kubelets_call_is_answered_while_2000_connections_are_open(crowd: Crowd, tmp_path: Path) -> None:
    """64 of them took all that the server would have, those that had spoken for good."""
    path = tmp_path / "dra.sock"
    with as_many_open_files_as_allowed():
        async with AsyncExitStack() as stack, server.serving_at(path, {}, grace_s=0):
            for _ in range(CROWD):
                stream = await stack.enter_async_context(await anyio.connect_unix(path))
                if crowd.speaks:
                    await stream.send(PREFACE)
            await call_the_plugin(path, wait_for_ready=False)


async def test_a_connection_to_the_plugin_without_a_call_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stayed for ever, as many as a program that leaks them opens."""
    options = dict(server.OPTIONS)
    assert options["grpc.max_connection_idle_ms"] > KUBELETS_IDLE_MS
    options["grpc.max_connection_idle_ms"] = 250
    monkeypatch.setattr(server, "OPTIONS", tuple(options.items()))
    path = tmp_path / "dra.sock"
    async with server.serving_at(path, {}, grace_s=0), await anyio.connect_unix(path) as stream:
        await stream.send(PREFACE)
        with anyio.fail_after(LONGEST_S):
            await until_closed(stream)


def test_a_process_may_open_as_many_files_as_its_limit_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        lifecycle._raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(hard, 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("name", ["10-controller.yaml", "20-kubelet-plugin.yaml"])
def test_the_probes_listen_at_the_pods_address_only(name: str) -> None:
    workload = next(
        document
        for document in yaml.safe_load_all((MANIFESTS / name).read_text())
        if document["kind"] in {"Deployment", "DaemonSet"}
    )
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert "--probes-address=$(POD_IP):8080" in container["args"]
    assert {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in container["env"]
