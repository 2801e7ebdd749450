"""An API server that answers with bytes: what is in them, no encoder of ours could write."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import build_status_error
from kerf_dra.driver.kube.http.transport import HttpRequest
from tests.kube.identified import identified
from tests.kube.open_transport import OpenTransport

DEEP = b"[" * 5000 + b"]" * 5000
"""As deep as 10 KiB can be, the most that the API server takes as opaque parameters."""


@dataclass
class RawServer(OpenTransport):
    """A Transport with objects by the path of their collection."""

    objects: dict[str, list[bytes]] = field(default_factory=dict)
    json: dict[str, Any] = field(default_factory=dict)
    """Answers by path: discovery."""
    events: list[bytes] = field(default_factory=list)
    """The lines of every watch."""

    def client(self) -> Client:
        return Client(Access(server="http://raw"), user_agent="test/1", transport=self)

    async def call(self, request: HttpRequest) -> bytes:
        await anyio.lowlevel.checkpoint()
        if request.path in self.json:
            return msgspec.json.encode(self.json[request.path])
        for path, objects in self.objects.items():
            if request.path == path:
                return list_of(path, objects)
            for one in objects:
                if f'"name":"{request.path.rpartition("/")[2]}"'.encode() in one:
                    return one
        if request.method == "GET" and request.path.count("/") < 6:
            return list_of(request.path, ())
        raise build_status_error(str(request), 404, b"{}")

    async def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        for event in self.events:
            yield event
        await anyio.sleep_forever()


def list_of(path: str, items: Sequence[bytes]) -> bytes:
    empty = msgspec.json.encode(identified(path, {"metadata": {"resourceVersion": "1"}, "items": []}))
    return empty.replace(b'"items":[]', b'"items":[' + b",".join(items) + b"]")


def claim(name: str, *, parameters: bytes = b"{}", device: str = "", version: int = 1, driver: str = "d") -> bytes:
    """A ResourceClaim of ``team-a``, allocated if it has a device, as ``kubectl create`` and the scheduler leave it."""
    opaque = b'{"driver":"%s","parameters":%s}' % (driver.encode(), parameters)
    config = b'[{"source":"FromClaim","opaque":' + opaque + b"}]"
    result = b'[{"request":"r","driver":"%s","pool":"p","device":"%s"}]' % (driver.encode(), device.encode())
    allocation = b'{"allocation":{"devices":{"results":' + result + b',"config":' + config + b"}}}"
    return (
        b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"%s","namespace":"team-a","uid":"u-%s","resourceVersion":"%d"},'
        % (name.encode(), name.encode(), version)
        + b'"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}],'
        + b'"config":[{"opaque":'
        + opaque
        + b'}]}},"status":'
        + (allocation if device else b"{}")
        + b"}"
    )


def event(type_: str, value: bytes) -> bytes:
    return b'{"type":"%s","object":%s}' % (type_.encode(), value)


def ref(name: str) -> ObjectRef:
    return ObjectRef("team-a", name)
