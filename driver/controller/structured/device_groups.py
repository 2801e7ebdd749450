"""The groups of published devices: what the controller keeps of slices, and what classes are counted on.

A large cluster has millions of devices and some dozen kinds. Devices of one kind on one node are interchangeable for
every class, so slices are kept as groups of such devices, and one device represents its kind: its type, its allocation
mode, and what cards of one model differ in, which is the driver's version and what they can do.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute, Device, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.names import DriverName, ObjectRef
from kerf_dra.driver.controller.device_types import DeviceType, device_type_of
from kerf_dra.driver.families.base import Family

_ABSENT: Final = Attribute()


class DeviceKind(NamedTuple):
    """What classes can distinguish about devices, except the node."""

    device_type: DeviceType
    shared: bool
    """Whether several claims may share a device (KEP-5075)."""
    driver_version: str
    """The version of the kernel driver; empty: the family has no such attribute."""
    abilities: tuple[str, ...]
    """The family's boolean attributes that are true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """The devices of one slice that are of one kind and on one node."""

    driver: str
    kind: DeviceKind
    node: str
    total: int
    """The number of devices."""
    cards: frozenset[str]
    """The UUIDs of the devices' cards."""
    device: Device = field(compare=False)
    """Any device of the group, not compared: a republished order is no change."""


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


class DeviceGroupIndex:
    """The groups of all published slices. Only slices of their pool's newest generation count (KEP-4381)."""

    def __init__(self, families: Iterable[Family]) -> None:
        """Slices of other drivers than those of ``families`` are left out."""
        self._families = {family.driver: family for family in families}
        self._booleans = {family.driver: _boolean_attributes(family) for family in self._families.values()}
        self._slices: dict[ObjectRef, _SliceGroups] = {}
        self._kinds: Counter[DeviceKind] = Counter()
        """The number of groups of each kind."""

    def update(self, ref: ObjectRef, slice_: ResourceSlice | None) -> SliceChange:
        """Record the present state of a slice; None: it is deleted."""
        before = self._slices.pop(ref, None)
        family = None if slice_ is None else self._families.get(DriverName(slice_.spec.driver))
        after = None
        if slice_ is not None and family is not None:
            after = _slice_groups(slice_.spec, family, self._booleans[family.driver])
        if after is not None:
            self._slices[ref] = after
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


def _boolean_attributes(family: Family) -> tuple[str, ...]:
    return tuple(name for name, definition in family.attributes.items() if isinstance(definition.neutral.value, bool))


def _kinds(slice_groups: _SliceGroups | None) -> Counter[DeviceKind]:
    return Counter(group.kind for group in (slice_groups.groups if slice_groups else ()))


def _slice_groups(spec: ResourceSliceSpec, family: Family, booleans: Sequence[str]) -> _SliceGroups:
    groups = frozenset(_groups(spec, family, booleans))
    return _SliceGroups((spec.driver, spec.pool.name), spec.pool.generation, groups)


def _groups(spec: ResourceSliceSpec, family: Family, booleans: Sequence[str]) -> Iterator[DeviceGroup]:
    grouped: dict[tuple[DeviceKind, str], list[Device]] = {}
    for device in spec.devices:
        node = _text(device, v.ATTRIBUTE_NODE) or spec.node_name or ""
        grouped.setdefault((_kind(device, family, booleans), node), []).append(device)
    for (kind, node), members in grouped.items():
        yield DeviceGroup(
            driver=spec.driver,
            kind=kind,
            node=node,
            total=len(members),
            cards=frozenset(_text(device, v.ATTRIBUTE_UUID) or device.name for device in members),
            device=members[0],
        )


def _kind(device: Device, family: Family, booleans: Sequence[str]) -> DeviceKind:
    attributes = device.attributes
    return DeviceKind(
        device_type=device_type_of(device, family),
        shared=bool(device.allow_multiple_allocations),
        driver_version=attributes.get(v.ATTRIBUTE_DRIVER_VERSION, _ABSENT).version or "",
        abilities=tuple(name for name in booleans if attributes.get(name, _ABSENT).value is True),
    )


def _text(device: Device, name: str) -> str:
    return device.attributes.get(name, _ABSENT).string or ""
