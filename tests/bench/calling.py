"""Calls of the kubelet's to a plugin, timed, and claims to call it with."""

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
import grpc.aio

from api.dra.v1 import SERVICE
from api.model.names import ClaimRef
from driver.local.kubelet.claims import CALL_TIMEOUT_S
from driver.local.kubelet.plugins import call

MEMORY: Final = Path("/dev/shm")
"""A tmpfs of every Linux system: what simulated hardware remembers lies there, as on the disk it would take time."""


async def milliseconds(work: Awaitable[object]) -> float:
    begin = time.perf_counter()
    await work
    return 1000 * (time.perf_counter() - begin)


async def in_flight(limit: int, calls: Sequence[Callable[[], Awaitable[None]]]) -> list[float]:
    """Milliseconds of each call, ``limit`` of them at any time."""
    took: list[float] = []
    limiter = anyio.CapacityLimiter(limit)

    async def one(work: Callable[[], Awaitable[None]]) -> None:
        async with limiter:
            took.append(await milliseconds(work()))

    async with anyio.create_task_group() as group:
        for work in calls:
            group.start_soon(one, work)
    return took


async def prepare(channel: grpc.aio.Channel, claim: ClaimRef) -> None:
    """Raises RuntimeError when the plugin refuses."""
    outcome = (await call(channel, SERVICE.prepare, [claim], CALL_TIMEOUT_S))[claim.uid]
    if outcome.error:
        raise RuntimeError(outcome.error)


async def unprepare(channel: grpc.aio.Channel, claim: ClaimRef) -> None:
    """Raises RuntimeError when the plugin refuses."""
    error = (await call(channel, SERVICE.unprepare, [claim], CALL_TIMEOUT_S))[claim.uid]
    if error:
        raise RuntimeError(error)
