"""A gRPC server on a unix socket, as the kubelet expects it.

Two properties of grpc.aio (grpcio 1.85) shape it. Cancelling ``start`` or ``wait_for_termination`` breaks the server's
own task and a later ``stop``, so ``start`` is shielded and the other never called. A client's deadline cancels the
handler of its call, so handlers only wait for work that is done elsewhere (``SingleFlight``).
"""

import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import grpc
import grpc.aio

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.grpc_method import GrpcMethod, RefusedCallError, RequestT, ResponseT

MAX_PATH_BYTES: Final = 107
"""Longest path of a unix socket: ``sun_path`` has 108 bytes, the last of them zero (unix(7))."""

OPTIONS: Final = (
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 3_600_000),
    ("grpc.max_concurrent_streams", 1_000),
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
)
"""Limits of each server, beside that on its connections. A connection that says nothing ends after 5 s, and one without
a call after an hour: longer than the 30 minutes after which the kubelet's own ends (grpc-go), and where it does end a
connection, the kubelet makes another, before it withdraws the driver's slices (KEP-4381, from 1.34)."""
_MOST_CONNECTIONS: Final = 4_096
"""Connections of each server. The kubelet has one, but no server can distinguish it from the others, so theirs must not
be all: of 15 KB each, these take an eighth of the container's memory."""
_LEAST_CONNECTIONS: Final = 16
"""The same, where a process may open few files: as many kubelets and tools as may ever connect."""
_KEPT_DESCRIPTORS: Final = 512
"""Descriptors that hardware work, files and the API server need: a plugin of four families has a hundred."""
_SERVERS: Final = 8
"""Servers among which the other descriptors are divided: each of Kerf's four families has two sockets."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Handlers: TypeAlias = "Mapping[str, Handler]"
"""The handlers by their methods' paths."""


class SocketError(PermanentError):
    """The plugin cannot listen at a socket."""


class _ByPath(grpc.GenericRpcHandler):
    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "Handler | None":
        return self._handlers.get(handler_call_details.method)


def unary(
    method: GrpcMethod[RequestT, ResponseT], answer: Callable[[RequestT], Awaitable[ResponseT]]
) -> "tuple[str, Handler]":
    """Make an item of Handlers that answers each request once."""

    async def handle_unary(request: RequestT, context: "grpc.aio.ServicerContext[RequestT, bytes]") -> bytes:
        response = await answer(request)
        try:
            return method.encode_response(response)
        except RefusedCallError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return method.path, grpc.unary_unary_rpc_method_handler(handle_unary, request_deserializer=method.decode_request)


def stream(
    method: GrpcMethod[RequestT, ResponseT], answers: Callable[[RequestT], AsyncIterator[ResponseT]]
) -> "tuple[str, Handler]":
    """Make an item of Handlers that streams answers to each request until ``answers`` ends or the client goes."""

    async def handle_stream(request: RequestT, _context: object) -> AsyncIterator[ResponseT]:
        async for answer in answers(request):
            yield answer

    return method.path, grpc.unary_stream_rpc_method_handler(
        handle_stream, request_deserializer=method.decode_request, response_serializer=method.encode_response
    )


def was_removed(path: Path) -> bool:
    """Whether there is no socket at ``path`` any more; a disk that fails does not say that."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def check_path(path: Path) -> None:
    """Raise SocketError when ``path`` is too long for a socket."""
    if (length := len(bytes(path))) > MAX_PATH_BYTES:
        raise SocketError(
            f"socket path {path} has {length} bytes, the limit is {MAX_PATH_BYTES}: shorten it with --kubelet-root"
        )


def count_most_connections(open_files: int) -> int:
    """Return how many connections each server may have in a process that may open so many files (RLIMIT_NOFILE)."""
    if open_files == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(_LEAST_CONNECTIONS, min(_MOST_CONNECTIONS, (open_files - _KEPT_DESCRIPTORS) // _SERVERS))


@asynccontextmanager
async def serving_at(path: Path, handlers: Handlers, *, grace_s: float) -> AsyncIterator[None]:
    """Serve ``handlers`` at ``path`` inside the context; at its end calls in flight get ``grace_s`` seconds to end.

    gRPC replaces a socket that is there, even a live one, so no other process may use ``path``. Raises SocketError when
    the path is too long or cannot be served at.
    """
    check_path(path)
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = ("grpc.max_allowed_incoming_connections", count_most_connections(open_files))
    server = grpc.aio.server(options=(*OPTIONS, connections))
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
