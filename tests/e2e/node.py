"""The state of one node: partitions of its cards, CDI files, and the metrics and logs of its plugin and pods.

What befalls its cards is in ``hardware``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.runtime import file_lock
from tests.e2e.hardware import NodeHardware, SimulatedCards, StandInCards
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import NVIDIA_FAKE, Hardware


class NodePlugins(Protocol):
    """Kerf's plugins on the nodes of a cluster: processes of this machine (``Kerf``), or pods (``tests/installation``).

    Methods take the name of a node.
    """

    def hardware(self, node: str) -> Hardware: ...

    def hardware_state(self, node: str) -> Path:
        """Return the folder with the state of the simulated cards."""
        ...

    def stand_in_folder(self, node: str) -> Path:
        """Return the folder of the stand-in machine."""
        ...

    def plugin_probes(self, node: str) -> str:
        """Return the address of the plugin's metrics and probes."""
        ...

    def plugin_is_running(self, node: str) -> bool: ...


class NodeView:
    """One node with a kubelet."""

    def __init__(self, cluster: Cluster, kerf: NodePlugins, name: str) -> None:
        self._kerf = kerf
        self.hardware = open_hardware(kerf, name)
        self._state = kerf.hardware_state(name)
        self._paths = cluster.node_paths(name)
        self.name = name

    @property
    def gpu_partitions(self) -> Sequence[tuple[str, str, int]]:
        """Card, profile and first slice of every GPU partition, whoever made it."""
        return self.hardware.partitions

    @property
    def fpga_functions(self) -> Sequence[tuple[str, str, int]]:
        """Card, function and first slot of every function that an FPGA runs, also of those that no claim uses now."""
        return [found for found, is_ready in self._regions() if is_ready]

    @property
    def half_loaded(self) -> Sequence[tuple[str, str, int]]:
        """The same of loads that were begun and not ended. A function may stay when its claim ends, this may not."""
        return [found for found, is_ready in self._regions() if not is_ready]

    def _regions(self) -> Sequence[tuple[tuple[str, str, int], bool]]:
        return sorted(
            ((card, region["function"], region["image"][0]), bool(region["function"]) and region["bridged"])
            for card, state in self._cards("fpga-*.json")
            for region in state["regions"]
        )

    @property
    def cdi_files(self) -> Sequence[str]:
        return sorted(file.name for file in self._paths.cdi.iterdir())

    def cdi_devices(self) -> Sequence[str]:
        """Return the qualified names of all devices in the CDI files."""
        specs = [json.loads(file.read_text()) for file in self._paths.cdi.glob("*.json")]
        return sorted(f"{spec['kind']}={device['name']}" for spec in specs for device in spec["devices"])

    async def claim_records(self) -> int:
        """Return the number of claims in the plugin's checkpoint, from its metrics."""
        return int(await self.metric("kerf_claim_records"))

    async def metric(self, name: str) -> float:
        """Return a metric, summed over its labels; 0 without one. Raises ClientError when no plugin runs."""
        return sum(float(line.split()[-1]) for line in await self.series(name))

    async def series(self, name: str) -> list[str]:
        """Return the lines of a metric, each with its labels. Raises ClientError when no plugin runs."""
        address = f"http://{self._kerf.plugin_probes(self.name)}/metrics"
        async with aiohttp.ClientSession() as session, session.get(address) as response:
            text = await response.text()
        return [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]

    def pod_logs(self, pod: dict[str, Any], container: str) -> Path:
        """Return the log file of the container's latest start."""
        metadata = pod["metadata"]
        folder = self._paths.pod_logs / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}" / container
        starts = sorted(folder.glob("*.log"), key=lambda file: int(file.stem))
        return starts[-1] if starts else folder / "0.log"

    def cdi_contents(self) -> Mapping[str, object]:
        """Return the documents of the CDI files by name."""
        return {file.name: json.loads(file.read_text()) for file in self._paths.cdi.glob("*.json")}

    def remove_cdi_files(self) -> None:
        for file in self._paths.cdi.iterdir():
            file.unlink()

    @contextmanager
    def cut_by_hand(self, card: str, profile: str, *, start: int, size: int) -> Iterator[str]:
        """Cut a partition as an administrator would, without Kerf; destroyed at the end of the context.

        Returns its UUID.
        """
        placement = Placement(start, size)
        uuid = self.hardware.cut(card, profile, placement)
        try:
            yield uuid
        finally:
            self.hardware.destroy(card, placement)

    def held_hardware(self) -> file_lock.FileLock:
        """Keep simulated cards from changing within the context: who wants to change one waits."""
        return file_lock.acquire(self._state)

    def holds(self, uuid: str) -> bool:
        """Whether a partition with this UUID is on the node's cards."""
        return uuid in self.hardware.uuids

    def boot_hardware(self) -> None:
        """Lose what does not survive a boot: partitions, and what is in ``/var/run``."""
        self.hardware.boot()
        self.remove_cdi_files()

    @property
    def plugin_is_running(self) -> bool:
        return self._kerf.plugin_is_running(self.name)

    def _cards(self, pattern: str) -> Sequence[tuple[str, Any]]:
        return [(file.stem, json.loads(file.read_text())) for file in sorted(self._state.glob(pattern))]


def open_hardware(kerf: NodePlugins, node: str) -> NodeHardware:
    """Return what befalls the cards of a node, by its backend for GPUs."""
    hardware = kerf.hardware(node)
    if hardware.gpu_backend == NVIDIA_FAKE:
        return StandInCards(kerf.stand_in_folder(node), hardware.options.get("delays", {}))
    return SimulatedCards(kerf.hardware_state(node))
