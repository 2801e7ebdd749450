"""Interned slices: equal content is stored once, however many nodes publish it.

Problem: a cluster of 5,000 equal nodes publishes the same devices 5,000 times, with other UUIDs and bus addresses. The
content, with its attribute strings numbered in the order of their first occurrence, is stored once (interning, or
flyweight); a published slice is a reference to that content, its own strings, and its pool and node.

Example: the devices ``{uuid: "GPU-1"}`` and ``{uuid: "GPU-2"}`` of two slices have the content ``{uuid: string 0}``,
and the slices the strings ``("GPU-1",)`` and ``("GPU-2",)``.
"""

import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from weakref import WeakValueDictionary

from msgspec.structs import replace

from kerf_dra.api.model.devices import Attribute, Device, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.semver import parse_version

Strings = tuple[str, ...]
"""The attribute strings of a slice or pool, by their numbers."""


class StringSlot(NamedTuple):
    """An attribute whose string is not part of the interned content."""

    attribute: str
    string: int
    """The number of the attribute's string."""


StringSlots = tuple[StringSlot, ...]
"""The string attributes of one device."""


class InternedSlice:
    """The content of slices that are equal but for attribute strings, pool and node name."""

    def __init__(self, spec: ResourceSliceSpec, slots: tuple[StringSlots, ...]) -> None:
        self.spec = spec
        """The spec of one of these slices; its strings, pool and node name must not be read."""
        self.slots = slots
        """The string attributes of each device."""

    @cached_property
    def faults(self) -> tuple[str | None, ...]:
        """For each device the invalid attribute because of which no selector can be evaluated; None: all are valid."""
        return tuple(_fault(device.attributes) for device in self.spec.devices)

    @cached_property
    def needs_partitions(self) -> bool:
        """Whether the slice can only be read with the feature for partitionable devices (KEP-4815)."""
        return self.spec.per_device_node_selection is not None or bool(self.spec.shared_counters)

    @cached_property
    def has_groups(self) -> bool:
        """Whether some device has compatibility groups (KEP-5963)."""
        return any(use.compatibility_groups for device in self.spec.devices for use in device.consumes_counters)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSlice:
    """One slice of a pool, in interned form."""

    name: str
    generation: int
    slice_count: int
    """The number of slices of the pool, as the slice states it (``resourceSliceCount``)."""
    node_name: str | None
    interned: InternedSlice
    strings: Strings


class SliceInterner:
    """The table of the interned slices that are in use."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, InternedSlice] = WeakValueDictionary()

    def intern(self, slice_: ResourceSlice) -> PublishedSlice:
        """Return ``slice_`` in interned form."""
        spec = slice_.spec
        numbers: dict[str, int] = {}
        key = (
            spec.driver,
            spec.node_selector,
            spec.all_nodes,
            spec.per_device_node_selection,
            spec.skip_node_operations,
            tuple([_device_key(device, numbers) for device in spec.devices]),
            tuple([(set_.name, *set_.counters.items()) for set_ in spec.shared_counters]),
        )
        interned = self._known.get(key)
        if interned is None:
            interned = self._known[key] = InternedSlice(spec, tuple(_slots(device, numbers) for device in spec.devices))
        return PublishedSlice(
            name=slice_.metadata.name,
            generation=spec.pool.generation,
            slice_count=spec.pool.resource_slice_count,
            node_name=spec.node_name,
            interned=interned,
            strings=tuple(map(sys.intern, numbers)),
        )


def _device_key(device: Device, numbers: dict[str, int]) -> Hashable:
    """The content of a device in hashable form; its strings are added to ``numbers``."""
    return (
        device.name,
        tuple(
            [
                (name, attribute if (text := attribute.string) is None else numbers.setdefault(text, len(numbers)))
                for name, attribute in device.attributes.items()
            ]
        ),
        tuple(device.capacity.items()),
        tuple([(use.counter_set, use.compatibility_groups, *use.counters.items()) for use in device.consumes_counters]),
        device.node_name,
        device.node_selector,
        device.all_nodes,
        device.taints,
        device.binds_to_node,
        device.binding_conditions,
        device.binding_failure_conditions,
        device.allow_multiple_allocations,
    )


def _slots(device: Device, numbers: Mapping[str, int]) -> StringSlots:
    return tuple(
        StringSlot(name, numbers[attribute.string])
        for name, attribute in device.attributes.items()
        if attribute.string is not None
    )


def with_strings(device: Device, slots: StringSlots, strings: Strings) -> Device:
    """Return an interned ``device`` with its own strings: ``slots`` say where each of ``strings`` belongs."""
    attributes = {slot.attribute: Attribute(string=strings[slot.string]) for slot in slots}
    return replace(device, attributes=device.attributes | attributes)


def _fault(attributes: Mapping[str, Attribute]) -> str | None:
    for name, attribute in attributes.items():
        if attribute.value is None:
            return f"attribute {name}: unsupported attribute value"
        versions = (attribute.version,) if attribute.version is not None else attribute.versions or ()
        for version in versions:
            if parse_version(version) is None:
                return f"attribute {name}: {version!r} is not a semantic version"
    return None
