"""NVIDIA's DRA driver and Kerf, one after the other on one node with the cards of one stand-in machine.

A scenario has the same pods and claims for both, but for the names of classes and attributes. Where the drivers differ,
its expectation names the row of the table in docs/nvidia.md that says so.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml

from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from tests.e2e import pods
from tests.e2e.container_log import ContainerReport
from tests.e2e.node import NodeView
from tests.e2e.wait import eventually
from tests.fakes.mps import end_daemons
from tests.fakes.nvml import open_nvml
from tests.oracle.nvidia_driver.differences import read_table
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import NVIDIA_FAKE, PLUGIN, Hardware, Kerf
from tools.realcluster.nvidia_driver import DRIVER, NvidiaDriver

MODEL: Final = "gb200-186gb"
"""The model that the comments of NVIDIA's suites show. The first partition with more than 10Gi of an H100 with 80 GB is
1g.20gb, which NVIDIA's driver cannot make on the stand-in: the table's row of 1g with double memory."""
CARDS: Final = 2
HARDWARE: Final = Hardware(cards=[{"kind": "gpu", "model": MODEL, "count": CARDS}], options={}, gpu_backend=NVIDIA_FAKE)
EXTENDED_RESOURCE: Final = "nvidia.com/gpu"
"""The extended resource of whole cards, which the chart of NVIDIA's driver gives to its DeviceClass."""
_DIFFERENCES: Final = frozenset(row.what for row in read_table().differences)
_GATES: Final = {"featureGates.DynamicMIG": "true", "featureGates.TimeSlicingSettings": "true"}
"""Those of NVIDIA's suite for partitions on demand. Its other suites without shares need none."""
_SHARING_GATES: Final = {"featureGates.MPSSupport": "true", "featureGates.ConsumableShares": "true"}
"""Those of NVIDIA's suite for shares, which has no partitions on demand: MPS excludes them in its driver."""
_CAPABILITY: Final = re.compile(r"gpu(\d+)/gi(\d+)(?:/ci0)?/access (\d+)")
"""A line of ``mig-minors``: the capability of a GPU instance, or of its first compute instance, with its number."""
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimNames:
    """What a claim names to get the same device from either driver."""

    driver: str
    """The driver, which is the domain of attributes and capacities, too."""
    card_class: str
    """The DeviceClass of whole cards."""
    partition_class: str
    share_class: str
    """The DeviceClass of shares of a card."""
    kind: str
    """The attribute that says whether a device is a card or a partition."""
    card: str
    """Its value of a card."""
    partition: str


@dataclass(frozen=True, slots=True)
class VisibleDevices:
    """What ``nvidia-smi -L`` could list in a container, by the device nodes that it has."""

    cards: frozenset[int]
    """Numbers of cards."""
    partitions: frozenset[str]
    """UUIDs of MIG devices."""


class ComparedDriver(ABC):
    """One of the drivers, running on the node."""

    names: ClaimNames

    def __init__(self, machine: NvidiaMachine, node: NodeView, kubeconfig: Path) -> None:
        self.machine = machine
        self.node = node
        self.kubeconfig = kubeconfig
        """That of the node's plugin."""

    @abstractmethod
    def expect(self, difference: str, *, nvidia: ValueT, kerf: ValueT) -> ValueT:
        """Return what this driver does where both differ, by the row of the table that has ``difference``."""

    @abstractmethod
    def sharing(self, api: Api, unit: str) -> AbstractAsyncContextManager[None]:
        """Let cards be shared by ``memory``, or by a number of shares, within the context."""

    @abstractmethod
    async def prepared_devices(self) -> int:
        """Return how many devices are prepared, by the driver's metrics. Raises ClientError."""

    @abstractmethod
    def time_slices(self) -> Document:
        """Return a claim's configuration for a card with short time slices."""

    @abstractmethod
    def mps(self) -> Document:
        """Return a claim's configuration for a card with MPS, half of which a process may use."""

    def selector(self, expression: str) -> Mapping[str, Any]:
        """Return a request's field with a CEL expression, in which ``DRIVER`` stands for the driver."""
        return {"selectors": [{"cel": {"expression": expression.replace("DRIVER", self.names.driver)}}]}

    def visible(self, report: ContainerReport) -> VisibleDevices:
        """Return the cards and MIG devices that a container can use."""
        cards = {int(found[1]) for path in report.device_nodes if (found := re.fullmatch(r"/dev/nvidia(\d+)", path))}
        nodes = {path.rpartition("nvidia-cap")[2] for path in report.device_nodes if "/nvidia-caps/" in path}
        minors = (self.machine.folder / "proc/driver/nvidia-caps/mig-minors").read_text()
        needed: dict[tuple[int, int], set[str]] = {}
        for card, instance, minor in _CAPABILITY.findall(minors):
            needed.setdefault((int(card), int(instance)), set()).add(minor)
        partitions = {one.uuid for one in self.machine.list_instances() if needed[one.card, one.id] <= nodes}
        return VisibleDevices(frozenset(cards), frozenset(partitions))

    def mig_modes(self) -> Sequence[bool]:
        """Return whether each card is in MIG mode."""
        with open_nvml(self.machine):
            handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(CARDS)]
            return [bool(pynvml.nvmlDeviceGetMigMode(handle)[0]) for handle in handles]

    def host_cards(self) -> Sequence[Path]:
        """Return the device nodes of cards on the host."""
        return sorted((self.machine.driver_root / "dev").glob("nvidia[0-9]*"))

    async def published(self, api: Api, kind: str) -> Sequence[Document]:
        """Return the published devices that are cards, or partitions, and no shares."""
        devices = [one for one in await _list_devices(api) if "allowMultipleAllocations" not in one]
        return [one for one in devices if one["attributes"].get(self.names.kind) == {"string": kind}]


async def _list_devices(api: Api) -> Sequence[Document]:
    slices = await api.list(pods.RESOURCE, "ResourceSlice")
    return [device for one in slices for device in one["spec"].get("devices", ())]


def _check_row(difference: str) -> None:
    assert difference in _DIFFERENCES, f"the table of differences has no row {difference!r}"


class _NvidiaNode(NodeView):
    """The node while NVIDIA's driver runs, whose checkpoint has the claims."""

    driver: NvidiaDriver

    async def claim_records(self) -> int:
        checkpoint = json.loads((self.driver.plugin_folder / "checkpoint.json").read_text())
        return len(checkpoint["v2"].get("preparedClaims", ()))


class _NvidiaPlugins:
    """What a view of the node asks of the plugins on it."""

    def __init__(self, driver: NvidiaDriver, folder: Path) -> None:
        self._driver = driver
        self._folder = folder

    def hardware(self, node: str) -> Hardware:
        return HARDWARE

    def hardware_state(self, node: str) -> Path:
        return self._folder / "no-simulated-cards"

    def stand_in_folder(self, node: str) -> Path:
        return self._folder

    def plugin_probes(self, node: str) -> str:
        return self._driver.metrics

    def plugin_is_running(self, node: str) -> bool:
        return self._driver.is_running


class Nvidia(ComparedDriver):
    """NVIDIA's driver."""

    names = ClaimNames(
        driver=DRIVER,
        card_class="gpu.nvidia.com",
        partition_class="mig.nvidia.com",
        share_class="gpu.nvidia.com",
        kind="type",
        card="gpu",
        partition="mig",
    )

    def __init__(self, machine: NvidiaMachine, node: NodeView, driver: NvidiaDriver) -> None:
        super().__init__(machine, node, driver.kubeconfig)
        self._driver = driver

    def expect(self, difference: str, *, nvidia: ValueT, kerf: ValueT) -> ValueT:
        _check_row(difference)
        return nvidia

    @asynccontextmanager
    async def sharing(self, api: Api, unit: str) -> AsyncIterator[None]:
        await self._restart({**_SHARING_GATES, "consumableShares": unit}, api, is_shared=True)
        try:
            yield
        finally:
            await self._restart(_GATES, api, is_shared=False)

    async def prepared_devices(self) -> int:
        return int(await self.node.metric("nvidia_dra_prepared_devices"))

    def time_slices(self) -> Document:
        return _nvidia_config({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}})

    def mps(self) -> Document:
        return _nvidia_config({"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}})

    async def _restart(self, values: Mapping[str, str], api: Api, *, is_shared: bool) -> None:
        """Start the driver again, and wait until its slices are of that process."""
        await self._driver.stop()
        await self._driver.start(values)

        async def are_published() -> bool:
            devices = await _list_devices(api)
            return bool(devices) and all(one.get("allowMultipleAllocations", False) == is_shared for one in devices)

        await eventually("devices are published again", are_published)


def _nvidia_config(sharing: Document) -> Document:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}
    return {"opaque": {"driver": DRIVER, "parameters": parameters}}


class KerfOnCards(ComparedDriver):
    """Kerf."""

    names = ClaimNames(
        driver="gpu.kerf.dev",
        card_class="card",
        partition_class="partition",
        share_class="share",
        kind="cut",
        card="whole",
        partition="partition",
    )

    def expect(self, difference: str, *, nvidia: ValueT, kerf: ValueT) -> ValueT:
        _check_row(difference)
        return kerf

    def sharing(self, api: Api, unit: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()  # cards are shared by a class

    async def prepared_devices(self) -> int:
        return await self.node.claim_records()

    def time_slices(self) -> Document:
        return _kerf_config({"strategy": "TimeSlicing", "timeSlicing": {"interval": "Short"}})

    def mps(self) -> Document:
        return _kerf_config({"strategy": "Mps", "mps": {"activeThreadPercentage": 50}})


def _kerf_config(sharing: Document) -> Document:
    parameters = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "sharing": sharing}
    return {"opaque": {"driver": "gpu.kerf.dev", "parameters": parameters}}


_CLASSES: Final[Mapping[str, Document]] = {
    "card": {"device": "gpu", "cut": "Whole", "extendedResourceName": EXTENDED_RESOURCE},
    "partition": {"device": "gpu"},
    "share": {"device": "gpu", "cut": "Whole", "allocation": "Shared"},
}
"""Kerf's ResourceClasses: for NVIDIA's driver its chart has DeviceClasses."""


@asynccontextmanager
async def nvidia_on(cluster: Cluster, api: Api, node: str) -> AsyncIterator[ComparedDriver]:
    """Run NVIDIA's driver on ``node``, with cards whose MIG mode is off, and uninstall it at the end."""
    description = MachineDescription(cards=(CardDescription(model=MODEL),) * CARDS)
    machine = NvidiaMachine.create(cluster.node_paths(node).root / "machine", description)
    driver = NvidiaDriver(cluster, api, node, machine)
    view = _NvidiaNode(cluster, _NvidiaPlugins(driver, machine.folder), node)
    view.driver = driver
    await driver.start(_GATES)
    yield Nvidia(machine, view, driver)
    await driver.uninstall()


@asynccontextmanager
async def kerf_on(cluster: Cluster, api: Api, node: str) -> AsyncIterator[ComparedDriver]:
    """Run Kerf on ``node``, with the cards that another driver has left, or new ones."""
    kerf = Kerf(cluster, api)
    await kerf.install()
    await kerf.start_controller()
    kerf.describe_hardware(node, HARDWARE)
    await kerf.start_plugin(node)
    kerf.start_mps_daemons(node)
    for name, spec in _CLASSES.items():
        metadata = {"name": name}
        await api.apply(
            {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": metadata, "spec": spec}
        )

    async def are_compiled() -> bool:
        return all([await api.find(pods.RESOURCE, "DeviceClass", name) for name in _CLASSES])

    await eventually("DeviceClasses of all ResourceClasses", are_compiled)
    machine = NvidiaMachine(kerf.stand_in_folder(node))
    yield KerfOnCards(machine, NodeView(cluster, kerf, node), cluster.paths.kubeconfig(f"{node}-{PLUGIN}"))
    await kerf.crash_mps_daemons(node)
    end_daemons(kerf.sharing_folder(node), machine.driver_root)
    await kerf.stop_plugin(node)
