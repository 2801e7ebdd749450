"""How one gRPC method is spelled on the wire: its path, and how its messages become model values and back.

Servers and clients of a service are built from these rows, so one implementation serves every version of it, and only
the version's adapter knows generated code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from api.errors import KerfError

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class RefusedCallError(KerfError):
    """The answer is an error for which the version's message has no field: the call has to fail with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcMethod(Generic[RequestT, ResponseT]):
    """One method. The decoders raise ``google.protobuf.message.DecodeError`` on bytes that are no such message."""

    service: str
    """Full name, e.g. ``pluginregistration.Registration``."""
    name: str
    encode_request: Callable[[RequestT], bytes]
    decode_request: Callable[[bytes], RequestT]
    encode_response: Callable[[ResponseT], bytes]
    decode_response: Callable[[bytes], ResponseT]

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"
