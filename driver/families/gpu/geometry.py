"""The geometry of a GPU model: each MIG profile at each placement, and the whole GPU."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.model.semver import coerce_version
from kerf_dra.driver.families.gpu.model import Engines, GpuModel, Profile
from kerf_dra.driver.partitions.geometry import (
    Amounts,
    Geometry,
    PartitionSpec,
    Placement,
    order_specs,
    select_present,
    unit_mask,
)

KIND: Final = "gpu"
"""The name of the family."""
_MPS_CLIENTS: Final = 48
"""The clients of MPS on one device, from Volta on (NVIDIA MPS, "Volta MPS"; a process is one for each device)."""
_MODELS: Final = 256
"""The most geometries kept: more than there are models in any cluster, including variants of a model."""


@lru_cache(maxsize=_MODELS)
def gpu_geometry(model: GpuModel) -> Geometry:
    """Return the geometry of ``model``: the same object as long as it is in use."""
    return Geometry(
        kind=KIND,
        model=model.id,
        unit="memory-slice",
        units=model.memory_slices,
        engines=tuple((name, getattr(model.engines, name)) for name in model.exclusive_engines),
        specs=order_specs(_specs(model)),
        attributes=(
            ("productName", Attribute.of(model.product)),
            ("architecture", Attribute.of(model.architecture)),
            ("cudaComputeCapability", Attribute(version=coerce_version(model.cuda_compute_capability))),
        ),
        shareable="memory",
    )


def _specs(model: GpuModel) -> Iterator[PartitionSpec]:
    for profile in model.profiles:
        engines = _exclusive_engines(model, profile.engines)
        for placement in profile.placements:
            yield PartitionSpec(
                kind=KIND,
                profile=profile.name,
                placement=placement,
                mask=unit_mask(placement),
                engines=engines,
                size=_size(model, profile, placement.size, engines),
                weight=profile.compute_slices,
                capacity=_capacity(profile),
                quota=_quota(profile),
            )
    yield PartitionSpec(
        kind=KIND,
        mask=unit_mask(Placement(0, model.memory_slices)),
        engines=_exclusive_engines(model, model.engines),
        size=(model.memory_bytes, model.compute_slices),
        weight=model.compute_slices,
        capacity=_capacity(model),
        quota=_quota(model),
    )


def _size(model: GpuModel, profile: Profile, units: int, engines: tuple[int, ...]) -> tuple[int, ...]:
    """The memory that a partition covers, then its compute slices, then the exclusive engines that it takes.

    The covered memory counts, not the profile's own: 2g and 1g with double memory cover the same and report nearly the
    same, and a request for memory alone should not cost a compute slice. The profile's position in the table
    distinguishes variants.
    """
    covered = model.memory_bytes * units // model.memory_slices
    return (covered, profile.compute_slices, sum(engines), model.profiles.index(profile))


def _exclusive_engines(model: GpuModel, engines: Engines) -> tuple[int, ...]:
    """The counts of ``engines`` that partitions of ``model`` compete for, in the model's order."""
    return tuple(getattr(engines, name) for name in model.exclusive_engines)


def _capacity(part: Profile | GpuModel) -> Amounts:
    engines = part.engines
    return select_present(
        ("memory", Quantity.of_bytes(part.memory_bytes)),
        ("computeSlices", Quantity(part.compute_slices)),
        ("multiprocessors", Quantity(part.multiprocessors)),
        ("decoders", Quantity(engines.decoders)),
        ("encoders", Quantity(engines.encoders)),
        (v.CAPACITY_COMPUTE_PERCENT, Quantity(100)),
        (v.CAPACITY_CLIENTS, Quantity(_MPS_CLIENTS)),
    )


def _quota(part: Profile | GpuModel) -> Amounts:
    return select_present(
        ("memory", Quantity.of_bytes(part.memory_bytes)),
        ("multiprocessors", Quantity(part.multiprocessors)),
    )
