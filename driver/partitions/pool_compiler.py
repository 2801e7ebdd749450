"""Geometry to a pool: cards in, published devices out, with the counters that keep overlapping ones apart.

Every cut of every card becomes a device: each profile at each placement, each function at each placement, each run of
FPGA slots, and the whole card. A card's counter set has one counter of 1 for each unit, and one for each exclusive
engine; a device consumes the units it covers and the engines it takes, the whole card everything (KEP-4815). What is
offered in shares becomes one more device, with the same counters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from api.model.devices import Counter, CounterSet, Device, DeviceCounterConsumption, DeviceTaint, Pool, SliceContent
from api.model.quantity import Quantity
from driver.partitions.device_attributes import capacities, card_attributes, cut_attributes
from driver.partitions.device_names import card_name, device_name
from driver.partitions.geometry import Card, DeviceKind, Partition
from driver.partitions.partition_specs import Cut
from driver.partitions.publish_order import PublishOrder, publish_order
from driver.partitions.shared_devices import in_shares
from driver.partitions.slice_limits import MAX_DEVICES, MAX_SETS, CompileError, SliceLayout, check_pool
from driver.partitions.unit_map import Grid, grid_of

_NO_TAINTS: Final[Mapping[str, tuple[DeviceTaint, ...]]] = MappingProxyType({})
_CUTS: Final = 1024
"""Remembered: more than all known models and shells have, so that equal cards share what their devices consume."""
_UNIT: Final = {DeviceKind.GPU: "memory-slice", DeviceKind.FPGA: "slot"}
"""What a unit is called in counter names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPool:
    """What to publish, and what each published device stands for."""

    pool: Pool
    partitions: Mapping[str, Partition]
    """By device name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """One device, and whose it is."""

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
    """The pool ``name`` (``vocabulary.pool_name``) of the ``cards`` of ``node``, as ``layout`` has it.

    ``order`` is that of ``publish_order`` for the same cards; None: as if nothing is taken. SliceLayout.COMBINED keeps
    the devices of a card together: the order holds inside each card, and cards follow in the order of their first
    devices. ``shared`` (``sharing.share_order``) are offered in shares too, behind all others and in this order.
    ``taints`` are by device name. A pool without cards has one empty slice: it can be seen to be empty.

    Raises CompileError when something breaks a limit of the API, two devices get one name, ``order`` or ``shared`` is
    for other cards, a taint names no device, or shares are to be published with SliceLayout.COMBINED, whose slices
    hold all devices of a card.
    """
    order = publish_order(cards, ()) if order is None else order
    compiled = {partition: device for card in cards for partition, device in _devices(card, node, taints)}
    exclusive = [replace(partition, shared=False) for partition in shared]
    if len(order.partitions) != len(compiled) or not compiled.keys() >= {*order.partitions, *exclusive}:
        raise CompileError(reason="the publish order was made for other cards")
    if shared and layout is SliceLayout.COMBINED:
        raise CompileError(reason="devices in shares need counters in slices of their own (Kubernetes 1.35)")
    ordered = [compiled[partition] for partition in order.partitions]
    in_parts = [_Compiled(card=compiled[each].card, device=in_shares(compiled[each].device)) for each in exclusive]
    offered = zip((*ordered, *in_parts), (*order.partitions, *shared), strict=True)
    partitions = {item.device.name: partition for item, partition in offered}
    for tainted in taints:
        if tainted not in partitions:
            raise CompileError(device=tainted, reason="it is to be tainted but there is no such device")
    sets = {card_name(card): _counter_set(card, grid_of(card)) for card in cards}
    slices = _split((ordered, in_parts), sets) if layout is SliceLayout.SPLIT else _combined(ordered, sets)
    pool = Pool(name=name, slices=tuple(slices) or (SliceContent(),))
    check_pool(pool, layout)
    return CompiledPool(pool=pool, partitions=MappingProxyType(partitions))


def _devices(
    card: Card, node: str, taints: Mapping[str, tuple[DeviceTaint, ...]]
) -> Iterator[tuple[Partition, _Compiled]]:
    grid = grid_of(card)
    shared = card_attributes(card, node)
    for cut in grid.cuts:
        partition = cut.of(card.uuid)
        name = device_name(card, partition)
        device = Device(
            name=name,
            attributes={**shared, **cut_attributes(card, cut)},
            capacity=capacities(card, cut),
            consumes_counters=(
                DeviceCounterConsumption(counter_set=card_name(card), counters=_consumed(card.kind, grid, cut)),
            ),
            taints=taints.get(name, ()),
        )
        yield partition, _Compiled(card=card_name(card), device=device)


def _counter_set(card: Card, grid: Grid) -> CounterSet:
    return CounterSet(name=card_name(card), counters=_consumed(card.kind, grid, grid.cuts[-1]))


@lru_cache(maxsize=_CUTS)
def _consumed(kind: DeviceKind, grid: Grid, cut: Cut) -> dict[str, Counter]:
    one = Counter(value=Quantity(1))
    units = {f"{_UNIT[kind]}-{unit}": one for unit in range(grid.units) if cut.mask >> unit & 1}
    taken = zip(grid.engine_names, cut.engines, strict=True)
    return units | {name: Counter(value=Quantity(count)) for name, count in taken if count}


def _split(groups: Iterable[Sequence[_Compiled]], sets: Mapping[str, CounterSet]) -> Iterator[SliceContent]:
    """A slice of its own for the rest of each group, so that a change of one leaves the others' slices alone."""
    counters = list(sets.values())
    for start in range(0, len(counters), MAX_SETS):
        yield SliceContent(shared_counters=tuple(counters[start : start + MAX_SETS]))
    for ordered in groups:
        for start in range(0, len(ordered), MAX_DEVICES):
            yield SliceContent(devices=tuple(compiled.device for compiled in ordered[start : start + MAX_DEVICES]))


def _combined(ordered: Sequence[_Compiled], sets: Mapping[str, CounterSet]) -> Iterator[SliceContent]:
    cards: dict[str, list[Device]] = {}
    for compiled in ordered:
        cards.setdefault(compiled.card, []).append(compiled.device)
    for card, devices in cards.items():
        yield SliceContent(devices=tuple(devices), shared_counters=(sets[card],))


__all__ = ["CompileError", "CompiledPool", "SliceLayout", "compile_pool"]
