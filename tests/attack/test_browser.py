"""A web page in the browser of somebody who runs ``kerf demo --keep``, and another user of the same machine."""

import json
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.local.cluster import ClusterSettings, LocalCluster
from tests.attack.test_connections import until_closed

MAPS = "/api/v1/namespaces/default/configmaps"
BODY = json.dumps({"metadata": {"name": "evil"}}).encode()
MANY = 300


@asynccontextmanager
async def serving() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        yield server
        group.cancel_scope.cancel()


async def send(server: ApiServer, method: str, path: str, body: bytes = b"", /, **headers: str) -> tuple[int, str]:
    """Send a request as it is; ``Host`` is the server's own unless it is given."""
    given = {"Host": server.address.removeprefix("http://"), "Connection": "close", **headers}
    lines = [f"{method} {path} HTTP/1.1", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
    async with await anyio.connect_tcp("127.0.0.1", int(server.address.rpartition(":")[2])) as stream:
        await stream.send("\r\n".join([*lines, "", ""]).encode() + body)
        answer = (await until_closed(stream)).decode()
    return int(answer.split()[1]), answer


async def test_who_has_the_address_of_the_kubeconfig_is_let_in() -> None:
    async with serving() as server:
        (cluster,) = server.kubeconfig()["clusters"]
        prefix = cluster["cluster"]["server"].removeprefix(server.address)
        assert len(prefix) > 30
        made = await send(server, "POST", prefix + MAPS, BODY, Content_Type="application/json")
        assert made[0] == 201
        assert (await send(server, "GET", prefix + "/version"))[0] == 200
        assert (await send(server, "GET", MAPS + "/evil", Authorization=f"Bearer {server.token}"))[0] == 200


@pytest.mark.parametrize("path", ["/api", "/version", "/healthz", "/openapi/v3", MAPS, "/", "//", "/x/api"])
async def test_without_the_token_nothing_is_told(path: str) -> None:
    async with serving() as server:
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {server.token}"}):
            code, answer = await send(server, "GET", path, **headers)
            assert (code, "Unauthorized" in answer) == (401, True)
            assert server.token not in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_without_the_token_nothing_is_changed(method: str) -> None:
    async with serving() as server:
        before = server.storage.revision
        code, _ = await send(server, method, f"{MAPS}/kube-root-ca.crt", BODY, Content_Type="application/json")
        assert code == 401
        assert server.storage.revision == before


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost", ""])
async def test_a_name_that_is_rebound_to_this_machine_is_refused_even_with_the_token(host: str) -> None:
    async with serving() as server:
        name = host.format(port=server.address.rpartition(":")[2])
        code, _ = await send(server, "GET", f"/{server.token}{MAPS}", Host=name)
        assert code == (401 if name == server.address else 403)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"])
async def test_a_page_of_another_origin_is_refused_even_with_the_token(origin: str) -> None:
    async with serving() as server:
        code, answer = await send(server, "GET", f"/{server.token}{MAPS}", Origin=origin)
        assert code == 403
        assert "Access-Control-Allow-Origin" not in answer


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_write_needs_a_content_type_that_no_form_can_have(content_type: str) -> None:
    async with serving() as server:
        before = server.storage.revision
        headers = {"Content_Type": content_type} if content_type else {}
        code, _ = await send(server, "POST", f"/{server.token}{MAPS}", BODY, **headers)
        assert code == 415
        assert server.storage.revision == before


async def test_connections_without_the_token_do_not_crowd_out_those_with_it() -> None:
    async with serving() as server, AsyncExitStack() as stack:
        port = int(server.address.rpartition(":")[2])
        watching = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
        watch = f"GET /{server.token}{MAPS}?watch=1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
        await watching.send(watch.encode())
        assert (await watching.receive()).startswith(b"HTTP/1.1 200")
        for _ in range(MANY):
            await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
        path = f"/{server.token}{MAPS}"
        assert (await send(server, "POST", path, BODY, Content_Type="application/json"))[0] == 201
        assert b'"evil"' in await watching.receive()


async def test_only_its_owner_may_read_the_kubeconfig(tmp_path: Path) -> None:
    cluster = LocalCluster(ClusterSettings(root=tmp_path, nodes=()), share_id=str, boot_id=str)
    async with anyio.create_task_group() as group:
        await group.start(cluster.run)
        assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600
        group.cancel_scope.cancel()
