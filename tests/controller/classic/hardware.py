"""Nodes with cards, as their plugins publish them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kerf_dra.api.core.v1 import Node, NodeStatus
from kerf_dra.api.kerf.node_inventory import NodeInventory, inventory_name
from kerf_dra.api.model.devices import Attribute, DeviceTaint
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shell
from kerf_dra.driver.kubeletplugin.cluster.node_inventory import build_inventory_spec
from kerf_dra.driver.partitions.geometry import Card, Placement

DRIVER = GPU.driver


def gpu(
    node: str,
    index: int,
    model: str = "h100-80gb-sxm",
    driver_version: str = "550.54.15",
    attributes: Mapping[str, Attribute] = MappingProxyType({}),
) -> Card:
    return Card(
        uuid=f"GPU-{node}-{index}",
        index=index,
        geometry=gpu_geometry(gpu_model(model)),
        pci_bus_id="",
        numa_node=0,
        driver_version=driver_version,
        attributes=attributes,
    )


def fpga(node: str, index: int, name: str, loaded: dict[Placement, str] | None = None) -> Card:
    return Card(
        uuid=f"FPGA-{node}-{index}",
        index=index,
        geometry=fpga_geometry(shell(name)),
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
        inventory(node, *(card for card in cards if card.kind == family.name), driver=family.driver, **more)
        for family in (GPU, FPGA)
    ]
