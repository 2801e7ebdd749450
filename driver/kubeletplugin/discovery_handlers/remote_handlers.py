"""Discovery handlers that are programs of their own: the plugin's socket at which they register, and calls to them.

Both sockets are in one folder, which is root's: who may write there may say what is found on this node. Handlers are
reached by unix sockets alone: what listens at an address of a network proves nothing about who it is.

A handler is registered for as long as its call to the plugin lasts, so that neither side has to ask whether the other
is there: the end of a process ends its connections.
"""

import logging
import re
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from kerf_dra.api.discovery.v1alpha1 import (
    DISCOVER,
    REGISTER,
    REGISTRATION_SOCKET,
    DiscoveryRequest,
    FoundDevice,
    HandlerRegistration,
)
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.kubeletplugin.discovery_handlers.base import HandlerError, NodeDiscoveryHandler
from kerf_dra.driver.kubeletplugin.grpc.server import Handlers, SocketError, check_path, serving_at, was_removed
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.notifier import Notifier

MAX_HANDLERS: Final = 32
"""The most handlers that may be registered at the same time: several times as many as a node needs."""
CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 1024 * 1024),
    # What gRPC's servers take without a complaint (GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS): 5 minutes.
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # grpc.keepalive_timeout_ms has no effect at a unix socket
)
"""A list has a megabyte at most, far above that of 256 devices; a handler that is stopped, and could not say that
devices have gone, is found out after five minutes."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._+-]{0,62}[A-Za-z0-9])?")
"""What a configuration may name (``DeviceWord`` of ``kerf_dra.api.kerf.scalar_types``)."""
_ENDPOINT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_MESSAGE: Final = 300
"""The characters of a handler's own words that are passed on."""

_log = logging.getLogger(__name__)


class HandlerRegistry:
    """The handlers that this node has, by name."""

    def __init__(self, built_in: Mapping[str, NodeDiscoveryHandler]) -> None:
        self._built_in = built_in
        self._registered: dict[str, NodeDiscoveryHandler] = {}
        self.changed = Notifier()

    def find(self, name: str) -> NodeDiscoveryHandler | None:
        return self._built_in.get(name) or self._registered.get(name)

    def add(self, name: str, handler: NodeDiscoveryHandler) -> None:
        self._registered[name] = handler
        self.changed.notify()

    def remove(self, name: str) -> None:
        del self._registered[name]
        self.changed.notify()

    def explain_refusal(self, name: str) -> str | None:
        """Return why no handler of this name can be added now; None: one can."""
        if not _NAME.fullmatch(name):
            return "a handler's name has letters, digits, '.', '_', '+' and '-', at most 64"
        if name in self._built_in:
            return f"{name} is a handler of the plugin itself"
        if name in self._registered:
            return f"{name} is registered already"
        if len(self._registered) >= MAX_HANDLERS:
            return f"there are {MAX_HANDLERS} handlers already"
        return None


class RemoteHandler:
    """A handler at a socket."""

    def __init__(self, socket: Path, options: Sequence[tuple[str, int]] = CHANNEL_OPTIONS) -> None:
        self._socket = socket
        self._options = options

    async def discover(self, request: DiscoveryRequest) -> AsyncGenerator[Sequence[FoundDevice], None]:
        try:
            async with grpc.aio.insecure_channel(f"unix:{self._socket}", options=self._options) as channel:
                call: grpc.aio.UnaryStreamMultiCallable[DiscoveryRequest, bytes] = channel.unary_stream(
                    DISCOVER.path, request_serializer=DISCOVER.encode_request
                )
                async for data in call(request):  # bytes: what cannot be decoded must be an error of ours
                    yield DISCOVER.decode_response(data)
        except grpc.aio.AioRpcError as error:
            said = to_one_line(error.details() or "")[:_MAX_MESSAGE]
            raise HandlerError(f"{error.code().name}: {said}") from error
        except DecodeError as error:
            raise HandlerError("it has sent what is no list of devices") from error


class RegistrationServer:
    """Takes on handlers at a socket of the plugin."""

    def __init__(self, settings: Settings, folder: Path, registry: HandlerRegistry) -> None:
        self._settings = settings
        self._folder = folder
        self._registry = registry
        self._closed = anyio.Event()
        self.socket: Final = folder / REGISTRATION_SOCKET

    @property
    def handlers(self) -> Handlers:
        return {
            REGISTER.path: grpc.unary_stream_rpc_method_handler(
                self._register,
                request_deserializer=REGISTER.decode_request,
                response_serializer=REGISTER.encode_response,
            )
        }

    async def run(self) -> None:
        """Serve until cancelled, again and again where the socket cannot be made or is removed."""
        while True:
            for delay_s in self._settings.retry.delays():
                if await self._serve_once():
                    break
                await anyio.sleep(delay_s)

    async def _serve_once(self) -> bool:
        """Serve until the socket is removed; returns whether it could be made."""
        self._closed = anyio.Event()
        try:
            async with serving_at(self.socket, self.handlers, grace_s=self._settings.rpc_grace_s):
                try:
                    while not await anyio.to_thread.run_sync(was_removed, self.socket):  # noqa: ASYNC110  (no event)
                        await anyio.sleep(self._settings.socket_poll_s)
                finally:
                    self._closed.set()  # streams end: a server cannot stop while one goes on
        except SocketError as error:
            _log.warning("discovery handlers cannot register, will try again: %s", error)
            return False
        _log.info("%s was removed, serving again", self.socket)
        return True

    async def _register(
        self, registration: HandlerRegistration, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> AsyncIterator[None]:
        name = registration.name
        if reason := self._registry.explain_refusal(name) or self._explain_endpoint(registration.endpoint):
            _log.info("a discovery handler is not taken on: %s", to_one_line(reason))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)
        self._registry.add(name, RemoteHandler(self._folder / registration.endpoint))
        _log.info("discovery handler %s is registered", name)
        try:
            yield None
            await self._closed.wait()
        finally:
            self._registry.remove(name)
            _log.info("discovery handler %s is gone", name)

    def _explain_endpoint(self, endpoint: str) -> str | None:
        """Return why a handler cannot be at ``endpoint``; None: it can."""
        if not _ENDPOINT.fullmatch(endpoint) or endpoint == REGISTRATION_SOCKET:
            return f"an endpoint is the name of a socket in {self._folder}, of letters, digits, '.', '_' and '-'"
        path = self._folder / endpoint
        try:
            check_path(path)
            is_socket = stat.S_ISSOCK(path.lstat().st_mode)
        except (OSError, SocketError) as error:
            return f"{endpoint} cannot be used: {error}"
        return None if is_socket else f"{endpoint} is no socket"
