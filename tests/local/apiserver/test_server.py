"""The server as a task: how it starts, stops and fails."""

import socket

import aiohttp
import anyio
import pytest

from kerf_dra.driver.local.apiserver import ApiServer
from tests.local.apiserver.api_client import IN_TIME_S, Api
from tests.runtime.ports import reserved_port

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_kubeconfig_leads_to_the_server(api: Api) -> None:
    config = api.server.kubeconfig()
    (cluster,) = config["clusters"]
    (context,) = config["contexts"]
    assert cluster["cluster"]["server"] == api.server.url
    assert (context["name"], context["context"]["cluster"]) == (config["current-context"], cluster["name"])
    assert context["context"]["user"] == config["users"][0]["name"]


async def test_a_chosen_port_is_used() -> None:
    server = ApiServer()
    with reserved_port() as port:
        async with anyio.create_task_group() as group:
            await group.start(lambda *, task_status: server.serve(port=port, task_status=task_status))
            assert server.address == f"http://127.0.0.1:{port}"
            group.cancel_scope.cancel()


async def test_a_taken_port_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="address already in use"):
            await ApiServer().serve(port=taken.getsockname()[1])


async def test_open_watches_end_when_the_server_stops() -> None:
    server = ApiServer()
    with anyio.fail_after(IN_TIME_S):
        async with anyio.create_task_group() as group, aiohttp.ClientSession() as session:
            await group.start(server.serve)
            async with session.get(f"{server.url}{MAPS}?watch=1&resourceVersion={server.storage.revision}") as watch:
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    assert await watch.content.read() == b""


async def test_a_stopped_server_can_be_reached_no_more() -> None:
    server = ApiServer()
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        group.cancel_scope.cancel()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(server.url)


async def test_a_server_that_starts_again_has_kept_its_objects() -> None:
    server = ApiServer()
    for turn in range(2):
        async with anyio.create_task_group() as group, aiohttp.ClientSession() as session:
            await group.start(server.serve)
            async with session.post(f"{server.url}{MAPS}", json={"metadata": {"name": f"c{turn}"}}) as made:
                assert made.status == 201
            async with session.get(f"{server.url}{MAPS}") as listed:
                assert len((await listed.json())["items"]) == turn + 1
            group.cancel_scope.cancel()


async def test_a_fault_of_the_server_itself_is_told_its_client(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(api.server.storage, "items", fail)
    answer = await api.get(MAPS)
    assert (answer.status, answer.body["reason"]) == (500, "InternalError")
    assert "a fault of ours" in answer.body["message"]
    assert f"cannot answer GET {MAPS}" in caplog.text
    monkeypatch.undo()
    assert (await api.get(MAPS)).status == 200


async def test_two_servers_do_not_know_each_other(api: Api) -> None:
    other = ApiServer()
    async with anyio.create_task_group() as group, aiohttp.ClientSession() as session:
        await group.start(other.serve)
        assert other.url != api.server.url
        await api.made(MAPS, {"metadata": {"name": "c"}})
        async with session.get(f"{other.url}{MAPS}/c") as answer:
            assert answer.status == 404
        group.cancel_scope.cancel()
