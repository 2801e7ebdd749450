"""A driver of any kind, as a process on a node of its own, with an embedded API server: what rows are run on."""

import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.sanity.allocated_claims import AllocatedClaims
from kerf_dra.driver.sanity.driver_process import INSTANCE, DriverProcess, read_instance_command
from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest

NODE: Final = "node-1"
HOLDER: Final = ("sh", "-c", "echo in use; exec sleep 600")
"""A program that uses a device of which there is no use but to be allocated, as that of an example."""


@asynccontextmanager
async def one_driver(
    root: Path,
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    holder: Sequence[str] = HOLDER,
) -> AsyncIterator[DriverUnderTest]:
    """A driver that ``command`` starts, on a node of its own, below ``root``.

    With INSTANCE in the command the names of its sockets have it, too. ``holder`` uses a device; empty: nothing does.
    """
    server = ApiServer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        (root / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
        for folder in ("cdi", "kubelet/device-plugins", "kubelet/plugins_registry", f"kubelet/plugins/{name}"):
            (root / folder).mkdir(parents=True)
        async with Client(Access(server=server.url), user_agent="kerf-oracle/1") as client:
            await client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
            claims = AllocatedClaims(client, await discover(client), driver=name, node=NODE, namespace="default")
            variables = [f"{key}={value}" for key, value in (environment or {}).items()]
            yield build_driver(
                root / "kubelet/plugins_registry", root / "cdi", claims, ["env", *variables, *command], holder
            )
        tasks.cancel_scope.cancel()


def build_driver(
    registry: Path, cdi_folder: Path, claims: AllocatedClaims, command: Sequence[str], holder: Sequence[str] = ()
) -> DriverUnderTest:
    """Return a driver that ``command`` starts, with a socket in ``registry`` as the helper library names it."""
    is_one_of_several = any(INSTANCE in part for part in command)
    socket = registry / (f"{claims.driver}-{INSTANCE}-reg.sock" if is_one_of_several else f"{claims.driver}-reg.sock")
    instances = read_instance_command(socket, command)
    if instances is not None:
        socket, command = instances.name_instance()
    return DriverUnderTest(socket, [cdi_folder], claims, DriverProcess(command), instances, holder)


def kerf_command(root: Path, family: str, backend: str) -> Sequence[str]:
    """Return the command of Kerf's plugin with one family and backend, on the node below ``root``."""
    options = {
        "--node-name": NODE,
        "--family": family,
        "--backend": backend,
        "--kubeconfig": root / "kubeconfig",
        "--kubelet-root": root / "kubelet",
        "--device-plugins-dir": root / "kubelet/device-plugins",
        "--cdi-dir": root / "cdi",
        "--probes-address": "127.0.0.1:0",
        "--instance": INSTANCE,
        "--log-level": "error",
    }
    command = [sys.executable, "-m", "kerf_dra.driver.cli", "kubelet-plugin"]
    return [*command, *(f"{option}={value}" for option, value in options.items())]
