"""Interned slices: equal content is stored once, however many nodes publish it.

Problem: a cluster of 5,000 equal nodes publishes the same devices 5,000 times, with other UUIDs and bus addresses, and
in other orders, because a node's order follows from what is allocated on it. So devices and counter sets are stored
once, devices without their attribute strings; and slices, as a sequence of such devices with the strings numbered in
the order of their first occurrence (interning, or flyweight). A published slice is a reference to that content, its own
strings, and its pool and node. Attributes, capacities and counters are sorted by name: they have no order in the API,
and so no order of theirs distinguishes devices. An order of devices that no other slice has costs references and one
byte for each string attribute.

Example: the devices ``{uuid: "GPU-1"}`` and ``{uuid: "GPU-2"}`` of two slices have the content ``{uuid: string 0}``,
and the slices the strings ``("GPU-1",)`` and ``("GPU-2",)``.
"""

import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from kerf_dra.api.model.devices import Attribute, CounterSet, Device, ResourceSlice, ResourceSliceSpec
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

_BYTE_VALUES: Final = 2**8
"""The number of values of a byte."""

ValueT = TypeVar("ValueT")

string_slot = lru_cache(maxsize=2**14)(StringSlot)
"""Returns equal slots as one object: slices have some dozen strings, devices a dozen attributes that are strings."""


class InternedDevice:
    """The content of devices that are equal but for attribute strings."""

    def __init__(self, device: Device) -> None:
        self.device = replace(
            device,
            attributes=dict(_sorted_items(device.attributes)),
            capacity=dict(_sorted_items(device.capacity)),
            consumes_counters=tuple(
                replace(use, counters=dict(_sorted_items(use.counters))) for use in device.consumes_counters
            ),
        )
        """One of these devices; its strings must not be read."""
        self.texts = tuple(name for name, attribute in self.device.attributes.items() if attribute.string is not None)
        """The attributes that are strings."""

    @cached_property
    def fault(self) -> str | None:
        """The invalid attribute because of which no selector can be evaluated; None: all are valid."""
        return _fault(self.device.attributes)

    @cached_property
    def has_groups(self) -> bool:
        """Whether the device has compatibility groups (KEP-5963)."""
        return any(use.compatibility_groups for use in self.device.consumes_counters)


class InternedCounterSet:
    """The content of equal counter sets."""

    def __init__(self, counter_set: CounterSet) -> None:
        self.counter_set = replace(counter_set, counters=dict(_sorted_items(counter_set.counters)))


class InternedSlice:
    """The content of slices that are equal but for attribute strings, pool and node name."""

    def __init__(
        self,
        spec: ResourceSliceSpec,
        devices: tuple[InternedDevice, ...],
        numbers: Sequence[int],
        counter_sets: tuple[InternedCounterSet, ...],
    ) -> None:
        self._devices = devices
        self._numbers = numbers
        """The numbers of the attribute strings of all devices, one device after the other."""
        self._counter_sets = counter_sets
        self.spec = replace(
            spec,
            devices=tuple([each.device for each in devices]),
            shared_counters=tuple([each.counter_set for each in counter_sets]),
        )
        """The spec of one of these slices; its strings, pool and node name must not be read."""

    def slots(self, first: int = 0) -> Iterator[StringSlots]:
        """Yield the string attributes of each device, where the first string of the slice has the number ``first``."""
        for _, numbered in self._numbered_devices():
            yield tuple([string_slot(name, first + number) for name, number in numbered])

    def restore_devices(self, strings: Strings) -> Iterator[Device]:
        """Yield the devices with their own strings."""
        attributes = [Attribute(string=string) for string in strings]
        for device, numbered in self._numbered_devices():
            own = {name: attributes[number] for name, number in numbered}
            yield replace(device, attributes=device.attributes | own)

    def _numbered_devices(self) -> Iterator[tuple[Device, Iterator[tuple[str, int]]]]:
        """Yield each device with its string attributes and their numbers, which must be read before the next device."""
        numbers = iter(self._numbers)
        for each in self._devices:
            yield each.device, zip(each.texts, numbers, strict=False)  # takes as many numbers as there are names

    @cached_property
    def faults(self) -> tuple[str | None, ...]:
        """For each device the invalid attribute because of which no selector can be evaluated; None: all are valid."""
        return tuple(each.fault for each in self._devices)

    @cached_property
    def needs_partitions(self) -> bool:
        """Whether the slice can only be read with the feature for partitionable devices (KEP-4815)."""
        return self.spec.per_device_node_selection is not None or bool(self.spec.shared_counters)

    @cached_property
    def has_groups(self) -> bool:
        """Whether some device has compatibility groups (KEP-5963)."""
        return any(each.has_groups for each in self._devices)


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
    """The tables of the interned devices and slices that are in use."""

    def __init__(self) -> None:
        self._devices: WeakValueDictionary[Hashable, InternedDevice] = WeakValueDictionary()
        self._counter_sets: WeakValueDictionary[Hashable, InternedCounterSet] = WeakValueDictionary()
        self._known: WeakValueDictionary[Hashable, InternedSlice] = WeakValueDictionary()

    def intern(self, slice_: ResourceSlice) -> PublishedSlice:
        """Return ``slice_`` in interned form."""
        spec = slice_.spec
        devices = tuple([self._device(device) for device in spec.devices])
        counter_sets = tuple([self._counter_set(each) for each in spec.shared_counters])
        strings: dict[str, int] = {}
        numbers = _pack_numbers(
            [
                strings.setdefault(_string(device, name), len(strings))
                for device, interned in zip(spec.devices, devices, strict=True)
                for name in interned.texts
            ]
        )
        key = (
            spec.driver,
            spec.node_selector,
            spec.all_nodes,
            spec.per_device_node_selection,
            spec.skip_node_operations,
            spec.partition_type_attribute,
            devices,
            numbers,
            counter_sets,
        )
        interned = self._known.get(key)
        if interned is None:
            interned = self._known[key] = InternedSlice(spec, devices, numbers, counter_sets)
        return PublishedSlice(
            name=slice_.metadata.name,
            generation=spec.pool.generation,
            slice_count=spec.pool.resource_slice_count,
            node_name=spec.node_name,
            interned=interned,
            strings=tuple(map(sys.intern, strings)),
        )

    def _device(self, device: Device) -> InternedDevice:
        key = _device_key(device)
        interned = self._devices.get(key)
        if interned is None:
            interned = self._devices[key] = InternedDevice(device)
        return interned

    def _counter_set(self, counter_set: CounterSet) -> InternedCounterSet:
        key = counter_set.name, tuple(_sorted_items(counter_set.counters))
        interned = self._counter_sets.get(key)
        if interned is None:
            interned = self._counter_sets[key] = InternedCounterSet(counter_set)
        return interned


def _device_key(device: Device) -> Hashable:
    """The content of a device, without its strings, in hashable form."""
    return (
        device.name,
        tuple(
            [
                (name, attribute if attribute.string is None else None)
                for name, attribute in _sorted_items(device.attributes)
            ]
        ),
        tuple(_sorted_items(device.capacity)),
        tuple(
            [
                (use.counter_set, use.compatibility_groups, *_sorted_items(use.counters))
                for use in device.consumes_counters
            ]
        ),
        device.node_name,
        device.node_selector,
        device.all_nodes,
        device.taints,
        device.binds_to_node,
        device.binding_conditions,
        device.binding_failure_conditions,
        device.allow_multiple_allocations,
    )


def _sorted_items(members: Mapping[str, ValueT]) -> list[tuple[str, ValueT]]:
    return sorted(members.items(), key=itemgetter(0))


def _pack_numbers(numbers: Sequence[int]) -> Sequence[int]:
    """Return ``numbers`` in hashable form: a byte for each if that suffices, as for the strings of any usual slice."""
    return bytes(numbers) if max(numbers, default=0) < _BYTE_VALUES else tuple(numbers)


def _string(device: Device, name: str) -> str:
    string = device.attributes[name].string
    assert string is not None, "equal content has the same string attributes"
    return string


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
