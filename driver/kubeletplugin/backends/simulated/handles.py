"""Handles of prepared simulated devices, as the plugin's checkpoint keeps them, and the container edits made from them.

Paths and names in container edits are those of real cards. Every device node is ``/dev/null`` of the host, so that a
real runtime can start a real container. No management node is among them: no ``nvidia-cap1`` (MIG configuration), no
``dfl-fme``.
"""

from typing import Final, Literal, TypeAlias

from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.kubeletplugin.backends.device_edits import build_node, name_variable
from kerf_dra.driver.kubeletplugin.backends.handle_codec import CardHandle, HandleCodec
from kerf_dra.driver.partitions.geometry import Placement, Run

_MIB: Final = 2**20
_FIRST_CAPABILITY: Final = 3
"""Number of the first instance's first capability node; nvidia-cap1 and -cap2 are MIG configuration and monitoring."""
_INSTANCES: Final = 15
"""GPU instance ids of each GPU, 0 to 14."""
_NODES: Final = 9
"""Capability nodes of a GPU instance: one of its own, and one for each of up to eight compute instances."""


class GpuHandle(CardHandle, frozen=True, kw_only=True, tag_field="kind", tag="gpu"):
    """A GPU partition, or a whole GPU."""

    minor: int
    """Number of the card's device node, ``/dev/nvidia0``."""
    uuid: str
    """UUID of the MIG device, or of the whole card."""
    instance: int | None = None
    """Id of the GPU instance; None: the whole card."""
    profile: str = ""
    """The instance's profile: with id, placement and UUID it distinguishes the instance from another one in its
    place."""
    placement: Run | None = None
    sharing: str = "Exclusive"
    """How containers share the device (GpuConfig's strategy)."""
    memory_limit_bytes: int | None = None
    """The share's part of the device's memory; None: all of it."""


class FpgaHandle(CardHandle, frozen=True, kw_only=True, tag_field="kind", tag="fpga"):
    """Slots of an FPGA, with a function in them or blank."""

    ports: tuple[int, ...]
    """Numbers of the port nodes, one for each slot."""
    function: str = ""
    """The loaded function; empty: the slots were made blank, or with admin access nothing is known of them."""
    slots: Placement | None = None
    """The slots; None with admin access: none were touched."""
    release: Literal["Blank", "Keep"] = "Blank"
    """What becomes of the function when the device is released."""
    compute_unit_percent: int | None = None
    """The share's part of the function's compute units, in hundredths of one; None: all of them."""


SimulatedHandle: TypeAlias = GpuHandle | FpgaHandle


HANDLES: Final = HandleCodec[SimulatedHandle](GpuHandle, FpgaHandle, owner="the simulated backend")


def container_edits(handle: SimulatedHandle) -> ContainerEdits:
    """Build the edits of a device. The same handle gives the same edits, on every node and after every restart."""
    return _gpu_edits(handle) if isinstance(handle, GpuHandle) else _fpga_edits(handle)


def _gpu_edits(handle: GpuHandle) -> ContainerEdits:
    # "void" keeps the NVIDIA runtime from adding every GPU to a privileged container (nvidia-container-toolkit).
    env = ["NVIDIA_VISIBLE_DEVICES=void", f"{name_variable('KERF_DEVICE', handle.device)}={handle.uuid}"]
    if handle.sharing != "Exclusive":
        env.append(f"{name_variable('KERF_SHARING', handle.device)}={handle.sharing}")
    if handle.memory_limit_bytes is not None:
        env.append(f"{name_variable('KERF_MEMORY_LIMIT', handle.device)}={handle.memory_limit_bytes}")
        if handle.sharing == "Mps":
            # Device 0, the only one of a container with one share (NVIDIA MPS, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT").
            env.append(f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={handle.memory_limit_bytes // _MIB}M")
    paths = ["/dev/nvidiactl", f"/dev/nvidia{handle.minor}"]
    if handle.instance is not None:
        number = _FIRST_CAPABILITY + (handle.minor * _INSTANCES + handle.instance) * _NODES
        paths += [f"/dev/nvidia-caps/nvidia-cap{number}", f"/dev/nvidia-caps/nvidia-cap{number + 1}"]
    return ContainerEdits(env=tuple(env), device_nodes=tuple(build_node(path, is_stand_in=True) for path in paths))


def _fpga_edits(handle: FpgaHandle) -> ContainerEdits:
    env = [f"{name_variable('KERF_DEVICE', handle.device)}={handle.function}"]
    if handle.compute_unit_percent is not None:
        env.append(f"{name_variable('KERF_COMPUTE_UNIT_PERCENT', handle.device)}={handle.compute_unit_percent}")
    return ContainerEdits(
        env=tuple(env),
        device_nodes=tuple(build_node(f"/dev/dfl-port.{port}", is_stand_in=True) for port in handle.ports),
    )
