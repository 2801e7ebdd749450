"""What a prepared simulated device is remembered by: the handles in the plugin's checkpoint.

A field added later needs a default: records of older versions are read by newer ones.
"""

from typing import Literal, TypeAlias

import msgspec

from driver.kubeletplugin.backends.base import AllocatedDevice, Handle, HardwareRefusedError


class GpuHandle(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="gpu"):
    """A GPU partition, or a whole GPU."""

    card: str
    """UUID."""
    device: str
    """Name of the published device."""
    owner: str
    """Mark on the hardware; empty: admin access, nothing was made and nothing is taken back."""
    minor: int
    visible: str
    """UUID for ``CUDA_VISIBLE_DEVICES``: of the MIG device, or of the card."""
    instance: int | None = None
    """Id of the GPU instance; None: the whole card."""
    sharing: str = "Exclusive"
    memory_limit_bytes: int | None = None
    """The share of the device's memory; None: all of it."""


class FpgaHandle(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="fpga"):
    """Slots of an FPGA with a function in them."""

    card: str
    device: str
    owner: str
    ports: tuple[int, ...]
    """Numbers of the port nodes."""
    function: str = ""
    """Empty with admin access: whatever is loaded."""
    release: Literal["Blank", "Keep"] = "Blank"


SimulatedHandle: TypeAlias = GpuHandle | FpgaHandle


def to_json(handle: SimulatedHandle) -> Handle:
    plain: Handle = msgspec.to_builtins(handle)
    return plain


def from_json(handle: Handle) -> SimulatedHandle:
    """Raises HardwareRefusedError when another backend, or a version to come, has written it."""
    try:
        return msgspec.convert(handle, type=GpuHandle | FpgaHandle)
    except msgspec.ValidationError as error:
        raise HardwareRefusedError(f"this is no handle of the simulated backend: {error}") from error


def owner_of(device: AllocatedDevice) -> str:
    """The mark on the hardware: whose it is. What several claims share belongs to none of them."""
    holder = "shared" if device.partition.shared else device.claim.uid
    return f"{holder}/{device.share.id.device}"
