"""The compiler from cards to a pool: published devices with counters that keep overlapping partitions apart.

Every partition of every card becomes a device: each profile at each placement, each function at each placement, each
run of FPGA slots, and the whole card. A card's counter set has one counter of 1 for each unit, and one for each
exclusive engine; a device consumes the units it covers and the engines it takes, the whole card all of them (KEP-4815).
A partition that may be shared becomes one more device, with the same counters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from api.model import device_attributes as v
from api.model.devices import (
    Attribute,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    Pool,
    SliceContent,
)
from api.model.quantity import Quantity
from driver.partitions.device_attributes import capacities, card_attributes, no_capacity, partition_attributes
from driver.partitions.device_names import card_name, device_name, monitor_name
from driver.partitions.geometry import Card, DeviceKind, Partition
from driver.partitions.partition_specs import PartitionSpec
from driver.partitions.publish_order import PublishOrder, publish_order
from driver.partitions.shared_devices import build_shared_device
from driver.partitions.slice_limits import MAX_DEVICES, MAX_SETS, CompileError, SliceLayout, check_pool
from driver.partitions.unit_map import UnitMap, get_unit_map

_NO_TAINTS: Final[Mapping[str, tuple[DeviceTaint, ...]]] = MappingProxyType({})
_SPECS: Final = 1024
"""The most counters of partitions kept: more than all known models and shells have, so that equal cards share them."""
_UNIT: Final = {DeviceKind.GPU: "memory-slice", DeviceKind.FPGA: "slot"}
"""The name of a unit in counter names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPool:
    """A pool to publish, and the partition that each of its devices represents."""

    pool: Pool
    partitions: Mapping[str, Partition]
    """The partition of each device, by device name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CardDevice:
    """A device and the name of its card."""

    card: str
    device: Device


def compile_pool(
    name: str,
    node: str,
    cards: Sequence[Card],
    *,
    layout: SliceLayout,
    order: PublishOrder | None = None,
    shared: Sequence[Partition] = (),
    taints: Mapping[str, tuple[DeviceTaint, ...]] = _NO_TAINTS,
) -> CompiledPool:
    """Compile the pool ``name`` of the ``cards`` of ``node``, in slices of ``layout``.

    ``order`` is that of ``publish_order`` for the same cards; None: as if nothing is taken. SliceLayout.COMBINED keeps
    the devices of a card together: the order holds inside each card, and cards follow in the order of their first
    devices. ``shared`` (``order_shared_partitions``) become shared devices, after all others and in this order.
    ``taints`` are by device name. A pool without cards has one empty slice, which shows that it is empty.

    Raises CompileError when a limit of the API is broken, two devices have one name, ``order`` or ``shared`` is for
    other cards, a taint names no device, or there are shared devices with SliceLayout.COMBINED, whose slices hold all
    devices of a card.
    """
    order = publish_order(cards, ()) if order is None else order
    compiled = {partition: device for card in cards for partition, device in _devices(card, node, taints)}
    unshared = [replace(partition, shared=False) for partition in shared]
    if len(order.partitions) != len(compiled) or not compiled.keys() >= {*order.partitions, *unshared}:
        raise CompileError(reason="the publish order was made for other cards")
    if shared and layout is SliceLayout.COMBINED:
        raise CompileError(reason="devices in shares need counters in slices of their own (Kubernetes 1.35)")
    exclusive_devices = [compiled[partition] for partition in order.partitions]
    originals = [compiled[partition] for partition in unshared]
    shared_devices = [replace(original, device=build_shared_device(original.device)) for original in originals]
    published = zip((*exclusive_devices, *shared_devices), (*order.partitions, *shared), strict=True)
    partitions = {item.device.name: partition for item, partition in published}
    for tainted in taints:
        if tainted not in partitions:
            raise CompileError(device=tainted, reason="it is to be tainted but there is no such device")
    sets = {card_name(card): _counter_set(card, get_unit_map(card)) for card in cards}
    if layout is SliceLayout.SPLIT:
        slices = _split((exclusive_devices, shared_devices), sets)
    else:
        slices = _combined(exclusive_devices, sets)
    pool = Pool(name=name, slices=tuple(slices) or (SliceContent(),))
    check_pool(pool, layout)
    return CompiledPool(pool=pool, partitions=MappingProxyType(partitions))


def build_monitor_slices(cards: Iterable[Card], node: str) -> Iterator[SliceContent]:
    """Yield the slices with a monitor device for each of ``cards``, for claims with admin access (KEP-5018).

    They are published after all others. A device with counters cannot be allocated while its card is in use, not even
    with admin access: kube-scheduler charges the counters nevertheless (``k8s.io/dynamic-resource-allocation``
    ``structured``, Kubernetes 1.37). So a monitor device represents the same card, but consumes no counters.
    """
    return _slices([_monitor_device(card, node) for card in cards])


def _monitor_device(card: Card, node: str) -> Device:
    own = {
        v.ATTRIBUTE_CUT: Attribute.of("monitor"),
        v.ATTRIBUTE_PROFILE: Attribute.of(""),
        v.ATTRIBUTE_FUNCTION: Attribute.of(""),
        v.ATTRIBUTE_SHARED: Attribute.of(False),
        v.ATTRIBUTE_START: Attribute.of(0),
        v.ATTRIBUTE_SIZE: Attribute.of(0),
    }
    return Device(
        name=monitor_name(card_name(card)), attributes={**card_attributes(card, node), **own}, capacity=no_capacity()
    )


def _devices(
    card: Card, node: str, taints: Mapping[str, tuple[DeviceTaint, ...]]
) -> Iterator[tuple[Partition, _CardDevice]]:
    unit_map = get_unit_map(card)
    shared = card_attributes(card, node)
    for spec in unit_map.specs:
        partition = spec.of(card.uuid)
        name = device_name(card, partition)
        device = Device(
            name=name,
            attributes={**shared, **partition_attributes(card, spec)},
            capacity=capacities(card, spec),
            consumes_counters=(
                DeviceCounterConsumption(counter_set=card_name(card), counters=_consumed(card.kind, unit_map, spec)),
            ),
            taints=taints.get(name, ()),
        )
        yield partition, _CardDevice(card=card_name(card), device=device)


def _counter_set(card: Card, unit_map: UnitMap) -> CounterSet:
    return CounterSet(name=card_name(card), counters=_consumed(card.kind, unit_map, unit_map.specs[-1]))


@lru_cache(maxsize=_SPECS)
def _consumed(kind: DeviceKind, unit_map: UnitMap, spec: PartitionSpec) -> dict[str, Counter]:
    one = Counter(value=Quantity(1))
    units = {f"{_UNIT[kind]}-{unit}": one for unit in range(unit_map.units) if spec.mask >> unit & 1}
    taken = zip(unit_map.engine_names, spec.engines, strict=True)
    return units | {name: Counter(value=Quantity(count)) for name, count in taken if count}


def _split(groups: Iterable[Sequence[_CardDevice]], sets: Mapping[str, CounterSet]) -> Iterator[SliceContent]:
    """Begin a slice with each group, so that a change of one group leaves the others' slices unchanged."""
    counters = list(sets.values())
    for start in range(0, len(counters), MAX_SETS):
        yield SliceContent(shared_counters=tuple(counters[start : start + MAX_SETS]))
    for group in groups:
        yield from _slices([compiled.device for compiled in group])


def _slices(devices: Sequence[Device]) -> Iterator[SliceContent]:
    for start in range(0, len(devices), MAX_DEVICES):
        yield SliceContent(devices=tuple(devices[start : start + MAX_DEVICES]))


def _combined(ordered: Sequence[_CardDevice], sets: Mapping[str, CounterSet]) -> Iterator[SliceContent]:
    cards: dict[str, list[Device]] = {}
    for compiled in ordered:
        cards.setdefault(compiled.card, []).append(compiled.device)
    for card, devices in cards.items():
        yield SliceContent(devices=tuple(devices), shared_counters=(sets[card],))


__all__ = ["CompileError", "CompiledPool", "SliceLayout", "build_monitor_slices", "compile_pool"]
