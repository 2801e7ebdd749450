"""``kerf sanity`` on drivers of others, unmodified, and on Kerf's: what each does not meet is in a table.

The example of Kubernetes and NVIDIA's driver run as processes, on an embedded API server and stand-in hardware.
"""

import json
import os
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.sanity.allocated_claims import AllocatedClaims
from kerf_dra.driver.sanity.driver_process import DriverProcess
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
from kerf_dra.driver.sanity.rows import Outcome
from kerf_dra.driver.sanity.run import ROWS, run_rows
from tests.kubeletplugin.harness import short_directory
from tests.oracle.nvidia_driver.drivers import Driver, two_drivers
from tools.realcluster.builds import build_example_driver, build_nvidia_driver

pytestmark = pytest.mark.oracle

EXAMPLE: Final = "gpu.example.com"
NODE: Final = "node-1"
MODEL: Final = "h100-80gb-sxm"
TABLE: Final = Path(__file__).with_name("peers.toml")
_LONGEST_S: Final = 120.0
_POLL_S: Final = 0.1

Peer = Callable[[Path], AbstractAsyncContextManager[DriverUnderTest]]


def read_table() -> Mapping[str, Any]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


async def wait_socket(folder: Path, driver: str) -> Path:
    """Return the registration socket of a driver, once it is there."""
    with anyio.fail_after(_LONGEST_S):
        while not (found := [path for path in folder.glob(f"{driver}*") if path.is_socket()]):  # noqa: ASYNC110
            await anyio.sleep(_POLL_S)
    return found[0]


@asynccontextmanager
async def example(root: Path) -> AsyncIterator[DriverUnderTest]:
    """The example driver of Kubernetes, with two devices."""
    program = build_example_driver()
    server = ApiServer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        (root / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
        for name in ("cdi", "kubelet/plugins_registry", "kubelet/plugins"):
            (root / name).mkdir(parents=True)
        async with Client(Access(server=server.url), user_agent="kerf-oracle/1") as client:
            await client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
            options = {
                "--node-name": NODE,
                "--driver-name": EXAMPLE,
                "--kubeconfig": root / "kubeconfig",
                "--cdi-root": root / "cdi",
                "--num-devices": 2,
                "--kubelet-registrar-directory-path": root / "kubelet/plugins_registry",
                "--kubelet-plugins-directory-path": root / "kubelet/plugins",
            }
            command = [str(program), *(f"{option}={value}" for option, value in options.items())]
            claims = AllocatedClaims(client, await discover(client), driver=EXAMPLE, node=NODE, namespace="default")
            socket = root / f"kubelet/plugins_registry/{EXAMPLE}-reg.sock"
            yield DriverUnderTest(socket, [root / "cdi"], claims, DriverProcess(command))
        tasks.cancel_scope.cancel()


def of_pair(name: str) -> Peer:
    """NVIDIA's or Kerf's driver, on a machine with two H100, one of them in MIG mode."""

    @asynccontextmanager
    async def run(root: Path) -> AsyncIterator[DriverUnderTest]:
        assert os.geteuid() == 0, "this oracle makes mounts in a namespace of its own: run it as root"
        async with two_drivers(build_nvidia_driver(), MODEL, root) as pair:
            peer: Driver = getattr(pair, name)
            socket = await wait_socket(peer.folder / "kubelet/plugins_registry", peer.name)
            claims = AllocatedClaims(
                pair.client, await discover(pair.client), driver=peer.name, node=peer.node, namespace="default"
            )
            await peer.stop()
            variables = [f"{name}={value}" for name, value in peer.environment.items()]
            process = DriverProcess(["env", *variables, *peer.command])
            yield DriverUnderTest(socket, [peer.cdi_dir], claims, process)

    return run


PEERS: Final[Mapping[str, Peer]] = {"example": example, "nvidia": of_pair("nvidia"), "kerf": of_pair("kerf")}


@pytest.mark.parametrize("name", PEERS)
async def test_what_a_driver_does_not_meet_is_in_the_table(name: str) -> None:
    with short_directory() as root:
        async with PEERS[name](root) as driver:
            results = [result async for result in run_rows(driver, ROWS)]
    found = {result.row.id: (str(result.outcome), result.seen) for result in results}
    other = {row: found[row] for row in found if found[row][0] != Outcome.PASSED}
    known = {each["row"]: each["outcome"] for each in read_table()["differences"] if each["peer"] == name}
    assert {row: outcome for row, (outcome, _) in other.items()} == known, other
