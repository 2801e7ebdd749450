"""Handles of prepared NVIDIA devices, as the plugin's checkpoint keeps them, and the container edits made from them.

A field added later needs a default: records of older versions are read by newer ones. No management node is among the
edits: neither ``nvidia-cap1`` (MIG configuration) nor ``nvidia-cap2`` (monitoring).
"""

from typing import Final

import msgspec

from api.wire import to_builtins
from cdi import ContainerEdits, DeviceNode
from driver.kubeletplugin.backends.base import Handle, HardwareRefusedError
from driver.partitions.geometry import Placement

_CONTROL_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_NULL_MAJOR, _NULL_MINOR = 1, 3
"""``/dev/null`` on every Linux (Documentation/admin-guide/devices.txt)."""


class NvidiaHandle(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="nvidia"):
    """A MIG device, or a whole GPU."""

    card: str
    """UUID of the card."""
    device: str
    """Name of the published device."""
    minor: int
    """Number of the card's device node, ``/dev/nvidia0``."""
    uuid: str
    """UUID of the MIG device, or of the whole card."""
    instance: int | None = None
    """Id of the GPU instance; None: the whole card."""
    compute_instance: int = 0
    profile: str = ""
    """The instance's profile: with id, placement and UUID it tells the instance from another one in its place."""
    placement: Placement | None = None
    capabilities: tuple[int, ...] = ()
    """Numbers of the capability nodes of the instance, ``/dev/nvidia-caps/nvidia-cap30``."""
    is_stand_in: bool = False
    """Whether the card is a stand-in's: its device nodes are ``/dev/null`` of the host."""


def to_json(handle: NvidiaHandle) -> Handle:
    plain: Handle = to_builtins(handle)
    return plain


def from_json(handle: Handle) -> NvidiaHandle:
    """Read a handle. Raises HardwareRefusedError when another backend or a later version has written it."""
    try:
        return msgspec.convert(handle, type=NvidiaHandle)
    except msgspec.ValidationError as error:
        raise HardwareRefusedError(f"this is no handle of the backend nvidia: {error}") from error


def build_edits(handle: NvidiaHandle) -> ContainerEdits:
    """Build the edits of a device. The same handle gives the same edits, on every node and after every restart."""
    # "void" keeps the NVIDIA runtime from adding every GPU to a privileged container (nvidia-container-toolkit).
    variable = f"KERF_DEVICE_{handle.device.upper().replace('-', '_')}={handle.uuid}"
    paths = [*_CONTROL_NODES, f"/dev/nvidia{handle.minor}"]
    paths += [f"/dev/nvidia-caps/nvidia-cap{number}" for number in handle.capabilities]
    nodes = tuple(_null(path) if handle.is_stand_in else DeviceNode(path=path, permissions="rw") for path in paths)
    return ContainerEdits(env=("NVIDIA_VISIBLE_DEVICES=void", variable), device_nodes=nodes)


def _null(path: str) -> DeviceNode:
    return DeviceNode(
        path=path, host_path="/dev/null", type="c", major=_NULL_MAJOR, minor=_NULL_MINOR, permissions="rw"
    )
