"""One node as a person with a shell on it would see it: cards, CDI files, the plugin's own count of claims."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.realcluster.cluster import Cluster
from tests.realcluster.kerf import Kerf

_FAULTS: Final = "faults.json"


class NodeView:
    """One real node."""

    def __init__(self, cluster: Cluster, kerf: Kerf, name: str) -> None:
        self._kerf = kerf
        self._state = kerf.hardware_state(name)
        self._places = cluster.node_places(name)
        self.name = name

    @property
    def cut(self) -> Sequence[tuple[str, str, int]]:
        """Card, profile and first slice of every GPU partition there is; a whole card in use has profile ``whole``."""
        found: list[tuple[str, str, int]] = []
        for card, state in self._cards("gpu-*.json"):
            found += [(card, "whole", 0)] if state["whole"] else []
            found += [(card, one["profile"], one["placement"][0]) for one in state["instances"]]
        return sorted(found)

    @property
    def loaded(self) -> Sequence[tuple[str, str, int]]:
        """Card, function and first slot of every FPGA region that somebody holds."""
        return sorted(
            (card, region["function"], region["image"][0])
            for card, state in self._cards("fpga-*.json")
            for region in state["regions"]
            if region["owner"]
        )

    @property
    def cdi_files(self) -> Sequence[str]:
        return sorted(file.name for file in self._places.cdi.iterdir())

    def cdi_devices(self) -> Sequence[str]:
        """Qualified names of every device in the CDI files."""
        specs = [json.loads(file.read_text()) for file in self._places.cdi.glob("*.json")]
        return sorted(f"{spec['kind']}={device['name']}" for spec in specs for device in spec["devices"])

    async def claim_records(self) -> int:
        """How many claims the plugin remembers, as its metrics say."""
        return int(await self.metric("kerf_claim_records"))

    async def metric(self, name: str) -> float:
        """The value of a metric without labels; 0 when there is none. Raises ClientError when the plugin is away."""
        address = f"http://{self._kerf.plugin_probes(self.name)}/metrics"
        async with aiohttp.ClientSession() as session, session.get(address) as response:
            text = await response.text()
        values = [line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(values[0]) if values else 0.0

    def pod_logs(self, pod: dict[str, Any], container: str) -> Path:
        """The log of the container's newest start."""
        metadata = pod["metadata"]
        folder = self._places.pod_logs / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}" / container
        starts = sorted(folder.glob("*.log"), key=lambda file: int(file.stem))
        return starts[-1] if starts else folder / "0.log"

    def make_ill(self, device: str, reason: str) -> None:
        """It works, but is to get nothing new; until ``repair``."""
        self._write_faults({"ill": {device: reason}})

    def lose(self, device: str, reason: str) -> None:
        """What runs on it cannot go on; until ``repair``."""
        self._write_faults({"lost": {device: reason}})

    def break_step(self, step: str, **fault: object) -> None:
        """Have the hardware fail, hang or kill the plugin (``effect``) when it does ``step`` next (``times``)."""
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

    def _cards(self, pattern: str) -> Sequence[tuple[str, Any]]:
        return [(file.stem, json.loads(file.read_text())) for file in sorted(self._state.glob(pattern))]
