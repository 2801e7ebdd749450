"""Intel's GPUs by their PCI device ids: names, and what their specifications say of memory and tiles.

A node's backend reads memory from the card; the figures here are for classes, plans and demonstrations before there is
one. A card whose id is not here is published, too, under its id.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kerf_dra.driver.families.base import EVERY, Estimate, ModelFigures
from kerf_dra.driver.families.model_names import find_model

_GIB: Final = 2**30
_SPECIFICATION: Final = "product specifications at intel.com (ARK)"
_IDS: Final = "names by PCI device id: intel-resource-drivers-for-kubernetes, pkg/gpu/device/models.go"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntelGpu:
    """A product, or a card as a node reports it."""

    id: str
    """The name in lower case, such as ``max-1550``; of a product that is not known, its PCI device id."""
    product: str
    series: str = ""
    memory_bytes: int = 0
    """The card's own memory; 0: it has none, or it is not known."""
    tiles: int = 1
    """The tiles (stacks) that programs can use one by one (oneAPI Level Zero, "sub-devices")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    name: str
    series: str
    pci_device_ids: tuple[int, ...]
    memory_gib: int = 0
    """The nominal memory; 0: there are variants of several sizes."""
    tiles: int = 1


_MAX: Final = "Data Center GPU Max"
_FLEX: Final = "Data Center GPU Flex"
_ARC_A: Final = "Arc A-Series"
_ARC_B: Final = "Arc B-Series"
_ARC_PRO_A: Final = "Arc Pro A-Series"
_ARC_PRO_B: Final = "Arc Pro B-Series"
_PRODUCTS: Final = (
    _Product(name="Max 1550", series=_MAX, pci_device_ids=(0x0B69, 0x0BD0, 0x0BD5), memory_gib=128, tiles=2),
    _Product(name="Max 1450", series=_MAX, pci_device_ids=(0x0BD6,), memory_gib=128, tiles=2),
    _Product(name="Max 1100", series=_MAX, pci_device_ids=(0x0BD9, 0x0BDA, 0x0BDB), memory_gib=48),
    _Product(name="Flex 170", series=_FLEX, pci_device_ids=(0x56C0,), memory_gib=16),
    # One of the two GPUs of a board, each of which is a card for Linux.
    _Product(name="Flex 140", series=_FLEX, pci_device_ids=(0x56C1,), memory_gib=6),
    _Product(name="Arc A770", series=_ARC_A, pci_device_ids=(0x56A0,)),
    _Product(name="Arc A750", series=_ARC_A, pci_device_ids=(0x56A1,), memory_gib=8),
    _Product(name="Arc A580", series=_ARC_A, pci_device_ids=(0x56A2,), memory_gib=8),
    _Product(name="Arc A380", series=_ARC_A, pci_device_ids=(0x56A5,), memory_gib=6),
    _Product(name="Arc A310", series=_ARC_A, pci_device_ids=(0x56A6,), memory_gib=4),
    _Product(name="Arc Pro A60", series=_ARC_PRO_A, pci_device_ids=(0x56B3,), memory_gib=12),
    _Product(name="Arc B580", series=_ARC_B, pci_device_ids=(0xE20B,), memory_gib=12),
    _Product(name="Arc B570", series=_ARC_B, pci_device_ids=(0xE20C,), memory_gib=10),
    _Product(name="Arc Pro B60", series=_ARC_PRO_B, pci_device_ids=(0xE211,), memory_gib=24),
    _Product(name="Arc Pro B50", series=_ARC_PRO_B, pci_device_ids=(0xE212,), memory_gib=16),
)


def intel_gpus() -> Iterator[IntelGpu]:
    """Yield the products whose memory is known without a card."""
    for product in _PRODUCTS:
        if product.memory_gib:
            yield _describe(product, product.memory_gib * _GIB, product.tiles)


def resolve_intel_gpu(name: str) -> str:
    """Return the id of the product ``name`` means, also by an unambiguous beginning. Raises UnknownModelError."""
    known = {_id(product): _id(product) for product in _PRODUCTS}
    return find_model("Intel GPU", name, known, {})


def intel_gpu_figures() -> Mapping[str, ModelFigures]:
    """Return where the figures of each product come from, by its id."""
    nominal = Estimate(part=EVERY, figure="memory", how="the nominal memory; a card reports a little less")
    return {gpu.id: ModelFigures(sources=(_SPECIFICATION, _IDS), estimated=(nominal,)) for gpu in intel_gpus()}


def find_tiles(pci_device_id: int) -> int:
    """Return the tiles of a product by its PCI device id; 1: it has one, or is not known."""
    product = _find(pci_device_id)
    return 1 if product is None else product.tiles


def describe_card(pci_device_id: int, memory_bytes: int, tiles: int) -> IntelGpu:
    """Return the card of a product with the memory and the tiles that it reports."""
    product = _find(pci_device_id)
    if product is None:
        return IntelGpu(
            id=f"{pci_device_id:#06x}",
            product=f"Intel GPU {pci_device_id:#06x}",
            memory_bytes=memory_bytes,
            tiles=tiles,
        )
    return _describe(product, memory_bytes, tiles)


def _find(pci_device_id: int) -> _Product | None:
    return next((product for product in _PRODUCTS if pci_device_id in product.pci_device_ids), None)


def _describe(product: _Product, memory_bytes: int, tiles: int) -> IntelGpu:
    return IntelGpu(
        id=_id(product),
        product=f"Intel {product.name}",
        series=product.series,
        memory_bytes=memory_bytes,
        tiles=tiles,
    )


def _id(product: _Product) -> str:
    return product.name.lower().replace(" ", "-")
