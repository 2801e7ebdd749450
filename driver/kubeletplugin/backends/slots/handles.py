"""Handles of prepared slots, as the plugin's checkpoint keeps them, and the container edits made from them.

The devices of the base design (``device_name`` of ``shell.json``: clocks, the shell's controller) and the daemon's
socket are never among the nodes.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.kubeletplugin.backends.device_edits import build_node, name_variable
from kerf_dra.driver.kubeletplugin.backends.handle_codec import CardHandle, HandleCodec


class UioDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a loaded function."""

    name: str
    """The platform device, such as ``20100000000.AES128``."""
    node: str
    """Its device node, such as ``/dev/uio4``."""


class PreparedSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a prepared device."""

    slot: int
    image: ImageReference | None = None
    """What prepare has loaded; None: the slot was left empty."""
    blank: ImageReference | None = None
    """What overwrites the slot when it is released; None: nothing does."""


class SlotsHandle(CardHandle, frozen=True, kw_only=True, tag_field="kind", tag="slots"):
    """Slots of a board, with a function in one of them, or empty."""

    base: str
    """The path of the base design, below the firmware folder."""
    slots: tuple[PreparedSlot, ...]
    nodes: tuple[UioDevice, ...] = ()
    """The function's devices."""
    function: str = ""
    """The loaded function; empty: none was asked for, or with admin access nothing is known."""
    version: str = ""
    parameters: dict[str, str] = {}
    """The function's parameters, for programs that use it."""
    release: Literal["Blank", "Keep"] = "Blank"
    """What becomes of the function when the device is released."""
    is_admin: bool = False
    """Whether the claim has admin access: nothing was changed for it."""
    is_stand_in: bool = False
    """Whether the board is a stand-in: its device nodes are ``/dev/null`` of the host."""


HANDLES: Final = HandleCodec(SlotsHandle, owner="the backend slots")


def build_edits(handle: SlotsHandle) -> ContainerEdits:
    """Build the edits of a device. The same handle gives the same edits, on every node and after every restart."""
    nodes = tuple(build_node(one.node, is_stand_in=handle.is_stand_in) for one in handle.nodes)
    return ContainerEdits(env=tuple(_list_variables(handle)), device_nodes=nodes)


def _list_variables(handle: SlotsHandle) -> Iterator[str]:
    device = handle.device
    yield f"{name_variable('KERF_DEVICE', device)}={handle.function}"
    if handle.nodes:
        yield f"{name_variable('KERF_UIO', device)}={','.join(f'{one.name}={one.node}' for one in handle.nodes)}"
    for slot in handle.slots:
        if slot.image is not None:
            yield f"{name_variable('KERF_AFU_ID', device)}={slot.image.afu_id}"
    if handle.version:
        yield f"{name_variable('KERF_VERSION', device)}={handle.version}"
    for parameter, value in sorted(handle.parameters.items()):
        yield f"{name_variable('KERF_PARAMETER', device)}_{parameter}={value}"
