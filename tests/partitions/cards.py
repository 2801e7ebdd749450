"""Cards for the tests."""

from collections.abc import Mapping

from driver.partitions.catalog import gpu_model, shell
from driver.partitions.geometry import Card, DeviceKind, FpgaCard, GpuCard, GpuModel, Partition, Placement, Shell


def gpu(model: str | GpuModel = "h100-80gb-sxm", index: int = 0) -> GpuCard:
    return GpuCard(
        uuid=f"GPU-{index}",
        index=index,
        model=gpu_model(model) if isinstance(model, str) else model,
        pci_bus_id=f"0000:{index:02x}:00.0",
        numa_node=0,
        driver_version="570.86.15",
    )


def gpus(count: int, model: str | GpuModel = "h100-80gb-sxm") -> list[GpuCard]:
    return [gpu(model, index) for index in range(count)]


def fpga(of: str | Shell = "quad", index: int = 0, loaded: Mapping[Placement, str] | None = None) -> FpgaCard:
    return FpgaCard(
        uuid=f"FPGA-{index}",
        index=index,
        shell=shell(of) if isinstance(of, str) else of,
        pci_bus_id=f"0000:{0x80 + index:02x}:00.0",
        numa_node=1,
        driver_version="6.8.0",
        loaded=loaded or {},
    )


def gpu_partition(card: Card, profile: str, start: int) -> Partition:
    """A GPU partition by profile and start."""
    assert isinstance(card, GpuCard)
    known = card.model.profile(profile)
    assert known is not None
    placement = next(placement for placement in known.placements if placement.start == start)
    return Partition(kind=DeviceKind.GPU, card_uuid=card.uuid, profile=profile, placement=placement)


def slots(card: Card, start: int, size: int, function: str | None = None) -> Partition:
    """An FPGA partition."""
    return Partition(kind=DeviceKind.FPGA, card_uuid=card.uuid, placement=Placement(start, size), function=function)


def whole(card: Card) -> Partition:
    return Partition(kind=card.kind, card_uuid=card.uuid)
