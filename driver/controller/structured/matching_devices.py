"""Counts the published devices that a class selects, and finds the faulty field of a class that selects none.

The compiled CEL itself is evaluated, not another interpretation of the class, but not on every device: a large cluster
has millions of devices and some dozen types. Devices of one type on one node with one allocation mode are
interchangeable for every class, so slices are kept as groups of such devices, and one device represents its type.

Example: a class without ``nodes`` is evaluated once for each device type, however many nodes there are.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from api.kerf.v1alpha1 import MatchingDevices
from api.model import device_attributes as v
from api.model.devices import Attribute, Device, ResourceSlice, ResourceSliceSpec
from api.model.names import ObjectRef
from driver.controller.device_types import DeviceType, device_type_of, largest_of
from driver.controller.structured.class_compiler import CompiledClass, Requirement

DevicePredicate: TypeAlias = Callable[[str, Device], bool]
"""A compiled selector, of driver and device. Raises KerfError when the expression fails on the device."""
SelectorCompiler: TypeAlias = Callable[[str], DevicePredicate]
"""A compiler of CEL expressions. Raises KerfError when the expression is invalid."""
_Kind: TypeAlias = tuple[DeviceType, bool]
"""A device type, and whether its devices are shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """The devices of one slice that have one type and are on one node."""

    driver: str
    device_type: DeviceType
    shared: bool
    """Whether several claims may share a device (KEP-5075)."""
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
    DEVICE_TYPES = auto()
    """The slice has devices of a new type: a class that matched nothing may match now."""


@dataclass(frozen=True, slots=True)
class _SliceGroups:
    pool: str
    generation: int
    groups: frozenset[DeviceGroup]


class DeviceGroupIndex:
    """The groups of all published slices. Only slices of their pool's newest generation count (KEP-4381)."""

    def __init__(self) -> None:
        self._slices: dict[ObjectRef, _SliceGroups] = {}
        self._kinds: Counter[_Kind] = Counter()
        """The number of groups of each kind."""

    def update(self, ref: ObjectRef, slice_: ResourceSlice | None) -> SliceChange:
        """Record the present state of a slice; None: it is deleted."""
        before = self._slices.pop(ref, None)
        after = None if slice_ is None else _slice_groups(slice_.spec)
        if after is not None:
            self._slices[ref] = after
        if before == after:
            return SliceChange.NONE
        added, removed = _kinds(after), _kinds(before)
        is_new = not added.keys() <= self._kinds.keys()
        self._kinds = self._kinds + added - removed
        return SliceChange.DEVICE_TYPES if is_new else SliceChange.COUNTS

    def groups(self) -> Iterator[DeviceGroup]:
        """Yield the groups of the newest generation of each pool."""
        newest: dict[str, int] = {}
        for one in self._slices.values():
            newest[one.pool] = max(one.generation, newest.get(one.pool, one.generation))
        for one in self._slices.values():
            if one.generation == newest[one.pool]:
                yield from one.groups

    def device_types(self) -> frozenset[DeviceType]:
        return frozenset(device_type for device_type, _ in self._kinds)


def _kinds(slice_groups: _SliceGroups | None) -> Counter[_Kind]:
    return Counter((group.device_type, group.shared) for group in (slice_groups.groups if slice_groups else ()))


def _slice_groups(spec: ResourceSliceSpec) -> _SliceGroups:
    return _SliceGroups(spec.pool.name, spec.pool.generation, frozenset(_groups(spec)))


def _groups(spec: ResourceSliceSpec) -> Iterator[DeviceGroup]:
    grouped: dict[tuple[DeviceType, bool, str], list[Device]] = {}
    kind = v.pool_kind(spec.pool.name)
    for device in spec.devices:
        node = _text(device, v.ATTRIBUTE_NODE) or spec.node_name or ""
        key = (device_type_of(device, kind), bool(device.allow_multiple_allocations), node)
        grouped.setdefault(key, []).append(device)
    for (device_type, shared, node), members in grouped.items():
        yield DeviceGroup(
            driver=spec.driver,
            device_type=device_type,
            shared=shared,
            node=node,
            total=len(members),
            cards=frozenset(_text(device, v.ATTRIBUTE_UUID) or device.name for device in members),
            device=members[0],
        )


def _text(device: Device, name: str) -> str:
    return device.attributes.get(name, Attribute()).string or ""


def count_matching_devices(
    compiled: CompiledClass, groups: Iterable[DeviceGroup], compile_selector: SelectorCompiler
) -> MatchingDevices:
    """Count the devices of ``groups`` that the class selects. Raises KerfError when its CEL cannot be evaluated."""
    matches = compile_selector(compiled.expression)
    known: dict[tuple[DeviceType, bool, str], bool] = {}
    selected = []
    for group in groups:
        key = (group.device_type, group.shared, group.node if compiled.chooses_nodes else "")
        if key not in known:
            known[key] = matches(group.driver, group.device)
        if known[key]:
            selected.append(group)
    cards = {card for group in selected for card in group.cards}
    nodes = {group.node for group in selected}
    return MatchingDevices(total=sum(group.total for group in selected), cards=len(cards), nodes=len(nodes))


class Mismatch(NamedTuple):
    """The reason why a class selects nothing."""

    message: str
    field: str = ""
    """The field of the class that no device satisfies; empty: no field is at fault."""


def explain_mismatch(
    compiled: CompiledClass, groups: Iterable[DeviceGroup], compile_selector: SelectorCompiler
) -> Mismatch:
    """Find the first requirement that no device meets that satisfies all requirements before it.

    Raises KerfError when a requirement's CEL cannot be evaluated.
    """
    left = list(groups)
    if not left:
        return Mismatch("no node has published devices of this driver yet")
    met: list[Requirement] = []
    for requirement in compiled.requirements:
        matches = compile_selector(requirement.cel) if requirement.field else lambda _driver, _device: True
        meeting = [group for group in left if matches(group.driver, group.device)]
        if not meeting:
            return Mismatch(_mismatch_message(requirement, met, left), requirement.field)
        left = meeting
        met.append(requirement)
    return Mismatch("devices match now")


def _mismatch_message(missed: Requirement, met: Sequence[Requirement], left: Sequence[DeviceGroup]) -> str:
    those = ", ".join(requirement.wants for requirement in met if requirement.field)
    total = sum(group.total for group in left)
    with_those = f" with {those}" if those else ""
    message = f"{missed.field}: none of the {total} published devices{with_those} has {missed.wants}"
    if missed.capacity:
        largest = max((group.device_type for group in left), key=lambda each: (each.size(missed.capacity), str(each)))
        message += f"; {largest_of(missed.capacity, largest)}"
    return message
