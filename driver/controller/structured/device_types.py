"""Which devices can exist: the shapes that the shipped tables know, and those that are published now.

A class that asks for something outside of both is a mistake worth telling its author; a class that asks for something
nobody has published yet is not.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from api.model import device_attributes as v
from api.model.devices import Attribute, Device
from api.model.quantity import Quantity
from driver.partitions import catalog
from driver.partitions.geometry import Card, FpgaCard, GpuCard, GpuModel, Shell
from driver.partitions.pool_compiler import SliceLayout, compile_pool

SIZES: Final = (v.CAPACITY_MEMORY, v.CAPACITY_COMPUTE_SLICES, v.CAPACITY_SLOTS, v.CAPACITY_LUT, v.CAPACITY_DSP)
"""The capacities of which a class may set a minimum."""

_ABSENT: Final = Attribute()
_NOTHING: Final = Quantity(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything that a class can choose devices by, but the node. All cards of a model share their shapes."""

    kind: str
    cut: str
    model: str
    profile: str
    function: str
    sizes: tuple[Quantity, ...]
    """Of SIZES, in their order."""

    def size(self, capacity: str) -> Quantity:
        return self.sizes[SIZES.index(capacity)]

    def __str__(self) -> str:
        what = self.profile or self.function or ("the whole card" if self.cut == "whole" else "slots")
        return f"{what} of {self.model}"


def known_shapes(published: Collection[Shape] = frozenset()) -> frozenset[Shape]:
    """What the tables know, together with what is ``published``."""
    return _catalogue_shapes().union(published)


def shape_of(device: Device) -> Shape:
    """The shape of a published device. What it does not say of itself counts as empty: it may not be our plugin's."""

    def word(name: str) -> str:
        return device.attributes.get(name, _ABSENT).string or ""

    capacity = device.capacity
    return Shape(
        kind=word(v.ATTRIBUTE_KIND),
        cut=word(v.ATTRIBUTE_CUT),
        model=word(v.ATTRIBUTE_MODEL),
        profile=word(v.ATTRIBUTE_PROFILE),
        function=word(v.ATTRIBUTE_FUNCTION),
        sizes=tuple(capacity[name].value if name in capacity else _NOTHING for name in SIZES),
    )


def model_name(kind: str, name: str, shapes: Iterable[Shape]) -> str:
    """The published name of the model or shell that ``name`` means: itself, or what the tables resolve it to.

    Raises UnknownModelError when it means none, or several.
    """
    if any(shape.kind == kind and shape.model == name for shape in shapes):
        return name
    return catalog.gpu_model(name).id if kind == "gpu" else catalog.shell(name).name


@cache
def _catalogue_shapes() -> frozenset[Shape]:
    """Of one card of every geometry in the tables, as a node would publish it."""
    geometries: list[GpuModel | Shell] = [*catalog.gpu_models(), *catalog.shells()]
    pools = (
        compile_pool("known", "known", [_card(geometry)], layout=SliceLayout.SPLIT).pool for geometry in geometries
    )
    return frozenset(shape_of(device) for pool in pools for one in pool.slices for device in one.devices)


def _card(geometry: GpuModel | Shell) -> Card:
    if isinstance(geometry, GpuModel):
        return GpuCard(uuid="", index=0, model=geometry, pci_bus_id="", numa_node=0, driver_version="")
    return FpgaCard(uuid="", index=0, shell=geometry, pci_bus_id="", numa_node=0, driver_version="", loaded={})
