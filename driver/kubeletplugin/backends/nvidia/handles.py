"""Handles of prepared NVIDIA devices, as the plugin's checkpoint keeps them, and the container edits made from them.

A handle has all that its edits are made of, as it was when the device was prepared: they may be written again when the
driver cannot be read.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from kerf_dra.cdi import ContainerEdits, DeviceNode
from kerf_dra.driver.kubeletplugin.backends.device_edits import build_node, name_variable
from kerf_dra.driver.kubeletplugin.backends.handle_codec import CardHandle, HandleCodec
from kerf_dra.driver.kubeletplugin.backends.nvidia.container_edits import (
    build_admin_edits,
    build_driver_edits,
    build_gpu_edits,
    build_mig_edits,
    build_mps_edits,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.device_nodes import GpuNodes
from kerf_dra.driver.kubeletplugin.backends.nvidia.driver_root import DriverFiles
from kerf_dra.driver.mps.documents import DaemonFolder
from kerf_dra.driver.partitions.geometry import Run

_CONTROL_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_GRAPHICS: Final = "+gfx"
"""In the names of profiles whose instances render (RTX PRO)."""


class NvidiaHandle(CardHandle, frozen=True, kw_only=True, tag_field="kind", tag="nvidia"):
    """A MIG device, or a whole GPU."""

    minor: int
    """Number of the card's device node, ``/dev/nvidia0``."""
    uuid: str
    """UUID of the MIG device, or of the whole card."""
    instance: int | None = None
    """Id of the GPU instance; None: the whole card."""
    compute_instance: int = 0
    profile: str = ""
    """The instance's profile: with id, placement and UUID it distinguishes the instance from another one in its
    place."""
    profile_id: int | None = None
    """NVML's id of the profile, by which instances are listed; None: a record of an earlier version has only its name.
    """
    placement: Run | None = None
    capabilities: tuple[int, ...] = ()
    """Numbers of the capability nodes of the instance, ``/dev/nvidia-caps/nvidia-cap30``."""
    is_stand_in: bool = False
    """Whether the card is a stand-in's: its device nodes are ``/dev/null`` of the host."""
    is_static: bool = False
    """Whether an administrator has made the instance, which then stays."""
    is_admin: bool = False
    """Whether the claim has admin access to the card."""
    hook_path: str = ""
    """The program nvidia-cdi-hook on the host; empty: a stand-in without it, whose containers get no driver."""
    driver: DriverFiles | None = None
    control_nodes: tuple[DeviceNode, ...] = ()
    gpu: GpuNodes | None = None
    instance_nodes: tuple[DeviceNode, ...] = ()
    monitor_node: DeviceNode | None = None
    sharing: str = "Exclusive"
    """How containers share the device (GpuConfig's strategy)."""
    sharing_folder: str = ""
    """The folder of the device that ``sharing`` has set up; empty: nothing was set up."""
    shared_memory: str = ""
    """The folder that containers with MPS have as ``/dev/shm``."""
    memory_limit_bytes: int | None = None
    """The share's part of the device's memory; None: all of it."""
    active_thread_percentage: int | None = None
    pinned_memory_mib: int | None = None
    """With MPS: the limits of each client; None: those of the device."""


HANDLES: Final = HandleCodec(NvidiaHandle, owner="the backend nvidia")


def build_edits(handle: NvidiaHandle) -> ContainerEdits:
    """Build the edits of a device. The same handle gives the same edits, on every node and after every restart."""
    variable = f"{name_variable('KERF_DEVICE', handle.device)}={handle.uuid}"
    edits = _build_cuda_edits(handle) + ContainerEdits(env=(variable,)) + _build_sharing_edits(handle)
    if handle.is_stand_in:
        nodes = (build_node(node.path, is_stand_in=True) for node in edits.device_nodes)
        edits = replace(edits, device_nodes=tuple(nodes))
    return edits


def _build_cuda_edits(handle: NvidiaHandle) -> ContainerEdits:
    if handle.driver is None or handle.gpu is None:
        return _build_node_edits(handle)
    driver = build_driver_edits(handle.driver, handle.control_nodes, handle.hook_path)
    if handle.is_admin:
        return driver + build_admin_edits(handle.gpu, handle.monitor_node, handle.hook_path)
    if handle.instance is None:
        return driver + build_gpu_edits(handle.gpu, handle.hook_path)
    is_graphics = _GRAPHICS in handle.profile
    return driver + build_mig_edits(handle.gpu, handle.instance_nodes, handle.hook_path, is_graphics=is_graphics)


def _build_node_edits(handle: NvidiaHandle) -> ContainerEdits:
    """Build the edits where the driver's files are not known."""
    paths = [*_CONTROL_NODES, f"/dev/nvidia{handle.minor}"]
    paths += [f"/dev/nvidia-caps/nvidia-cap{number}" for number in handle.capabilities]
    nodes = tuple(build_node(path, is_stand_in=False) for path in paths)
    return ContainerEdits(env=("NVIDIA_VISIBLE_DEVICES=void",), device_nodes=nodes)


def _build_sharing_edits(handle: NvidiaHandle) -> ContainerEdits:
    variables: list[str] = []
    if handle.sharing != "Exclusive":
        variables.append(f"{name_variable('KERF_SHARING', handle.device)}={handle.sharing}")
    if handle.memory_limit_bytes is not None:
        variables.append(f"{name_variable('KERF_MEMORY_LIMIT', handle.device)}={handle.memory_limit_bytes}")
    edits = ContainerEdits(env=tuple(variables))
    if handle.sharing != "Mps":
        return edits
    pipe = DaemonFolder(Path(handle.sharing_folder)).pipe
    return edits + build_mps_edits(
        str(pipe), handle.shared_memory, handle.active_thread_percentage, handle.pinned_memory_mib
    )
