"""Lets pods reach the API server, which listens on a loopback address only.

Pods find it at the first address of the service network, which a cluster usually translates in the kernel. Here the
machine has that address itself, and this process carries the bytes.
"""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketStream

from tools.realcluster.cluster import Cluster

_PORT: Final = 443


@asynccontextmanager
async def pod_access(cluster: Cluster) -> AsyncIterator[None]:
    """Let the pods of ``cluster`` reach its API server for as long as the context lasts."""
    _change_address("replace", cluster.service_address)
    try:
        listener = await anyio.create_tcp_listener(local_host=cluster.service_address, local_port=_PORT)

        async def forward(client: SocketStream) -> None:
            with suppress(OSError):  # the API server restarts, or the pod ends
                async with (
                    client,
                    await anyio.connect_tcp("127.0.0.1", cluster.ports.api_server) as server,
                    anyio.create_task_group() as copying,
                ):
                    copying.start_soon(_copy, client, server)
                    await _copy(server, client)
                    copying.cancel_scope.cancel()

        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, forward)
            yield
            group.cancel_scope.cancel()
    finally:
        _change_address("delete", cluster.service_address)


def _change_address(verb: str, address: str) -> None:
    subprocess.run(["ip", "address", verb, f"{address}/32", "dev", "lo"], check=True)


async def _copy(source: ByteReceiveStream, target: ByteSendStream) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            await target.send(await source.receive())
