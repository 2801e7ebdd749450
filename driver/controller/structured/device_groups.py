"""The groups of published devices: what the controller keeps of slices, and what classes are counted on.

Problem: the slices of a node with eight GPUs take a megabyte when they are decoded, and a large cluster has thousands
of such nodes. But it has some dozen kinds of devices only, and devices of one kind on one node are interchangeable for
every class. So a slice is kept as groups of such devices (``GroupedSlice``), and one device represents its kind, on all
nodes: its type, its allocation mode, and what cards of one model differ in, which is the driver's version and what they
can do. Equal kinds are one object (interning); a kind that no slice has any more is forgotten.

Example: the 208 devices of a node with eight H100 are some twenty groups of eight kinds.
"""

import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final
from weakref import WeakValueDictionary

from msgspec.structs import replace

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DriverName, ObjectRef
from kerf_dra.driver.controller.device_types import DeviceType, device_type_of
from kerf_dra.driver.controller.fpga_status import reduce_devices
from kerf_dra.driver.families.base import Family

_ABSENT: Final = Attribute()
_TEXTS: Final = (v.ATTRIBUTE_CUT, v.ATTRIBUTE_MODEL, v.ATTRIBUTE_PROFILE, v.ATTRIBUTE_FUNCTION)
"""The attributes of a device type (``device_types``)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class DeviceKind:
    """What classes can distinguish about devices, except the node. Equal kinds of one index are one object."""

    driver: str
    device_type: DeviceType
    driver_version: str
    """The version of the kernel driver; empty: the family has no such attribute."""
    device: Device
    """A device of the kind, on whichever node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """The devices of one slice that are of one kind and on one node."""

    kind: DeviceKind
    node: str
    total: int
    """The number of devices."""
    cards: frozenset[str]
    """The UUIDs of the devices' cards."""

    @property
    def driver(self) -> str:
        return self.kind.driver

    @property
    def device(self) -> Device:
        """A device like those of the group, as a class sees it: one of its kind, on its node."""
        device = self.kind.device
        if v.ATTRIBUTE_NODE not in device.attributes:
            return device
        return replace(device, attributes={**device.attributes, v.ATTRIBUTE_NODE: Attribute.of(self.node)})


class GroupedSlice(ResourceSlice):
    """A slice as the controller keeps it: its spec has no counters, and of its devices what ``fpga_status`` reads; its
    metadata has the identity, the owners, and whether it is being deleted.
    """

    groups: frozenset[DeviceGroup]


class SliceChange(Enum):
    """The effect of a slice's change on classes."""

    NONE = auto()
    COUNTS = auto()
    """Some classes match more devices, or fewer."""
    DEVICE_KINDS = auto()
    """The slice has devices of a new kind: a class that matched nothing may match now."""


@dataclass(frozen=True, slots=True)
class _SliceGroups:
    pool: tuple[str, str]
    """The driver and the name of the pool."""
    generation: int
    groups: frozenset[DeviceGroup]


@dataclass(slots=True)
class _Members:
    """The devices of a group that have been found so far."""

    total: int = 0
    cards: set[str] = field(default_factory=set)


class DeviceGroupIndex:
    """The groups of all published slices. Only slices of their pool's newest generation count (KEP-4381)."""

    def __init__(self, families: Iterable[Family]) -> None:
        """Devices of other drivers than those of ``families`` are left out."""
        self._families = {family.driver: family for family in families}
        self._booleans = {family.driver: _boolean_attributes(family) for family in self._families.values()}
        self._slices: dict[ObjectRef, _SliceGroups] = {}
        self._known: WeakValueDictionary[Hashable, DeviceKind] = WeakValueDictionary()
        self._kinds: Counter[DeviceKind] = Counter()
        """The number of groups of each kind."""

    def project(self, slice_: ResourceSlice) -> GroupedSlice:
        """Return what is kept of a slice."""
        metadata, spec = slice_.metadata, slice_.spec
        family = self._families.get(DriverName(spec.driver))
        return GroupedSlice(
            metadata=ObjectMeta(
                name=metadata.name,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
                deletion_timestamp=metadata.deletion_timestamp,
                owner_references=metadata.owner_references,
            ),
            spec=ResourceSliceSpec(
                driver=sys.intern(spec.driver),
                pool=ResourcePool(
                    name=sys.intern(spec.pool.name),
                    generation=spec.pool.generation,
                    resource_slice_count=spec.pool.resource_slice_count,
                ),
                node_name=None if spec.node_name is None else sys.intern(spec.node_name),
                devices=reduce_devices(spec.devices),
            ),
            groups=frozenset() if family is None else frozenset(self._group(spec, family)),
        )

    def update(self, ref: ObjectRef, slice_: ResourceSlice | None) -> SliceChange:
        """Record the present state of a slice, as it is published or as it is kept; None: it is deleted."""
        before, after = self._slices.pop(ref, None), None
        if slice_ is not None and DriverName(slice_.spec.driver) in self._families:
            kept = slice_ if isinstance(slice_, GroupedSlice) else self.project(slice_)
            pool = kept.spec.pool
            after = self._slices[ref] = _SliceGroups((kept.spec.driver, pool.name), pool.generation, kept.groups)
        if before == after:
            return SliceChange.NONE
        added, removed = _kinds(after), _kinds(before)
        is_new = not added.keys() <= self._kinds.keys()
        self._kinds = self._kinds + added - removed
        return SliceChange.DEVICE_KINDS if is_new else SliceChange.COUNTS

    def groups(self) -> Iterator[DeviceGroup]:
        """Yield the groups of the newest generation of each pool."""
        newest: dict[tuple[str, str], int] = {}
        for one in self._slices.values():
            newest[one.pool] = max(one.generation, newest.get(one.pool, one.generation))
        for one in self._slices.values():
            if one.generation == newest[one.pool]:
                yield from one.groups

    def device_types(self) -> frozenset[DeviceType]:
        return frozenset(kind.device_type for kind in self._kinds)

    def _group(self, spec: ResourceSliceSpec, family: Family) -> Iterator[DeviceGroup]:
        grouped: dict[tuple[DeviceKind, str], _Members] = {}
        for device in spec.devices:
            node = _text(device, v.ATTRIBUTE_NODE) or spec.node_name or ""
            members = grouped.setdefault((self._kind(device, family), node), _Members())
            members.total += 1
            members.cards.add(sys.intern(_text(device, v.ATTRIBUTE_UUID) or device.name))
        equal: dict[frozenset[str], frozenset[str]] = {}
        for (kind, node), members in grouped.items():
            cards = frozenset(members.cards)
            yield DeviceGroup(
                kind=kind, node=sys.intern(node), total=members.total, cards=equal.setdefault(cards, cards)
            )

    def _kind(self, device: Device, family: Family) -> DeviceKind:
        attributes, capacity = device.attributes, device.capacity
        version = attributes.get(v.ATTRIBUTE_DRIVER_VERSION, _ABSENT).version
        key = (
            family.driver,
            device.allow_multiple_allocations,
            version,
            v.ATTRIBUTE_NODE in attributes,
            *[attributes[name].string if name in attributes else None for name in _TEXTS],
            *[attributes[name].value if name in attributes else None for name in self._booleans[family.driver]],
            *[capacity[name].value.nano if name in capacity else None for name in family.minimums],
            *[name in capacity and bool(capacity[name].value) for name in family.divided],
        )
        kind = self._known.get(key)
        if kind is None:
            kind = self._known[key] = DeviceKind(
                driver=family.driver,
                device_type=device_type_of(device, family),
                driver_version=version or "",
                device=device,
            )
        return kind


def _boolean_attributes(family: Family) -> tuple[str, ...]:
    return tuple(name for name, definition in family.attributes.items() if isinstance(definition.neutral.value, bool))


def _kinds(slice_groups: _SliceGroups | None) -> Counter[DeviceKind]:
    return Counter(group.kind for group in (slice_groups.groups if slice_groups else ()))


def _text(device: Device, name: str) -> str:
    return device.attributes.get(name, _ABSENT).string or ""
