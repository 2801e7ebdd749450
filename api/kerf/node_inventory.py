"""``kerf.dev/v1alpha1`` NodeInventory: what a node has, where the controller allocates (Kubernetes 1.27 to 1.31).

The kubelet plugin writes one for its node in place of ResourceSlices. It holds what slices are compiled from, cards and
their geometry, so that both sides compile the same devices under the same names, and what is wrong with them.
"""

from typing import Final

from api.kerf.v1alpha1 import GROUP, VERSION
from api.model.base import Value
from api.model.devices import DeviceTaint
from api.model.metadata import Object
from api.wire import Kind, identity_kind


class InventoryPlacement(Value):
    """A run of units."""

    start: int
    """The first unit."""
    size: int
    """How many."""


class InventoryEngines(Value):
    """Fixed-function engines."""

    copy: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg: int = 0
    ofa: int = 0


class InventoryProfile(Value):
    """One way to cut a GPU."""

    name: str
    gi_profile_id: int | None = None
    gi_profile_enum: int
    compute_slices: int
    memory_bytes: int
    multiprocessors: int
    engines: InventoryEngines = InventoryEngines()
    placements: tuple[InventoryPlacement, ...]
    """Every legal placement."""
    max_instances: int


class InventoryGpuModel(Value):
    """The geometry of a GPU product, as this node's hardware has it."""

    id: str
    product: str
    architecture: str
    pci_device_ids: tuple[str, ...] = ()
    memory_bytes: int
    compute_slices: int
    memory_slices: int
    multiprocessors: int
    engines: InventoryEngines = InventoryEngines()
    exclusive_engines: tuple[str, ...] = ()
    """Engines that partitions compete for beyond their placements."""
    profiles: tuple[InventoryProfile, ...]
    """Smallest first."""


class InventoryLogic(Value):
    """FPGA resources of a slot."""

    lut: int = 0
    ff: int = 0
    bram: int = 0
    dsp: int = 0


class InventoryFunction(Value):
    """A function that can be loaded."""

    name: str
    version: str
    afu_id: str
    placements: tuple[InventoryPlacement, ...]
    load_milliseconds: int
    """How long a load takes."""


class InventoryShell(Value):
    """The static design of an FPGA."""

    name: str
    uuid: str
    family: str
    slots: tuple[InventoryLogic, ...]
    functions: tuple[InventoryFunction, ...] = ()


class InventoryLoaded(Value):
    """A function that is in slots right now."""

    function: str
    start: int
    size: int


class InventoryCard(Value):
    """A card of the node."""

    kind: str
    """``gpu`` or ``fpga``."""
    uuid: str
    index: int
    model: str
    """Id of one of ``gpuModels``, or name of one of ``shells``."""
    pci_bus_id: str = ""
    numa_node: int = 0
    driver_version: str = ""
    loaded: tuple[InventoryLoaded, ...] = ()
    """For FPGAs."""


class InventoryTaints(Value):
    """What is wrong with one device."""

    device: str
    """Its name, as ResourceSlices would have it."""
    taints: tuple[DeviceTaint, ...]
    """Devices with effect NoSchedule or NoExecute are not allocated."""


class NodeInventorySpec(Value):
    """What the node's plugin knows of its hardware."""

    driver: str
    """The driver that prepares the devices."""
    ready: bool = False
    """The plugin serves the kubelet; it takes this back when it ends in good order."""
    renewed_at: str = ""
    """When the plugin last said so: one that falls silent counts as not ready."""
    gpu_models: tuple[InventoryGpuModel, ...] = ()
    """Each once, however many cards are of it."""
    shells: tuple[InventoryShell, ...] = ()
    """Each once."""
    cards: tuple[InventoryCard, ...] = ()
    """In a stable order."""
    taints: tuple[InventoryTaints, ...] = ()
    """Of devices that are not well."""


class NodeInventory(Object):
    """The cards of the node of the same name (cluster-scoped)."""

    spec: NodeInventorySpec
    """Written by the node's plugin."""


NODE_INVENTORIES: Final[Kind[NodeInventory]] = identity_kind(
    NodeInventory, group=GROUP, version=VERSION, plural="nodeinventories", namespaced=False
)
