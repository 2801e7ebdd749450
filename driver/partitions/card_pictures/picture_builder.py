"""Builds the pictures of cards from ResourceSlices and claims alone, of any driver.

A counter set is a card (KEP-4815): each of its numbered counters of amount 1 is a unit, which the devices that consume
it have. Of a card without such counters the devices that claims hold are drawn, and one unit for all that still fit:
they exclude one another. Devices that consume no counters are whole; those of one pool are the units of one picture. Of
a card that can be divided in several layouts the units of the one in use are drawn, or else of the one with most units.

A free unit is *stranded* if none of the published devices that have it fits into what is left of all their counters.
Each unit is judged by itself: devices that overlap may leave more units unused than are drawn so. Counters that
contradict one another, and claims for devices that are not published, are named in ``CardPicture.problems``.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import CounterSet, Device, DeviceTaint, DeviceTaintRule, ResourceSlice
from kerf_dra.api.model.names import DeviceId, list_names
from kerf_dra.api.model.quantity import NANO, Quantity
from kerf_dra.driver.partitions.card_pictures.card_picture import CardPicture, Gauge, Unit, UnitRow, UnitState

_NUMBERED: Final = re.compile(r"(?P<stem>.*[^0-9-])-*(?P<number>[0-9]{1,9})", re.DOTALL)
"""A counter that may be a unit. More digits are no number of a unit of any hardware."""
_MODEL_NAMES: Final = (v.ATTRIBUTE_MODEL, v.ATTRIBUTE_PRODUCT_NAME)
"""The attributes that name the model of a card, in any driver's domain; the first that a device has counts."""
_LABEL_NAMES: Final = (v.ATTRIBUTE_PROFILE, v.ATTRIBUTE_FUNCTION, "partitionProfile", "computePartition")
"""The attributes that say what a partition is; the last two are those of AMD's driver."""
_EXCLUDING: Final = frozenset({"NoSchedule", "NoExecute"})
"""The effects of taints that keep claims away (KEP-5055); others inform."""
_PROBLEMS: Final = 4
"""Contradictions named of one card: one fault of a driver may be in each of a hundred devices."""


class _PoolId(NamedTuple):
    driver: str
    pool: str


def parse_unit_name(counter: str) -> tuple[str, int] | None:
    """Return what units are called and the number of one, by the name of a counter; None: it has no number.

    >>> parse_unit_name("memory-slice-3"), parse_unit_name("memory")
    (('memory-slice', 3), None)
    """
    match = _NUMBERED.fullmatch(counter)
    return (match["stem"], int(match["number"])) if match else None


def find_holders(claims: Iterable[ResourceClaim]) -> dict[DeviceId, tuple[str, ...]]:
    """Return the claims that hold each device or a share of it, as ``namespace/name``. Admin access holds nothing."""
    found: dict[DeviceId, dict[str, None]] = defaultdict(dict)
    for claim in claims:
        for result in claim.status.allocation.devices.results if claim.status.allocation else ():
            if not result.admin_access:
                found[result.id][str(claim.ref)] = None
    return {id_: tuple(names) for id_, names in found.items()}


def find_consumed(claims: Iterable[ResourceClaim]) -> dict[DeviceId, dict[str, Quantity]]:
    """Return what claims have of the capacities of devices that they share (KEP-5075)."""
    found: dict[DeviceId, dict[str, Quantity]] = defaultdict(dict)
    for claim in claims:
        for result in claim.status.allocation.devices.results if claim.status.allocation else ():
            for name, amount in result.consumed_capacity.items() if not result.admin_access else ():
                has = found[result.id]
                has[name] = has[name] + amount if name in has else amount
    return dict(found)


def build_card_pictures(
    slices: Iterable[ResourceSlice],
    holders: Mapping[DeviceId, Sequence[str]],
    *,
    consumed: Mapping[DeviceId, Mapping[str, Quantity]] | None = None,
    rules: Sequence[DeviceTaintRule] = (),
) -> Iterator[CardPicture]:
    """Yield a picture of each card in the newest generation of each pool, by pool, in the order of their names.

    ``holders`` are the claims that hold each device (``find_holders``), ``consumed`` what they have of the capacities
    of those that they share, ``rules`` the cluster's taints. Each pool is read by itself.
    """
    of_pool: dict[_PoolId, dict[str, Sequence[str]]] = defaultdict(dict)
    for id_, names in holders.items():
        of_pool[_PoolId(id_.driver, id_.pool)][id_.device] = names
    for pool, own in _group_by_pool(slices).items():
        reader = _PoolReader(pool, own, of_pool[pool], consumed or {}, rules)
        yield from map(reader.read_set, reader.sets.values())
        if reader.whole_devices:
            yield reader.read_whole_devices()


def _group_by_pool(slices: Iterable[ResourceSlice]) -> dict[_PoolId, list[ResourceSlice]]:
    """Return the slices of the newest generation of each pool."""
    pools: dict[_PoolId, list[ResourceSlice]] = {}
    for each in slices:
        own = pools.setdefault(_PoolId(each.spec.driver, each.spec.pool.name), [])
        if own and each.spec.pool.generation > own[0].spec.pool.generation:
            own.clear()
        if not own or each.spec.pool.generation == own[0].spec.pool.generation:
            own.append(each)
    return pools


@dataclass(frozen=True)
class _PoolReader:
    """Reads one pool: what its devices consume, and what is left of its counters."""

    id_: _PoolId
    slices: Sequence[ResourceSlice]
    held: Mapping[str, Sequence[str]]
    """The claims that hold each device, by its name."""
    consumed: Mapping[DeviceId, Mapping[str, Quantity]]
    rules: Sequence[DeviceTaintRule]

    @cached_property
    def devices(self) -> dict[str, Device]:
        return {
            device.name: device
            for each in self.slices
            for device in each.spec.devices
            if _find_text(device, (v.ATTRIBUTE_CUT,)) != v.CUT_MONITOR  # it is the same card once more
        }

    @cached_property
    def amounts(self) -> Mapping[str, Counter[tuple[str, str]]]:
        """What each device consumes of each counter, by set and name."""
        return {name: _amounts(device) for name, device in self.devices.items()}

    @cached_property
    def sets(self) -> dict[str, CounterSet]:
        """The counter sets in the order of their names; of one that is published twice the first counts."""
        found: dict[str, CounterSet] = {}
        for each in self.slices:
            for set_ in each.spec.shared_counters:
                found.setdefault(set_.name, set_)
        return dict(sorted(found.items(), key=lambda item: _natural(item[0])))

    @cached_property
    def consumers(self) -> Mapping[str, Sequence[Device]]:
        """The devices that consume from each set, in the order of publishing."""
        found: dict[str, dict[str, Device]] = defaultdict(dict)
        for device in self.devices.values():
            for consumption in device.consumes_counters:
                found[consumption.counter_set][device.name] = device
        return {name: tuple(devices.values()) for name, devices in found.items()}

    @cached_property
    def whole_devices(self) -> Sequence[Device]:
        """The devices that consume from no set that is published."""
        return [
            device
            for device in self.devices.values()
            if not any(each.counter_set in self.sets for each in device.consumes_counters)
        ]

    @cached_property
    def left(self) -> Mapping[tuple[str, str], int]:
        """What is left of each counter, by set and name; less than nothing where claims hold more than there is."""
        left = Counter(
            {
                (set_.name, name): counter.value.nano
                for set_ in self.sets.values()
                for name, counter in set_.counters.items()
            }
        )
        for device in self.devices.values():
            if self.held.get(device.name):
                left.subtract(self.amounts[device.name])
        return left

    @cached_property
    def fitting(self) -> frozenset[str]:
        """The devices that no claim holds, and for which what is left of all their counters suffices."""
        return frozenset(
            name
            for name, amounts in self.amounts.items()
            if not self.held.get(name)
            and all(amount <= self.left.get(key, 0) for key, amount in amounts.items() if amount)
        )

    def read_set(self, set_: CounterSet) -> CardPicture:
        devices = self.consumers.get(set_.name, ())
        having: dict[str, list[Device]] = defaultdict(list)
        for device in devices:
            for (name, counter), amount in self.amounts[device.name].items():
                if name == set_.name and amount:
                    having[counter].append(device)
        rows = _find_rows(set_, devices)
        units = {name for names in rows.values() for _, name in names}
        drawn = [
            UnitRow(
                name=stem,
                numbers=tuple(number for number, _ in names),
                units=tuple(self._read_unit(set_, name, having[name]) for _, name in names),
            )
            for stem, names in rows.items()
        ]
        return CardPicture(
            node=self._find_node(devices),
            driver=self.id_.driver,
            pool=self.id_.pool,
            name=set_.name,
            model=next((model for each in devices if (model := _find_text(each, _MODEL_NAMES))), ""),
            rows=tuple(_choose_layout(drawn, devices)) or (self._read_holding(devices),),
            gauges=(
                *(
                    _gauge(name, counter.value.nano - self.left[set_.name, name], counter.value)
                    for name, counter in sorted(set_.counters.items())
                    if name not in units
                ),
                *(() if drawn else self._sum_consumed(devices)),
            ),
            problems=_limit([*self._find_contradictions(set_, devices), *self._pool_problems]),
        )

    def read_whole_devices(self) -> CardPicture:
        devices = sorted(self.whole_devices, key=lambda device: _natural(device.name))
        return CardPicture(
            node=self._find_node(devices),
            driver=self.id_.driver,
            pool=self.id_.pool,
            name="",
            model=list_names(sorted({model for each in devices if (model := _find_text(each, _MODEL_NAMES))}), 2),
            rows=(
                UnitRow(
                    name="device",
                    numbers=tuple(range(len(devices))),
                    units=tuple(self._read_device(device) for device in devices),
                ),
            ),
            gauges=tuple(self._sum_capacities(devices)),
            problems=_limit(self._pool_problems),
        )

    def _read_unit(self, set_: CounterSet, counter: str, having: Sequence[Device]) -> Unit:
        total = set_.counters[counter].value.nano
        owners = [
            device
            for device in having
            if self.held.get(device.name) and self.amounts[device.name][set_.name, counter] >= max(total, 1)
        ]
        if owners:
            return self._describe_held(owners)
        if not total:
            return Unit(state=UnitState.RESERVED)
        if not having:
            return Unit(state=UnitState.WITHHELD)
        fitting = [device for device in having if device.name in self.fitting]
        if not fitting:
            return Unit(state=UnitState.STRANDED)
        return self._describe_free(fitting)

    def _read_holding(self, devices: Sequence[Device]) -> UnitRow:
        """Return the devices of a card without units that claims hold, and one unit if anything fits beside them."""
        units = [self._describe_held([device]) for device in devices if self.held.get(device.name)]
        fitting = [device for device in devices if device.name in self.fitting]
        if fitting:
            units.append(self._describe_free(fitting))
        elif not units:
            units.append(Unit(state=UnitState.STRANDED if devices else UnitState.WITHHELD))
        return UnitRow(name="device", numbers=tuple(range(len(units))), units=tuple(units))

    def _read_device(self, device: Device) -> Unit:
        return self._describe_held([device]) if self.held.get(device.name) else self._describe_free([device])

    def _describe_held(self, owners: Sequence[Device]) -> Unit:
        claims = tuple(sorted({claim for device in owners for claim in self.held[device.name]}))
        state = UnitState.HELD
        if all(device.allow_multiple_allocations for device in owners) and len(owners) == 1:
            state = UnitState.SHARED
        elif len(owners) > 1 or len(claims) > 1:
            state = UnitState.CONTESTED
        taints = {taint.key for device in owners for taint in self._find_taints(device)}
        return Unit(
            state=state,
            holders=claims,
            part=" ".join(device.name for device in owners),
            label=_find_text(owners[0], _LABEL_NAMES),
            note=f"tainted: {', '.join(sorted(taints))}" if taints else "",
        )

    def _describe_free(self, fitting: Sequence[Device]) -> Unit:
        """Return a free unit, which is tainted if all devices are that it may be given with."""
        taints = [self._find_taints(device) for device in fitting]
        if all(taints):
            keys = sorted({taint.key for each in taints for taint in each})
            return Unit(state=UnitState.TAINTED, note=", ".join(keys))
        return Unit()

    def _find_taints(self, device: Device) -> list[DeviceTaint]:
        of_rules = (rule.spec.taint for rule in self.rules if self._is_selected(rule, device))
        return [taint for taint in (*device.taints, *of_rules) if taint.effect in _EXCLUDING]

    def _is_selected(self, rule: DeviceTaintRule, device: Device) -> bool:
        selector = rule.spec.device_selector
        wanted = (selector.driver, selector.pool, selector.device) if selector else (None, None, None)
        has = (self.id_.driver, self.id_.pool, device.name)
        return all(value is None or value == own for value, own in zip(wanted, has, strict=True))

    def _find_node(self, devices: Sequence[Device]) -> str:
        nodes = (*(each.spec.node_name for each in self.slices), *(device.node_name for device in devices))
        return next((node for node in nodes if node), "")

    def _sum_capacities(self, devices: Sequence[Device]) -> Iterator[Gauge]:
        """Yield the capacities of which several claims may have parts, summed over the devices."""
        totals: dict[str, Quantity] = {}
        used: Counter[str] = Counter()
        for device in devices:
            has = self.consumed.get(self._id_of(device), {})
            for name, capacity in device.capacity.items() if device.allow_multiple_allocations else ():
                totals[name] = totals[name] + capacity.value if name in totals else capacity.value
                used[name] += has[name].nano if name in has else 0
        yield from (_gauge(name, used[name], total) for name, total in sorted(totals.items()))

    def _sum_consumed(self, devices: Sequence[Device]) -> Iterator[Gauge]:
        """Yield the capacities of a card's devices that claims share, and of which they have parts."""
        shared = [device for device in devices if self.held.get(device.name)]
        names = {name for device in shared for name in self.consumed.get(self._id_of(device), ())}
        yield from (gauge for gauge in self._sum_capacities(shared) if gauge.name in names)

    def _id_of(self, device: Device) -> DeviceId:
        return DeviceId(self.id_.driver, self.id_.pool, device.name)

    def _find_contradictions(self, set_: CounterSet, devices: Sequence[Device]) -> Iterator[str]:
        for device in devices:
            for (name, counter), amount in self.amounts[device.name].items():
                if name == set_.name and amount and counter not in set_.counters:
                    yield f"{device.name} consumes {counter}, which {name} does not have"
        for counter, total in set_.counters.items():
            if (left := self.left[set_.name, counter]) < 0:
                used = Quantity.of_nano(total.value.nano - left, total.value.family)
                yield f"claims hold {used} of {total.value} {counter}"

    @cached_property
    def _pool_problems(self) -> list[str]:
        """What is wrong with the pool: slices that are missing, and claims for devices that it does not have."""
        count = self.slices[0].spec.pool.resource_slice_count
        found = [f"{len(self.slices)} of {count} slices are published"] if len(self.slices) != count else []
        names = Counter(set_.name for each in self.slices for set_ in each.spec.shared_counters)
        found += [f"the counter set {name} is published {times} times" for name, times in names.items() if times > 1]
        published = {device.name for each in self.slices for device in each.spec.devices}
        for device, claims in self.held.items():
            if device not in published:
                found.append(f"{device} of {list_names(claims, 2)} is not published")
        for device_ in self.whole_devices:
            missing = sorted({each.counter_set for each in device_.consumes_counters})
            found += [f"{device_.name} consumes from {name}, which is not published" for name in missing]
        return found


def _find_rows(set_: CounterSet, devices: Sequence[Device]) -> dict[str, list[tuple[int, str]]]:
    """Return the counters that are units, by the start of their names, in the order of their numbers.

    They have amount 1, or 0 where it is reserved. The units of a layout that is not the largest have more, because a
    device of each other layout consumes a part of them.
    """
    in_layouts = {
        counter
        for device in devices
        if _find_text(device, (v.ATTRIBUTE_LAYOUT,))
        for each in device.consumes_counters
        for counter in each.counters
    }
    rows: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, counter in set_.counters.items():
        parsed = parse_unit_name(name)
        if parsed and (counter.value.nano in (0, NANO) or name in in_layouts):
            rows[parsed[0]].append((parsed[1], name))
    return {
        stem: sorted(names)
        for stem, names in sorted(rows.items())
        if any(set_.counters[name].value.nano for _, name in names)
    }


def _choose_layout(rows: Sequence[UnitRow], devices: Sequence[Device]) -> Sequence[UnitRow]:
    """Return the row of the layout in use, or else of the one with most units; all rows of a card without layouts."""
    if not any(_find_text(device, (v.ATTRIBUTE_LAYOUT,)) for device in devices):
        return rows
    return [max(rows, key=lambda row: (any(unit.holders for unit in row.units), len(row.units)))] if rows else ()


def _amounts(device: Device) -> Counter[tuple[str, str]]:
    """Return what a device consumes of each counter, by set and name."""
    amounts: Counter[tuple[str, str]] = Counter()
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            amounts[consumption.counter_set, name] += counter.value.nano
    return amounts


def _gauge(name: str, used: int, total: Quantity) -> Gauge:
    """Return the gauge of an amount, of which ``used`` is in thousand-millionths."""
    permille = -(-used * 1000 // total.nano) if total.nano > 0 else 0
    return Gauge(name=name, used=str(Quantity.of_nano(used, total.family)), total=str(total), permille=max(0, permille))


def _find_text(device: Device, names: Sequence[str]) -> str:
    """Return the first text among these attributes, whatever their domain is; empty: there is none."""
    for name in names:
        attribute = device.attributes.get(name)
        if attribute is None:
            in_domain = f"/{name}"
            attribute = next((each for key, each in device.attributes.items() if key.endswith(in_domain)), None)
        if attribute is not None and isinstance(attribute.value, str) and attribute.value:
            return attribute.value
    return ""


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """Return a sort key by which ``gpu-2`` comes before ``gpu-10``."""
    return tuple((text, int(number or 0)) for text, number in re.findall(r"([^0-9]*)([0-9]{0,9})", name))


def _limit(problems: Sequence[str]) -> tuple[str, ...]:
    shown = tuple(dict.fromkeys(problems))
    return shown if len(shown) <= _PROBLEMS else (*shown[:_PROBLEMS], f"and {len(shown) - _PROBLEMS} more")


__all__ = ["build_card_pictures", "find_consumed", "find_holders", "parse_unit_name"]
