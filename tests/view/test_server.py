"""The server over HTTP: who is answered, and what open pages are sent."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import anyio
import pytest

from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.view.request_check import SECURITY_HEADERS, cookie_name
from kerf_dra.driver.view.server import MOST_BODY_BYTES, MOST_OPEN_PAGES, AddressInUseError, ViewServer
from kerf_dra.driver.view.snapshots import Snapshots
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, replace
from tests.view.clusters import two_nodes

TOKEN: Final = "the-token"
IN_TIME_S: Final = 60
"""For what takes milliseconds on an idle machine."""


class Server:
    """A server with its snapshots, and clients of it."""

    def __init__(self, server: ViewServer, snapshots: Snapshots, port: int) -> None:
        self.server = server
        self.snapshots = snapshots
        self.port = port
        self.base = f"http://127.0.0.1:{port}"

    @asynccontextmanager
    async def client(self, **headers: str) -> AsyncIterator[aiohttp.ClientSession]:
        """A browser that has been given the token."""
        cookies = {cookie_name(self.port): TOKEN}
        jar = aiohttp.CookieJar(unsafe=True)  # for addresses without a name
        async with aiohttp.ClientSession(self.base, headers=headers, cookies=cookies, cookie_jar=jar) as session:
            yield session

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.client(**headers) as session, session.get(path, allow_redirects=False) as response:
            return response.status, await response.text()

    async def post(self, body: Any, **headers: str) -> tuple[int, str]:
        headers.setdefault("Origin", self.base)
        async with self.client(**headers) as session, session.post("/what-if", data=body) as response:
            return response.status, await response.text()

    async def change(self, *more: str) -> None:
        """Show a cluster that has one more claim for each class."""
        now = allocate_claims(two_nodes(), *(claim(f"new-{each}", each) for each in more))
        self.snapshots.replace(replace(now, pods=two_nodes().pods))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    snapshots = Snapshots(two_nodes(), Budget(), "Live")
    view = ViewServer(snapshots, TOKEN)
    with anyio.fail_after(IN_TIME_S):
        async with anyio.create_task_group() as tasks:
            yield Server(view, snapshots, await tasks.start(view.serve, 0))
            tasks.cancel_scope.cancel()


class Events:
    """The events of one open page."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> tuple[str, Any]:
        """Return the next event and its data; comments are passed over."""
        fields: dict[str, str] = {}
        while True:
            line = (await self._response.content.readline()).decode().rstrip("\n")
            if not line and "data" in fields:
                return fields["event"], json.loads(fields["data"])
            name, _, value = line.partition(": ")
            fields |= {name: value} if name else {}


@asynccontextmanager
async def watch(server: Server, page: str = "/", digest: str = "") -> AsyncIterator[Events]:
    async with (
        server.client() as session,
        session.get("/updates", params={"page": page, "digest": digest}) as response,
    ):
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        yield Events(response)


async def test_the_printed_address_moves_its_token_into_a_cookie(server: Server) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        async with session.get(server.server.address, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "/")
            flags = response.headers["Set-Cookie"]
        assert "HttpOnly" in flags
        assert "SameSite=Strict" in flags
        async with session.get(f"{server.base}/") as response:
            assert response.status == 200
            assert TOKEN not in await response.text()


async def test_without_the_token_nothing_is_shown(server: Server) -> None:
    async with aiohttp.ClientSession(server.base) as session:
        for path in ("/", "/claims", "/updates?page=/", "/view.js", "/?token=wrong", "/nowhere"):
            async with session.get(path) as response:
                assert response.status == 403, path
                assert "node-1" not in await response.text()


@pytest.mark.parametrize("path", ["/", "/claims", "/updates?page=/", "/view.css"])
async def test_another_host_and_another_origin_are_refused(server: Server, path: str) -> None:
    assert (await server.get(path, Host="rebound.example"))[0] == 421
    assert (await server.get(path, Origin="http://elsewhere.example"))[0] == 403


async def test_every_answer_has_the_headers_of_security(server: Server) -> None:
    async with server.client() as session:
        for path in ("/", "/view.js", "/view.css", "/claim?name=none", "/nowhere", "/updates?page=/"):
            async with session.get(path) as response:
                assert SECURITY_HEADERS.items() <= dict(response.headers).items(), path
                assert "Access-Control-Allow-Origin" not in response.headers
    async with aiohttp.ClientSession(server.base) as session, session.get("/") as response:
        assert SECURITY_HEADERS.items() <= dict(response.headers).items()


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/claims", 200), ("/claim?name=none", 404), ("/nowhere", 404), ("/favicon.ico", 204)],
)
async def test_pages_are_found_by_their_addresses(server: Server, path: str, status: int) -> None:
    assert (await server.get(path))[0] == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_pages_are_only_read(server: Server, method: str) -> None:
    async with server.client(Origin=server.base) as session, session.request(method, "/claims") as response:
        assert response.status == 405


async def test_a_manifest_gets_an_answer(server: Server) -> None:
    status, text = await server.post({"manifest": "a: [", "copies": "x"})
    assert status == 200
    assert "is not YAML" in text
    assert "a: [</textarea>" in text


async def test_a_form_of_elsewhere_is_refused(server: Server) -> None:
    assert (await server.post({"manifest": ""}, Origin="http://elsewhere.example"))[0] == 403
    assert (await server.post({"manifest": ""}, **{"Sec-Fetch-Site": "cross-site"}))[0] == 403


async def test_a_form_that_is_too_large_is_refused(server: Server) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    text = b"manifest="
    assert (await server.post(io.BytesIO(text.ljust(MOST_BODY_BYTES + 1, b"x")), **form))[0] == 413
    assert (await server.post(io.BytesIO(text.ljust(MOST_BODY_BYTES, b"x")), **form))[0] == 200


async def test_a_port_in_use_is_an_error_that_says_so(server: Server) -> None:
    view = ViewServer(server.snapshots, TOKEN)
    with pytest.raises(ExceptionGroup) as raised:
        async with anyio.create_task_group() as tasks:
            await tasks.start(view.serve, server.port)
    assert isinstance(raised.value.exceptions[0], AddressInUseError)
    assert f"127.0.0.1:{server.port}: " in str(raised.value.exceptions[0])


async def read_digest(server: Server, page: str) -> str:
    _, text = await server.get(page)
    return text.partition('data-digest="')[2].partition('"')[0]


async def test_an_open_page_gets_the_parts_that_change_and_no_others(server: Server) -> None:
    async with watch(server, digest=await read_digest(server, "/")) as events:
        assert (await events.next())[0] == "state"
        await server.change("2g-20gb")
        kind, parts = await events.next()
        assert kind == "parts"
        cards = [each for each in parts if each.startswith("card-")]
        assert len(cards) == 1
        assert "new-2g-20gb" in parts[cards[0]]
        await server.change("2g-20gb", "1g-10gb")
        assert "new-1g-10gb" in str((await events.next())[1])


async def test_a_page_that_shows_something_older_gets_everything(server: Server) -> None:
    digest = await read_digest(server, "/")
    await server.change("2g-20gb")
    async with watch(server, digest=digest) as events:
        assert (await events.next())[0] == "state"
        kind, markup = await events.next()
        assert kind == "main"
        assert "new-2g-20gb" in markup


async def test_a_page_with_another_node_gets_everything(server: Server) -> None:
    async with watch(server, digest=await read_digest(server, "/")) as events:
        await events.next()
        server.snapshots.replace(gpu_cluster(3))
        assert (await events.next())[0] == "main"


async def test_an_outage_is_shown_with_its_beginning_and_its_end(server: Server) -> None:
    async with watch(server, digest=await read_digest(server, "/")) as events:
        assert "Live" in (await events.next())[1]
        server.snapshots.note_problem("connection refused")
        kind, line = await events.next()
        assert kind == "state"
        assert "Not current since 2026-11-21T08:00:00+00:00: connection refused" in line
        assert "Not current since" in (await server.get("/claims"))[1]
        server.snapshots.replace(two_nodes())
        assert "Live" in (await events.next())[1]


async def test_a_snapshot_that_is_the_same_sends_nothing(server: Server) -> None:
    async with watch(server, digest=await read_digest(server, "/")) as events:
        await events.next()
        server.snapshots.replace(later(two_nodes()))
        await server.change("2g-20gb")
        assert (await events.next())[0] == "parts"


def later(state: ClusterState) -> ClusterState:
    return replace(state, gathered_at="2026-11-21T08:00:02+00:00")


async def test_a_page_that_is_quiet_gets_comments(server: Server) -> None:
    view = ViewServer(server.snapshots, TOKEN, quiet_s=0.01)
    async with anyio.create_task_group() as tasks:
        quiet = Server(view, server.snapshots, await tasks.start(view.serve, 0))
        async with quiet.client() as session, session.get("/updates", params={"page": "/claims"}) as response:
            while not (await response.content.readline()).startswith(b":"):
                pass
        tasks.cancel_scope.cancel()


async def test_more_open_pages_than_one_person_has_are_refused(server: Server) -> None:
    async with server.client() as session:
        opened = [await session.get("/updates", params={"page": "/"}) for _ in range(MOST_OPEN_PAGES)]
        assert (await server.get("/updates?page=/"))[0] == 503
        assert (await server.get("/"))[0] == 200
        for each in opened:
            each.close()
    await wait_for_no_page(server)
    assert (await server.get("/updates?page=/nowhere"))[0] == 404


async def wait_for_no_page(server: Server) -> None:
    """Wait until the server has noticed that connections have ended: sockets say so when the loop gets to them."""
    while server.server.open_pages:
        await anyio.lowlevel.checkpoint()


async def test_a_thousand_disconnected_pages_leave_nothing(server: Server) -> None:
    await server.get("/")
    before = len(asyncio.all_tasks())
    request = (
        f"GET /updates?page=/ HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        f"Cookie: {cookie_name(server.port)}={TOKEN}\r\n\r\n"
    )
    for _ in range(40):
        streams = [await anyio.connect_tcp("127.0.0.1", server.port) for _ in range(25)]
        for stream in streams:
            await stream.send(request.encode())
            assert (await stream.receive(12)).startswith(b"HTTP/1.1 200")
        for stream in streams:
            await stream.aclose()
        await wait_for_no_page(server)
    for _ in range(10):
        await anyio.lowlevel.checkpoint()
    assert len(asyncio.all_tasks()) <= before + 1
    assert (await server.get("/"))[0] == 200


async def test_a_page_that_takes_nothing_does_not_hold_up_others(server: Server) -> None:
    silent = await anyio.connect_tcp("127.0.0.1", server.port)
    request = f"GET /updates?page=/ HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    await silent.send(f"{request}Cookie: {cookie_name(server.port)}={TOKEN}\r\n\r\n".encode())
    async with watch(server, digest=await read_digest(server, "/")) as events:
        await events.next()
        await server.change("2g-20gb")
        assert (await events.next())[0] == "parts"
    await silent.aclose()
