"""A gRPC server of the kubelet on a unix socket, with handlers by the paths of their methods."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import grpc
import grpc.aio

from kerf_dra.api.errors import KerfError
from kerf_dra.api.grpc_method import GrpcMethod, RequestT, ResponseT

_GRACE_S: Final = 0.5
"""Seconds for calls in flight when the kubelet stops; each takes milliseconds."""

Handlers: TypeAlias = "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"


class _ByPath(grpc.GenericRpcHandler):
    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return self._handlers.get(handler_call_details.method)


def unary(method: GrpcMethod[RequestT, ResponseT], answer: Callable[[RequestT], Awaitable[ResponseT]]) -> Handlers:
    """Return the handler of a method; a KerfError of ``answer`` fails the call with its text, as Go's servers do."""

    async def handle(request: RequestT, context: "grpc.aio.ServicerContext[RequestT, bytes]") -> bytes:
        try:
            return method.encode_response(await answer(request))
        except KerfError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return {method.path: grpc.unary_unary_rpc_method_handler(handle, request_deserializer=method.decode_request)}


@asynccontextmanager
async def serving(socket: Path, handlers: Handlers) -> AsyncIterator[None]:
    """Serve ``handlers`` at ``socket`` inside the context."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_ByPath(handlers),))
    server.add_insecure_port(f"unix:{socket}")
    with anyio.CancelScope(shield=True):  # a start that is cancelled breaks a later stop (grpcio 1.85)
        await server.start()
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop(_GRACE_S)
