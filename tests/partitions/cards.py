"""Cards for the tests."""

from collections.abc import Mapping

from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.families.gpu.model import GpuModel
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell
from kerf_dra.driver.partitions.device_attributes import Vocabulary
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement


def gpu(model: str | GpuModel = "h100-80gb-sxm", index: int = 0) -> Card:
    return Card(
        uuid=f"GPU-{index}",
        index=index,
        geometry=gpu_geometry(gpu_model(model) if isinstance(model, str) else model),
        pci_bus_id=f"0000:{index:02x}:00.0",
        pcie_root="pci0000:00",
        numa_node=0,
        driver_version="570.86.15",
    )


def gpus(count: int, model: str | GpuModel = "h100-80gb-sxm") -> list[Card]:
    return [gpu(model, index) for index in range(count)]


def fpga(of: str | Shell = "quad", index: int = 0, loaded: Mapping[Placement, str] | None = None) -> Card:
    return Card(
        uuid=f"FPGA-{index}",
        index=index,
        geometry=fpga_geometry(shell(of) if isinstance(of, str) else of),
        pci_bus_id=f"0000:{0x80 + index:02x}:00.0",
        numa_node=1,
        driver_version="6.8.0",
        loaded=loaded or {},
    )


def gpu_partition(card: Card, profile: str, start: int) -> Partition:
    """A GPU partition by profile and start."""
    specs = (spec for spec in card.geometry.specs if spec.profile == profile)
    return next(spec for spec in specs if spec.placement and spec.placement.start == start).of(card.uuid)


def slots(card: Card, start: int, size: int, function: str | None = None) -> Partition:
    """An FPGA partition."""
    return Partition(kind="fpga", card_uuid=card.uuid, placement=Placement(start, size), function=function)


def whole(card: Card) -> Partition:
    return Partition(kind=card.kind, card_uuid=card.uuid)


def vocabulary_of(card: Card) -> Vocabulary:
    return {family.name: family.vocabulary for family in BUILT_IN}[card.kind]
