"""Handlers that are programs of their own, over real unix sockets: they register, find devices, fail and attack."""

import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import anyio
import grpc
import grpc.aio
import pytest

from kerf_dra.api.discovery.v1alpha1 import (
    DISCOVER,
    MAX_DECODED,
    REGISTER,
    DiscoveryRequest,
    FoundDevice,
    HandlerRegistration,
)
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.discovery_handlers.base import HandlerError
from kerf_dra.driver.kubeletplugin.discovery_handlers.built_in_handlers import StaticHandler
from kerf_dra.driver.kubeletplugin.discovery_handlers.device_lists import MAX_LISTS, follow_lists
from kerf_dra.driver.kubeletplugin.discovery_handlers.remote_handlers import (
    CHANNEL_OPTIONS,
    MAX_HANDLERS,
    HandlerRegistry,
    RegistrationServer,
    RemoteHandler,
)
from kerf_dra.driver.kubeletplugin.discovery_handlers.service import DeviceDiscovery
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.backoff import Backoff
from tests.kube.memory_server import MemoryServer
from tests.kubeletplugin.harness import short_directory
from tests.kubeletplugin.wait import until

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs/examples/discovery-handler/folder_handler.py"
LIMIT_S = 60.0
"""Of one call: far longer than any takes, so that only a call that hangs fails."""
SETTINGS = Settings(
    node_name="n1",
    family=GPU,
    backends=(),
    retry=Backoff(0.05, 1, 0.05, 0),
    handler_grace_s=0.2,
    rpc_grace_s=0,
    socket_poll_s=0.01,
)

Answer = Callable[[bytes, Any], AsyncIterator[bytes]]


@asynccontextmanager
async def serving(path: Path, answer: Answer) -> AsyncIterator[RemoteHandler]:
    """A handler at ``path`` that answers in bytes."""
    server = grpc.aio.server()
    method: Any = grpc.unary_stream_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(DISCOVER.service, {DISCOVER.name: method}),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield RemoteHandler(path)
    finally:
        await server.stop(None)


async def take_lists(handler: RemoteHandler, request: DiscoveryRequest | None = None) -> list[Sequence[FoundDevice]]:
    """Everything that a handler sends before it ends."""
    with anyio.fail_after(LIMIT_S):
        async with aclosing(handler.discover(request or DiscoveryRequest())) as lists:
            return [each async for each in lists]


def answering(*messages: bytes) -> Answer:
    async def answer(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for message in messages:
            yield message

    return answer


async def test_a_request_and_the_devices_arrive_as_they_were_sent() -> None:
    device = FoundDevice(id="a", properties={"URL": "u"}, shared=True)
    asked: list[DiscoveryRequest] = []

    async def answer(request: bytes, _context: Any) -> AsyncIterator[bytes]:
        asked.append(DISCOVER.decode_request(request))
        yield DISCOVER.encode_response([device])
        yield DISCOVER.encode_response([])

    request = DiscoveryRequest(details="what", properties={"A": "b"})
    with short_directory() as folder:
        async with serving(folder / "h.sock", answer) as handler:
            assert await take_lists(handler, request) == [(device,), ()]
    assert asked == [request]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\xff\xff\xff", "what is no list of devices"),
        (b"\x0a\x03\x0a\x01\xff", "what is no list of devices"),  # a device whose id is no text
        (b"\x0a" + bytes(2_000_000), "RESOURCE_EXHAUSTED"),
    ],
    ids=["rubbish", "an id in other bytes than UTF-8", "two megabytes"],
)
async def test_rubbish_is_an_error_of_the_handler(message: bytes, reason: str) -> None:
    with short_directory() as folder:
        async with serving(folder / "h.sock", answering(message)) as handler:
            with pytest.raises(HandlerError, match=reason):
                await take_lists(handler)


async def test_of_a_list_without_bound_no_more_is_read_than_is_needed_to_see_that() -> None:
    message = DISCOVER.encode_response([FoundDevice(id=str(number)) for number in range(50_000)])
    with short_directory() as folder:
        async with serving(folder / "h.sock", answering(message)) as handler:
            assert [len(each) for each in await take_lists(handler)] == [MAX_DECODED]


async def test_what_a_handler_says_of_its_failure_is_cut_and_is_one_line() -> None:
    async def answer(_request: bytes, context: Any) -> AsyncIterator[bytes]:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no\nsuch\x1b[31mthing" + "x" * 5000)
        yield b""

    with short_directory() as folder:
        async with serving(folder / "h.sock", answer) as handler:
            with pytest.raises(HandlerError) as caught:
                await take_lists(handler)
    assert str(caught.value).startswith("INVALID_ARGUMENT: no such\N{REPLACEMENT CHARACTER}[31mthing")
    assert len(str(caught.value)) < 400


async def test_a_handler_that_floods_is_cut_off() -> None:
    sent = 0

    async def answer(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield DISCOVER.encode_response([FoundDevice(id=str(sent))])

    taken: list[Sequence[FoundDevice]] = []
    with short_directory() as folder:
        async with serving(folder / "h.sock", answer) as handler:
            with anyio.fail_after(LIMIT_S), pytest.raises(HandlerError, match=f"more than {MAX_LISTS} lists"):
                await follow_lists(handler.discover(DiscoveryRequest()), taken.append)
    assert len(taken) < 10


async def test_a_handler_that_is_not_there_is_an_error() -> None:
    with short_directory() as folder, pytest.raises(HandlerError, match="UNAVAILABLE"):
        await take_lists(RemoteHandler(folder / "h.sock"))


# Registration


@contextmanager
def listening(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as each:
        each.bind(str(path))
        yield


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[HandlerRegistry]:
    """The plugin's socket for handlers."""
    registry = HandlerRegistry({"static": StaticHandler()})
    async with anyio.create_task_group() as group:
        group.start_soon(RegistrationServer(SETTINGS, folder, registry).run)
        await until((folder / "registration.sock").exists)
        yield registry
        group.cancel_scope.cancel()


class Registered:
    """A handler that registers."""

    def __init__(self, folder: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{folder}/registration.sock")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def register(self, name: str, endpoint: str = "h.sock") -> Any:
        """Returns the open call."""
        method: Any = self._channel.unary_stream(
            REGISTER.path, request_serializer=REGISTER.encode_request, response_deserializer=REGISTER.decode_response
        )
        call = method(HandlerRegistration(name=name, endpoint=endpoint), timeout=LIMIT_S)
        await call.read()
        return call


async def test_a_handler_is_registered_for_as_long_as_its_call_lasts() -> None:
    with short_directory() as folder, anyio.fail_after(LIMIT_S):
        async with running(folder) as registry, Registered(folder) as one:
            with listening(folder / "h.sock"):
                call = await one.register("onvif")
                assert isinstance(registry.find("onvif"), RemoteHandler)
                call.cancel()
                await until(lambda: registry.find("onvif") is None)
                await one.register("onvif")
        assert registry.find("onvif") is None


@pytest.mark.parametrize(
    ("name", "endpoint", "reason"),
    [
        ("static", "h.sock", "static is a handler of the plugin itself"),
        ("", "h.sock", "a handler's name has letters"),
        ("a/b", "h.sock", "a handler's name has letters"),
        ("x" * 65, "h.sock", "a handler's name has letters"),
        ("onvif", "../h.sock", "an endpoint is the name of a socket"),
        ("onvif", "/run/h.sock", "an endpoint is the name of a socket"),
        ("onvif", "..", "an endpoint is the name of a socket"),
        ("onvif", "registration.sock", "an endpoint is the name of a socket"),
        ("onvif", "nothing.sock", "No such file"),
        ("onvif", "file", "file is no socket"),
        ("onvif", "link.sock", "link.sock is no socket"),
        ("onvif", "x" * 64, "shorten it|File name too long|No such file"),
    ],
)
async def test_ak_22_what_cannot_be_a_handler_is_refused_with_the_reason(name: str, endpoint: str, reason: str) -> None:
    with short_directory() as folder, listening(folder / "h.sock"), anyio.fail_after(LIMIT_S):
        (folder / "file").touch()
        (folder / "link.sock").symlink_to("h.sock")
        async with running(folder) as registry, Registered(folder) as one:
            with pytest.raises(grpc.aio.AioRpcError, match=reason) as caught:
                await one.register(name, endpoint)
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert name == "static" or registry.find(name) is None


async def test_of_two_handlers_of_one_name_the_first_stays_and_the_other_may_follow_it() -> None:
    with short_directory() as folder, listening(folder / "h.sock"), anyio.fail_after(LIMIT_S):
        async with running(folder) as registry, Registered(folder) as one, Registered(folder) as other:
            call = await one.register("onvif")
            first = registry.find("onvif")
            with pytest.raises(grpc.aio.AioRpcError, match="onvif is registered already"):
                await other.register("onvif")
            assert registry.find("onvif") is first
            call.cancel()
            await until(lambda: registry.find("onvif") is None)
            await other.register("onvif")


async def test_the_number_of_handlers_is_bounded() -> None:
    with short_directory() as folder, listening(folder / "h.sock"), anyio.fail_after(LIMIT_S):
        async with running(folder), Registered(folder) as one:
            for number in range(MAX_HANDLERS):
                await one.register(f"h{number}")
            with pytest.raises(grpc.aio.AioRpcError, match="handlers already"):
                await one.register("another")


async def test_a_socket_that_somebody_removes_is_served_anew_and_is_for_root_only() -> None:
    with short_directory() as folder, listening(folder / "h.sock"), anyio.fail_after(LIMIT_S):
        path = folder / "registration.sock"
        async with running(folder) as registry:
            async with Registered(folder) as one:
                await one.register("onvif")
                path.unlink()
                await until(lambda: registry.find("onvif") is None)
                await until(path.exists)
            assert path.stat().st_mode & 0o777 == 0o600
            async with Registered(folder) as one:
                await one.register("onvif")


async def test_the_plugin_waits_for_no_handler_when_it_ends() -> None:
    patient = replace(SETTINGS, rpc_grace_s=2 * LIMIT_S)
    with short_directory() as folder, listening(folder / "h.sock"), anyio.fail_after(LIMIT_S):
        registry = HandlerRegistry({})
        async with anyio.create_task_group() as group, Registered(folder) as one:
            group.start_soon(RegistrationServer(patient, folder, registry).run)
            await until((folder / "registration.sock").exists)
            call = await one.register("onvif")
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                assert await call.read() == grpc.aio.EOF


# A program


@contextmanager
def started(sockets: Path) -> Iterator["subprocess.Popen[str]"]:
    """The example of docs/write-a-discovery-handler.md, as a process."""
    process = subprocess.Popen([sys.executable, EXAMPLE, sockets], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with process:
        try:
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def discovering(server: MemoryServer, sockets: Path) -> AsyncIterator[None]:
    """The part of the plugin that discovers."""
    registry = HandlerRegistry({})
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(anyio.create_task_group())
        group.start_soon(RegistrationServer(SETTINGS, sockets, registry).run)
        discovery = DeviceDiscovery(SETTINGS, server.client(), registry, lambda *_, **__: None)
        group.start_soon(discovery.run)
        yield
        group.cancel_scope.cancel()


async def test_a_program_that_is_stopped_and_says_nothing_more_is_found_out() -> None:
    options = [("grpc.keepalive_time_ms", 1000), ("grpc.http2.ping_timeout_ms", 1000)]
    with short_directory() as folder, anyio.fail_after(LIMIT_S), started(folder) as process:
        (folder / "cameras").mkdir()
        await until((folder / "folder.sock").exists)
        request = DiscoveryRequest(details=f"{folder}/cameras")
        lists = RemoteHandler(folder / "folder.sock", options).discover(request)
        assert await anext(lists) == ()
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(HandlerError, match="ping timeout"):
            await anext(lists)
    assert {name for name, _ in options} < {name for name, _ in CHANNEL_OPTIONS}


async def test_ak_22_a_program_that_finds_devices_registers_ends_and_comes_back_and_so_may_the_plugin() -> None:
    server = MemoryServer()
    spec = {"discoveryHandler": {"name": "folder"}}
    with short_directory() as folder, anyio.fail_after(LIMIT_S):
        cameras, sockets = folder / "cameras", folder / "sockets"
        cameras.mkdir()
        sockets.mkdir()
        spec["discoveryHandler"]["details"] = str(cameras)
        server.put("discoveryconfigurations", {"metadata": {"name": "cams"}, "spec": spec})

        def seen() -> dict[str, str]:
            return {
                value["spec"]["deviceID"]: value["spec"]["properties"]["CAMERA_URL"]
                for (collection, _, _), value in server.objects.items()
                if collection == "discovereddevices" and value["spec"].get("nodes")
            }

        (cameras / "one").write_text("rtsp://10.0.0.1")
        async with discovering(server, sockets):
            with started(sockets) as process:
                await until(lambda: seen() == {"one": "rtsp://10.0.0.1"})
                (cameras / "two").write_text("rtsp://10.0.0.2")
                await until(lambda: seen().keys() == {"one", "two"})
                process.kill()
                await until(lambda: not seen())
            with started(sockets):
                await until(lambda: seen().keys() == {"one", "two"})
                uids = {value["metadata"]["uid"] for value in server.objects.values()}
                (cameras / "two").unlink()
                await until(lambda: seen().keys() == {"one"})
        with started(sockets):
            (cameras / "three").write_text("rtsp://10.0.0.3")
            async with discovering(server, sockets):
                await until(lambda: seen() == {"one": "rtsp://10.0.0.1", "three": "rtsp://10.0.0.3"})
    assert {value["metadata"]["uid"] for value in server.objects.values()} > uids
