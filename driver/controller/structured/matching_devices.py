"""What the nodes publish, summed up slice by slice: enough to count what a class matches without reading every device.

Devices of one type on one node that are offered in the same way are alike to a class (``DeviceType``), so one of
them answers for all.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from api.model import device_attributes as v
from api.model.devices import Attribute, Device, ResourceSlice
from api.model.names import ObjectRef
from driver.controller.device_types import DeviceType, device_type_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The devices of one slice that have one type, on one node."""

    driver: str
    device_type: DeviceType
    shared: bool
    """Offered in shares (KEP-5075)."""
    node: str
    total: int
    cards: frozenset[str]
    device: Device = field(compare=False)
    """One of them. Which one is no difference: a republished order changes nothing."""


class News(Enum):
    """What a change of a slice means to classes."""

    NONE = auto()
    COUNTS = auto()
    """Some match more devices, or fewer."""
    HARDWARE = auto()
    """Devices of a kind that there were none of: a class that matched nothing may match now."""


_Kind: TypeAlias = tuple[DeviceType, bool]
"""With whether devices of the type are offered in shares."""


@dataclass(frozen=True, slots=True)
class _Summary:
    pool: str
    generation: int
    groups: frozenset[Group]


class Published:
    """The current slices. Only those of a pool's newest generation count (KEP-4381)."""

    def __init__(self) -> None:
        self._slices: dict[ObjectRef, _Summary] = {}
        self._kinds: Counter[_Kind] = Counter()
        """How many groups are of each kind."""

    def update(self, ref: ObjectRef, slice_: ResourceSlice | None) -> News:
        """Take in what a slice is now (None: gone)."""
        before = self._slices.pop(ref, None)
        after = None if slice_ is None else _summarize(slice_)
        if after is not None:
            self._slices[ref] = after
        if before == after:
            return News.NONE
        came, went = _kinds(after), _kinds(before)
        is_new = not came.keys() <= self._kinds.keys()
        self._kinds = self._kinds + came - went
        return News.HARDWARE if is_new else News.COUNTS

    def groups(self) -> Iterator[Group]:
        newest: dict[str, int] = {}
        for summary in self._slices.values():
            newest[summary.pool] = max(summary.generation, newest.get(summary.pool, summary.generation))
        for summary in self._slices.values():
            if summary.generation == newest[summary.pool]:
                yield from summary.groups

    def device_types(self) -> frozenset[DeviceType]:
        return frozenset(device_type for device_type, _ in self._kinds)


def _kinds(summary: _Summary | None) -> Counter[_Kind]:
    return Counter((group.device_type, group.shared) for group in (summary.groups if summary else ()))


def _summarize(slice_: ResourceSlice) -> _Summary:
    spec = slice_.spec
    return _Summary(
        pool=spec.pool.name,
        generation=spec.pool.generation,
        groups=frozenset(_groups(spec.driver, spec.node_name or "", spec.devices)),
    )


def _groups(driver: str, node_name: str, devices: Iterable[Device]) -> Iterator[Group]:
    alike: dict[tuple[DeviceType, bool, str], list[Device]] = {}
    for device in devices:
        key = (
            device_type_of(device),
            bool(device.allow_multiple_allocations),
            _text(device, v.ATTRIBUTE_NODE) or node_name,
        )
        alike.setdefault(key, []).append(device)
    for (device_type, shared, node), members in alike.items():
        cards = frozenset(_text(device, v.ATTRIBUTE_PARENT) or device.name for device in members)
        yield Group(
            driver=driver,
            device_type=device_type,
            shared=shared,
            node=node,
            total=len(members),
            cards=cards,
            device=members[0],
        )


def _text(device: Device, name: str) -> str:
    return device.attributes.get(name, Attribute()).string or ""
