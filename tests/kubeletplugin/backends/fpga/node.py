"""A plugin on a machine with stand-ins of FPGA cards, for tests of each backend for such cards."""

from typing import Any

from kerf_dra.api.kerf.v1alpha1 import FpgaConfig
from kerf_dra.api.model.base import JsonObject
from kerf_dra.cdi import DeviceNode
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.kubeletplugin.backends.base import Backend, DescribedBackend
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.testing import MachineUnderTest
from kerf_dra.driver.testing.plugin import DeviceRecord, PluginStandIn


class SteppedClock:
    """A clock of which each reading is ``step_s`` later."""

    def __init__(self, step_s: float = 0.1) -> None:
        self.step_s = step_s
        self._at = 0.0

    def now(self) -> float:
        self._at += self.step_s
        return self._at


class FpgaNode:
    """A plugin on a machine whose first card is ``card``."""

    def __init__(self, machine: MachineUnderTest) -> None:
        self.plugin = PluginStandIn(machine, FPGA)

    @property
    def backend(self) -> Backend:
        return self.plugin.backend

    def describe(self, *documents: JsonObject) -> None:
        """Give the backend the shells and images that the cluster has from now on."""
        assert isinstance(self.backend, DescribedBackend)
        self.backend.describe(documents)

    @property
    def card(self) -> Card:
        return self.plugin.cards[0]

    def part(self, start: int = 0, size: int = 1, function: str | None = None) -> Partition:
        return Partition(kind="fpga", card_uuid=self.card.uuid, placement=Placement(start, size), function=function)

    def whole(self) -> Partition:
        return Partition(kind="fpga", card_uuid=self.card.uuid)

    def allocate(self, partition: Partition, **config: Any) -> DeviceRecord:
        """Allocate the device; its claim has a FpgaConfig only with parameters."""
        record = self.plugin.allocate(partition, f"claim-{len(self.plugin.records)}")
        record.config = FpgaConfig(api_version="kerf.dev/v1alpha1", **config) if config else None
        return record

    def prepare(self, partition: Partition, **config: Any) -> DeviceRecord:
        record = self.allocate(partition, **config)
        self.plugin.prepare(record)
        return record

    def variables(self, record: DeviceRecord) -> set[str]:
        """What a container of the claim finds in its environment."""
        assert record.handle is not None
        return {*self.backend.edits(record.handle).env}

    def device_nodes(self, record: DeviceRecord) -> tuple[DeviceNode, ...]:
        assert record.handle is not None
        return self.backend.edits(record.handle).device_nodes

    def paths(self, record: DeviceRecord) -> list[str]:
        """The paths of the device nodes."""
        return [node.path for node in self.device_nodes(record)]
