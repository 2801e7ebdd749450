"""Nodes with cards, as their plugins publish them."""

from typing import Any

from api.core.v1 import Node, NodeStatus
from api.kerf.node_inventory import NodeInventory, inventory_name
from api.model.devices import DeviceTaint
from api.model.metadata import ObjectMeta
from driver.families.fpga import FPGA
from driver.families.gpu import GPU
from driver.kubeletplugin.cluster.node_inventory import build_inventory_spec
from driver.partitions.catalog import gpu_model, shell
from driver.partitions.geometry import Card, FpgaCard, GpuCard, Placement

DRIVER = GPU.driver


def gpu(node: str, index: int, model: str = "h100-80gb-sxm", driver_version: str = "550.54.15") -> GpuCard:
    return GpuCard(
        uuid=f"GPU-{node}-{index}",
        index=index,
        model=gpu_model(model),
        pci_bus_id="",
        numa_node=0,
        driver_version=driver_version,
    )


def fpga(node: str, index: int, name: str, loaded: dict[Placement, str] | None = None) -> FpgaCard:
    return FpgaCard(
        uuid=f"FPGA-{node}-{index}",
        index=index,
        shell=shell(name),
        pci_bus_id="",
        numa_node=0,
        driver_version="",
        loaded=loaded or {},
    )


def node_object(name: str, labels: dict[str, str] | None = None) -> Node:
    return Node(metadata=ObjectMeta(name=name, uid=f"node-{name}", labels=labels or {}), status=NodeStatus())


def inventory(
    node: str,
    *cards: Card,
    ready: bool = True,
    renewed_at: str = "1",
    taints: dict[str, tuple[DeviceTaint, ...]] | None = None,
    driver: str = DRIVER,
) -> NodeInventory:
    spec = build_inventory_spec(driver, node, cards, taints or {}, ready=ready, renewed_at=renewed_at)
    name = inventory_name(node, driver)
    return NodeInventory(metadata=ObjectMeta(name=name, uid=f"inventory-{name}", resource_version="1"), spec=spec)


def inventories(node: str, *cards: Card, **more: Any) -> list[NodeInventory]:
    """One for each driver, with its cards."""
    return [
        inventory(node, *(card for card in cards if card.kind.value == family.name), driver=family.driver, **more)
        for family in (GPU, FPGA)
    ]
