"""Handles of prepared Intel GPUs and tiles, as the checkpoint keeps them, and the container edits made from them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kerf_dra.cdi import ContainerEdits, DeviceNode
from kerf_dra.driver.kubeletplugin.backends.device_edits import build_node, name_variable
from kerf_dra.driver.kubeletplugin.backends.handle_codec import CardHandle, HandleCodec

_FOLDER: Final = "/dev/dri"


class IntelHandle(CardHandle, frozen=True, kw_only=True, tag_field="kind", tag="intel"):
    """A card, or one of its tiles, whole or a share."""

    pci_address: str
    number: int
    """The number of the card's device node, ``/dev/dri/card0``."""
    render: int | None
    """The number of its render node; None: it has none."""
    tiles: int
    """The tiles that the card has."""
    tile: int | None = None
    """The tile of the device; None: all of them."""
    hierarchy: str = "Flat"
    """How programs see tiles: ``Flat`` or ``Composite``."""
    memory_bytes: int | None = None
    """The share's part of the memory; None: all of it."""
    millicores: int | None = None
    """The share's part of the card's time; None: no limit."""
    is_admin: bool = False
    """Whether the claim has admin access: programs see the whole card."""
    is_stand_in: bool = False
    """Whether the card is a stand-in's: its device nodes are ``/dev/null`` of the host."""


HANDLES: Final = HandleCodec(IntelHandle, owner="the backend intel")


def build_edits(handle: IntelHandle) -> ContainerEdits:
    """Build the edits of a device. The same handle gives the same edits, on every node and after every restart."""
    return ContainerEdits(env=tuple(_list_variables(handle)), device_nodes=tuple(_list_nodes(handle)))


def build_request_edits(handles: Sequence[IntelHandle]) -> ContainerEdits:
    """Build what a container gets for all devices of a request together: the tiles that its programs may use.

    A mask counts cards as the container sees them, in the order of their PCI addresses (oneAPI Level Zero,
    ``ZE_AFFINITY_MASK``). There is none where programs may use all that they see.
    """
    handles = [handle for handle in handles if not handle.is_admin]
    if not any(handle.tile is not None for handle in handles):
        return ContainerEdits()
    addresses = sorted({handle.pci_address for handle in handles})
    tiles = {address: next(one.tiles for one in handles if one.pci_address == address) for address in addresses}
    wanted = {
        (address, tile)
        for handle in handles
        for address in (handle.pci_address,)
        for tile in (range(handle.tiles) if handle.tile is None else (handle.tile,))
    }
    # Where cards have different numbers of tiles, a flat number counts the tiles of all cards before.
    first = {address: sum(tiles[other] for other in addresses[:at]) for at, address in enumerate(addresses)}
    hierarchy = handles[0].hierarchy
    if hierarchy == "Composite":
        mask = [f"{addresses.index(address)}.{tile}" for address, tile in sorted(wanted)]
    else:
        mask = [str(first[address] + tile) for address, tile in sorted(wanted)]
    return ContainerEdits(env=(f"ZE_AFFINITY_MASK={','.join(mask)}", f"ZE_FLAT_DEVICE_HIERARCHY={hierarchy.upper()}"))


def _list_variables(handle: IntelHandle) -> Iterator[str]:
    device = handle.device
    tile = "" if handle.tile is None else f" tile {handle.tile}"
    yield f"{name_variable('KERF_DEVICE', device)}={handle.pci_address}{tile}"
    if handle.memory_bytes is not None:
        yield f"{name_variable('KERF_MEMORY_LIMIT', device)}={handle.memory_bytes}"
    if handle.millicores is not None:
        yield f"{name_variable('KERF_MILLICORES', device)}={handle.millicores}"


def _list_nodes(handle: IntelHandle) -> Iterator[DeviceNode]:
    """Yield the card's nodes, and once more below ``by-path``, where programs look cards up by their PCI addresses."""
    yield from _build_nodes(f"card{handle.number}", f"pci-{handle.pci_address}-card", handle)
    if handle.render is not None:
        yield from _build_nodes(f"renderD{handle.render}", f"pci-{handle.pci_address}-render", handle)


def _build_nodes(name: str, link: str, handle: IntelHandle) -> Iterator[DeviceNode]:
    for path in (f"{_FOLDER}/{name}", f"{_FOLDER}/by-path/{link}"):
        node = build_node(path, is_stand_in=handle.is_stand_in)
        yield node if handle.is_stand_in else replace(node, host_path=f"{_FOLDER}/{name}")
