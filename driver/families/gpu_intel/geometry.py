"""The geometry of an Intel GPU: each tile, where there are several, and the whole card."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.families.gpu_intel.catalog import IntelGpu
from kerf_dra.driver.partitions.geometry import (
    Geometry,
    PartitionSpec,
    Placement,
    order_specs,
    select_present,
    unit_mask,
)

KIND: Final = "gpu-intel"
"""The name of the family."""
TILE: Final = "1t"
"""The profile of one tile."""
_MILLICORES: Final = 1000
"""Millicores of a whole card, as Intel's resource manager counts (gpu.intel.com/millicores)."""
_MODELS: Final = 256
"""The most geometries kept: more than there are models in any cluster, including variants of a model."""


@lru_cache(maxsize=_MODELS)
def intel_geometry(gpu: IntelGpu) -> Geometry:
    """Return the geometry of ``gpu``: the same object as long as it is in use.

    Shares divide its memory. Graphics in a processor have none of their own, and not every driver states a card's:
    then shares divide its time, in millicores.
    """
    return Geometry(
        kind=KIND,
        model=gpu.id,
        unit="tile",
        units=gpu.tiles,
        specs=order_specs(_specs(gpu)),
        attributes=(("productName", Attribute.of(gpu.product)), ("series", Attribute.of(gpu.series))),
        shareable=v.CAPACITY_MEMORY if gpu.memory_bytes else v.CAPACITY_MILLICORES,
    )


def _specs(gpu: IntelGpu) -> Iterator[PartitionSpec]:
    if gpu.tiles > 1:
        for tile in range(gpu.tiles):
            yield _spec(gpu, TILE, Placement(tile, 1))
    yield _spec(gpu, None, Placement(0, gpu.tiles))


def _spec(gpu: IntelGpu, profile: str | None, tiles: Placement) -> PartitionSpec:
    memory = gpu.memory_bytes * tiles.size // gpu.tiles
    return PartitionSpec(
        kind=KIND,
        profile=profile,
        placement=None if profile is None else tiles,
        mask=unit_mask(tiles),
        size=(memory, tiles.size),
        weight=tiles.size,
        capacity=select_present(
            (v.CAPACITY_MEMORY, Quantity.of_bytes(memory)),
            (v.CAPACITY_MILLICORES, Quantity(_MILLICORES * tiles.size // gpu.tiles)),
            ("tiles", Quantity(tiles.size)),
        ),
    )
