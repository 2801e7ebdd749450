"""HTTP over real sockets, with time limits of a fraction of a second where the server hangs."""

import asyncio
import json
import ssl
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from aiohttp import web

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import (
    AccessError,
    ApiError,
    NotFoundError,
    ServerError,
    StatusError,
    ThrottledError,
    UnauthorizedError,
    UnexpectedAnswerError,
    UnreachableError,
)
from kerf_dra.driver.runtime.https.proxy import parse_proxy
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.fakes.connect_proxy import connect_proxy
from tests.kube.certificates import HERE
from tests.kube.http_stub import IMPATIENT, QUICK, Answer, Stub, disconnect, disconnect_halfway, respond, respond_bytes
from tests.kube.identified import identified

NODE = identified("/api/v1/nodes", {"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1"}})
VALUE = Node(metadata=ObjectMeta(name="n1"))


async def hangs(_request: web.Request) -> web.StreamResponse:
    await anyio.sleep_forever()
    raise AssertionError


async def read(client: Client) -> object:
    return await client.get(NODES, "n1")


async def write(client: Client) -> object:
    return await client.create(NODES, VALUE)


RETRY_NOW = {"Retry-After": "0"}


@pytest.mark.parametrize(
    ("answers", "call", "asked"),
    [
        ([disconnect, disconnect, disconnect, respond(200, NODE)], read, 4),
        ([disconnect_halfway, respond(200, NODE)], read, 2),
        ([respond(429, {}, **RETRY_NOW), respond(200, NODE)], read, 2),
        ([respond(429, {}, **RETRY_NOW), respond(200, NODE)], write, 2),
        ([respond(503, {}, **RETRY_NOW), respond(200, NODE)], read, 2),
    ],
    ids=["cut", "cut halfway", "throttled read", "throttled write", "failed read"],
)
async def test_what_is_safe_to_repeat_is_repeated_until_it_succeeds(
    answers: list[Answer], call: Any, asked: int
) -> None:
    async with Stub(answers).serving() as stub, stub.client() as client:
        assert (await call(client)).metadata.name == "n1"
        assert len(stub.asked) == asked


@pytest.mark.parametrize(
    ("answer", "call", "asked", "error"),
    [
        (disconnect, write, 1, UnreachableError),
        (disconnect_halfway, write, 1, UnreachableError),
        (respond(503, {}, **RETRY_NOW), write, 1, ServerError),
        (respond(500, {}), read, 1, ServerError),
        (respond(429, {}, **{"Retry-After": "60"}), read, 1, ThrottledError),
        (respond(429, {}), read, 1, ThrottledError),
        (respond(404, {}), read, 1, NotFoundError),
        (respond(302, {}, Location="http://elsewhere/"), read, 1, StatusError),
        (disconnect, read, 8, UnreachableError),  # aiohttp sends each try twice
        (respond(503, {}, **RETRY_NOW), read, 4, ServerError),
    ],
    ids=[
        "a write that was cut may have been done",
        "a write that was cut halfway may have been done",
        "a failed write may have been half done",
        "a server that does not ask for another try",
        "a wait that is too long",
        "a throttle without a time",
        "an answer that will not change",
        "a redirect",
        "a read that is cut every time",
        "a read that fails every time",
    ],
)
async def test_what_is_not_safe_or_no_use_to_repeat_is_the_callers(
    answer: Answer, call: Any, asked: int, error: type[ApiError]
) -> None:
    async with Stub([answer]).serving() as stub, stub.client() as client:
        with pytest.raises(error):
            await call(client)
        assert len(stub.asked) == asked


async def test_a_read_that_hangs_is_repeated_and_a_write_that_may_have_been_done_is_not() -> None:
    async with Stub([hangs, respond(200, NODE)]).serving() as stub, stub.client(IMPATIENT) as client:
        await read(client)
        assert len(stub.asked) >= 2
    async with Stub([hangs]).serving() as stub, stub.client(IMPATIENT) as client:
        with pytest.raises(UnreachableError):
            await write(client)
        assert len(stub.asked) <= 1, "none, where the process stood still for so long that nothing was sent"


async def test_a_call_ends_within_its_time_whatever_the_server_does() -> None:
    settings = replace(QUICK, call_timeout_s=0.1)
    async with Stub([hangs]).serving() as stub, stub.client(settings) as client:
        with pytest.raises(UnreachableError, match=r"GET /api/v1/nodes/n1: no answer within 0\.1 s"):
            await client.get(NODES, "n1")


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    async with Client(Access(server="http://127.0.0.1:1"), user_agent="kerf-test/1", settings=QUICK) as client:
        said = r"GET /api/v1/nodes/n1: cannot connect to 127\.0\.0\.1:1 \(Connection refused\): is the API server there"
        with pytest.raises(UnreachableError, match=said):
            await client.get(NODES, "n1")


async def test_the_server_learns_who_asks_and_what_is_accepted() -> None:
    async with Stub([respond(200, NODE)]).serving() as stub, stub.client() as client:
        await client.get(NODES, "n1")
        await client.create(NODES, VALUE)
    assert [asked.headers.get("Content-Type") for asked in stub.asked] == [None, "application/json"]
    assert {asked.headers["User-Agent"] for asked in stub.asked} == {"kerf-test/1"}
    assert {asked.headers["Accept"] for asked in stub.asked} == {"application/json"}


async def test_a_path_below_the_servers_address_is_kept() -> None:
    name = "system:odd name?x=1"
    odd = {**NODE, "metadata": {**NODE["metadata"], "name": name}}
    async with Stub([respond(200, odd)]).serving() as stub:
        access = Access(server=f"{stub.url}/k8s/clusters/c-1")
        async with Client(access, user_agent="kerf-test/1", settings=QUICK) as client:
            await client.get(NODES, name)
    assert stub.asked[0].path == "/k8s/clusters/c-1/api/v1/nodes/system:odd%20name%3Fx%3D1"
    assert stub.asked[0].query == {}


async def test_calls_beyond_the_limit_wait_for_their_turn() -> None:
    seen: list[str] = []

    async def slow(_request: web.Request) -> web.StreamResponse:
        seen.append("begins")
        for _ in range(50):
            await anyio.lowlevel.checkpoint()  # others would begin meanwhile
        seen.append("ends")
        return web.json_response(NODE)

    one_at_a_time = replace(QUICK, calls_at_once=1)
    async with Stub([slow] * 4).serving() as stub, stub.client(one_at_a_time) as client:
        async with anyio.create_task_group() as calls:
            for _ in range(4):
                calls.start_soon(read, client)
        assert seen == ["begins", "ends"] * 4


async def test_requests_are_counted_by_method_resource_and_outcome() -> None:
    def count(code: str) -> float:
        labels = {"method": "GET", "resource": "nodes", "code": code}
        return REGISTRY.get_sample_value("kerf_api_requests_total", labels) or 0

    before = {code: count(code) for code in ("200", "none")}
    async with Stub([disconnect, disconnect, respond(200, NODE)]).serving() as stub, stub.client() as client:
        await client.get(NODES, "n1")
    assert {code: count(code) - before[code] for code in before} == {"200": 1, "none": 1}


async def test_what_the_server_warns_of_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    warning = '299 - "resource.k8s.io/v1beta1 is deprecated"'
    async with Stub([respond(200, NODE, Warning=warning)]).serving() as stub, stub.client() as client:
        await client.get(NODES, "n1")
        await client.get(NODES, "n1")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("kerf_dra.")] == [
        f"GET /api/v1/nodes/n1: the API server warns: {warning}"
    ]


# Watches


def streams(*chunks: bytes, then: Answer | None = None) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if then is not None:
            await then(request)
        return response

    return answer


async def follow(client: Client, seen: list[str]) -> None:
    async with aclosing(client.watch(NODES, resource_version="1")) as events:
        async for event in events:
            seen.append(event.resource_version)


async def versions(client: Client) -> list[str]:
    seen: list[str] = []
    await follow(client, seen)
    return seen


def added(version: int, padding: int = 0) -> bytes:
    metadata = {"name": "n", "labels": {"x": "x" * padding}, "resourceVersion": str(version)}
    node = identified("/api/v1/nodes", {"metadata": metadata})
    return json.dumps({"type": "ADDED", "object": node}).encode() + b"\n"


@pytest.mark.parametrize("size", [1, 7, 100, 10**6])
async def test_events_are_read_however_the_network_cuts_them(size: int) -> None:
    data = b"".join(added(version) for version in range(2, 5))
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    async with Stub([streams(*chunks)]).serving() as stub, stub.client() as client:
        assert await versions(client) == ["2", "3", "4"]
    assert stub.asked[0].query == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "1"}


async def test_an_event_may_be_megabytes_long() -> None:
    async with Stub([streams(added(2, padding=3 * 10**6), added(3))]).serving() as stub, stub.client() as client:
        assert await versions(client) == ["2", "3"]


@pytest.mark.parametrize("then", [disconnect, hangs], ids=["cut", "silent"])
async def test_a_watch_that_is_cut_or_falls_silent_is_unreachable_after_its_events(then: Answer) -> None:
    # The silence is longer than a busy process stands still between an answer's head and its first event.
    settings = replace(QUICK, silence_s=1)
    async with Stub([streams(added(2), then=then)]).serving() as stub, stub.client(settings) as client:
        seen: list[str] = []
        with pytest.raises(UnreachableError):
            await follow(client, seen)
        assert seen == ["2"]
        assert len(stub.asked) == 1, "a watch goes on elsewhere: its caller knows where it stopped"


async def test_a_watch_whose_headers_never_come_is_given_up() -> None:
    settings = replace(QUICK, attempt_timeout_s=0.2)
    async with Stub([hangs]).serving() as stub, stub.client(settings) as client:
        with pytest.raises(UnreachableError, match=r"no answer within 0\.2 s"):
            await versions(client)


async def test_a_watch_that_is_left_early_closes_its_connection() -> None:
    closed = anyio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            await response.write(added(2))
            await anyio.sleep_forever()
        finally:
            closed.set()
        return response

    async with Stub([endless]).serving() as stub, stub.client() as client:
        async with aclosing(client.watch(NODES, resource_version="1")) as events:
            await anext(events)
        with anyio.fail_after(60):
            await closed.wait()


async def test_five_watches_end_when_they_are_cancelled() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        return await streams(added(2), then=hangs)(request)

    seen: list[str] = []
    async with Stub([endless]).serving() as stub, stub.client() as client:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(follow, client, seen)
                while len(seen) < 5:
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()


# TLS and credentials


def tls(server: str = "server-1") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(HERE / "ca-1.pem"))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(HERE / f"{server}.pem")
    return context


def access(stub: Stub, **fields: Any) -> Access:
    return Access(**{"server": stub.url, "ca": HERE / "ca-1.pem", "tls_server_name": "kerf.test", **fields})


def secure_client(stub: Stub, **fields: Any) -> Client:
    return Client(access(stub, **fields), user_agent="kerf-test/1", settings=replace(QUICK, attempts=1))


async def test_a_client_certificate_says_who_we_are() -> None:
    async with Stub([respond(200, NODE)]).serving(tls()) as stub:
        fields = {"certificate": HERE / "client-1.pem", "key": (HERE / "client-1.key").read_bytes()}
        async with secure_client(stub, **fields) as client:
            await client.get(NODES, "n1")
    assert stub.asked[0].client == "client-1"


async def test_a_token_is_sent_as_a_bearer() -> None:
    async with Stub([respond(200, NODE)]).serving(tls()) as stub, secure_client(stub, token="opaque") as client:
        await client.get(NODES, "n1")
    assert (stub.asked[0].headers["Authorization"], stub.asked[0].client) == ("Bearer opaque", None)


@pytest.mark.parametrize(
    ("server", "fields"),
    [("server-2", {}), ("server-1", {"tls_server_name": ""}), ("server-1", {"ca": None})],
    ids=["another authority", "another name", "the system's roots"],
)
async def test_a_server_that_cannot_prove_itself_gets_no_token(server: str, fields: dict[str, Any]) -> None:
    async with (
        Stub([respond(200, NODE)]).serving(tls(server)) as stub,
        secure_client(stub, token="opaque", **fields) as client,
    ):
        with pytest.raises(UnreachableError, match="certificate"):
            await client.get(NODES, "n1")
    assert stub.asked == []


async def test_verification_can_be_switched_off() -> None:
    async with Stub([respond(200, NODE)]).serving(tls("server-2")) as stub, secure_client(stub, verify=False) as client:
        await client.get(NODES, "n1")


async def test_no_credentials_go_over_plain_http() -> None:
    async with Stub([respond(200, NODE)]).serving() as stub, secure_client(stub, token="opaque") as client:
        await client.get(NODES, "n1")
    assert "Authorization" not in stub.asked[0].headers


@pytest.mark.parametrize("method", ["call", "watch"])
async def test_a_refused_token_is_read_again_and_tried_once_more(tmp_path: Path, method: str) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")

    async def only_new(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] != "Bearer new":
            token.write_text("new\n")
            return web.json_response({"code": 401}, status=401)
        return web.json_response(NODE)

    async with Stub([only_new]).serving(tls()) as stub, secure_client(stub, token=token) as client:
        if method == "call":
            await client.get(NODES, "n1")
        else:
            async with aclosing(client.watch(NODES, resource_version="1")) as events:
                assert [event async for event in events] == []
    assert [asked.headers["Authorization"] for asked in stub.asked] == ["Bearer old", "Bearer new"]


async def test_a_token_that_stays_refused_is_refused_after_one_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with Stub([respond(401, {})]).serving(tls()) as stub, secure_client(stub, token=token) as client:
        with pytest.raises(UnauthorizedError):
            await client.get(NODES, "n1")
    assert len(stub.asked) == 1


async def test_missing_credentials_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    async with (
        Stub([respond(200, NODE)]).serving(tls()) as stub,
        secure_client(stub, token=tmp_path / "gone") as client,
    ):
        with pytest.raises(AccessError, match=f"cannot read {tmp_path}/gone: No such file"):
            await client.get(NODES, "n1")


async def test_a_body_that_is_no_object_is_an_error() -> None:
    async with Stub([respond_bytes(b"<html>")]).serving() as stub, stub.client() as client:
        with pytest.raises(UnexpectedAnswerError, match="the answer is not Node n1 of v1: it is no such document"):
            await client.get(NODES, "n1")


async def test_a_server_is_asked_through_the_proxy_which_reads_nothing() -> None:
    async with Stub([respond(200, NODE)]).serving(tls()) as stub:
        with connect_proxy() as proxy:
            through = parse_proxy(proxy.url.replace("//", "//user:S3CRET@"))
            server = stub.url.replace("127.0.0.1", "kerf.test")  # a name that the proxy alone knows
            async with secure_client(stub, server=server, tls_server_name="", proxy=through, token="opaque") as client:
                await client.get(NODES, "n1")
            assert proxy.tunnels == [server.replace("https://", "CONNECT ")]
            assert proxy.authorizations == [through.authorization]
    assert "Proxy-Authorization" not in stub.asked[0].headers
    assert stub.asked[0].headers["Authorization"] == "Bearer opaque"


async def test_a_proxy_that_does_not_let_us_through_is_named() -> None:
    async with Stub([respond(200, NODE)]).serving(tls()) as stub:
        with connect_proxy() as proxy:
            proxy.refusal = "407 Proxy Authentication Required"
            through = parse_proxy(proxy.url)
            async with secure_client(stub, proxy=through) as client:
                with pytest.raises(
                    UnreachableError, match=r"the proxy opens no connection .* 407 Proxy Authentication"
                ):
                    await client.get(NODES, "n1")
        async with secure_client(stub, proxy=through) as client:
            with pytest.raises(
                UnreachableError, match=rf"cannot connect to the proxy 127.0.0.1:{proxy.port} .*refused"
            ):
                await client.get(NODES, "n1")
    assert stub.asked == []
