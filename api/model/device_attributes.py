"""The names of the attributes and capacities of Kerf's devices.

Every device has every attribute and every capacity, with a neutral value (``""``, 0) where one does not apply: a CEL
selector that reads a missing attribute is a run-time error and aborts the pod's scheduling attempt
(kubernetes/dynamic-resource-allocation ``structured``). Names without a domain belong to the driver's domain.
"""

import hashlib
from typing import Final

ATTRIBUTE_KIND: Final = "kind"
"""``gpu`` or ``fpga``."""
ATTRIBUTE_CUT: Final = "cut"
"""``whole``, ``partition``, or ``monitor`` for admin access to a card that others use."""
ATTRIBUTE_MODEL: Final = "model"
"""GPU model (``h100-80gb-sxm``) or FPGA shell."""
ATTRIBUTE_PRODUCT: Final = "productName"
ATTRIBUTE_ARCHITECTURE: Final = "architecture"
"""``hopper`` …, or the FPGA's family."""
ATTRIBUTE_PROFILE: Final = "profile"
"""GPU profile, ``""`` for whole cards and FPGAs."""
ATTRIBUTE_FUNCTION: Final = "function"
"""The FPGA function of the device; ``""`` where the claim's configuration names it, and for GPUs."""
ATTRIBUTE_SHARED: Final = "shared"
"""Whether several claims may each hold a share of the device's memory (KEP-5075)."""
ATTRIBUTE_PARENT: Final = "parent"
"""UUID of the card, for ``matchAttribute`` and ``distinctAttribute`` constraints over cards."""
ATTRIBUTE_INDEX: Final = "index"
"""Number of the card on its node."""
ATTRIBUTE_NODE: Final = "node"
"""Name of the node, see ``node_attribute``."""
ATTRIBUTE_START: Final = "start"
"""First unit (memory slice or slot) of the placement, 0 for whole cards."""
ATTRIBUTE_SIZE: Final = "size"
"""Number of units of the placement, all units for whole cards."""
ATTRIBUTE_DRIVER_VERSION: Final = "driverVersion"
"""Version of the device's kernel driver, as semver."""
ATTRIBUTE_PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
"""Standard attribute, shared with other drivers' devices."""
ATTRIBUTE_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
"""Standard attribute from 1.37 (KEP-6072)."""

CAPACITY_MEMORY: Final = "memory"
"""Bytes."""
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
"""Longest string attribute, in bytes (``DeviceAttributeMaxValueLength``)."""
_DIGEST: Final = 16
"""Hex digits of SHA-256 in place of the end of a long name: 64 bits exclude collisions in clusters of any size."""


def node_attribute(node: str) -> str:
    """Return the attribute ``node`` of a node: its name, or where that is too long, its start and a digest."""
    if len(node) <= _MAX_STRING:
        return node
    digest = hashlib.sha256(node.encode()).hexdigest()[:_DIGEST]
    return f"{node[: _MAX_STRING - _DIGEST - 1]}.{digest}"


def pool_name(node: str, kind: str) -> str:
    """Return the name of the pool of a node's devices of one kind: ``node-1/gpu``."""
    return f"{node}/{kind}"
