"""gRPC servers on unix sockets: private, replacing stale ones, gone when they end, whatever cancels them."""

import resource
from pathlib import Path

import anyio
import pytest

from kerf_dra.api.registration.v1 import GET_INFO, PluginInfo
from kerf_dra.driver.kubeletplugin.grpc.server import (
    Handlers,
    SocketError,
    count_most_connections,
    serving_at,
    unary,
    was_removed,
)
from tests.fakes.kubelet import FakeKubelet
from tests.kubeletplugin.harness import LONGEST_S, short_directory

INFO = PluginInfo(name="gpu.kerf.dev", endpoint="/dra.sock", supported_versions=("v1.DRAPlugin",))


async def answer(_: None) -> PluginInfo:
    return INFO


HANDLERS: Handlers = dict([unary(GET_INFO, answer)])


async def asked(socket: Path) -> PluginInfo:
    async with FakeKubelet._channel(socket) as channel:
        call = channel.unary_unary(
            "/pluginregistration.Registration/GetInfo",
            request_serializer=GET_INFO.encode_request,
            response_deserializer=GET_INFO.decode_response,
        )
        return await call(None, timeout=LONGEST_S)


async def test_a_socket_is_for_root_only_and_goes_when_its_server_ends() -> None:
    with short_directory() as root:
        socket = root / "plugins/gpu.kerf.dev/dra.sock"
        async with serving_at(socket, HANDLERS, grace_s=0):
            assert socket.stat().st_mode & 0o777 == 0o600
            assert await asked(socket) == INFO
        assert not socket.exists()


async def test_a_stale_socket_of_a_killed_process_is_replaced() -> None:
    with short_directory() as root:
        socket = root / "dra.sock"
        listener = await anyio.create_unix_listener(socket)
        await listener.aclose()
        assert socket.exists()
        async with serving_at(socket, HANDLERS, grace_s=0):
            assert await asked(socket) == INFO


async def test_a_directory_that_cannot_be_made_is_an_error_that_names_the_socket() -> None:
    with short_directory() as root:
        (root / "plugins").write_text("a file")
        with pytest.raises(
            SocketError, match=f"cannot serve at {root}/plugins/dra.sock: .*(Not a directory|File exists)"
        ):
            async with serving_at(root / "plugins/dra.sock", HANDLERS, grace_s=0):
                pass


async def test_cancellation_at_any_moment_leaves_no_socket_and_no_stray_error() -> None:
    """A server cancelled in ``start`` once made grpc.aio raise InvalidStateError in the event loop."""
    with short_directory() as root:
        socket = root / "dra.sock"
        for delay_s in (0, 0.0001, 0.0005, 0.001, 0.002, 0.005):
            with anyio.move_on_after(delay_s):
                async with serving_at(socket, HANDLERS, grace_s=0):
                    await anyio.sleep_forever()
            assert not socket.exists()


def test_a_socket_is_gone_only_if_the_system_says_so(tmp_path: Path) -> None:
    """EIO in one look at a socket ended the plugin, as an error of the program."""
    (tmp_path / "file").touch()
    assert not was_removed(tmp_path / "file")
    assert was_removed(tmp_path / "gone")
    assert was_removed(tmp_path / "file" / "below")
    assert not was_removed(tmp_path / ("x" * 300))


@pytest.mark.parametrize(
    ("open_files", "connections"),
    [(256, 16), (1_024, 64), (20_000, 2_436), (65_536, 4_096), (resource.RLIM_INFINITY, 4_096)],
)
def test_connections_leave_descriptors_for_the_work(open_files: int, connections: int) -> None:
    assert count_most_connections(open_files) == connections
