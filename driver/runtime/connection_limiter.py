"""A limit on the connections of an HTTP server to which any client may connect.

Every connection takes a file descriptor, and one process has a limited number of them: a client that opens enough
connections and says nothing would end what else the process does. So a connection is *pending* until ``admit`` names
it, the number of pending ones is limited, and each is ended after a time. Where there is no room a new one takes the
place of the oldest, not the other way round: else a few silent connections would keep the kubelet's probes out, and the
kubelet would restart the container.

Connections that are closed are counted for a while as well, which needs no notice of their end: at the limit the oldest
is dropped all the same, and it is the first that is likely to be done.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio.lowlevel
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_server import Server

_BACKLOG: Final = 16
"""Connections that wait to be accepted: asyncio accepts so many at once, before a first one can be ended."""
_ACCEPT_TURNS: Final = 2
"""Turns of the loop until the server knows a connection that was just accepted, and can close it."""
_ACCEPTED_S: Final = 0.05
"""Seconds until a connection that was just accepted has its transport, without which it cannot be ended."""


class ConnectionLimiter:
    """The protocol factory of a listener, in place of ``server`` itself."""

    def __init__(self, server: Server, *, most_pending: int, pending_s: float) -> None:
        """At most ``most_pending`` connections are pending, each at most ``pending_s`` seconds."""
        self._server = server
        self._most_pending = most_pending
        self._pending_s = pending_s
        self._pending: dict[RequestHandler, asyncio.TimerHandle] = {}
        """The pending connections with their ends, the oldest first."""

    def __call__(self) -> RequestHandler:
        while len(self._pending) >= self._most_pending:
            self._end(next(iter(self._pending)))
        handler = self._server()
        self._pending[handler] = asyncio.get_running_loop().call_later(self._pending_s, self._end, handler)
        return handler

    @asynccontextmanager
    async def listen(
        self,
        host: str | None,
        port: int,
        *,
        backlog: int = _BACKLOG,
        tls: ssl.SSLContext | None = None,
        handshake_s: float | None = None,
    ) -> AsyncIterator[tuple[Any, ...]]:
        """Listen inside of this context; its value is the first socket's address. Raises OSError when it is taken.

        With ``tls`` a handshake may take ``handshake_s`` seconds (None: asyncio's 60).
        """
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(
            self, host, port, backlog=backlog, ssl=tls, ssl_handshake_timeout=handshake_s
        )
        try:
            yield listening.sockets[0].getsockname()
        finally:
            # What a server accepted just before its close would never be closed (python/cpython#109564).
            for listener in listening.sockets:
                loop.remove_reader(listener.fileno())
            for _ in range(_ACCEPT_TURNS):
                await anyio.lowlevel.cancel_shielded_checkpoint()
            listening.close()

    def admit(self, handler: RequestHandler) -> None:
        """Let a connection stay as long as its client likes."""
        timer = self._pending.pop(handler, None)
        if timer is not None:
            timer.cancel()

    def _end(self, handler: RequestHandler) -> None:
        self.admit(handler)
        if handler.transport is None:
            asyncio.get_running_loop().call_later(_ACCEPTED_S, _abort, handler)
        else:
            _abort(handler)


def _abort(handler: RequestHandler) -> None:
    if handler.transport is not None:
        handler.transport.abort()
