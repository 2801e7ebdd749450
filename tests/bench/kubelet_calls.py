"""The kubelet's calls of a plugin, with their durations, and claims for them."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import grpc.aio

from kerf_dra.api.dra import health
from kerf_dra.api.dra.v1 import SERVICE
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.local.kubelet.claims import CALL_TIMEOUT_S
from kerf_dra.driver.local.kubelet.plugins import call

MEMORY: Final = Path("/dev/shm")
"""A tmpfs of every Linux system: what simulated hardware remembers lies there, as on the disk it would take time."""

_CPUCLOCK_SCHED: Final = 2
"""The clock of a process that counts its threads' time to the nanosecond (``linux/posix-timers.h``)."""


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


@asynccontextmanager
async def health_watched(channel: grpc.aio.Channel) -> AsyncIterator[None]:
    """Read the devices' health inside the context, as the kubelet does while it has the plugin registered."""
    watch = health.V1.watch
    reports = channel.unary_stream(
        watch.path, request_serializer=watch.encode_request, response_deserializer=watch.decode_response
    )(None)

    async def read_on() -> None:
        while await reports.read() is not grpc.aio.EOF:
            pass

    await reports.read()  # the stream is there
    async with anyio.create_task_group() as group:
        group.start_soon(read_on)
        yield
        group.cancel_scope.cancel()


def cpu_ms(pid: int) -> float:
    """Processor time that the process has taken so far, also by threads that have ended, to the nanosecond.

    It is that of its clock (clock_getcpuclockid(3)); the files of /proc have it without such threads, or in ticks.
    """
    return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED) / 1e6
