"""The names of attributes and capacities of devices that several parts of Kerf use.

Which of them the devices of a family have, and which others, its vocabulary says (``kerf_dra.driver.families``). Names
without a domain belong to the driver's domain.
"""

import hashlib
from typing import Final

ATTRIBUTE_CUT: Final = "cut"
"""The part of the card: ``whole``, ``partition``, or ``monitor`` for admin access to a card that others use."""
CUT_WHOLE: Final = "whole"
CUT_PARTITION: Final = "partition"
CUT_MONITOR: Final = "monitor"
ATTRIBUTE_MODEL: Final = "model"
"""The model of the card (``h100-80gb-sxm``), such as the shell of an FPGA."""
ATTRIBUTE_PROFILE: Final = "profile"
"""The profile of the partition; ``""`` for whole cards."""
ATTRIBUTE_FUNCTION: Final = "function"
"""The function of the device; ``""`` where the claim's configuration names it."""
ATTRIBUTE_LOADED_FUNCTION: Final = "loadedFunction"
"""The function that is loaded at the device's placement now; ``""``: none."""
ATTRIBUTE_LOAD_SECONDS: Final = "loadSeconds"
"""The seconds that a load takes, rounded up."""
ATTRIBUTE_LOSS_RANK: Final = "lossRank"
"""The rank of what later claims lose by the placement, among the losses of its profile on its model: 0 is the least."""
ATTRIBUTE_LAYOUT: Final = "layout"
ATTRIBUTE_SHARED: Final = "shared"
"""Whether several claims may each hold a share of the device (KEP-5075)."""
ATTRIBUTE_TIME_SLICING: Final = "timeSlicing"
"""Whether the card does the sharing strategy TimeSlicing."""
ATTRIBUTE_MPS: Final = "mps"
"""Whether the card does the sharing strategy Mps."""
ATTRIBUTE_UUID: Final = "uuid"
"""The UUID of the card, for ``matchAttribute`` and ``distinctAttribute`` constraints over cards."""
ATTRIBUTE_DEVICE_UUID: Final = "deviceUUID"
"""The UUID by which programs address a prepared device. It is in device metadata (KEP-5304) and never published: before
the device is prepared there is none."""
ATTRIBUTE_NODE: Final = "node"
"""The name of the node, see ``node_attribute``."""
ATTRIBUTE_DRIVER_VERSION: Final = "driverVersion"
"""The version of the device's kernel driver, as semver."""
ATTRIBUTE_PRODUCT_NAME: Final = "productName"
ATTRIBUTE_SIMULATED: Final = "simulated"
"""Whether there is no such hardware: containers get device nodes that compute nothing."""
ATTRIBUTE_PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
"""The standard attribute of PCI devices, shared with other drivers' devices."""
ATTRIBUTE_PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
"""The standard attribute of the PCIe root complex, by which devices of several drivers are aligned."""
ATTRIBUTE_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
"""The standard attribute of the NUMA node from 1.37 on (KEP-6072)."""

CAPACITY_MEMORY: Final = "memory"
"""The device's memory in bytes."""
CAPACITY_COMPUTE_SLICES: Final = "computeSlices"
CAPACITY_COMPUTE_PERCENT: Final = "computePercent"
"""The percentage of the device's own multiprocessors."""
CAPACITY_CLIENTS: Final = "clients"
"""The processes that MPS serves on the device at a time."""
CAPACITY_MILLICORES: Final = "millicores"
"""Thousandths of a whole card's time, as Intel's resource manager counted (gpu.intel.com/millicores)."""
CAPACITY_COMPUTE_UNIT_PERCENT: Final = "computeUnitPercent"
"""The compute units of an FPGA's function, each of which is 100."""
CAPACITY_SLOTS: Final = "slots"

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


def monitor_taint_key(driver: str) -> str:
    """Return the key of the taint that keeps claims without admin access from the monitor devices of ``driver``."""
    return f"{driver}/{CUT_MONITOR}"


def unhealthy_taint_key(driver: str) -> str:
    """Return the key of the taint of the devices of ``driver`` that are unhealthy or lost."""
    return f"{driver}/unhealthy"


def kept_out_taint_key(driver: str) -> str:
    """Return the key of the taint of devices that claims have of a card of ``driver`` which is kept out."""
    return f"{driver}/kept-out"


MAINTENANCE_IN_USE: Final = "in-use"
"""The value of the taint of a card in maintenance of which something is in use on its node."""
MAINTENANCE_IDLE: Final = "idle"
"""The value of the taint of a card in maintenance of which nothing is in use on its node."""


def maintenance_taint_key(driver: str) -> str:
    """Return the key of the taint of the devices of a card of ``driver`` that a CardMaintenance withholds."""
    return f"{driver}/maintenance"


def pool_name(node: str, kind: str) -> str:
    """Return the name of the pool of a node's devices of one kind: ``node-1/gpu``."""
    return f"{node}/{kind}"


def pool_kind(pool: str) -> str:
    """Return the kind of the devices in a pool that ``pool_name`` has named; empty: the name is another's.

    >>> pool_kind("node-1/gpu"), pool_kind("node-1")
    ('gpu', '')
    """
    node, _, kind = pool.rpartition("/")
    return kind if node else ""
