"""The placement rank of an allocation: what the devices of a solution take from later pods (KEEP, docs/placement.md).

Problem: the extender sees published devices of any driver, not cards. A counter set is a card (KEP-4815), and its
numbered counters, such as ``memory-slice-0`` to ``memory-slice-7``, are its units; a device covers the units of which
it consumes the whole counter. From these the geometry of the card is built, and its ``UnitMap`` gives the placement
value of the free units, exactly as for the publish order of a node. A partition is worth its compute slices where the
device publishes them, as Kerf's GPUs do, and else as much as it has units.

Where a set has no numbered counters, its value is the number of its devices that still fit, each by itself. Devices
without counters, such as whole GPUs of other drivers, take nothing from others. A device of which another claim has a
share already takes nothing, either (KEP-5075).

Invariant: the value depends on the pool's template and on the remaining counters only, so equal nodes have equal ranks.

Example: on an empty H100 a 1g.10gb has the loss 1 at best; beside a 4g.40gb it has the same loss, but that card is
fuller, and therefore preferred.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.allocations import AllocationResult, DeviceRequestAllocationResult
from kerf_dra.api.model.devices import Attribute, Device
from kerf_dra.driver.allocation.pools.gather import PoolView
from kerf_dra.driver.allocation.pools.node_devices import NodeDevices
from kerf_dra.driver.allocation.pools.template import PoolTemplate, PoolUsage
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId
from kerf_dra.driver.allocation.semantics.counters import PackedField, fits
from kerf_dra.driver.partitions.geometry import Geometry, PartitionSpec, Placement, order_specs
from kerf_dra.driver.partitions.unit_map import UnitMap, get_geometry_unit_map

_NUMBERED: Final = re.compile(r".*\d")
"""The names of counters that are units: they end with the unit's number."""
_MOST_UNITS: Final = 64
"""The most units of a card whose placement value is computed exactly: cards have up to 24, and the time to find
disjoint sets with gaps grows fast with their number."""
_ABSENT: Final = Attribute()


class NodeRank(NamedTuple):
    """The rank of what a pod would get on a node: the lower one is better."""

    loss: int
    """The decrease of the placement value of all counter sets together."""
    free: int
    """The free units of the counter sets of which something is taken: the fullest first."""


class _SetValue(NamedTuple):
    """The placement value of one counter set in one state."""

    value: int
    free: int
    """The number of free units."""


class PlacementValuer:
    """Ranks allocations; what it works out of a pool's template is kept as long as the template is in use."""

    def __init__(self) -> None:
        self._sets: WeakKeyDictionary[PoolTemplate, tuple[_CounterSet, ...]] = WeakKeyDictionary()
        self._without_counters: WeakKeyDictionary[PoolTemplate, int] = WeakKeyDictionary()

    def rank(self, node_devices: NodeDevices, results: Iterable[AllocationResult]) -> NodeRank:
        """Return the rank of ``results``, an allocation of one pod on the node of ``node_devices``."""
        views = {PoolId(view.id.driver, view.id.name): number for number, view in enumerate(node_devices.views)}
        by_view: dict[int, list[str]] = {}
        for given in _exclusive_results(results):
            by_view.setdefault(views[PoolId(given.driver, given.pool)], []).append(given.device)
        loss = free = 0
        for number, devices in by_view.items():
            rank = self._rank_pool(node_devices.views[number], node_devices.usages[number], devices)
            loss, free = loss + rank.loss, free + rank.free
        return NodeRank(loss, free)

    def _rank_pool(self, view: PoolView, usage: PoolUsage, devices: Iterable[str]) -> NodeRank:
        template = view.template
        remaining = list(usage.remaining)
        changed: dict[int, int] = {}
        for index in {template.positions[device] for device in devices}:
            if usage.shared >> index & 1:
                continue
            for use in template.uses[index]:
                before = remaining[use.set]
                assert before is not None, "nothing is allocated of an overdrawn counter set"
                changed.setdefault(use.set, before)
                remaining[use.set] = before - (use.amount or 0)
        sets = self._counter_sets(template) if changed else ()
        loss = free = 0
        for set_, before in changed.items():
            after = remaining[set_]
            assert after is not None
            value = sets[set_].value(before)
            loss, free = loss + value.value - sets[set_].value(after).value, free + value.free
        return NodeRank(loss, free)

    def count_free_units(self, node_devices: NodeDevices, drivers: Collection[str]) -> int:
        """Return the free units of the cards of ``drivers`` on a node; a device without counters is one unit."""
        free = 0
        for view, usage in zip(node_devices.views, node_devices.usages, strict=True):
            template = view.template
            if template.driver not in drivers:
                continue
            free += (self._find_without_counters(template) & ~usage.held).bit_count()
            for number, set_ in enumerate(self._counter_sets(template)):
                remaining = usage.remaining[number]
                free += 0 if remaining is None else set_.value(remaining).free
        return free

    def _find_without_counters(self, template: PoolTemplate) -> int:
        """Return the bitset of the devices that consume no counters."""
        found = self._without_counters.get(template)
        if found is None:
            found = sum(1 << index for index, uses in enumerate(template.uses) if not uses)
            self._without_counters[template] = found
        return found

    def _counter_sets(self, template: PoolTemplate) -> "tuple[_CounterSet, ...]":
        sets = self._sets.get(template)
        if sets is None:
            count = len(template.counters.names) if template.counters is not None else 0
            sets = self._sets[template] = tuple(_CounterSet.of(template, number) for number in range(count))
        return sets


class _CounterSet:
    """One counter set of the pools of a template."""

    def __init__(
        self, devices: Mapping[int, tuple[Device, ...]], fields: Mapping[str, PackedField], total: int
    ) -> None:
        """``devices`` are those that consume from this set only, by the packed amount that they consume."""
        self._devices = devices
        self._fields = fields
        self._total = total
        self._guards = sum(1 << (field.shift + field.width) for field in fields.values())
        self._values: dict[int, _SetValue] = {}

    @classmethod
    def of(cls, template: PoolTemplate, number: int) -> "_CounterSet":
        """Return the set ``number`` of ``template``."""
        assert template.counters is not None
        devices: dict[int, tuple[Device, ...]] = {}
        for each, uses in zip(template.devices, template.uses, strict=True):
            if [use.set for use in uses] == [number] and uses[0].amount is not None:
                amount = uses[0].amount
                devices[amount] = (*devices.get(amount, ()), each.device)
        return cls(devices, template.counters.fields[number], template.counters.totals[number])

    def value(self, remaining: int) -> _SetValue:
        """Return the placement value while ``remaining`` of the packed counters is left."""
        known = self._values.get(remaining)
        if known is None:
            known = self._values[remaining] = self._compute(remaining)
        return known

    def _compute(self, remaining: int) -> _SetValue:
        if self._unit_map is None:
            fitting = sum(
                len(devices) for amount, devices in self._devices.items() if fits(remaining, amount, self._guards)
            )
            return _SetValue(fitting, fitting)
        mask = self._mask_full(remaining)
        return _SetValue(self._unit_map.placement_value(mask), mask.bit_count())

    @cached_property
    def _units(self) -> tuple[PackedField, ...]:
        """The counters of the units, in the order of their names' numbers."""
        numbered = [name for name in self._fields if _NUMBERED.fullmatch(name)]
        found = [self._fields[name] for name in sorted(numbered, key=_natural_key)]
        return tuple(field for field in found if field.read(self._total))

    def _mask_full(self, packed: int) -> int:
        """Return the bitset of the units of which ``packed`` has the whole counter."""
        return sum(1 << bit for bit, field in enumerate(self._units) if field.read(packed) == field.read(self._total))

    @cached_property
    def _unit_map(self) -> UnitMap | None:
        """The units of the card; None: its counters are no units."""
        units = len(self._units)
        if not 0 < units <= _MOST_UNITS:
            return None
        everything = (1 << units) - 1
        whole = PartitionSpec(kind="", mask=everything, size=(units,), weight=units)
        specs = {(spec.profile, spec.function, spec.placement): spec for spec in (*self._partitions(), whole)}
        return get_geometry_unit_map(
            Geometry(kind="", model="", unit="unit", units=units, specs=order_specs(specs.values()))
        )

    def _partitions(self) -> Iterator[PartitionSpec]:
        """Yield the partitions of the card, without the whole card of Kerf's families, which counts for nothing."""
        for amount, devices in self._devices.items():
            mask = self._mask_full(amount)
            if not mask:
                continue
            placement = Placement.of_units(unit for unit in range(len(self._units)) if mask >> unit & 1)
            for device in devices:
                if _text(device, v.ATTRIBUTE_CUT) != v.CUT_WHOLE and not device.allow_multiple_allocations:
                    yield _build_spec(device, placement, mask)


def _build_spec(device: Device, placement: Placement, mask: int) -> PartitionSpec:
    compute = device.capacity.get(v.CAPACITY_COMPUTE_SLICES)
    return PartitionSpec(
        kind="",
        profile=_text(device, v.ATTRIBUTE_PROFILE) or None,
        function=_text(device, v.ATTRIBUTE_FUNCTION) or None,
        placement=placement,
        mask=mask,
        size=(placement.size,),
        weight=int(compute.value) if compute is not None else placement.size,
    )


def _exclusive_results(results: Iterable[AllocationResult]) -> Iterator[DeviceRequestAllocationResult]:
    """Yield the results that consume something: admin access does not (KEP-5018)."""
    for result in results:
        for given in result.devices.results:
            if not given.admin_access:
                yield given


def _natural_key(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :])


def _text(device: Device, name: str) -> str:
    return device.attributes.get(name, _ABSENT).string or ""
