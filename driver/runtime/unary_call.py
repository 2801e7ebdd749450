"""One gRPC call with one answer, as a client makes it."""

from typing import Any

import grpc.aio

from kerf_dra.api.grpc_method import GrpcMethod, RequestT, ResponseT


async def call_unary(
    channel: grpc.aio.Channel, method: GrpcMethod[RequestT, ResponseT], request: RequestT, timeout_s: float
) -> ResponseT:
    """Make a call, and return its answer.

    The answer is decoded here: of a deserializer that fails ``grpc.aio`` logs the error and returns None.

    Raises ``grpc.aio.AioRpcError``, and ``google.protobuf.message.DecodeError`` when the answer is no such message.
    """
    stub: Any = channel.unary_unary(method.path, request_serializer=method.encode_request)
    return method.decode_response(await stub(request, timeout=timeout_s))
