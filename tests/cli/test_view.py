"""``kerf view`` as a program: what it prints, what it serves, how it ends."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import anyio
import pytest
import yaml
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from kerf_dra.driver.diagnostics.cluster_state import ClassicState, ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.local.apiserver.faults import InjectedFault
from tests.fakes.cluster_states import replace
from tests.view.clusters import two_nodes

EXAMPLE: Final = Path(__file__).parents[2] / "docs/examples/full-card/cluster.json"
IN_TIME_S: Final = 120
"""For what takes a second on an idle machine."""


@asynccontextmanager
async def view(*arguments: str) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "kerf_dra.driver.cli", "view", *arguments]
    with anyio.fail_after(IN_TIME_S):
        async with await anyio.open_process(command) as process:
            try:
                yield process
            finally:
                if process.returncode is None:
                    process.terminate()


async def read_until(process: Process, end: bytes) -> str:
    assert process.stdout is not None
    return (await BufferedByteReceiveStream(process.stdout).receive_until(end, 10_000)).decode()


async def read_page(address: str) -> str:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session, session.get(address) as response:
        assert response.status == 200
        return await response.text()


async def test_the_printed_address_shows_a_file_of_gather_until_ctrl_c() -> None:
    async with view("--from", str(EXAMPLE)) as process:
        printed = await read_until(process, b"Ctrl-C ends it.")
        address = next(word for word in printed.split() if word.startswith("http://127.0.0.1:"))
        page = await read_page(address)
        assert "Not live: cluster.json of " in page
        assert "default/trainer" in page
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


async def test_a_program_gets_the_address_as_a_document() -> None:
    async with view("--from", str(EXAMPLE), "-o", "json") as process:
        document = json.loads(await read_until(process, b"}") + "}")
        assert "trainer" in await read_page(document["address"])


async def test_a_cluster_is_shown_with_the_rights_of_the_kubeconfig(tmp_path: Path) -> None:
    server = ApiServer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with view("--kubeconfig", str(kubeconfig)) as process:
            printed = await read_until(process, b"Ctrl-C ends it.")
            assert server.token not in printed
            address = next(word for word in printed.split() if "/?token=" in word)
            while "Reading the cluster" in (page := await read_page(address)):
                pass
            assert f"Live from {server.address}" in page
            assert "No node and no device is there." in page
            assert server.token not in page
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        (ClusterState(kubernetes="1.30", classic=ClassicState()), 3, "works from Kubernetes 1.32 on"),
        (replace(two_nodes(), forbidden_lists={"pods": "no right"}), 3, "could not be read: no right"),
    ],
)
async def test_what_cannot_be_shown_is_said(tmp_path: Path, state: ClusterState, code: int, said: str) -> None:
    dump = tmp_path / "dump.json"
    dump.write_bytes(encode_dump(state))
    async with view("--from", str(dump)) as process:
        assert process.stderr is not None
        message = (await BufferedByteReceiveStream(process.stderr).receive_until(b"\n", 10_000)).decode()
        assert said in message
        assert await process.wait() == code


async def test_a_cluster_that_cannot_be_reached_is_no_answer(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(ApiServer().kubeconfig()))
    async with view("--kubeconfig", str(kubeconfig)) as process:
        assert await process.wait() == 3


async def test_a_kubeconfig_that_may_not_list_pods_is_refused_when_the_cluster_has_been_read(tmp_path: Path) -> None:
    server = ApiServer()
    server.faults.add(InjectedFault(code=HTTPStatus.FORBIDDEN), verb="list", resource="pods")
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with view("--kubeconfig", str(kubeconfig)) as process:
            assert process.stderr is not None
            message = (await BufferedByteReceiveStream(process.stderr).receive_until(b"\n", 10_000)).decode()
            assert "`kerf view` needs the pods of the cluster, which could not be read: " in message
            assert await process.wait() == 3
        tasks.cancel_scope.cancel()
