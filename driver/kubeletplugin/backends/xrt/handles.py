"""Handles of prepared Alveo cards, as the checkpoint keeps them, and the container edits made from them.

The node of the management function (``/dev/xclmgmtN``) is never among the nodes: a program that has it resets the card
and flashes its shell.
"""

from collections.abc import Iterator
from typing import Final, Literal

from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.kubeletplugin.backends.device_edits import build_node, name_variable
from kerf_dra.driver.kubeletplugin.backends.handle_codec import CardHandle, HandleCodec


class XrtHandle(CardHandle, frozen=True, kw_only=True, tag_field="kind", tag="xrt"):
    """A card, with a function or blank."""

    pci_address: str
    """The address of its user function, by which programs open it."""
    nodes: tuple[str, ...]
    """Its device nodes."""
    function: str = ""
    """The loaded function; empty: none was asked for, or with admin access nothing is known."""
    version: str = ""
    afu_id: str = ""
    """The UUID of the image that prepare has left in the card; empty: whatever was there, as there is no blank one."""
    parameters: dict[str, str] = {}
    """The function's parameters, for programs that use it."""
    blank: ImageReference | None = None
    """What is loaded when the card is released; None: nothing can be."""
    release: Literal["Blank", "Keep"] = "Blank"
    """What becomes of the function when the device is released."""
    compute_unit_percent: int | None = None
    """The share's part of the function's compute units, in hundredths of one; None: all of them."""
    is_admin: bool = False
    """Whether the claim has admin access: nothing was changed for it."""
    is_stand_in: bool = False
    """Whether the card is a stand-in's: its device nodes are ``/dev/null`` of the host."""


HANDLES: Final = HandleCodec(XrtHandle, owner="the backend xrt")


def build_edits(handle: XrtHandle) -> ContainerEdits:
    """Build the edits of a device. The same handle gives the same edits, on every node and after every restart."""
    nodes = tuple(build_node(path, is_stand_in=handle.is_stand_in) for path in handle.nodes)
    return ContainerEdits(env=tuple(_list_variables(handle)), device_nodes=nodes)


def _list_variables(handle: XrtHandle) -> Iterator[str]:
    device = handle.device
    yield f"{name_variable('KERF_DEVICE', device)}={handle.function}"
    yield f"{name_variable('KERF_PCI_ADDRESS', device)}={handle.pci_address}"
    if handle.function:
        yield f"{name_variable('KERF_AFU_ID', device)}={handle.afu_id}"
    if handle.version:
        yield f"{name_variable('KERF_VERSION', device)}={handle.version}"
    if handle.compute_unit_percent is not None:
        yield f"{name_variable('KERF_COMPUTE_UNIT_PERCENT', device)}={handle.compute_unit_percent}"
    for parameter, value in sorted(handle.parameters.items()):
        yield f"{name_variable('KERF_PARAMETER', device)}_{parameter}={value}"
