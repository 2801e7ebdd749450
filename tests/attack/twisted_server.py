"""The embedded API server without sockets, some of whose answers are replaced: for tests under virtual time."""

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import anyio

from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import build_status_error
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.local.apiserver.http import discovery
from kerf_dra.driver.local.apiserver.http.request_handler import ApiRequest
from kerf_dra.driver.local.apiserver.http.request_info import parse_path
from kerf_dra.driver.local.apiserver.http.serializer import encode
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError
from kerf_dra.driver.local.apiserver.registry.watch import Watch
from tests.fakes.wrong_answers import Answer
from tests.kube.open_transport import OpenTransport

Twist = Callable[[dict[str, Any]], Answer]


@dataclass
class TwistedServer(OpenTransport):
    """A Transport to ``server``. What ``is_twisted`` chooses is done as asked, and answered as ``twist`` says."""

    server: ApiServer
    twist: Twist | None = None
    is_twisted: Callable[[HttpRequest], bool] = lambda _: False
    may_list_claims: bool = True
    """Whether the client's account may list claims, as only early loading needs."""
    expires_watches: bool = False
    """Whether the next event of each watch says that its version is too old, so that its kind is listed again."""
    twisted: int = 0
    """How many answers and events were replaced."""

    def client(self) -> Client:
        return Client(Access(server="http://twisted"), user_agent="test/1", transport=self)

    async def call(self, request: HttpRequest) -> bytes:
        await anyio.lowlevel.checkpoint()
        if request.path.endswith("/resourceclaims") and request.method == "GET" and not self.may_list_claims:
            raise build_status_error(str(request), 403, b"{}")
        answer = self._answer(request)
        if self.twist is not None and self.is_twisted(request):
            self.twisted += 1
            answer = self.twist(json.loads(answer.body))
        if answer.code >= 400:
            raise build_status_error(str(request), answer.code, answer.body)
        return answer.body

    async def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch; a wrong answer is the object of an event, or a line by itself."""
        found = self.server._handler.handle(self._read(request))
        assert isinstance(found, Watch)
        async for line in found.lines():
            if self.expires_watches:
                yield b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}'
                return
            if self.twist is None or not self.is_twisted(request):
                yield line.strip()
                continue
            self.twisted += 1
            event = json.loads(line)
            body = self.twist(event["object"]).body
            yield b'{"type":"%s","object":%s}' % (event["type"].encode(), body) if is_json(body) else body

    def _answer(self, request: HttpRequest) -> Answer:
        if parse_path(request.path) is None:
            served = discovery.build_document(request.path, "", self.server._served_kinds, self.server.settings)
            return Answer(404, b"404 page not found\n") if served is None else Answer(200, encode(served.body))
        try:
            found = self.server._handler.handle(self._read(request))
        except ApiStatusError as refusal:
            return Answer(refusal.code, encode(refusal.status))
        assert not isinstance(found, Watch)
        return Answer(found.code, found.body)

    @staticmethod
    def _read(request: HttpRequest) -> ApiRequest:
        info = parse_path(request.path)
        assert info is not None
        return ApiRequest(
            method=request.method,
            info=info,
            query=request.query,
            accept="application/json",
            content_type=request.content_type,
            user_agent="test/1",
            body=request.body or b"",
        )


def is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True
