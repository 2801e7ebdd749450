"""Which partitions of one card may coexist, by NVIDIA's rules alone, without Kerf's units, bitsets or counters.

Two GPU instances may coexist when their memory slices are disjoint. Of a profile there may be as many as NVIDIA states.
Media engines (decoders, encoders, JPEG, optical flow) are not shared, so together the instances have no more of them
than the card. The whole card excludes all partitions. An FPGA has one layout at a time, in which functions may run
whose slots are disjoint.
"""

from collections.abc import Collection
from functools import cache
from typing import Final

from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.families.gpu.model import GpuModel, Profile
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement

_MEDIA: Final = ("decoders", "encoders", "jpeg", "ofa")


def may_coexist(card: Card, partitions: Collection[Partition]) -> bool:
    if any(partition.placement is None for partition in partitions):
        return len(partitions) == 1
    slices = [unit for partition in partitions for unit in _slices(partition.placement)]
    if len(slices) != len(set(slices)):
        return False
    if card.kind != "gpu":
        return len({partition.placement.layout for partition in partitions if partition.placement}) <= 1
    model = gpu_model(card.geometry.model)
    return _engines_suffice(model, [_profile(model, partition) for partition in partitions])


def _engines_suffice(model: GpuModel, profiles: list[Profile]) -> bool:
    counts_hold = all(profiles.count(profile) <= profile.max_instances for profile in profiles)
    media_hold = all(
        sum(getattr(profile.engines, engine) for profile in profiles) <= getattr(model.engines, engine)
        for engine in _MEDIA
    )
    return counts_hold and media_hold


@cache
def _slices(placement: Placement | None) -> tuple[int, ...]:
    return tuple(placement.units) if placement else ()


def _profile(model: GpuModel, partition: Partition) -> Profile:
    return next(profile for profile in model.profiles if profile.name == partition.profile)
