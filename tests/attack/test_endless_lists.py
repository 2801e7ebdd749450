"""Lists that never end, from a server or proxy that is broken: rows of ``kinds.toml``."""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Final, Literal

import anyio
import msgspec
import pytest

from kerf_dra.api.core.v1 import NODES
from kerf_dra.driver.kube.http.client import Client, ClientSettings
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kube.informer import Informer
from tests.attack.kinds import cases
from tests.kube.open_transport import OpenTransport
from tests.runtime.virtual_time import VIRTUAL_TIME

HOUR_S: Final = 3600.0
MOST_PAGES: Final = 20
"""Pages of one list: fewer than the client reads by default, which would take seconds."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class Pages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pages of a list."""

    tokens: Literal["same", "two", "new"]
    """The continue tokens: one, two in turn, or a new one each time."""
    objects: int
    """The objects of a page."""
    most_pages: int
    """Pages that one try may read."""
    new: bool = True
    """Whether the objects of a page are other ones than those of the pages before."""


@dataclass
class EndlessServer(OpenTransport):
    """A Transport whose lists have such pages, until it is repaired."""

    pages: Pages
    lists: int = 0
    requests: int = 0
    is_repaired: bool = False
    _names: Iterator[str] = field(default_factory=lambda: map("n-{}".format, count()))

    async def call(self, request: HttpRequest) -> bytes:
        await anyio.lowlevel.checkpoint()
        self.requests += 1
        self.lists += "continue" not in request.query
        more = "" if self.is_repaired else self._build_token()
        names = islice(self._names if self.pages.new else map("n-{}".format, count()), self.pages.objects)
        items = [{"metadata": {"name": name}} for name in (["repaired"] if self.is_repaired else names)]
        metadata = {"resourceVersion": "7", "continue": more}
        return msgspec.json.encode({"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": items})

    async def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        assert self.is_repaired, f"{request} without a list"
        await anyio.sleep_forever()
        yield b""

    def _build_token(self) -> str:
        return {"same": "t", "two": f"t-{self.requests % 2}", "new": f"t-{self.requests}"}[self.pages.tokens]


@pytest.mark.parametrize(
    "pages", cases("test_endless_lists.py::test_an_informer_gives_up_soon_and_asks_again_at_intervals", Pages)
)
async def test_an_informer_gives_up_soon_and_asks_again_at_intervals(
    pages: Pages, caplog: pytest.LogCaptureFixture
) -> None:
    server = EndlessServer(pages)
    settings = ClientSettings(most_pages=MOST_PAGES)
    client = Client(Access(server="http://endless"), user_agent="t/1", settings=settings, transport=server)
    informer = Informer(client, NODES)
    async with anyio.create_task_group() as group:
        group.start_soon(informer.run)
        await anyio.sleep(HOUR_S)
        assert not informer.synced
        assert HOUR_S / 70 < server.lists < HOUR_S / 25, "for ever, with a back-off"
        assert server.requests <= server.lists * pages.most_pages
        server.is_repaired = True
        await informer.wait_synced()
        group.cancel_scope.cancel()
    assert [ref.name for ref in informer.store.refs()] == ["repaired"]
    assert "cannot follow nodes: GET /api/v1/nodes: the list does not end: " in caplog.text


class ShortPage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the only page of a list of two objects says beside one of them."""

    remaining: int | None = None
    is_refused: bool = False


@dataclass
class ShortServer(OpenTransport):
    """A Transport whose first lists lack the second of two nodes."""

    page: ShortPage
    lists: int = 0

    async def call(self, request: HttpRequest) -> bytes:
        await anyio.lowlevel.checkpoint()
        self.lists += 1
        is_short = self.lists <= 2
        items = [{"metadata": {"name": name, "uid": name, "resourceVersion": "1"}} for name in ("a", "b")]
        metadata = {"resourceVersion": "1", "remainingItemCount": self.page.remaining if is_short else None}
        page = {"apiVersion": "v1", "kind": "NodeList", "metadata": metadata, "items": items[: 1 if is_short else 2]}
        return msgspec.json.encode(page)

    async def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        await anyio.sleep_forever()
        yield b""


@pytest.mark.parametrize(
    "page",
    cases("test_endless_lists.py::test_a_list_that_says_itself_that_it_is_incomplete_is_read_again", ShortPage),
)
async def test_a_list_that_says_itself_that_it_is_incomplete_is_read_again(page: ShortPage) -> None:
    """It was believed: what it lacked did not exist."""
    server = ShortServer(page)
    informer = Informer(Client(Access(server="http://short"), user_agent="test/1", transport=server), NODES)
    async with anyio.create_task_group() as group:
        group.start_soon(informer.run)
        await anyio.sleep(60)
        known = [ref.name for ref in informer.store.refs()]
        group.cancel_scope.cancel()
    assert (known, server.lists) == ((["a", "b"], 3) if page.is_refused else (["a"], 1))
