"""Waiting for the state of a cluster with a precision of milliseconds."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio

from tools.realcluster.api import Api, Document

PATIENCE_S: Final = 300.0
"""A bench that hangs is to end."""
_POLL_S: Final = 0.005


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll ``condition`` every few milliseconds. Raises TimeoutError."""
    with anyio.fail_after(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110  (a process or a server is asked)
            await anyio.sleep(_POLL_S)


@asynccontextmanager
async def pods_from_now(api: Api) -> AsyncIterator[AsyncIterator[Document]]:
    """Yield every pod that changes from now on."""
    listed = await api.request("GET", await api.path("v1", "Pod"))
    async with api.watch("v1", "Pod", resourceVersion=listed["metadata"]["resourceVersion"]) as events:
        yield (event["object"] async for event in events)
