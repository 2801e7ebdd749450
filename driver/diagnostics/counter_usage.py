"""What is used of shared counters, for cards of any driver whose geometry is not known.

A counter set is a card (KEP-4815): its devices are the partitions that consume from it. Counters of amount 1 that are
numbered, such as ``memory-slice-0`` to ``memory-slice-7``, are units of the card, each of which one claim can hold.
Drivers whose devices consume no counters publish whole devices, which are only counted.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerf_dra.api.model.devices import CounterSet, Device, ResourceSlice
from kerf_dra.api.model.names import DeviceId, ObjectRef
from kerf_dra.api.model.quantity import NANO, Quantity
from kerf_dra.driver.allocation import NodeView
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.allocation.semantics.matching import node_matches
from kerf_dra.driver.partitions.card_pictures.picture_builder import parse_unit_name


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterFigures:
    """One counter of a card, or one capacity of devices."""

    name: str
    used: str
    """The amount that the devices in use consume, or that claims have, as a quantity."""
    total: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFigures:
    """Numbered counters of amount 1 of a card: its units, in the order of their numbers."""

    name: str
    """What the names of the counters have in common."""
    first: int
    """The number of the first unit."""
    holders: tuple[tuple[str, ...], ...]
    """The claims that hold each unit; none: it is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSetFigures:
    """What is used of one counter set."""

    node: str
    """The node of the card; empty for hardware that several nodes can use."""
    driver: str
    pool: str
    counter_set: str
    devices: int
    """The devices that consume from it."""
    in_use: int
    """Those that claims hold."""
    would_fit: int
    """Those that what is left of all their counters would allow, each by itself."""
    claims: tuple[str, ...]
    units: tuple[UnitFigures, ...]
    counters: tuple[CounterFigures, ...]
    """The other counters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFigures:
    """The devices of one pool that consume no counters: whole devices."""

    node: str
    driver: str
    pool: str
    devices: int
    in_use: int
    """Those that claims hold, or of which they have shares."""
    capacities: tuple[CounterFigures, ...] = ()
    """The capacities of which several claims may have parts (KEP-5075), summed over the devices."""


@dataclass(frozen=True, slots=True)
class _Pool:
    """The newest generation of a pool."""

    driver: str
    name: str
    slices: Sequence[ResourceSlice]

    @property
    def node(self) -> str:
        return next((slice_.spec.node_name for slice_ in self.slices if slice_.spec.node_name), "")

    def is_for(self, nodes: Mapping[str, NodeView]) -> bool:
        """Whether one of ``nodes`` may be able to use its devices."""
        if self.node:
            return self.node in nodes
        return any(
            node_matches(node, None, spec.all_nodes or spec.per_device_node_selection, spec.node_selector)
            for node in nodes.values()
            for spec in (slice_.spec for slice_ in self.slices)
        )

    @property
    def devices(self) -> list[Device]:
        return [device for slice_ in self.slices for device in slice_.spec.devices]

    @property
    def counter_sets(self) -> list[CounterSet]:
        return [set_ for slice_ in self.slices for set_ in slice_.spec.shared_counters]


def measure_counters(
    slices: Iterable[ResourceSlice],
    holders: Mapping[DeviceId, tuple[ObjectRef, ...]],
    *,
    drawn: Container[DeviceId],
    nodes: Mapping[str, NodeView] | None = None,
    consumed: Mapping[DeviceId, Mapping[str, Quantity]],
) -> tuple[tuple[CounterSetFigures, ...], tuple[PoolFigures, ...]]:
    """Return the counter sets and the whole devices of all drivers, without cards that have a device in ``drawn``.

    ``holders`` are the claims that hold each device, ``consumed`` what they have of its capacities. With ``nodes``
    only the hardware that one of them can use counts.
    """
    sets: list[CounterSetFigures] = []
    whole: list[PoolFigures] = []
    for pool in _newest_pools(slices):
        if nodes and not pool.is_for(nodes):
            continue
        held = {device.name: holders.get(DeviceId(pool.driver, pool.name, device.name), ()) for device in pool.devices}
        known = {device.name for device in pool.devices if DeviceId(pool.driver, pool.name, device.name) in drawn}
        skipped = {name for device in pool.devices if device.name in known for name in _sets_of(device)}
        for set_ in pool.counter_sets:
            if set_.name not in skipped:
                sets.append(_measure_set(pool, set_, held))
        without = [device for device in pool.devices if not device.consumes_counters and device.name not in known]
        if without:
            whole.append(
                PoolFigures(
                    node=pool.node,
                    driver=pool.driver,
                    pool=pool.name,
                    devices=len(without),
                    in_use=sum(bool(held[device.name]) for device in without),
                    capacities=_sum_capacities(pool, without, consumed),
                )
            )
    return tuple(sets), tuple(whole)


def _sum_capacities(
    pool: _Pool, devices: Iterable[Device], consumed: Mapping[DeviceId, Mapping[str, Quantity]]
) -> tuple[CounterFigures, ...]:
    totals: dict[str, Quantity] = {}
    used: dict[str, int] = defaultdict(int)
    for device in devices:
        if not device.allow_multiple_allocations:
            continue
        has = consumed.get(DeviceId(pool.driver, pool.name, device.name), {})
        for name, capacity in device.capacity.items():
            before = totals[name].nano if name in totals else 0
            totals[name] = Quantity.of_nano(before + capacity.value.nano, capacity.value.family)
            used[name] += has[name].nano if name in has else 0
    return tuple(
        CounterFigures(name=name, used=str(Quantity.of_nano(used[name], total.family)), total=str(total))
        for name, total in sorted(totals.items())
    )


def _newest_pools(slices: Iterable[ResourceSlice]) -> Iterator[_Pool]:
    """Yield the newest generation of each pool; one at a time, because their devices may take gigabytes."""
    published = InternedSlices.of(slices)
    for id_ in sorted(published.by_pool):
        yield _Pool(id_.driver, id_.name, published.newest_of_pool(id_))


def _sets_of(device: Device) -> list[str]:
    return [consumption.counter_set for consumption in device.consumes_counters]


def _measure_set(pool: _Pool, set_: CounterSet, held: Mapping[str, tuple[ObjectRef, ...]]) -> CounterSetFigures:
    devices = [device for device in pool.devices if set_.name in _sets_of(device)]
    in_use = [device for device in devices if held[device.name]]
    used: dict[str, int] = defaultdict(int)
    by: dict[str, list[ObjectRef]] = defaultdict(list)
    for device in in_use:
        for name, amount in _consumption(device, set_.name).items():
            used[name] += amount
            by[name] += held[device.name] if amount else ()
    left = {name: counter.value.nano - used[name] for name, counter in set_.counters.items()}
    free = [device for device in devices if not held[device.name]]
    fitting = [
        device
        for device in free
        if all(amount <= left.get(name, 0) for name, amount in _consumption(device, set_.name).items())
    ]
    units = _units(set_, by)
    in_units = {name for name, _ in _numbered(set_)}
    return CounterSetFigures(
        node=pool.node,
        driver=pool.driver,
        pool=pool.name,
        counter_set=set_.name,
        devices=len(devices),
        in_use=len(in_use),
        would_fit=len(fitting),
        claims=tuple(sorted({str(ref) for device in in_use for ref in held[device.name]})),
        units=units,
        counters=tuple(
            CounterFigures(
                name=name,
                used=str(Quantity.of_nano(used[name], counter.value.family)),
                total=str(counter.value),
            )
            for name, counter in sorted(set_.counters.items())
            if name not in in_units
        ),
    )


def _consumption(device: Device, counter_set: str) -> Mapping[str, int]:
    return {
        name: counter.value.nano
        for consumption in device.consumes_counters
        if consumption.counter_set == counter_set
        for name, counter in consumption.counters.items()
    }


def _numbered(set_: CounterSet) -> list[tuple[str, tuple[str, int]]]:
    """Return the counters of amount 1 whose names end with a number."""
    ones = (name for name, counter in set_.counters.items() if counter.value.nano == NANO)
    return [(name, parsed) for name in ones if (parsed := parse_unit_name(name))]


def _units(set_: CounterSet, by: Mapping[str, Collection[ObjectRef]]) -> tuple[UnitFigures, ...]:
    rows: dict[str, dict[int, str]] = defaultdict(dict)
    for name, (stem, number) in _numbered(set_):
        rows[stem][number] = name
    return tuple(
        UnitFigures(
            name=stem,
            first=min(names),
            holders=tuple(tuple(sorted({str(ref) for ref in by.get(names[number], ())})) for number in sorted(names)),
        )
        for stem, names in sorted(rows.items())
    )
