"""A gRPC server on a unix socket, as the kubelet expects it.

Traits of grpc.aio shape this (grpcio 1.85): cancelling ``start`` or ``wait_for_termination`` breaks the server's own
task and a later ``stop``, so the one is shielded and nobody waits for the other; and a client's deadline cancels the
handler of its call, so handlers only wait for work that is done elsewhere (``SingleFlight``).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import grpc
import grpc.aio

from api.errors import PermanentError
from api.grpc_method import GrpcMethod, RefusedCallError, RequestT, ResponseT

MAX_PATH_BYTES: Final = 107
"""Longest path of a unix socket: ``sun_path`` has 108 bytes, the last of them zero (unix(7))."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Handlers: TypeAlias = "Mapping[str, Handler]"
"""By the method's path."""


class SocketError(PermanentError):
    """The plugin cannot listen where it should."""


class _ByPath(grpc.GenericRpcHandler):
    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "Handler | None":
        return self._handlers.get(handler_call_details.method)


def unary(
    method: GrpcMethod[RequestT, ResponseT], answer: Callable[[RequestT], Awaitable[ResponseT]]
) -> "tuple[str, Handler]":
    """One answer to each request; as an item of Handlers."""

    async def handle(request: RequestT, context: "grpc.aio.ServicerContext[RequestT, bytes]") -> bytes:
        response = await answer(request)
        try:
            return method.encode_response(response)
        except RefusedCallError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return method.path, grpc.unary_unary_rpc_method_handler(handle, request_deserializer=method.decode_request)


def stream(
    method: GrpcMethod[RequestT, ResponseT], answers: Callable[[RequestT], AsyncIterator[ResponseT]]
) -> "tuple[str, Handler]":
    """Answers to each request until ``answers`` ends or the client goes; as an item of Handlers."""

    async def handle(request: RequestT, _context: object) -> AsyncIterator[ResponseT]:
        async for answer in answers(request):
            yield answer

    return method.path, grpc.unary_stream_rpc_method_handler(
        handle, request_deserializer=method.decode_request, response_serializer=method.encode_response
    )


def check_path(path: Path) -> None:
    """Raises SocketError when the operating system takes no socket path of this length."""
    if (length := len(bytes(path))) > MAX_PATH_BYTES:
        raise SocketError(
            f"socket path {path} has {length} bytes, the limit is {MAX_PATH_BYTES}: shorten it with --kubelet-root or "
            "--driver-name"
        )


@asynccontextmanager
async def serving_at(path: Path, handlers: Handlers, *, grace_s: float) -> AsyncIterator[None]:
    """Serve ``handlers`` at ``path`` inside the context; at its end calls in flight get ``grace_s`` seconds to end.

    A socket of an earlier process is replaced: gRPC unlinks it, even a live one, so the caller holds a lock. Raises
    SocketError.
    """
    check_path(path)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_ByPath(handlers),))
    _bind(server, path)
    with anyio.CancelScope(shield=True):
        await server.start()
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop(grace_s)


def _bind(server: grpc.aio.Server, path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        server.add_insecure_port(f"unix:{path}")
        path.chmod(0o600)
    except (OSError, RuntimeError) as error:
        raise SocketError(f"cannot serve at {path}: {error}") from error
