"""Shared devices: partitions that several claims hold at once, each with a part of them (KEP-5075).

A partition that may be shared is published twice, as an exclusive and as a shared device. Both consume the same
counters, so that one excludes the other (docs/shared-partitions.md).
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute, Capacity, CapacityRange, CapacityRequestPolicy, Device
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.partitions.device_names import shared_name
from kerf_dra.driver.partitions.geometry import NOTHING, Card, Partition
from kerf_dra.driver.partitions.unit_map import get_unit_map

ShareableProfiles: TypeAlias = frozenset[str | None]
"""The profiles or functions whose partitions may be shared; None among them stands for whole cards."""

STEP_BYTES: Final = 64 * 2**20
"""The unit of shares: it divides the memory of every MIG profile, so that shares can use all of it."""
DEFAULT_BYTES: Final = 2**30
"""The share of a claim that names no amount: small beside the smallest profile (4.75 GiB), enough for a context."""

_BYTES_POLICY: Final = CapacityRequestPolicy(
    default=Quantity.of_bytes(DEFAULT_BYTES),
    valid_range=CapacityRange(min=Quantity.of_bytes(STEP_BYTES), step=Quantity.of_bytes(STEP_BYTES)),
)
_DIVIDED_POLICIES: Final = {
    # A claim that names no amount gets a compute unit: a claim for less names the amount.
    v.CAPACITY_COMPUTE_UNIT_PERCENT: CapacityRequestPolicy(
        default=Quantity(100), valid_range=CapacityRange(min=Quantity(1), step=Quantity(1))
    ),
    # Ten claims that name no amount share a card without memory: as few as a person would let share a display's GPU.
    v.CAPACITY_MILLICORES: CapacityRequestPolicy(
        default=Quantity(100), valid_range=CapacityRange(min=Quantity(1), step=Quantity(1))
    ),
}
"""The policies of divided capacities that are not bytes."""
_COUNTED_POLICIES: Final = {
    # A share that names no percentage, or no millicores, is not limited, and takes nothing from those that are.
    v.CAPACITY_COMPUTE_PERCENT: CapacityRequestPolicy(
        default=Quantity(0), valid_range=CapacityRange(min=Quantity(0), step=Quantity(1))
    ),
    v.CAPACITY_MILLICORES: CapacityRequestPolicy(
        default=Quantity(0), valid_range=CapacityRange(min=Quantity(0), step=Quantity(1))
    ),
    v.CAPACITY_CLIENTS: CapacityRequestPolicy(
        default=Quantity(1), valid_range=CapacityRange(min=Quantity(1), step=Quantity(1))
    ),
}
"""The policies of capacities that are counted in whole numbers."""
_UNDIVIDED_POLICY: Final = CapacityRequestPolicy(default=Quantity(0))
"""The policy of all other capacities: without it a claim takes the whole capacity unless it names an amount
(KEP-5075), and the device would have room for one share only."""


def build_shared_device(device: Device, divided: str) -> Device:
    """Build the shared device of the exclusive ``device``, whose shares divide the capacity ``divided``."""
    capacity = {
        name: Capacity(
            value=held.value,
            request_policy=_find_policy(name, divided),
        )
        for name, held in device.capacity.items()
    }
    return msgspec.structs.replace(
        device,
        name=shared_name(device.name),
        attributes={**device.attributes, v.ATTRIBUTE_SHARED: Attribute.of(True)},
        capacity=capacity,
        allow_multiple_allocations=True,
    )


def find_least_share(capacity: str, divided: str) -> Quantity:
    """Return the least amount of ``capacity`` that a share of a device has, whose shares divide ``divided``."""
    valid_range = _find_policy(capacity, divided).valid_range
    return NOTHING if valid_range is None or valid_range.min is None else valid_range.min


def _find_policy(capacity: str, divided: str) -> CapacityRequestPolicy:
    if capacity == divided:
        return _DIVIDED_POLICIES.get(capacity, _BYTES_POLICY)
    return _COUNTED_POLICIES.get(capacity, _UNDIVIDED_POLICY)


def order_shared_partitions(
    cards: Iterable[Card], partitions: Iterable[Partition], shareable: ShareableProfiles, taken: Collection[Partition]
) -> tuple[Partition, ...]:
    """Return the shareable ones of ``partitions`` as shared partitions, those in use first, so that they are filled.

    ``partitions`` are those of ``cards``, in publish order. A partition that is shared now is included regardless of
    ``shareable``: the counters of a device that is no longer published would count as free. Partitions that have
    nothing to divide have no shares.
    """
    held = {replace(partition, shared=False) for partition in taken if partition.shared}
    if not held and not shareable:
        return ()
    unit_maps = {card.uuid: get_unit_map(card) for card in cards if card.geometry.shareable}
    chosen = [
        partition
        for partition in partitions
        if ((partition.profile or partition.function) in shareable or partition in held)
        and (unit_map := unit_maps.get(partition.card_uuid)) is not None
        and unit_map.is_divisible(partition)
    ]
    in_use_first = sorted(chosen, key=lambda partition: partition not in held)
    return tuple(replace(partition, shared=True) for partition in in_use_first)
