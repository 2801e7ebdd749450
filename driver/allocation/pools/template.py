"""``PoolTemplate``: the common part of pools that are equal but for names and attribute strings.

Problem: a cluster has thousands of pools and few kinds of hardware. Values computed from devices (selections of
selectors, packed counters, usages) are cached by the template, with the strings that they depend on as part of the key.
So a selector is evaluated once for each kind of device, and not at all on a pool whose strings have been seen before.

Bitsets have bit *i* set for the *i*-th device of the template, in search order. All caches are bounded.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from kerf_dra.api.model.devices import Capacity, Device, DeviceTaint, ResourceSliceSpec
from kerf_dra.driver.allocation.pools.interning import Strings, StringSlots, with_strings
from kerf_dra.driver.allocation.semantics.allocated_state import PoolAllocations
from kerf_dra.driver.allocation.semantics.bitset import iter_bits, store_bounded
from kerf_dra.driver.allocation.semantics.capacity import unqualified
from kerf_dra.driver.allocation.semantics.counters import (
    INCOMPATIBLE,
    CounterUse,
    Groups,
    PackedCounters,
    fits,
    join_groups,
)
from kerf_dra.driver.allocation.semantics.matching import Selectors, evaluate_selectors, may_read, reads_of_selector


class DeviceTemplate(NamedTuple):
    """A device of a template."""

    device: Device
    """The device with the strings of one of the pools."""
    slots: StringSlots
    """The string attributes of the device, numbered among the strings of the pool."""
    slice: int
    """The index of the device's slice among those of the view."""
    spec: ResourceSliceSpec
    """The spec of that slice; strings, pool and node name are those of one of the pools."""
    taints: tuple[DeviceTaint, ...]
    """The taints of the published device and of taint rules."""
    fault: str | None
    """The reason why no selector can be evaluated on the device; None: selectors can."""


class Selection(NamedTuple):
    """The devices that selectors select."""

    selected: int
    """The bitset of the selected devices."""
    errors: Mapping[int, str]
    """The error message of each device on which a selector fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSets:
    """Bitsets of the devices with a property that some step has to check."""

    conditional: int
    """Devices with binding conditions (KEP-5007)."""
    node_bound: int
    """Devices that name the nodes that can use them themselves."""
    shareable: int
    """Devices that can be allocated several times (KEP-5075)."""
    with_policy: int
    """Devices with a request policy for some capacity, or with a negative capacity, which no policy could allow."""
    tainted: int
    """Devices with a taint of any effect."""
    without_node_operations: int
    """Devices of slices that skip node operations (KEP-5945)."""
    consuming: int
    """Devices that take from counters."""

    @classmethod
    def of(cls, devices: Sequence[DeviceTemplate]) -> "DeviceSets":
        """The sets of ``devices``."""

        def where(has_property: Callable[[DeviceTemplate], object]) -> int:
            return sum(1 << index for index, each in enumerate(devices) if has_property(each))

        return cls(
            conditional=where(lambda each: each.device.binding_conditions),
            node_bound=where(lambda each: each.spec.per_device_node_selection),
            shareable=where(lambda each: each.device.allow_multiple_allocations),
            with_policy=where(lambda each: any(_has_policy(capacity) for capacity in each.device.capacity.values())),
            tainted=where(lambda each: each.taints),
            without_node_operations=where(lambda each: each.spec.skip_node_operations),
            consuming=where(lambda each: each.device.consumes_counters),
        )


def _has_policy(capacity: Capacity) -> bool:
    return bool(capacity.request_policy) or capacity.value.nano < 0


@dataclass(frozen=True, eq=False, slots=True)
class PoolUsage:
    """The allocated and the remaining part of a pool. Equal usages of one template are one object."""

    held: int
    """The bitset of devices that are held exclusively."""
    shared: int
    """The bitset of devices of which a share is held."""
    consumed: Mapping[int, Mapping[str, int]]
    """The consumption of each shared device, in units of 1e-9, by the capacity's name on the device."""
    remaining: tuple[int | None, ...]
    """The remaining counters of each set, packed; None: a set is overdrawn, and nothing can be allocated."""
    groups: tuple[Groups | None, ...]
    """The compatibility groups common to all devices on each counter set; None: no device is on it."""
    blocked: int
    """The bitset of devices that counters or the compatibility groups of allocated devices exclude."""


class PoolTemplate:
    """The devices of pools that differ in names and strings only, as nodes that can use the same slices see them."""

    def __init__(
        self, driver: str, devices: Sequence[DeviceTemplate], others: Sequence[Device], counters: PackedCounters | None
    ) -> None:
        self.driver = driver
        self.devices = tuple(devices)
        """The devices in search order."""
        self._others = {device.name: device for device in others}
        self.counters = counters
        """The packed counters of the pool; None: it has none, or the feature for partitionable devices is disabled."""
        self._first_strings: Strings | None = None
        self._varying: set[int] = set()
        """The numbers of the strings that are not the same in all pools."""
        self._selections: dict[Hashable, Selection] = {}
        self._read_strings: dict[Selectors, tuple[int, ...]] = {}
        self._equal: dict[Hashable, Iterable[tuple[int, int]]] = {}
        self._usages: dict[PoolAllocations, PoolUsage] = {}
        self._blocked: dict[tuple[int, int], int] = {}

    @cached_property
    def device_sets(self) -> DeviceSets:
        """The devices by property."""
        return DeviceSets.of(self.devices)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The index of each device, by name."""
        return {each.device.name: index for index, each in enumerate(self.devices)}

    @cached_property
    def uses(self) -> tuple[tuple[CounterUse, ...], ...]:
        """The counters that each device consumes."""
        return tuple(self.counters.use(each.device) if self.counters else () for each in self.devices)

    def note_strings(self, strings: Strings) -> None:
        """Note that a pool of this template has these ``strings``."""
        if self._first_strings is None:
            self._first_strings = strings
        elif strings != self._first_strings:
            self._varying.update(at for at, string in enumerate(strings) if string != self._first_strings[at])

    def may_distinguish(self, selectors: Selectors) -> bool:
        """Whether ``selectors`` may distinguish pools of this template: they read a string that varies."""
        return not self._varying.isdisjoint(self._read(selectors))

    def _read(self, selectors: Selectors) -> tuple[int, ...]:
        """The numbers of the strings that ``selectors`` may read."""
        read = self._read_strings.get(selectors)
        if read is None:
            strings = (at for name, at in self._string_attributes if may_read(selectors, self.driver, name))
            read = tuple(sorted(frozenset().union(*strings)))
            store_bounded(self._read_strings, selectors, read)
        return read

    @cached_property
    def _string_attributes(self) -> Sequence[tuple[str, frozenset[int]]]:
        """The string attributes, each with the numbers of its strings."""
        strings: dict[str, set[int]] = defaultdict(set)
        for each in self.devices:
            for slot in each.slots:
                strings[slot.attribute].add(slot.string)
        return [(name, frozenset(at)) for name, at in strings.items()]

    def select(self, selectors: Selectors, strings: Strings) -> Selection:
        """Select the devices for which all ``selectors`` hold in a pool with those ``strings``."""
        key = (selectors, *[strings[at] for at in self._read(selectors)])
        selection = self._selections.get(key)
        if selection is None:
            selection = store_bounded(self._selections, key, self._select(selectors, strings))
        return selection

    def _select(self, selectors: Selectors, strings: Strings) -> Selection:
        """Apply selectors in order: an error of one counts only if all selectors before it hold on the device."""
        selected = (1 << len(self.devices)) - 1
        errors: dict[int, str] = {}
        if len(selectors) == 1:
            return self._evaluate(selectors[0], strings)
        for selector in selectors:
            of_one = self.select((selector,), strings)
            errors |= {index: message for index, message in of_one.errors.items() if selected >> index & 1}
            selected &= of_one.selected
        return Selection(selected=selected, errors=dict(sorted(errors.items())))

    def _evaluate(self, selector: str, strings: Strings) -> Selection:
        """Evaluate a selector once for all devices that agree in everything that it reads."""
        selected = 0
        errors: dict[int, str] = {}
        for index, devices in self._equal_to(selector, strings):
            template = self.devices[index]
            outcome = template.fault or evaluate_selectors(
                self.driver, with_strings(template.device, template.slots, strings), (selector,)
            )
            if outcome is True:
                selected |= devices
            elif outcome is not False:
                errors |= dict.fromkeys(iter_bits(devices), outcome)
        return Selection(selected=selected, errors=dict(sorted(errors.items())))

    def _equal_to(self, selector: str, strings: Strings) -> Iterable[tuple[int, int]]:
        """Return the classes of devices that ``selector`` cannot distinguish: the first device and the bitset of each.

        The cache key is what the selector reads, which is the same for selectors that differ in constants only.
        """
        reads = reads_of_selector(selector)
        key = (reads, *[strings[at] for at in self._read((selector,))])
        equal = self._equal.get(key)
        if equal is None:
            bitsets: dict[Hashable, int] = defaultdict(int)
            for index, each in enumerate(self.devices):
                device = with_strings(each.device, each.slots, strings)
                bitsets[each.fault, reads and reads.of(self.driver, device)] |= 1 << index
            equal = tuple([((bitset & -bitset).bit_length() - 1, bitset) for bitset in bitsets.values()])
            store_bounded(self._equal, key, equal)
        return equal

    def usage(self, allocations: PoolAllocations) -> PoolUsage:
        """Return the usage of a pool with these ``allocations``."""
        usage = self._usages.get(allocations)
        return usage if usage is not None else store_bounded(self._usages, allocations, self._usage(allocations))

    def _usage(self, allocations: PoolAllocations) -> PoolUsage:
        shared = self._bitset_of(allocations.shared)
        uses = self._uses_of(allocations.names)
        sets = len(self.counters.names) if self.counters else 0
        remaining = self.counters.remaining(uses) if self.counters else []
        groups = _groups_of(uses, sets)
        left = tuple(remaining) if remaining is not None else (None,) * sets
        return PoolUsage(
            held=self._bitset_of(allocations.exclusive),
            shared=shared,
            consumed={index: self._consumed(self.devices[index].device, allocations) for index in iter_bits(shared)},
            remaining=left,
            groups=groups,
            blocked=self._blocked_by(left, groups),
        )

    def _bitset_of(self, names: Collection[str]) -> int:
        return sum(1 << self.positions[name] for name in names if name in self.positions)

    def _consumed(self, device: Device, allocations: PoolAllocations) -> Mapping[str, int]:
        amounts = (amount for amount in allocations.consumed if amount.device == device.name)
        by_name = {unqualified(self.driver, amount.capacity): amount.quantity.nano for amount in amounts}
        return {name: by_name.get(unqualified(self.driver, name), 0) for name in device.capacity}

    def _uses_of(self, names: Collection[str]) -> list[CounterUse]:
        """The counters that the named devices consume: in search order, then devices that only other nodes can use."""
        if self.counters is None:
            return []
        positions = sorted(self.positions[name] for name in names if name in self.positions)
        taken = [use for position in positions for use in self.uses[position]]
        for name, other in self._others.items():
            if name in names:
                taken += self.counters.use(other)
        return taken

    def _blocked_by(self, remaining: Sequence[int | None], groups: Sequence[Groups | None]) -> int:
        blocked = 0
        for set_, left in enumerate(remaining):
            blocked |= self.device_sets.consuming if left is None else self.exceeding(set_, left)
        if any(groups) or self._has_groups:
            for index in iter_bits(self.device_sets.consuming & ~blocked):
                if any(join_groups(groups[use.set], use.groups) is None for use in self.uses[index]):
                    blocked |= 1 << index
        return blocked

    @cached_property
    def _has_groups(self) -> bool:
        return any(use.groups for uses in self.uses for use in uses)

    def exceeding(self, set_: int, remaining: int) -> int:
        """The bitset of devices that consume more of a set than ``remaining``, which has few values in practice."""
        assert self.counters is not None
        bitset = self._blocked.get((set_, remaining))
        if bitset is None:
            guards = self.counters.guards[set_]
            bitset = sum(
                1 << index
                for index in self._users[set_]
                if any(use.set == set_ and not fits(remaining, use.amount, guards) for use in self.uses[index])
            )
            store_bounded(self._blocked, (set_, remaining), bitset)
        return bitset

    @cached_property
    def _users(self) -> Sequence[Sequence[int]]:
        assert self.counters is not None
        users: list[list[int]] = [[] for _ in self.counters.names]
        for index, uses in enumerate(self.uses):
            for set_ in {use.set for use in uses}:
                users[set_].append(index)
        return users


def _groups_of(uses: Sequence[CounterUse], sets: int) -> tuple[Groups | None, ...]:
    """The compatibility groups common to the allocated devices on each set."""
    groups: list[Groups | None] = [None] * sets
    for use in uses:
        present = groups[use.set]
        joined = join_groups(present, use.groups)
        if joined is not None:
            groups[use.set] = joined
        elif present and use.groups:
            groups[use.set] = INCOMPATIBLE  # the slices changed since: nothing can join any more
    return tuple(groups)


EMPTY_TEMPLATE: Final = PoolTemplate("", (), (), None)
"""The template of pools with a fault."""
