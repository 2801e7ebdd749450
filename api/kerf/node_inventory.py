"""``kerf.dev/v1alpha1`` NodeInventory: a driver's cards on a node, where the controller allocates (1.27 to 1.31).

The kubelet plugin writes one for each driver on its node instead of ResourceSlices. It holds the source of slices,
cards with their geometry, so that plugin and controller compile the same devices with the same names; and the taints of
devices.
"""

import hashlib
from typing import Final

from kerf_dra.api.kerf.v1alpha1 import GROUP, VERSION
from kerf_dra.api.model.base import Value
from kerf_dra.api.model.devices import Attribute, DeviceTaint
from kerf_dra.api.model.metadata import Object
from kerf_dra.api.model.names import MAX_SUBDOMAIN
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import Kind, identity_kind

_DIGEST: Final = 16
"""The hex digits of SHA-256 that replace the end of a long name: 64 bits exclude collisions in any cluster."""


class InventoryPlacement(Value):
    """A set of units of one layout: a range, if it has no gaps."""

    start: int
    """The first unit."""
    size: int
    """The number of units."""
    gaps: int = 0
    """The bitset of the units between the first and the last that are not of the set."""
    layout: str = ""
    """The layout whose units they are; empty: the one without a name."""


class InventoryLayout(Value):
    """One of several ways in which a card can be divided into units."""

    name: str = ""
    """The name; empty: it has none."""
    units: int
    """The number of units."""


class InventoryAmount(Value):
    """An amount of a capacity or a counter."""

    name: str
    amount: Quantity


class InventoryAttribute(Value):
    """An attribute of devices."""

    name: str
    value: Attribute


class InventoryEngines(Value):
    """The engines of one kind for which partitions compete beyond their placements."""

    name: str
    total: int


class InventoryPartitions(Value):
    """The partitions of a geometry that differ in their placement only, or the whole card."""

    profile: str = ""
    """The profile; empty: none."""
    function: str = ""
    """The function that is loaded; empty: none, or the claim's configuration names it."""
    placements: tuple[InventoryPlacement, ...] = ()
    """Every legal placement; empty: the whole card."""
    engines: tuple[int, ...] = ()
    """The number of each of the geometry's engines that a partition takes."""
    size: tuple[int, ...]
    """The sort key from small to large."""
    weight: int
    """The worth of a partition for the choice of placements."""
    capacity: tuple[InventoryAmount, ...] = ()
    """The capacities of the devices; others are 0."""
    quota: tuple[InventoryAmount, ...] = ()
    """What a device consumes of the card's further counters."""
    load_milliseconds: int = 0
    """How long it may take to make a partition ready, in milliseconds."""
    attributes: tuple[InventoryAttribute, ...] = ()
    """Further attributes of the devices, in place of those of the card."""


class InventoryGeometry(Value):
    """What the cards of one model can be partitioned into, as this node's hardware has it."""

    kind: str
    """The family of devices."""
    model: str
    unit: str
    """The name of a unit."""
    units: int
    """The number of units of a card, in all layouts together."""
    layouts: tuple[InventoryLayout, ...] = ()
    """The layouts, of which a card has one at a time; empty: it has but one, without a name."""
    engines: tuple[InventoryEngines, ...] = ()
    partitions: tuple[InventoryPartitions, ...]
    attributes: tuple[InventoryAttribute, ...] = ()
    """Attributes of the model."""
    shareable: str = ""
    """The capacity that shares of a partition divide; empty: none."""


class InventoryLoaded(Value):
    """A function that is loaded at present."""

    function: str
    start: int
    size: int
    gaps: int = 0
    """As in a placement."""
    layout: str = ""
    """As in a placement."""


class InventoryCard(Value):
    """A card of the node."""

    kind: str
    """The family of devices, as in one of ``geometries``."""
    uuid: str
    index: int
    model: str
    """The model, as in one of ``geometries`` of the same kind."""
    pci_bus_id: str = ""
    pcie_root: str = ""
    numa_node: int = 0
    driver_version: str = ""
    attributes: tuple[InventoryAttribute, ...] = ()
    """Further attributes, in place of those of the geometry."""
    loaded: tuple[InventoryLoaded, ...] = ()
    """The functions that are loaded."""
    layout: str = ""
    """The layout that the card has; empty: the one without a name."""


class InventoryTaints(Value):
    """The taints of one device."""

    device: str
    """The device's name, as in a ResourceSlice."""
    taints: tuple[DeviceTaint, ...]
    """Devices with effect NoSchedule or NoExecute are not allocated."""


class NodeInventorySpec(Value):
    """The plugin's report on the node's hardware."""

    driver: str
    """The driver that prepares the devices."""
    node: str
    """The name of the node."""
    ready: bool = False
    """Whether the plugin serves the kubelet; an orderly shutdown resets it."""
    renewed_at: str = ""
    """The time of the plugin's last report; without reports it counts as not ready."""
    geometries: tuple[InventoryGeometry, ...] = ()
    """The geometries of the node's cards, each once."""
    cards: tuple[InventoryCard, ...] = ()
    """The node's cards, in a stable order."""
    taints: tuple[InventoryTaints, ...] = ()
    """The taints of unhealthy devices."""


class NodeInventory(Object):
    """The cards of one driver on one node (cluster-scoped); ``inventory_name`` is its name."""

    spec: NodeInventorySpec
    """Written by the node's plugin."""


NODE_INVENTORIES: Final[Kind[NodeInventory]] = identity_kind(
    NodeInventory, group=GROUP, version=VERSION, plural="nodeinventories", namespaced=False
)


def inventory_name(node: str, driver: str) -> str:
    """Return the name of the NodeInventory of ``driver`` on ``node``.

    A name that would be too long is shortened; a digest keeps it distinct.

    >>> inventory_name("node-1", "gpu.kerf.dev")
    'node-1-gpu.kerf.dev'
    """
    name = f"{node}-{driver}"
    if len(name) <= MAX_SUBDOMAIN:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: MAX_SUBDOMAIN - _DIGEST - 1].rstrip('-.')}-{digest}"
