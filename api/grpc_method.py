"""The description of a gRPC method on the wire: its path, and the codecs between its messages and model values.

Servers and clients are built from these descriptions, so one implementation serves every version of a service, and only
the module of a version imports generated code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kerf_dra.api.errors import KerfError

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class RefusedCallError(KerfError):
    """The answer is an error for which the version's message has no field: the whole call must fail with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcMethod(Generic[RequestT, ResponseT]):
    """One gRPC method. Its decoders raise ``google.protobuf.message.DecodeError`` on bytes that are no such message."""

    service: str
    """The service's full name, e.g. ``pluginregistration.Registration``."""
    name: str
    encode_request: Callable[[RequestT], bytes]
    decode_request: Callable[[bytes], RequestT]
    encode_response: Callable[[ResponseT], bytes]
    decode_response: Callable[[bytes], ResponseT]

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"
