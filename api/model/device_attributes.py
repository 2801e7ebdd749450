"""The names of the attributes and capacities of Kerf's devices.

Every device has every attribute and every capacity, with a neutral value (``""``, 0) where one does not apply: a CEL
selector that reads a missing attribute is a run-time error and aborts the pod's scheduling attempt
(kubernetes/dynamic-resource-allocation ``structured``). Names without a domain belong to the driver's domain.
"""

import hashlib
from typing import Final

ATTRIBUTE_KIND: Final = "kind"
"""The kind of the card: ``gpu`` or ``fpga``."""
ATTRIBUTE_CUT: Final = "cut"
"""The part of the card: ``whole``, ``partition``, or ``monitor`` for admin access to a card that others use."""
ATTRIBUTE_MODEL: Final = "model"
"""The GPU model (``h100-80gb-sxm``) or FPGA shell."""
ATTRIBUTE_PRODUCT: Final = "productName"
ATTRIBUTE_ARCHITECTURE: Final = "architecture"
"""The architecture of the GPU, such as ``hopper``, or the FPGA's family."""
ATTRIBUTE_PROFILE: Final = "profile"
"""The GPU profile; ``""`` for whole cards and FPGAs."""
ATTRIBUTE_FUNCTION: Final = "function"
"""The FPGA function of the device; ``""`` where the claim's configuration names it, and for GPUs."""
ATTRIBUTE_SHARED: Final = "shared"
"""Whether several claims may each hold a share of the device's memory (KEP-5075)."""
ATTRIBUTE_UUID: Final = "uuid"
"""The UUID of the card, for ``matchAttribute`` and ``distinctAttribute`` constraints over cards."""
ATTRIBUTE_INDEX: Final = "index"
"""The number of the card on its node."""
ATTRIBUTE_NODE: Final = "node"
"""The name of the node, see ``node_attribute``."""
ATTRIBUTE_START: Final = "start"
"""The first unit (memory slice or slot) of the placement, 0 for whole cards."""
ATTRIBUTE_SIZE: Final = "size"
"""The number of units of the placement, all units for whole cards."""
ATTRIBUTE_DRIVER_VERSION: Final = "driverVersion"
"""The version of the device's kernel driver, as semver."""
ATTRIBUTE_PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
"""The standard attribute of PCI devices, shared with other drivers' devices."""
ATTRIBUTE_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
"""The standard attribute of the NUMA node from 1.37 on (KEP-6072)."""

CAPACITY_MEMORY: Final = "memory"
"""The device's memory in bytes."""
CAPACITY_COMPUTE_SLICES: Final = "computeSlices"
CAPACITY_MEMORY_SLICES: Final = "memorySlices"
CAPACITY_MULTIPROCESSORS: Final = "multiprocessors"
CAPACITY_COPY_ENGINES: Final = "copyEngines"
CAPACITY_DECODERS: Final = "decoders"
CAPACITY_ENCODERS: Final = "encoders"
CAPACITY_JPEG_ENGINES: Final = "jpegEngines"
CAPACITY_OFA_ENGINES: Final = "ofaEngines"
CAPACITY_SLOTS: Final = "slots"
CAPACITY_LUT: Final = "lut"
CAPACITY_FF: Final = "ff"
CAPACITY_BRAM: Final = "bram"
CAPACITY_DSP: Final = "dsp"

_MAX_STRING: Final = 64
"""The most bytes of a string attribute (``DeviceAttributeMaxValueLength``)."""
_DIGEST: Final = 16
"""The hex digits of SHA-256 that replace the end of a long name: 64 bits exclude collisions in any cluster."""


def node_attribute(node: str) -> str:
    """Return the attribute ``node`` of a node: its name, or the start and a digest of a name that is too long."""
    if len(node) <= _MAX_STRING:
        return node
    digest = hashlib.sha256(node.encode()).hexdigest()[:_DIGEST]
    return f"{node[: _MAX_STRING - _DIGEST - 1]}.{digest}"


def pool_name(node: str, kind: str) -> str:
    """Return the name of the pool of a node's devices of one kind: ``node-1/gpu``."""
    return f"{node}/{kind}"
