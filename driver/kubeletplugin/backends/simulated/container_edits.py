"""Handles to container edits: what a container sees of a simulated device. Pure.

Paths and names are those of real cards, and every device node is ``/dev/null`` of the host, so that a real runtime can
start a real container. Management nodes are never among them: no ``nvidia-cap1`` (MIG configuration), no ``dfl-fme``.
"""

from typing import Final

from cdi import ContainerEdits, DeviceNode
from driver.kubeletplugin.backends.simulated.handles import FpgaHandle, GpuHandle, SimulatedHandle

_NULL_MAJOR: Final = 1
_NULL_MINOR: Final = 3
"""``/dev/null`` on every Linux (Documentation/admin-guide/devices.txt)."""
_MIB: Final = 2**20
_FIRST_CAPABILITY: Final = 3
"""nvidia-cap1 and nvidia-cap2 are MIG configuration and monitoring."""
_INSTANCES: Final = 15
"""Room for GPU instance ids 0 to 14 of each GPU."""
_NODES: Final = 9
"""Capability nodes of a GPU instance: itself and up to eight compute instances."""


def container_edits(handle: SimulatedHandle) -> ContainerEdits:
    """The same handle gives the same edits, on every node and after every restart."""
    return _gpu(handle) if isinstance(handle, GpuHandle) else _fpga(handle)


def _gpu(handle: GpuHandle) -> ContainerEdits:
    # "void" keeps the NVIDIA runtime from adding every GPU to a privileged container (nvidia-container-toolkit).
    env = ["NVIDIA_VISIBLE_DEVICES=void", f"{_variable('KERF_DEVICE', handle.device)}={handle.visible}"]
    if handle.sharing != "Exclusive":
        env.append(f"{_variable('KERF_SHARING', handle.device)}={handle.sharing}")
    if handle.memory_limit_bytes is not None:
        env.append(f"{_variable('KERF_MEMORY_LIMIT', handle.device)}={handle.memory_limit_bytes}")
        if handle.sharing == "Mps":
            # Device 0, the only one of a container with one share (NVIDIA MPS, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT").
            env.append(f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={handle.memory_limit_bytes // _MIB}M")
    paths = ["/dev/nvidiactl", f"/dev/nvidia{handle.minor}"]
    if handle.instance is not None:
        number = _FIRST_CAPABILITY + (handle.minor * _INSTANCES + handle.instance) * _NODES
        paths += [f"/dev/nvidia-caps/nvidia-cap{number}", f"/dev/nvidia-caps/nvidia-cap{number + 1}"]
    return ContainerEdits(env=tuple(env), device_nodes=tuple(_null(path) for path in paths))


def _fpga(handle: FpgaHandle) -> ContainerEdits:
    return ContainerEdits(
        env=(f"{_variable('KERF_DEVICE', handle.device)}={handle.function}",),
        device_nodes=tuple(_null(f"/dev/dfl-port.{port}") for port in handle.ports),
    )


def _variable(prefix: str, device: str) -> str:
    return f"{prefix}_{device.upper().replace('-', '_')}"


def _null(path: str) -> DeviceNode:
    return DeviceNode(
        path=path, host_path="/dev/null", type="c", major=_NULL_MAJOR, minor=_NULL_MINOR, permissions="rw"
    )
