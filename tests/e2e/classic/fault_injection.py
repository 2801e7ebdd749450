"""Fault injection: a proxy between Kerf's controller and the API server that injects faults at chosen writes.

A fault is triggered once, before a write reaches the API server or after the server has answered. It runs an effect,
and then breaks the connection or forwards the write or its answer.
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

from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import CONTROLLER, Kerf
from tools.realcluster.paths import free_port

_FINALIZER: Final = "kerf.dev/deletion-protection"
_OF_ONE_CONNECTION: Final = frozenset({"connection", "host", "transfer-encoding", "content-length", "keep-alive"})
"""Hop-by-hop headers, which are not forwarded (RFC 9110, section 7.6.1)."""
_CLOSE_S: Final = 0.1
"""The shutdown timeout: only watches are open at the end, and they never end by themselves."""


class Write(StrEnum):
    """The writes of the controller: those about claims, and its Lease."""

    ADD_FINALIZER = "mark"
    """The finalizer is added, before the allocation."""
    ALLOCATION = "allocation"
    UNSUITABLE_NODES = "report"
    """``unsuitableNodes`` is written."""
    RELEASE = "release"
    """The allocation is removed."""
    REMOVE_FINALIZER = "unmark"
    """The finalizer is removed, after the allocation."""
    FENCE = "fence"
    """A new leader writes to claims that have the finalizer and no allocation, so that older writes fail."""
    LEASE = "lease"


class FaultPoint(StrEnum):
    """Whether a fault is triggered before the API server gets a write or after it has answered."""

    BEFORE = "before"
    AFTER = "after"


class _BrokenConnectionError(Exception):
    """The connection has to be broken."""


async def no_effect() -> None:
    """The effect of a fault that only breaks the connection."""


@dataclass(slots=True, kw_only=True)
class InjectedFault:
    """A fault at one write to the object ``name``."""

    write: Write
    name: str
    when: FaultPoint
    effect: Callable[[], Awaitable[None]]
    breaks_connection: bool
    """Whether the connection breaks after the effect."""
    is_triggered: bool = False
    status: int = 0
    """The status that the API server returned for the write; 0 when it did not get it."""

    def __str__(self) -> str:
        return f"{self.when} the {self.write} of {self.name}"


class FaultInjectionProxy:
    """An HTTPS proxy that injects faults; ``controller_behind_proxy`` starts one."""

    def __init__(self, behind: str, authority: Path, session: aiohttp.ClientSession, effects: TaskGroup) -> None:
        """``behind`` is the API server's address; effects run in the group ``effects``, so that none is cancelled."""
        self._behind = behind
        self._trusted = ssl.create_default_context(cafile=authority)
        self._session = session
        self._effects = effects
        self._one_at_a_time = anyio.Lock()
        self._faults: list[InjectedFault] = []

    def inject(
        self,
        write: Write,
        name: str,
        when: FaultPoint,
        effect: Callable[[], Awaitable[None]] = no_effect,
        *,
        breaks_connection: bool,
    ) -> InjectedFault:
        """Inject a fault at the next ``write`` to the object ``name``."""
        fault = InjectedFault(write=write, name=name, when=when, effect=effect, breaks_connection=breaks_connection)
        self._faults.append(fault)
        return fault

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Forward a request, and return the answer."""
        body = await request.read()
        fault = self._next(request, body)
        try:
            await self._trigger(fault, FaultPoint.BEFORE)
            return await self._forward(request, body, fault)
        except (_BrokenConnectionError, aiohttp.ClientError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response()  # which nobody gets

    async def _forward(self, request: web.Request, body: bytes, fault: InjectedFault | None) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_ONE_CONNECTION}
        address = f"{self._behind}{request.raw_path}"
        async with self._session.request(
            request.method, address, data=body or None, headers=headers, ssl=self._trusted
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_ONE_CONNECTION}
            if fault is not None:
                fault.status = answer.status
            await self._trigger(fault, FaultPoint.AFTER)
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    def _next(self, request: web.Request, body: bytes) -> InjectedFault | None:
        about = _write(request, body)
        found = next((one for one in self._faults if (one.write, one.name) == about), None)
        if found is not None:
            self._faults.remove(found)
        return found

    async def _trigger(self, fault: InjectedFault | None, when: FaultPoint) -> None:
        """Run the effect of ``fault`` at ``when``; it continues even if it kills the sender of the write."""
        if fault is None or fault.when is not when:
            return
        ended = anyio.Event()
        self._effects.start_soon(self._run, fault, ended)
        await ended.wait()
        if fault.breaks_connection:
            raise _BrokenConnectionError

    async def _run(self, fault: InjectedFault, ended: anyio.Event) -> None:
        async with self._one_at_a_time:
            fault.is_triggered = True
            await fault.effect()
            ended.set()


@asynccontextmanager
async def controller_behind_proxy(cluster: Cluster, kerf: Kerf) -> AsyncIterator[tuple[FaultInjectionProxy, str]]:
    """Let the controller reach the API server through a proxy for as long as the context lasts.

    Yields the proxy and its address; the proxy has the API server's own certificate.
    """
    authority, address = cluster.paths.authority, f"https://127.0.0.1:{(port := free_port())}"
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(authority, authority.with_suffix(".key"))
    endless = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(auto_decompress=False, timeout=endless) as session,
        anyio.create_task_group() as effects,
    ):
        proxy = FaultInjectionProxy(cluster.server, authority, session, effects)
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
    """Return the kind of a write and the name of its object; None for any other request."""
    if request.method not in {"PUT", "PATCH"}:
        return None
    match request.path.split("/"):
        case [*_, "leases", name]:
            return Write.LEASE, name
        case [*_, "podschedulingcontexts", name, "status"]:
            return Write.UNSUITABLE_NODES, name
        case [*_, "resourceclaims", name, "status"]:
            is_end = msgspec.json.decode(body)["status"]["allocation"] is None
            return Write.RELEASE if is_end else Write.ALLOCATION, name
        case [*_, "resourceclaims", name]:
            metadata = msgspec.json.decode(body)["metadata"]
            if "finalizers" not in metadata:
                return Write.FENCE, name
            return Write.ADD_FINALIZER if _FINALIZER in (metadata["finalizers"] or ()) else Write.REMOVE_FINALIZER, name
    return None
