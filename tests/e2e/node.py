"""The state of one node: partitions of its cards, CDI files, and the metrics and logs of its plugin and pods."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from driver.runtime import file_lock
from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import Kerf

_FAULTS: Final = "faults.json"
_BY_HAND_ID: Final = 7
"""The first GPU instance id of the smallest profile (NVML's ids): none that a larger one in these tests has."""
_MODEL: Final = "h100-80gb-sxm"
"""The model of the cards that are cut by hand before anything else was cut on them."""


class NodeView:
    """One node with a kubelet."""

    def __init__(self, cluster: Cluster, kerf: Kerf, name: str) -> None:
        self._kerf = kerf
        self._state = kerf.hardware_state(name)
        self._paths = cluster.node_paths(name)
        self.name = name

    @property
    def gpu_partitions(self) -> Sequence[tuple[str, str, int]]:
        """Card, profile and first slice of every GPU partition, whoever made it."""
        return sorted(
            (card, one["profile"], one["placement"][0])
            for card, state in self._cards("gpu-*.json")
            for one in state["instances"]
        )

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
        address = f"http://{self._kerf.plugin_probes(self.name)}/metrics"
        async with aiohttp.ClientSession() as session, session.get(address) as response:
            text = await response.text()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{")))

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
        by_hand = f"MIG-by-hand-{card}-{start}"
        instance = {"id": _BY_HAND_ID + start, "profile": profile, "placement": [start, size], "mig_uuid": by_hand}

        def cut(state: dict[str, Any]) -> dict[str, Any]:
            return {**state, "mig": True, "instances": [*state["instances"], instance]}

        def destroy(state: dict[str, Any]) -> dict[str, Any]:
            return {**state, "instances": [one for one in state["instances"] if one["mig_uuid"] != by_hand]}

        self._change(card, cut)
        try:
            yield by_hand
        finally:
            self._change(card, destroy)

    def switch_mig_off(self, card: str) -> None:
        """Switch the MIG mode of an idle card off by hand, as it is after a boot."""
        self._change(card, lambda state: {**state, "mig": False})

    def holds(self, uuid: str) -> bool:
        """Whether a partition with this UUID is on the node's cards."""
        return any(one["mig_uuid"] == uuid for _, state in self._cards("gpu-*.json") for one in state["instances"])

    def take_card_away(self, card: str) -> None:
        """Let a card vanish from the bus until ``repair``."""
        self._write_faults({"absent": [card]})

    def make_unhealthy(self, device: str, reason: str) -> None:
        """Make a device unhealthy until ``repair``: it works, and gets no new claims."""
        self._write_faults({"ill": {device: reason}})

    def lose(self, device: str, reason: str) -> None:
        """Make a device lost until ``repair``: what runs on it cannot continue."""
        self._write_faults({"lost": {device: reason}})

    def break_step(self, step: str, **fault: object) -> None:
        """Make the hardware fail, hang or kill the plugin (``effect``) at the next ``times`` executions of ``step``."""
        self._write_faults({"faults": [{"step": step, **fault}]})

    def repair(self) -> None:
        (self._state / _FAULTS).unlink(missing_ok=True)

    @property
    def plugin_is_running(self) -> bool:
        return self._kerf.plugin_is_running(self.name)

    def _write_faults(self, document: object) -> None:
        new = self._state / ".new-faults"
        new.write_text(json.dumps(document))
        new.replace(self._state / _FAULTS)

    def _change(self, card: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change the state of a card under the lock that the simulated hardware takes."""
        path = self._state / f"{card}.json"
        with file_lock.acquire(self._state):
            state = json.loads(path.read_text()) if path.exists() else {"model": _MODEL, "instances": []}
            new = path.with_name(f".{path.name}.by-hand")
            new.write_text(json.dumps(change(state)))
            new.replace(path)

    def _cards(self, pattern: str) -> Sequence[tuple[str, Any]]:
        return [(file.stem, json.loads(file.read_text())) for file in sorted(self._state.glob(pattern))]
