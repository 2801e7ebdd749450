"""A controller process on a large cluster, once it leads and has counted all devices."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from tests.kube.large_cluster import serving_large_cluster
from tests.runtime.ports import reserved_port

PATIENCE_S = 600.0
"""For the lists of a cluster, of some seconds, on a busy machine."""


@asynccontextmanager
async def counting_controller(nodes: int, cards: int, folder: Path, *, shuffled: bool = False) -> AsyncIterator[int]:
    """Run a controller until the end of the context; yields the number of its process when it has counted all nodes."""
    kubeconfig = folder / "kubeconfig"
    with serving_large_cluster(nodes, cards, kubeconfig, shuffled=shuffled), _running_controller(kubeconfig) as process:
        async with Client(await load_access(kubeconfig), user_agent="kerf-test/1") as client:
            with anyio.fail_after(PATIENCE_S):
                while not await _has_counted(client, nodes):
                    assert process.poll() is None, "the controller has ended"
                    await anyio.sleep(0.2)
        yield process.pid


@contextmanager
def _running_controller(kubeconfig: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "kerf_dra.driver.cli", "controller", "--kubeconfig", str(kubeconfig)]
    with reserved_port() as port:
        process = subprocess.Popen([*command, "--probes-address", f"127.0.0.1:{port}", "--log-level", "warning"])
        with process:
            try:
                yield process
            finally:
                process.terminate()


async def _has_counted(client: Client, nodes: int) -> bool:
    classes = (await client.list(RESOURCE_CLASSES)).items
    return all(_matching_nodes(one) == nodes for one in classes)


def _matching_nodes(resource_class: ResourceClassObject) -> int:
    matching = resource_class.status.matching_devices
    return 0 if matching is None else matching.nodes
