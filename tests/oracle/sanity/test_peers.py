"""``kerf sanity`` on drivers of others, unmodified, and on Kerf's: what each does not meet is in a table.

The drivers of Kubernetes and NVIDIA's run as processes, on an embedded API server and stand-in hardware.
"""

import json
import os
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from acme_npu import NPU

from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu_intel import GPU_INTEL
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.sanity.allocated_claims import AllocatedClaims
from kerf_dra.driver.sanity.driver_process import INSTANCE
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
from kerf_dra.driver.sanity.rows import Outcome
from kerf_dra.driver.sanity.run import ROWS, run_rows
from tests.fakes.intel import GIB, MAX_1550, IntelMachine
from tests.kubeletplugin.harness import short_directory
from tests.oracle.nvidia_driver.drivers import Driver, two_drivers
from tests.sanity.node import NODE, build_driver, kerf_command, one_driver
from tests.testing.installed_example import install
from tools.realcluster.builds import build_example_driver, build_nvidia_driver, build_test_driver

pytestmark = pytest.mark.oracle

EXAMPLE: Final = "gpu.example.com"
TEST_DRIVER: Final = "test-driver.cdi.k8s.io"
MODEL: Final = "h100-80gb-sxm"
TABLE: Final = Path(__file__).with_name("peers.toml")
_LONGEST_S: Final = 120.0
_POLL_S: Final = 0.1

Peer = Callable[[Path], AbstractAsyncContextManager[DriverUnderTest]]


def read_table() -> Mapping[str, Any]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


async def wait_socket(folder: Path, driver: str) -> None:
    """Wait for the registration socket of a driver."""
    with anyio.fail_after(_LONGEST_S):
        while not any(path.is_socket() for path in folder.glob(f"{driver}*")):  # noqa: ASYNC110
            await anyio.sleep(_POLL_S)


@asynccontextmanager
async def example(root: Path) -> AsyncIterator[DriverUnderTest]:
    """The example driver of Kubernetes, with two devices."""
    options = {
        "--node-name": NODE,
        "--driver-name": EXAMPLE,
        "--kubeconfig": root / "kubeconfig",
        "--cdi-root": root / "cdi",
        "--num-devices": 2,
        "--pod-uid": INSTANCE,
        "--kubelet-registrar-directory-path": root / "kubelet/plugins_registry",
        "--kubelet-plugins-directory-path": root / "kubelet/plugins",
    }
    command = [str(build_example_driver()), *(f"{option}={value}" for option, value in options.items())]
    async with one_driver(root, EXAMPLE, command) as driver:
        yield driver


def build_test_driver_command(root: Path) -> Sequence[str]:
    """Return the command of the driver of Kubernetes' own end-to-end tests, on the node below ``root``."""
    options = {
        "--node-name": NODE,
        "--drivername": TEST_DRIVER,
        "--kubeconfig": root / "kubeconfig",
        "--cdi-dir": root / "cdi",
        "--plugin-registration-path": root / "kubelet/plugins_registry",
        "--datadir": root / "kubelet/plugins",
    }
    return [str(build_test_driver()), "kubelet-plugin", *(f"{option}={value}" for option, value in options.items())]


@asynccontextmanager
async def kubernetes(root: Path) -> AsyncIterator[DriverUnderTest]:
    """That driver, with its four devices."""
    async with one_driver(root, TEST_DRIVER, build_test_driver_command(root)) as driver:
        yield driver


def of_kerf(family: Family, backend: str, make: Callable[[Path], Mapping[str, str]]) -> Peer:
    """Kerf's plugin with a family and its backend, for whose hardware ``make`` writes ``root/hardware``."""

    @asynccontextmanager
    async def run(root: Path) -> AsyncIterator[DriverUnderTest]:
        environment = make(root)
        command = kerf_command(root, family.name, f"{backend}={root / 'hardware'}")
        async with one_driver(root, family.driver, command, environment) as driver:
            yield driver

    return run


def make_fpgas(root: Path) -> Mapping[str, str]:
    cards = [{"kind": "fpga", "shell": "quad", "count": 2}]
    (root / "hardware").write_text(json.dumps({"state": "state", "pace": 0, "cards": cards}))
    return {}


def make_intel_gpus(root: Path) -> Mapping[str, str]:
    machine = IntelMachine(root / "machine")
    for number in range(2):
        memory = {f"drm/card{number}/lmem_total_bytes": f"{48 * GIB}\n"}
        address = f"0000:{number + 3:02x}:00.0"
        machine.add_card(number, address, MAX_1550, tiles=2, render=128 + number, files=memory)
    (root / "hardware").write_text(json.dumps({"systemRoot": str(machine.root)}))
    return {}


def make_npus(root: Path) -> Mapping[str, str]:
    for number in range(2):
        (root / f"hardware/npu-{number}").mkdir(parents=True)
    (root / "site").mkdir()
    return {"PYTHONPATH": install(root / "site")["PYTHONPATH"]}


def of_pair(name: str) -> Peer:
    """NVIDIA's or Kerf's driver, on a machine with two H100, one of them in MIG mode."""

    @asynccontextmanager
    async def run(root: Path) -> AsyncIterator[DriverUnderTest]:
        assert os.geteuid() == 0, "this oracle makes mounts in a namespace of its own: run it as root"
        async with two_drivers(build_nvidia_driver(), MODEL, root) as pair:
            peer: Driver = getattr(pair, name)
            registry = peer.folder / "kubelet/plugins_registry"
            await wait_socket(registry, peer.name)
            claims = AllocatedClaims(
                pair.client, await discover(pair.client), driver=peer.name, node=peer.node, namespace="default"
            )
            await peer.stop()
            variables = [f"{name}={value}" for name, value in peer.environment.items()]
            options = [f"--instance={INSTANCE}"] if name == "kerf" else []
            yield build_driver(registry, peer.cdi_dir, claims, ["env", *variables, *peer.command, *options])

    return run


PEERS: Final[Mapping[str, Peer]] = {
    "example": example,
    "kubernetes": kubernetes,
    "nvidia": of_pair("nvidia"),
    "kerf": of_pair("kerf"),
    "fpga": of_kerf(FPGA, "simulated", make_fpgas),
    "intel": of_kerf(GPU_INTEL, "intel", make_intel_gpus),
    "npu": of_kerf(NPU, "acme", make_npus),
}


@pytest.mark.parametrize("name", PEERS)
async def test_what_a_driver_does_not_meet_is_in_the_table(name: str) -> None:
    with short_directory() as root:
        async with PEERS[name](root) as driver:
            results = [result async for result in run_rows(driver, ROWS)]
    found = {result.row.id: (str(result.outcome), result.seen) for result in results}
    other = {row: found[row] for row in found if found[row][0] != Outcome.PASSED}
    known = {each["row"]: each["outcome"] for each in read_table()["differences"] if each["peer"] == name}
    assert {row: outcome for row, (outcome, _) in other.items()} == known, other
