"""NVIDIA's DRA driver and Kerf's plugin, each a process on a stand-in machine of its own, on one embedded API server.

Both machines have the same cards, with the same UUIDs. Each driver is registered by a kubelet of its own, and has a
node of its own.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import pynvml
from msgspec.structs import replace

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.model.allocations import ResourceClaimStatus
from kerf_dra.api.model.devices import ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.resource.kinds import ResourceKinds
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from tests.fakes.claims import claim, result
from tests.fakes.kubelet import TIMEOUT_S, FakeKubelet
from tests.fakes.nvml import open_nvml
from tests.oracle.nvidia_driver.published_devices import PublishedDevice
from tools.realcluster.cluster import load_factor

NVIDIA: Final = "gpu.nvidia.com"
KERF: Final = "gpu.kerf.dev"
MIG_MODES: Final = (True, False)
"""Whether MIG mode is on, of each card of a machine. Two cards are the fewest with which a partition can be on the
wrong one."""
MACHINE: Final = "machine"
"""The folder of a node's machine."""
_LONGEST_S: Final = 300.0
"""The limit, on an idle machine, for a start and for what is published then, which take a second or two: a start took
more than a minute where two dozen other processes wanted the cores."""
_REFUSAL: Final = re.compile(r"create resource slice: .* is invalid: ([^\"]*)")
"""What NVIDIA's driver logs of a slice that the API server refuses."""
_POLL_S: Final = 0.02
_REQUESTS_PER_SECOND: Final = 1000
"""Its client sends 5 requests a second by default, with which each claim would take 0.2 s."""


class DriverEndedError(Exception):
    """A driver's process has ended instead of registering; the message has the last line of its log."""


class RefusedError(Exception):
    """The API server refuses a slice of a driver; the message has the field and the reason."""


@dataclass(eq=False)
class Driver:
    """A DRA driver: its process, which may end and start again, and what outlives it."""

    name: str
    """The name of the DRA driver."""
    folder: Path
    machine: NvidiaMachine
    mig_modes: Sequence[bool]
    """Whether the MIG mode of each card is on at first."""
    command: Sequence[str]
    environment: Mapping[str, str]
    kubelet: FakeKubelet
    process: subprocess.Popen[bytes] | None = None

    @property
    def node(self) -> str:
        return self.folder.name

    @property
    def cdi_dir(self) -> Path:
        return self.folder / "cdi"

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    @property
    def _log_file(self) -> Path:
        return self.folder / f"{self.name}.log"

    async def start(self) -> None:
        """Start the process, and register it with the kubelet. Raises DriverEndedError."""
        process = self.launch()
        with anyio.fail_after(_LONGEST_S * load_factor()):
            while not self.kubelet.sockets:
                if process.poll() is not None:
                    raise DriverEndedError(f"{self.name} has ended: {self.log.splitlines()[-1]}")
                await anyio.sleep(_POLL_S)
            await self.kubelet.register(timeout_s=TIMEOUT_S * load_factor())

    async def stop(self, *, kill: bool = False) -> None:
        """End the process, which keeps what it has prepared."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            await anyio.to_thread.run_sync(process.wait, _LONGEST_S * load_factor())
            for socket in self.kubelet.sockets:  # which a killed process leaves
                socket.unlink(missing_ok=True)

    async def prepare(self, claim: ClaimRef) -> list[Any]:
        """Return the claim's devices. Raises ClaimError."""
        return await self.kubelet.prepare(claim, TIMEOUT_S * load_factor())

    async def unprepare(self, claim: ClaimRef) -> None:
        """Raises ClaimError."""
        await self.kubelet.unprepare(claim, TIMEOUT_S * load_factor())

    async def restart(self, *, kill: bool, unused_cards: Collection[int]) -> None:
        """End the process and start it again, after an administrator has switched the MIG mode of unused cards as it
        was at first.

        NVIDIA's driver reads the mode at its start alone: with the mode off then it takes the card for empty when each
        partition ends, and tries to switch the mode off.
        """
        await self.stop(kill=kill)
        for card in unused_cards:
            switch_mode(self.machine, card, is_on=self.mig_modes[card])
        await self.start()

    async def renew(self) -> None:
        """Start the process as on a new node: its files and all instances are gone."""
        await self.stop(kill=True)
        for folder in (self.folder / "kubelet/plugins", self.cdi_dir):
            shutil.rmtree(folder)
            folder.mkdir()
        self.machine.clear_faults()
        for card, is_on in enumerate(self.mig_modes):
            self.machine.reset_card(card)
            switch_mode(self.machine, card, is_on=is_on)
        await self.start()

    def launch(self) -> "subprocess.Popen[bytes]":
        """Start the process alone: a kubelet that is there registers it."""
        with self._log_file.open("ab") as log:
            environment = {**os.environ, **self.environment}
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=environment)
        return self.process


@dataclass(frozen=True)
class Pair:
    """Both drivers and their cluster."""

    client: Client
    kinds: ResourceKinds
    nvidia: Driver
    kerf: Driver

    @property
    def drivers(self) -> tuple[Driver, Driver]:
        return self.nvidia, self.kerf

    async def renew(self) -> None:
        """Give both drivers a new node, except Kerf's where nothing is left: its start takes seconds."""
        await self.nvidia.renew()
        if self.kerf.machine.list_instances() or any(self.kerf.cdi_dir.iterdir()):
            await self.kerf.renew()

    async def create_claim(self, driver: Driver, name: str, devices: Iterable[PublishedDevice]) -> ClaimRef:
        """Create a claim with its allocation, as the scheduler leaves it: a request for each device."""
        results = [
            replace(result(one.device.name, request=f"request-{i}", driver=driver.name), pool=one.pool)
            for i, one in enumerate(devices)
        ]
        wanted = claim(name, *results)
        kind = self.kinds.resource_claims
        bare = replace(wanted, metadata=replace(wanted.metadata, uid=""), status=ResourceClaimStatus())
        made = await self.client.create(kind, bare)
        await self.client.update(kind, replace(made, status=wanted.status), subresource="status")
        return ClaimRef(made.metadata.namespace, made.metadata.name, made.metadata.uid)

    async def delete_claim(self, ref: ClaimRef) -> None:
        await self.client.delete(self.kinds.resource_claims, ref.name, ref.namespace)

    async def read_pools(self, driver: Driver) -> Collection[ResourceSliceSpec]:
        """Return the driver's slices, once each of its pools is complete. Raises RefusedError."""
        with anyio.fail_after(_LONGEST_S * load_factor()):
            while True:
                slices = (await self.client.list(self.kinds.resource_slices)).items
                specs = [one.spec for one in slices if one.spec.driver == driver.name]
                if specs and _are_complete(specs):
                    return specs
                if refusal := _REFUSAL.search(driver.log):
                    raise RefusedError(refusal[1])
                await anyio.sleep(_POLL_S)


def _are_complete(specs: Sequence[ResourceSliceSpec]) -> bool:
    """Whether every pool has all slices of its newest generation, and no others."""
    pools = [one.pool for one in specs]
    newest = {pool.name: max(each.generation for each in pools if each.name == pool.name) for pool in pools}
    return all(
        pool.generation == newest[pool.name]
        and pool.resource_slice_count == sum(each.name == pool.name for each in pools)
        for pool in pools
    )


def switch_mode(machine: NvidiaMachine, card: int, *, is_on: bool) -> None:
    """Switch a card's MIG mode as an administrator does, with a reset where it takes one."""
    with open_nvml(machine):
        handle = pynvml.nvmlDeviceGetHandleByIndex(card)
        with suppress(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceSetMigMode(handle, int(is_on))
            if pynvml.nvmlDeviceGetMigMode(handle)[0] != int(is_on):
                machine.reset_card(card)


@asynccontextmanager
async def two_drivers(
    program: Path, model: str, root: Path, mig_modes: Sequence[bool] = MIG_MODES
) -> AsyncIterator[Pair]:
    """NVIDIA's driver, whose kubelet plugin is ``program``, and Kerf's, on equal machines with cards of ``model``."""
    async with _cluster(root / "kubeconfig") as client:
        for name in ("nvidia", "kerf"):
            make_node(root / name, model, mig_modes)
        nvidia = nvidia_driver(program, root / "nvidia", root / "kubeconfig", mig_modes)
        kerf = _kerf_driver(root / "kerf", root / "kubeconfig", mig_modes)
        pair = Pair(client, (await discover(client)).resource, nvidia, kerf)
        async with _ending(pair):
            for driver in pair.drivers:
                await client.create(NODES, Node(metadata=ObjectMeta(name=driver.node)))
                await driver.start()
            yield pair


@asynccontextmanager
async def one_node(program: Path, model: str, root: Path) -> AsyncIterator[Pair]:
    """Both drivers on one node with one machine and one kubelet; neither runs yet."""
    async with _cluster(root / "kubeconfig") as client:
        node = make_node(root / "node", model)
        nvidia = nvidia_driver(program, node, root / "kubeconfig")
        kerf = _kerf_driver(node, root / "kubeconfig", MIG_MODES)
        await client.create(NODES, Node(metadata=ObjectMeta(name=node.name)))
        pair = Pair(client, (await discover(client)).resource, nvidia, kerf)
        async with _ending(pair):
            yield pair


@asynccontextmanager
async def _cluster(kubeconfig: Path) -> AsyncIterator[Client]:
    """An embedded API server, its kubeconfig in a file, and a client of it."""
    server = ApiServer(settings=ApiServerSettings())
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        kubeconfig.write_text(json.dumps(server.kubeconfig()))
        async with Client(await load_access(kubeconfig), user_agent="kerf-oracle/1") as client:
            yield client
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _ending(pair: Pair) -> AsyncIterator[None]:
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            for driver in pair.drivers:
                await driver.stop(kill=True)


def make_node(folder: Path, model: str, mig_modes: Sequence[bool] = MIG_MODES) -> Path:
    """Make the folder of a node, which is called as the folder, with a machine that has cards of ``model``."""
    for name in ("cdi", "kubelet/device-plugins", "kubelet/plugins"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    cards = tuple(CardDescription(model=model, is_mig_on=is_on) for is_on in mig_modes)
    NvidiaMachine.create(folder / MACHINE, MachineDescription(cards=cards))
    return folder


def _write_hook(folder: Path) -> Path:
    """Write a program that stands for nvidia-cdi-hook, which no container runs."""
    hook = folder / "nvidia-cdi-hook"
    hook.write_text("#!/bin/true\n")
    hook.chmod(0o755)
    return hook


def nvidia_driver(program: Path, folder: Path, kubeconfig: Path, mig_modes: Sequence[bool] = MIG_MODES) -> Driver:
    """NVIDIA's driver on the node that ``make_node`` has made in ``folder``.

    The driver reads ``/proc/driver`` and ``/sys`` at fixed paths: in its mount namespace these are the machine's.
    """
    machine = NvidiaMachine(folder / MACHINE)
    options = {
        "node-name": folder.name,
        "image-name": "none",
        "kubeconfig": kubeconfig,
        "kube-api-qps": _REQUESTS_PER_SECOND,
        "kube-api-burst": _REQUESTS_PER_SECOND,
        "cdi-root": folder / "cdi",
        "container-driver-root": machine.driver_root,
        "nvidia-cdi-hook-path": _write_hook(folder),
        "nvidia-driver-root": machine.driver_root,
        "kubelet-registrar-directory-path": folder / "kubelet/plugins_registry",
        "kubelet-plugins-directory-path": folder / "kubelet/plugins",
        "feature-gates": "DynamicMIG=true",
        "v": 6,
    }
    binds = " && ".join(f"mount --bind {machine.folder}{path} {path}" for path in ("/proc/driver", "/sys"))
    return Driver(
        name=NVIDIA,
        folder=folder,
        machine=machine,
        mig_modes=mig_modes,
        command=[
            *("unshare", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh", str(program)),
            *(f"--{option}={value}" for option, value in options.items()),
        ],
        environment={**machine.environment(), "ALT_PROC_DEVICES_PATH": str(machine.folder / "proc/devices")},
        kubelet=FakeKubelet(folder / "kubelet", driver=NVIDIA),
    )


def _kerf_driver(folder: Path, kubeconfig: Path, mig_modes: Sequence[bool]) -> Driver:
    """Kerf's plugin, as it runs on a node with cards: without a mark that the hardware is a stand-in's."""
    machine = NvidiaMachine(folder / MACHINE)
    config = {
        "driverRoot": str(machine.driver_root),
        "systemRoot": str(machine.folder),
        "cdiHook": str(_write_hook(folder)),
    }
    (folder / "nvidia.yaml").write_text(json.dumps(config))
    options = {
        "node-name": folder.name,
        "backend": f"nvidia={folder / 'nvidia.yaml'}",
        "kubeconfig": kubeconfig,
        "kubelet-root": folder / "kubelet",
        "device-plugins-dir": folder / "kubelet/device-plugins",
        "cdi-dir": folder / "cdi",
        "probes-address": "127.0.0.1:0",
        "publish-min-interval": 0.01,
        "log-format": "text",
    }
    return Driver(
        name=KERF,
        folder=folder,
        machine=machine,
        mig_modes=mig_modes,
        command=[
            *(sys.executable, "-m", "kerf_dra.driver.cli", "kubelet-plugin"),
            *(f"--{option}={value}" for option, value in options.items()),
        ],
        environment=machine.environment(),
        kubelet=FakeKubelet(folder / "kubelet", driver=KERF),
    )
