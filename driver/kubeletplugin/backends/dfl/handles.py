"""Handles of prepared slots, as the plugin's checkpoint keeps them, and the container edits made from them.

The management engine's node (``/dev/dfl-fme.N``) is never among the nodes: a program that has it loads what it likes
into every slot.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.kubeletplugin.backends.device_edits import build_node, name_variable
from kerf_dra.driver.kubeletplugin.backends.handle_codec import CardHandle, HandleCodec

_CONTAINER_NODE: Final = "/dev/vfio/vfio"
"""The node that every user of VFIO opens first (Linux ``Documentation/driver-api/vfio.rst``)."""


class SlotHandle(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of a prepared device."""

    slot: int
    port: int
    """The number of the port's device node, ``/dev/dfl-port.0``."""
    afu_id: str = ""
    """What prepare has left in the slot; empty: whatever was there, because the slot has no blank image."""
    blank: ImageReference | None = None
    """What is loaded when the slot is released; None: nothing can be."""


class FunctionHandle(msgspec.Struct, frozen=True, kw_only=True):
    """A virtual function that was made for the device."""

    address: str
    """Its PCI address."""
    group: str
    """The number of its IOMMU group, which is the name of its node, ``/dev/vfio/7``."""


class DflHandle(CardHandle, frozen=True, kw_only=True, tag_field="kind", tag="dfl"):
    """Slots of a card, with a function in one of them, or blank."""

    slots: tuple[SlotHandle, ...]
    function: str = ""
    """The loaded function; empty: none was asked for, or with admin access nothing is known."""
    function_slot: int | None = None
    """The slot that the function is in; None: there is none."""
    version: str = ""
    parameters: dict[str, str] = {}
    """The function's parameters, for programs that use it."""
    release: Literal["Blank", "Keep"] = "Blank"
    """What becomes of the function when the device is released."""
    functions: tuple[FunctionHandle, ...] = ()
    """The virtual functions that have the ports, in place of the ports' nodes."""
    is_admin: bool = False
    """Whether the claim has admin access: nothing was changed for it."""
    is_stand_in: bool = False
    """Whether the card is a stand-in's: its device nodes are ``/dev/null`` of the host."""


HANDLES: Final = HandleCodec(DflHandle, owner="the backend dfl")


def build_edits(handle: DflHandle) -> ContainerEdits:
    """Build the edits of a device. The same handle gives the same edits, on every node and after every restart."""
    paths = [f"/dev/dfl-port.{slot.port}" for slot in handle.slots]
    if handle.functions:
        paths = [_CONTAINER_NODE, *(f"/dev/vfio/{one.group}" for one in handle.functions)]
    nodes = tuple(build_node(path, is_stand_in=handle.is_stand_in) for path in paths)
    return ContainerEdits(env=tuple(_list_variables(handle)), device_nodes=nodes)


def _list_variables(handle: DflHandle) -> Iterator[str]:
    device = handle.device
    yield f"{name_variable('KERF_DEVICE', device)}={handle.function}"
    if handle.functions:
        yield f"{name_variable('KERF_VF', device)}={','.join(one.address for one in handle.functions)}"
    for slot in handle.slots:
        if slot.slot == handle.function_slot:
            if not handle.functions:
                yield f"{name_variable('KERF_PORT', device)}=/dev/dfl-port.{slot.port}"
            yield f"{name_variable('KERF_AFU_ID', device)}={slot.afu_id}"
    if handle.version:
        yield f"{name_variable('KERF_VERSION', device)}={handle.version}"
    for parameter, value in sorted(handle.parameters.items()):
        yield f"{name_variable('KERF_PARAMETER', device)}_{parameter}={value}"
