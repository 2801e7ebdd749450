"""A client of the embedded API server with short calls, and a clock that tests set."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import msgspec

from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.local.apiserver.meta import protobuf
from kerf_dra.driver.local.apiserver.meta.protobuf_messages import message_types

IN_TIME_S = 120
"""For what takes milliseconds on an idle machine."""
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def _decode(raw: bytes, content_type: str) -> Any:
    if content_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(raw)
    return msgspec.json.decode(raw) if content_type == "application/json" and raw else raw.decode()


@dataclass
class Clock:
    """A clock that a test advances."""

    now: datetime = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Answer:
    """The answer to a request."""

    status: int
    body: Any
    headers: dict[str, str]
    warnings: list[str]

    @property
    def causes(self) -> list[str]:
        """Return each cause of a refusal as ``path: message``."""
        return [f"{cause.get('field')}: {cause['message']}" for cause in self.body["details"]["causes"]]


@dataclass
class WatchStream:
    """An open watch."""

    response: aiohttp.ClientResponse

    async def next(self) -> Any:
        line = await self.response.content.readline()
        return msgspec.json.decode(line) if line else None

    async def next_frame(self) -> Any:
        """The next event of a watch in protobuf."""
        length = int.from_bytes(await self.response.content.readexactly(4), "big")
        event: Any = message_types()["meta.v1.WatchEvent"].make.FromString(
            await self.response.content.readexactly(length)
        )
        return {"type": event.type, "object": protobuf.decode(event.object.raw)}

    async def some(self, number: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        events = [await self.next() for _ in range(number)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


@dataclass
class Api:
    """One server and a client of it."""

    server: ApiServer
    session: aiohttp.ClientSession
    clock: Clock

    async def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        headers = {"Accept": accept, **({"Content-Type": content_type} if data is not None else {})}
        async with self.session.request(method, path, data=data, headers=headers) as response:
            raw = await response.read()
            decoded = _decode(raw, response.content_type)
            warnings = list(response.headers.getall("Warning", []))
            return Answer(response.status, decoded, dict(response.headers), warnings)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self("GET", path, **options)

    async def post(self, path: str, body: object, **options: Any) -> Answer:
        return await self("POST", path, body, **options)

    async def put(self, path: str, body: object, **options: Any) -> Answer:
        return await self("PUT", path, body, **options)

    async def merge(self, path: str, body: object) -> Answer:
        return await self("PATCH", path, body, content_type=MERGE)

    async def strategic(self, path: str, body: object) -> Answer:
        return await self("PATCH", path, body, content_type=STRATEGIC)

    async def apply(self, path: str, body: object, manager: str = "applier", *, force: bool = False) -> Answer:
        query = f"fieldManager={manager}" + ("&force=true" if force else "")
        return await self("PATCH", f"{path}?{query}", body, content_type=APPLY)

    async def delete(self, path: str, body: object = None) -> Answer:
        return await self("DELETE", path, body)

    async def made(self, path: str, body: object) -> Any:
        """A created object; anything else fails the test."""
        answer = await self.post(path, body)
        assert answer.status == 201, answer.body
        return answer.body

    def forget_history(self) -> None:
        """Does to the server's storage what a compaction does to etcd: requests for older revisions are expired."""
        storage = self.server.storage
        for kind_store in storage._kind_stores.values():
            kind_store.events.clear()
            kind_store.horizon = storage.revision

    async def gone(self, path: str) -> None:
        """Wait until there is no such object any more."""
        with anyio.fail_after(IN_TIME_S):
            while (await self.get(path)).status != 404:
                await anyio.lowlevel.checkpoint()

    async def until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        """Wait for the object at a path to be as wanted, and return it."""
        with anyio.fail_after(IN_TIME_S):
            while True:
                answer = await self.get(path)
                if answer.status == 200 and holds(answer.body):
                    return answer.body
                await anyio.lowlevel.checkpoint()

    @asynccontextmanager
    async def watch(self, path: str, query: str = "", **headers: str) -> AsyncIterator[WatchStream]:
        timeout = aiohttp.ClientTimeout(total=IN_TIME_S)
        async with self.session.get(f"{path}?watch=true&{query}", headers=headers, timeout=timeout) as response:
            yield WatchStream(response)


Cluster = Callable[..., AbstractAsyncContextManager[Api]]
"""Starts a server with settings: ``async with cluster(history=5) as api``."""
