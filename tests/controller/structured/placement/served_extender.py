"""An extender that is served over TLS, and its clients."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import aiohttp
import anyio
from anyio.streams.tls import TLSStream

from kerf_dra.driver.controller.structured.placement.extender_server import ExtenderServer
from tests.controller.structured.placement.certificates import Certificates
from tests.controller.structured.placement.cluster import Cluster

SERVER_NAME = "kerf-extender.kerf-system.svc"
LONG_S = 60.0


@asynccontextmanager
async def serving(
    cluster: Cluster, folder: Path, *, body_s: float = LONG_S, reload_s: float = LONG_S
) -> AsyncIterator[int]:
    """The port of the extender over ``cluster``."""
    server = ExtenderServer(cluster.extender, folder, body_s=body_s, reload_s=reload_s)
    async with anyio.create_task_group() as group:
        yield await group.start(server.serve, "127.0.0.1:0")
        group.cancel_scope.cancel()


def make_context(server: Certificates, client: Certificates | None) -> ssl.SSLContext:
    """What a client has: the authority of ``server``, and a certificate of ``client``'s."""
    made = ssl.create_default_context(cafile=str(server.server / "ca.crt"))
    if client is not None:
        made.load_cert_chain(client.client / "tls.crt", client.client / "tls.key")
    return made


async def ask(
    port: int,
    tls: ssl.SSLContext | None,
    data: bytes,
    *,
    method: str = "POST",
    path: str = "/prioritize",
) -> tuple[int, str]:
    """One request: its status and the text of the answer."""
    scheme = "http" if tls is None else "https"
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method,
            f"{scheme}://127.0.0.1:{port}{path}",
            data=BytesIO(data),
            ssl=tls or False,
            server_hostname=SERVER_NAME,
        ) as answer,
    ):
        return answer.status, await answer.text()


@asynccontextmanager
async def connected(port: int, tls: ssl.SSLContext) -> AsyncIterator[TLSStream]:
    async with await anyio.connect_tcp(
        "127.0.0.1", port, ssl_context=tls, tls_hostname=SERVER_NAME, tls_standard_compatible=False
    ) as stream:
        yield stream


HEAD = "POST /prioritize HTTP/1.1\r\nHost: kerf\r\nContent-Length: {}\r\n\r\n"
