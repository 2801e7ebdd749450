"""An HTTP server with prepared answers, which records the requests."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from aiohttp import web

from kerf_dra.driver.kube.http.client import Client, ClientSettings
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.runtime.backoff import Backoff

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

QUICK = ClientSettings(
    connect_timeout_s=60,
    attempt_timeout_s=60,
    object_timeout_s=60,
    call_timeout_s=120,
    silence_s=60,
    retries=Backoff(first_s=0.001, factor=1, limit_s=0.001, jitter=0),
    longest_wait_s=1,
)
"""Retries at once, and limits that an answer keeps however busy the machine is."""
IMPATIENT = replace(QUICK, attempt_timeout_s=0.2, object_timeout_s=0.2, silence_s=0.2)
"""For servers that hang: limits that a test can wait for, and that an answer may miss on a busy machine."""


@dataclass
class ReceivedRequest:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    client: str | None
    """The common name of the client's certificate."""


@dataclass
class Stub:
    """A server that gives its answers in order, and repeats the last one."""

    answers: list[Answer]
    asked: list[ReceivedRequest] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        certificate: Any = request.transport.get_extra_info("peercert") or {}
        names = dict(pair for part in certificate.get("subject", ()) for pair in part)
        self.asked.append(
            ReceivedRequest(
                method=request.method,
                path=request.raw_path.split("?")[0],
                query=dict(request.query),
                headers=dict(request.headers),
                body=await request.read(),
                client=names.get("commonName"),
            )
        )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Self]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            scheme = "https" if context else "http"
            self.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    def client(self, settings: ClientSettings = QUICK) -> Client:
        return Client(Access(server=self.url), user_agent="kerf-test/1", settings=settings)


def respond(status: int, body: object = None, **headers: str) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def respond_bytes(body: bytes, status: int = 200) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status)

    return answer


async def disconnect(request: web.Request) -> web.StreamResponse:
    """Close the connection instead of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def disconnect_halfway(request: web.Request) -> web.StreamResponse:
    """Close the connection in the middle of the answer."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"metadata": ')
    assert request.transport is not None
    request.transport.abort()
    return response
