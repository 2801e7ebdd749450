"""Sockets behind which is no DRA driver, or one that answers what no kubelet could use: each is one failed row."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kerf_dra.api.registration.v1 import GET_INFO, PluginInfo
from kerf_dra.driver.kubeletplugin.grpc.server import serving_at, unary
from kerf_dra.driver.sanity import driver_under_test
from kerf_dra.driver.sanity.rows import Outcome
from kerf_dra.driver.sanity.run import run_rows, select_rows
from tests.sanity.test_rows import toy_driver
from tests.sanity.toy_driver import DRIVER

LARGE = 100 * 1024 * 1024
"""Bytes, of which gRPC reads 4 MiB."""


@contextmanager
def listening(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """A program listens at ``path`` that is no gRPC server: each connection is given to ``answer``."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                answer(connection)

        held: list[socket.socket] = []
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()


def say_nothing(_: socket.socket) -> None:
    """Accept, and never answer."""


def send_garbage(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")


def send_much(connection: socket.socket) -> None:
    block = b"x" * (1 << 20)
    with suppress(OSError):  # the caller has had enough
        for _ in range(100):
            connection.sendall(block)


def hang_up(connection: socket.socket) -> None:
    connection.close()


@pytest.mark.parametrize("answer", [say_nothing, send_garbage, send_much, hang_up])
async def test_a_socket_that_is_no_plugin_fails_the_row_within_the_handshake(
    answer: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_under_test, "HANDSHAKE_S", 0.5)
    async with toy_driver() as (toy, driver):
        driver.registration_socket = toy.root / "other.sock"
        with listening(driver.registration_socket, answer):
            [result] = [result async for result in run_rows(driver, select_rows(["REG-1"]))]
    assert result.outcome is Outcome.FAILED
    assert result.seen.startswith(("GetInfo: DEADLINE_EXCEEDED", "GetInfo: UNAVAILABLE"))


async def test_an_answer_larger_than_a_kubelet_reads_fails_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_under_test, "HANDSHAKE_S", 60.0)  # a busy machine sends it for some seconds

    async def answer(_: None) -> PluginInfo:
        return PluginInfo(name="x" * LARGE, endpoint="/", supported_versions=())

    async with toy_driver() as (toy, driver):
        driver.registration_socket = toy.root / "other.sock"
        async with serving_at(driver.registration_socket, dict([unary(GET_INFO, answer)]), grace_s=0):
            [result] = [result async for result in run_rows(driver, select_rows(["REG-1"]))]
    assert result.outcome is Outcome.FAILED
    assert "RESOURCE_EXHAUSTED" in result.seen


async def test_an_answer_that_is_another_message_fails_the_row() -> None:
    method = replace(GET_INFO, encode_response=lambda _: b"\xff" * 16)

    async def answer(_: None) -> PluginInfo:
        return PluginInfo(name=DRIVER, endpoint="/", supported_versions=())

    async with toy_driver() as (toy, driver):
        driver.registration_socket = toy.root / "other.sock"
        async with serving_at(driver.registration_socket, dict([unary(method, answer)]), grace_s=0):
            [result] = [result async for result in run_rows(driver, select_rows(["REG-1"]))]
    assert result.outcome is Outcome.FAILED
    assert result.seen.startswith("GetInfo: the answer is no such message: ")


async def test_an_endpoint_with_a_path_that_no_socket_can_have_fails_the_row() -> None:
    async def answer(_: None) -> PluginInfo:
        return PluginInfo(name=DRIVER, endpoint=f"/{'d' * 107}", supported_versions=())

    async with toy_driver() as (toy, driver):
        driver.registration_socket = toy.root / "other.sock"
        async with serving_at(driver.registration_socket, dict([unary(GET_INFO, answer)]), grace_s=0):
            [result] = [result async for result in run_rows(driver, select_rows(["REG-2"]))]
    assert result.outcome is Outcome.FAILED
    assert result.seen.endswith(" has 108 bytes; paths of sockets have 107 at most")


async def test_a_driver_whose_devices_are_all_in_use_has_rows_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with toy_driver() as (_, driver):
        await driver.claims.create_class()
        async with driver.claims.allocated(2):
            monkeypatch.setattr(driver.claims, "list_left", _no_claims)  # those two are another program's
            [result] = [result async for result in run_rows(driver, select_rows(["PREPARE-1"]))]
    assert (result.outcome, result.seen) == (
        Outcome.SKIPPED,
        f"{DRIVER} has no free device on node-1 for another claim",
    )


async def _no_claims() -> tuple[()]:
    return ()
