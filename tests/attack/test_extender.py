"""Clients that reach the port of the scheduler extender get no score, and keep the scheduler from none."""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest

from kerf_dra.driver.controller.structured.placement.extender_server import MAX_BODY_BYTES
from kerf_dra.driver.controller.structured.placement_verdict import ExtenderState
from tests.attack.kinds import cases
from tests.controller.structured.lease_server import LeaseServer
from tests.controller.structured.placement.certificates import Certificates, make_certificates
from tests.controller.structured.placement.cluster import Cluster, body, build_two_nodes, pod
from tests.controller.structured.placement.served_extender import (
    HEAD,
    LONG_S,
    ask,
    connected,
    make_context,
    serving,
)

_SHAPES = "test_extender.py::test_an_object_of_another_shape_puts_no_placement_into_effect"
SILENT = 200
"""More connections than the server keeps of those that send nothing."""
LARGE = body(pod("new"), "a").replace(b'"p"', b'"' + b"p" * 10 * 2**20 + b'"')
DEEP = b'{"Pod": {"spec": {"containers": ' + b"[" * 100_000 + b"]" * 100_000 + b'}}, "NodeNames": ["a"]}'
BODIES: Mapping[str, bytes] = {
    "a body of 10 MB": LARGE,
    "a body nested 100,000 levels deep": DEEP,
    "a body that is no JSON": b"\xff" * 1000,
    "a pod of another shape": b'{"Pod": {"spec": {"containers": {"a": 1}}}, "NodeNames": ["a"]}',
}


class Shape(msgspec.Struct):
    """What an object says that is of another shape."""

    placement: Any = None
    """The placement of a class."""
    asked_at: str = ""
    """The time at which a scheduler asked a replica, in the Lease."""


async def send_without_certificate(port: int, ours: Certificates, _others: Certificates) -> None:
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
        await ask(port, make_context(ours, None), body(pod("new"), "a"))


async def send_with_another_authoritys(port: int, ours: Certificates, others: Certificates) -> None:
    with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
        await ask(port, make_context(ours, others), body(pod("new"), "a"))


async def send_without_tls(port: int, _ours: Certificates, _others: Certificates) -> None:
    with pytest.raises((aiohttp.ClientError, ConnectionError)):
        await ask(port, None, body(pod("new"), "a"))


async def connect_silently(port: int, _ours: Certificates, _others: Certificates) -> None:
    """The connections are still open when the scheduler's own comes; closing them is the server's affair."""
    streams = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(SILENT)]
    assert len(streams) == SILENT
    for stream in streams:
        with suppress(OSError):
            await stream.aclose()


async def send_half_a_body(port: int, ours: Certificates, _others: Certificates) -> None:
    async with connected(port, make_context(ours, ours)) as stream:
        await stream.send(HEAD.format(MAX_BODY_BYTES).encode() + b'{"Pod"')


CLIENTS: Mapping[str, Callable[[int, Certificates, Certificates], Awaitable[None]]] = {
    "no client certificate": send_without_certificate,
    "a certificate of another authority": send_with_another_authoritys,
    "no TLS": send_without_tls,
    "silent connections": connect_silently,
    "half a body": send_half_a_body,
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "others")


@pytest.fixture
def cluster() -> Cluster:
    return build_two_nodes()


async def check_served(port: int, ours: Certificates) -> None:
    with anyio.fail_after(LONG_S):
        status, text = await ask(port, make_context(ours, ours), body(pod("new"), "a", "c"))
    assert (status, text) == (200, '[{"Host":"a","Score":10},{"Host":"c","Score":9}]')


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_client_that_is_no_scheduler_gets_no_score(
    cluster: Cluster, ours: Certificates, others: Certificates, kind: str
) -> None:
    async with serving(cluster, ours.server) as port:
        await CLIENTS[kind](port, ours, others)
        await check_served(port, ours)


@pytest.mark.parametrize("kind", BODIES)
async def test_a_body_that_is_no_request_is_refused(cluster: Cluster, ours: Certificates, kind: str) -> None:
    async with serving(cluster, ours.server) as port:
        with suppress(aiohttp.ClientError, ConnectionError):  # refused before all of it was sent
            status, _ = await ask(port, make_context(ours, ours), BODIES[kind])
            assert status in {400, 413}
        await check_served(port, ours)


@pytest.mark.parametrize("shape", cases(_SHAPES, Shape))
async def test_an_object_of_another_shape_puts_no_placement_into_effect(
    cluster: Cluster, ours: Certificates, shape: Shape
) -> None:
    cluster.set_placement(shape.placement)
    server = LeaseServer()
    server.annotate(shape.asked_at)
    replica = server.replica()
    await replica.exchange()
    assert replica.state is ExtenderState.NOT_ASKED
    async with serving(cluster, ours.server) as port:
        await check_served(port, ours)
