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
    """The mark that partitions of a claim's device carry on the hardware."""
    share = f"#{device.share.share}" if device.share.share else ""
    return f"{device.claim.uid}/{device.share.id.device}{share}"
