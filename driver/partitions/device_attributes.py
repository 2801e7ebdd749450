"""Attributes and capacities of devices, which selectors match: every device has all of them.

Their names and neutral values are those of ``api.model.device_attributes``.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from api.model import device_attributes as v
from api.model.devices import Attribute, Capacity
from api.model.quantity import Quantity
from driver.partitions.geometry import Card, Engines, FpgaCard, GpuCard, Logic, Placement
from driver.partitions.partition_specs import PartitionSpec

_NUMBERS: Final = re.compile(r"\d+")
_SIZES: Final = 256
"""The most sets of capacities kept: more than the profiles of a model or the functions of a shell, so that devices of
one size share theirs."""


def card_attributes(card: Card, node: str) -> dict[str, Attribute]:
    """The attributes that all devices of one card share."""
    if isinstance(card, GpuCard):
        model, product, architecture = card.model.id, card.model.product, card.model.architecture
    else:
        model, product, architecture = card.shell.name, card.shell.name, card.shell.family
    return {
        v.ATTRIBUTE_KIND: Attribute.of(str(card.kind)),
        v.ATTRIBUTE_MODEL: Attribute.of(model),
        v.ATTRIBUTE_PRODUCT: Attribute.of(product),
        v.ATTRIBUTE_ARCHITECTURE: Attribute.of(architecture),
        v.ATTRIBUTE_UUID: Attribute.of(card.uuid),
        v.ATTRIBUTE_INDEX: Attribute.of(card.index),
        v.ATTRIBUTE_NODE: Attribute.of(v.node_attribute(node)),
        v.ATTRIBUTE_DRIVER_VERSION: Attribute(version=_semver(card.driver_version)),
        v.ATTRIBUTE_PCI_BUS_ID: Attribute.of(card.pci_bus_id),
        v.ATTRIBUTE_NUMA_NODE: Attribute.of(card.numa_node),
    }


def partition_attributes(card: Card, spec: PartitionSpec) -> dict[str, Attribute]:
    """The attributes that distinguish the devices of one card."""
    placement = spec.placement or Placement(0, card.units)
    return {
        v.ATTRIBUTE_CUT: Attribute.of("partition" if spec.placement else "whole"),
        v.ATTRIBUTE_PROFILE: Attribute.of(spec.profile.name if spec.profile else ""),
        v.ATTRIBUTE_FUNCTION: Attribute.of(spec.function.name if spec.function else ""),
        v.ATTRIBUTE_SHARED: Attribute.of(False),
        v.ATTRIBUTE_START: Attribute.of(placement.start),
        v.ATTRIBUTE_SIZE: Attribute.of(placement.size),
    }


def capacities(card: Card, spec: PartitionSpec) -> dict[str, Capacity]:
    """Return the device's capacities; a capacity that its kind does not have is 0."""
    placement = spec.placement or Placement(0, card.units)
    if isinstance(card, FpgaCard):
        return _capacities(slots=placement.size, logic=card.shell.logic(placement))
    whole = spec.profile or card.model  # the fields that follow have the same names and meaning in both
    return _capacities(
        memory_bytes=whole.memory_bytes,
        compute_slices=whole.compute_slices,
        memory_slices=placement.size,
        multiprocessors=whole.multiprocessors,
        engines=whole.engines,
    )


def no_capacity() -> dict[str, Capacity]:
    """Return every capacity with the value 0."""
    return _capacities()


@lru_cache(maxsize=_SIZES)
def _capacities(
    *,
    memory_bytes: int = 0,
    compute_slices: int = 0,
    memory_slices: int = 0,
    multiprocessors: int = 0,
    engines: Engines = Engines(),  # noqa: B008  (frozen)
    slots: int = 0,
    logic: Logic = Logic(),  # noqa: B008  (frozen)
) -> dict[str, Capacity]:
    counts: Mapping[str, int] = {
        v.CAPACITY_COMPUTE_SLICES: compute_slices,
        v.CAPACITY_MEMORY_SLICES: memory_slices,
        v.CAPACITY_MULTIPROCESSORS: multiprocessors,
        v.CAPACITY_COPY_ENGINES: engines.copy,
        v.CAPACITY_DECODERS: engines.decoders,
        v.CAPACITY_ENCODERS: engines.encoders,
        v.CAPACITY_JPEG_ENGINES: engines.jpeg,
        v.CAPACITY_OFA_ENGINES: engines.ofa,
        v.CAPACITY_SLOTS: slots,
        v.CAPACITY_LUT: logic.lut,
        v.CAPACITY_FF: logic.ff,
        v.CAPACITY_BRAM: logic.bram,
        v.CAPACITY_DSP: logic.dsp,
    }
    return {
        v.CAPACITY_MEMORY: Capacity(value=Quantity.of_bytes(memory_bytes)),
        **{name: Capacity(value=Quantity(count)) for name, count in counts.items()},
    }


def _semver(version: str) -> str:
    """A driver's version as a semantic version (2.0.0), as attributes need it: three numbers without leading zeros.

    >>> _semver("535.104.05"), _semver("550.54"), _semver("")
    ('535.104.5', '550.54.0', '0.0.0')
    """
    numbers = [str(int(number)) for number in _NUMBERS.findall(version)[:3]]
    return ".".join([*numbers, "0", "0", "0"][:3])
