"""Slices as the inventory keeps them: every content once, however many nodes publish it.

The slices of equal nodes differ in texts only: UUIDs, bus addresses. A *shape* is the content of a slice with its texts
numbered in the order in which they first occur; a slice is then a shape, its own texts, and whose slice it is. What is
worked out of a shape is worked out for all nodes that have it.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from sys import intern
from typing import NamedTuple
from weakref import WeakValueDictionary

from msgspec.structs import replace

from api.model.devices import Attribute, CounterSet, Device, ResourceSlice, ResourceSliceSpec
from api.model.semver import parse_version

Texts = tuple[str, ...]


class Slot(NamedTuple):
    """An attribute whose text is left out of a shape."""

    attribute: str
    text: int
    """Which of the slice's texts it is."""


Slots = tuple[Slot, ...]


class Shape:
    """What slices publish that are equal but for their texts."""

    def __init__(self, spec: ResourceSliceSpec, slots: tuple[Slots, ...]) -> None:
        self.spec = spec
        """Of the first such slice. Its pool, node and texts are that slice's own."""
        self.slots = slots
        """Of each device."""

    @cached_property
    def faults(self) -> tuple[str | None, ...]:
        """Of each device: why an attribute is no value, so that no selector can be evaluated."""
        return tuple(_fault(device.attributes) for device in self.spec.devices)

    @cached_property
    def needs_partitions(self) -> bool:
        return self.spec.per_device_node_selection is not None or bool(self.spec.shared_counters)

    @cached_property
    def has_groups(self) -> bool:
        """Whether some device has compatibility groups."""
        return any(use.compatibility_groups for device in self.spec.devices for use in device.consumes_counters)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSlice:
    """One slice of a pool."""

    name: str
    generation: int
    slice_count: int
    """How many slices its pool has."""
    node_name: str | None
    shape: Shape
    texts: Texts


class Shapes:
    """The shapes that are in use."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, Shape] = WeakValueDictionary()

    def publish(self, slice_: ResourceSlice) -> PublishedSlice:
        """``slice_`` as the inventory keeps it."""
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
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = Shape(spec, tuple(_slots(device, numbers) for device in spec.devices))
        return PublishedSlice(
            name=slice_.metadata.name,
            generation=spec.pool.generation,
            slice_count=spec.pool.resource_slice_count,
            node_name=spec.node_name,
            shape=shape,
            texts=tuple(map(intern, numbers)),
        )


def _device_key(device: Device, numbers: dict[str, int]) -> Hashable:
    """What a device's place in a shape depends on; ``numbers`` gets its texts."""
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


def _slots(device: Device, numbers: Mapping[str, int]) -> Slots:
    return tuple(
        Slot(name, numbers[attribute.string])
        for name, attribute in device.attributes.items()
        if attribute.string is not None
    )


def with_texts(device: Device, slots: Slots, texts: Texts) -> Device:
    """The device of a shape with the ``texts`` of one slice, or of one pool."""
    attributes = {slot.attribute: Attribute(string=texts[slot.text]) for slot in slots}
    return replace(device, attributes=device.attributes | attributes)


def duplicate(what: str, names: Iterable[str]) -> str:
    """The first name that occurs twice, in words; empty: none does."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"{what} {name} is published twice"
        seen.add(name)
    return ""


def counter_fault(sets: Sequence[CounterSet], devices: Iterable[Device]) -> str:
    """The first negative counter, or one that a device takes from but nobody publishes, in words; empty: none."""
    for set_ in sets:
        for name, counter in set_.counters.items():
            if counter.value.nano < 0:
                return f"counter {name} of {set_.name} is negative: {counter.value}"
    known = {set_.name: set_.counters for set_ in sets}
    for device in devices:
        for use in device.consumes_counters:
            if use.counter_set not in known:
                return f"device {device.name} takes from the counter set {use.counter_set}, which does not exist"
            missing = use.counters.keys() - known[use.counter_set].keys()
            if missing:
                return f"device {device.name} takes from {use.counter_set}/{min(missing)}, which does not exist"
            for name, counter in use.counters.items():
                if counter.value.nano < 0:
                    return f"device {device.name} takes a negative amount of {use.counter_set}/{name}: {counter.value}"
    return ""


def _fault(attributes: Mapping[str, Attribute]) -> str | None:
    for name, attribute in attributes.items():
        if attribute.value is None:
            return f"attribute {name}: unsupported attribute value"
        versions = (attribute.version,) if attribute.version is not None else attribute.versions or ()
        for version in versions:
            if parse_version(version) is None:
                return f"attribute {name}: {version!r} is no semantic version"
    return None
