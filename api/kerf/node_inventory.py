"""``kerf.dev/v1alpha1`` NodeInventory: a driver's cards on a node, where the controller allocates (1.27 to 1.31).

The kubelet plugin writes one for each driver on its node instead of ResourceSlices. It holds the source of slices,
cards with their geometry, so that plugin and controller compile the same devices with the same names; and the taints of
devices.
"""

import hashlib
from typing import Final

from api.kerf.v1alpha1 import GROUP, VERSION
from api.model.base import Value
from api.model.devices import DeviceTaint
from api.model.metadata import Object
from api.model.names import MAX_SUBDOMAIN
from api.wire import Kind, identity_kind

_DIGEST: Final = 16
"""The hex digits of SHA-256 that replace the end of a long name: 64 bits exclude collisions in any cluster."""


class InventoryPlacement(Value):
    """A contiguous range of units: memory slices of a GPU, or slots of an FPGA."""

    start: int
    """The first unit."""
    size: int
    """The number of units."""


class InventoryEngines(Value):
    """Numbers of fixed-function engines."""

    copy: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg: int = 0
    ofa: int = 0


class InventoryProfile(Value):
    """A MIG profile."""

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
    """The engines that can be too few for partitions whose placements do not overlap."""
    profiles: tuple[InventoryProfile, ...]
    """The profiles, smallest first."""


class InventoryLogic(Value):
    """Logic resources of an FPGA slot."""

    lut: int = 0
    ff: int = 0
    bram: int = 0
    dsp: int = 0


class InventoryFunction(Value):
    """An FPGA function that can be loaded."""

    name: str
    version: str
    afu_id: str
    placements: tuple[InventoryPlacement, ...]
    load_milliseconds: int
    """The duration of a load, in milliseconds."""


class InventoryShell(Value):
    """The static design of an FPGA."""

    name: str
    uuid: str
    family: str
    slots: tuple[InventoryLogic, ...]
    functions: tuple[InventoryFunction, ...] = ()


class InventoryLoaded(Value):
    """A function that is loaded at present."""

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
    """The id of one of ``gpuModels``, or the name of one of ``shells``."""
    pci_bus_id: str = ""
    numa_node: int = 0
    driver_version: str = ""
    loaded: tuple[InventoryLoaded, ...] = ()
    """The functions loaded in an FPGA."""


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
    gpu_models: tuple[InventoryGpuModel, ...] = ()
    """The models of the node's GPUs, each once."""
    shells: tuple[InventoryShell, ...] = ()
    """The shells of the node's FPGAs, each once."""
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
