"""A proxy between Kerf's controller and the real API server, at which a test strikes when a certain write comes by.

A strike happens once, before the write reaches the API server or after it has answered: some effect, and then the
connection breaks, or the write, or its answer, goes on its way.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import aiohttp
import anyio
import msgspec
from aiohttp import web
from anyio.abc import TaskGroup

from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import CONTROLLER, Kerf
from tests.realcluster.places import free_port

_FINALIZER: Final = "kerf.dev/deletion-protection"
_OF_ONE_CONNECTION: Final = frozenset({"connection", "host", "transfer-encoding", "content-length", "keep-alive"})
"""Headers that are not passed on (RFC 9110, section 7.6.1)."""
_CLOSE_S: Final = 0.1
"""At the end: nobody waits for answers any more, watches apart, which do not end."""


class Write(StrEnum):
    """Everything that the controller writes about claims, and its Lease."""

    MARK = "mark"
    """The finalizer, before the allocation."""
    ALLOCATION = "allocation"
    REPORT = "report"
    """``unsuitableNodes``."""
    RELEASE = "release"
    """The allocation's end."""
    UNMARK = "unmark"
    """The finalizer, after it."""
    FENCE = "fence"
    """A new leader's, on marked claims that are not allocated."""
    LEASE = "lease"


class When(StrEnum):
    BEFORE = "before"
    AFTER = "after"


class _LostError(Exception):
    """The connection is to break."""


async def nothing() -> None:
    """An effect: none."""


@dataclass(slots=True, kw_only=True)
class Strike:
    """What is to happen at a write. ``name`` is the object's."""

    write: Write
    name: str
    when: When
    effect: Callable[[], Awaitable[None]]
    loses: bool
    """The connection breaks."""
    struck: bool = False
    status: int = 0
    """What the API server answered to the write; 0: it has not seen it."""

    def __str__(self) -> str:
        return f"{self.when} the {self.write} of {self.name}"


class Proxy:
    """See the head of the file; ``controller_behind_proxy`` makes one."""

    def __init__(self, behind: str, authority: Path, session: aiohttp.ClientSession, effects: TaskGroup) -> None:
        """``behind``: the API server's address. ``effects``: they go on there when nobody waits for them any more."""
        self._behind = behind
        self._trusted = ssl.create_default_context(cafile=authority)
        self._session = session
        self._effects = effects
        self._one_at_a_time = anyio.Lock()
        self._strikes: list[Strike] = []

    def strike(
        self, write: Write, name: str, when: When, effect: Callable[[], Awaitable[None]] = nothing, *, loses: bool
    ) -> Strike:
        """Have ``effect`` happen once: at the next such write to the object ``name``."""
        strike = Strike(write=write, name=name, when=when, effect=effect, loses=loses)
        self._strikes.append(strike)
        return strike

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on, and its answer back."""
        body = await request.read()
        strike = self._next(request, body)
        try:
            await self._hit(strike, When.BEFORE)
            return await self._forward(request, body, strike)
        except (_LostError, aiohttp.ClientError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response()  # which nobody gets

    async def _forward(self, request: web.Request, body: bytes, strike: Strike | None) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_ONE_CONNECTION}
        address = f"{self._behind}{request.raw_path}"
        async with self._session.request(
            request.method, address, data=body or None, headers=headers, ssl=self._trusted
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_ONE_CONNECTION}
            if strike is not None:
                strike.status = answer.status
            await self._hit(strike, When.AFTER)
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    def _next(self, request: web.Request, body: bytes) -> Strike | None:
        about = _write(request, body)
        found = next((one for one in self._strikes if (one.write, one.name) == about), None)
        if found is not None:
            self._strikes.remove(found)
        return found

    async def _hit(self, strike: Strike | None, when: When) -> None:
        """Whoever sent the write may die of it: the effect goes on, and the write does not."""
        if strike is None or strike.when is not when:
            return
        ended = anyio.Event()
        self._effects.start_soon(self._run, strike, ended)
        await ended.wait()
        if strike.loses:
            raise _LostError

    async def _run(self, strike: Strike, ended: anyio.Event) -> None:
        async with self._one_at_a_time:
            strike.struck = True
            await strike.effect()
            ended.set()


@asynccontextmanager
async def controller_behind_proxy(cluster: Cluster, kerf: Kerf) -> AsyncIterator[tuple[Proxy, str]]:
    """Have the controller reach the API server through a proxy for as long as the context lasts.

    The proxy's address comes with it; the proxy has the API server's own certificate.
    """
    authority, address = cluster.places.authority, f"https://127.0.0.1:{(port := free_port())}"
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(authority, authority.with_suffix(".key"))
    endless = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(auto_decompress=False, timeout=endless) as session,
        anyio.create_task_group() as effects,
    ):
        proxy = Proxy(cluster.server, authority, session, effects)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", proxy.handle)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=_CLOSE_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port, ssl_context=own).start()
            await cluster.processes.stop(CONTROLLER)
            await kerf.start_controller(server=address)
            yield proxy, address
        finally:
            with anyio.CancelScope(shield=True):
                await cluster.processes.stop(CONTROLLER)
                await runner.cleanup()
                await kerf.start_controller()


def _write(request: web.Request, body: bytes) -> tuple[Write, str] | None:
    """Which write a request is, and to the object of which name; None: it is of no interest."""
    if request.method not in {"PUT", "PATCH"}:
        return None
    match request.path.split("/"):
        case [*_, "leases", name]:
            return Write.LEASE, name
        case [*_, "podschedulingcontexts", name, "status"]:
            return Write.REPORT, name
        case [*_, "resourceclaims", name, "status"]:
            is_end = msgspec.json.decode(body)["status"]["allocation"] is None
            return Write.RELEASE if is_end else Write.ALLOCATION, name
        case [*_, "resourceclaims", name]:
            metadata = msgspec.json.decode(body)["metadata"]
            if "finalizers" not in metadata:
                return Write.FENCE, name
            return Write.MARK if _FINALIZER in (metadata["finalizers"] or ()) else Write.UNMARK, name
    return None
