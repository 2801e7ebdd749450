"""The compiler from cards to a pool: published devices with counters that keep overlapping partitions apart.

Every partition of every card's geometry becomes a device. A card's counter set has one counter of 1 for each unit, and
one for each exclusive engine; a device consumes the units it covers and the engines it takes, the whole card all of
them (KEP-4815). These keep overlapping partitions apart. Of a card with several layouts, the layout with most units, n,
has counters of 1; the counters of the others' units are n, of which a device consumes all n of each unit that it
covers, and 1 of each unit of every other layout. So two devices of two layouts exceed some counter, while those of one
layout together, of which there are at most n, never do. Every device also consumes the quota counters of its geometry,
such as ``memory``, so that a quota system can sum one counter over all devices; their totals never keep a partition
from being allocated that units and engines allow. A partition that may be shared becomes one more device, with the same
counters.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace as replace_fields

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import (
    Attribute,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    Pool,
    SliceContent,
)
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.partitions.device_attributes import (
    Vocabulary,
    capacities,
    card_attributes,
    check_vocabulary,
    no_capacity,
    partition_attributes,
)
from kerf_dra.driver.partitions.device_names import card_name, device_name, monitor_name
from kerf_dra.driver.partitions.geometry import NOTHING, Card, Geometry, Partition, PartitionSpec
from kerf_dra.driver.partitions.publish_order import PublishOrder, publish_order
from kerf_dra.driver.partitions.shared_devices import build_shared_device
from kerf_dra.driver.partitions.slice_limits import (
    MAX_DEVICES,
    MAX_SETS,
    CompileError,
    SliceLayout,
    check_device,
    check_pool,
)
from kerf_dra.driver.partitions.unit_map import MOST_GRADED_UNITS, get_unit_map, quota_totals

_NO_TAINTS: Final[Mapping[str, tuple[DeviceTaint, ...]]] = MappingProxyType({})
_GEOMETRIES: Final = 256
"""The most geometries whose counters are kept: more than there are in any cluster, so that equal cards share them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardDevices:
    """The exclusive devices of one card as they are whatever is in use: of rank 0, and without taints."""

    card: Card
    node: str
    vocabulary: Vocabulary
    devices: Mapping[Partition, Device]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPool:
    """A pool to publish, and the partition that each of its devices represents."""

    pool: Pool
    partitions: Mapping[str, Partition]
    """The partition of each device, by device name."""
    cards: Mapping[str, CardDevices]
    """The devices of each card, by its UUID, from which the next compilation goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _GeometryCounters:
    """The counters of all cards of one geometry."""

    totals: dict[str, Counter]
    consumed: tuple[dict[str, Counter], ...]
    """What each of the geometry's partitions consumes, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CardDevice:
    """A device and its card."""

    card: Card
    device: Device


def compile_pool(
    name: str,
    node: str,
    cards: Sequence[Card],
    *,
    vocabulary: Vocabulary,
    layout: SliceLayout,
    order: PublishOrder | None = None,
    shared: Sequence[Partition] = (),
    taints: Mapping[str, tuple[DeviceTaint, ...]] = _NO_TAINTS,
    reserved: Collection[Partition] = (),
    has_ranks: bool = True,
    previous: CompiledPool | None = None,
) -> CompiledPool:
    """Compile the pool ``name`` of the ``cards`` of ``node``, in slices of ``layout``.

    ``vocabulary`` is that of the family of all the cards: every device has exactly its attributes and capacities.
    ``order`` is that of ``publish_order`` for the same cards; None: as if nothing is taken. SliceLayout.COMBINED keeps
    the devices of a card together: the order holds inside each card, and cards follow in the order of their first
    devices. ``shared`` (``order_shared_partitions``) become shared devices, after all others and in this order.
    ``taints`` are by device name. What ``reserved`` partitions consume is missing in the counters. Without
    ``has_ranks`` all devices have the rank 0, which does not change with what is in use. Of cards that are as they were
    in ``previous`` the devices are taken from there. A pool without cards has one empty slice, which shows that it is
    empty.

    Raises CompileError when a card cannot be described in ``vocabulary``, a limit of the API is broken, two devices
    have one name, ``order`` or ``shared`` is for other cards, a taint names no device, or there are shared devices with
    SliceLayout.COMBINED, whose slices hold all devices of a card.
    """
    known = previous.cards if previous is not None else {}
    of_cards = [_compile_card(card, node, vocabulary, known.get(card.uuid)) for card in cards]
    order = publish_order(cards, ()) if order is None else order
    compiled = {
        partition: _CardDevice(card=each.card, device=device)
        for each in of_cards
        for partition, device in _describe_use(each, taints, order if has_ranks else None)
    }
    unshared = [replace(partition, shared=False) for partition in shared]
    if len(order.partitions) != len(compiled) or not compiled.keys() >= {*order.partitions, *unshared}:
        raise CompileError(reason="the publish order was made for other cards")
    if shared and layout is SliceLayout.COMBINED:
        raise CompileError(reason="devices in shares need counters in slices of their own (Kubernetes 1.35)")
    exclusive_devices = [compiled[partition] for partition in order.partitions]
    originals = [compiled[partition] for partition in unshared]
    shared_devices = [
        replace(original, device=build_shared_device(original.device, original.card.geometry.shareable))
        for original in originals
    ]
    for each in shared_devices:
        check_device(each.device)
    published = zip((*exclusive_devices, *shared_devices), (*order.partitions, *shared), strict=True)
    partitions = {item.device.name: partition for item, partition in published}
    for tainted in taints:
        if tainted not in partitions:
            raise CompileError(device=tainted, reason="it is to be tainted but there is no such device")
    sets = {card_name(card): _counter_set(card, reserved) for card in cards}
    if layout is SliceLayout.SPLIT:
        slices = _split((exclusive_devices, shared_devices), sets)
    else:
        slices = _combined(exclusive_devices, sets)
    pool = Pool(name=name, slices=tuple(slices) or (SliceContent(),))
    check_pool(pool, layout)
    return CompiledPool(
        pool=pool, partitions=MappingProxyType(partitions), cards={each.card.uuid: each for each in of_cards}
    )


def build_exclusive_device(card: Card, spec: PartitionSpec, node: str, vocabulary: Vocabulary) -> Device:
    """Build the device of one partition without its counters, as selectors see it."""
    return Device(
        name=device_name(card, spec.of(card.uuid)),
        attributes={**card_attributes(card, node, vocabulary), **partition_attributes(card, spec, vocabulary)},
        capacity=capacities(spec, vocabulary),
    )


def build_monitor_slices(
    cards: Iterable[Card], node: str, vocabulary: Vocabulary, driver: DriverName
) -> Iterator[SliceContent]:
    """Yield the slices with a monitor device for each of ``cards``, for claims with admin access (KEP-5018).

    They are published after all others. A device with counters cannot be allocated while its card is in use, not even
    with admin access: kube-scheduler charges the counters nevertheless (``k8s.io/dynamic-resource-allocation``
    ``structured``, Kubernetes 1.37). So a monitor device represents the same card, but consumes no counters. A taint of
    ``driver`` keeps claims away that do not tolerate it: a class that selects any device of the driver has it, too.
    """
    taint = DeviceTaint(key=v.monitor_taint_key(driver), effect="NoSchedule")
    return _slices([_monitor_device(card, node, vocabulary, taint) for card in cards])


def _monitor_device(card: Card, node: str, vocabulary: Vocabulary, taint: DeviceTaint) -> Device:
    return Device(
        name=monitor_name(card_name(card)),
        attributes={**card_attributes(card, node, vocabulary), v.ATTRIBUTE_CUT: Attribute.of(v.CUT_MONITOR)},
        capacity=no_capacity(vocabulary),
        taints=(taint,),
    )


def _compile_card(card: Card, node: str, vocabulary: Vocabulary, previous: CardDevices | None) -> CardDevices:
    """Return the devices of a card, ``previous`` if they are the same. Raises CompileError."""
    if previous is not None and (previous.card, previous.node, previous.vocabulary) == (card, node, vocabulary):
        return previous
    check_vocabulary(card, vocabulary)
    common = card_attributes(card, node, vocabulary)
    rank = {v.ATTRIBUTE_LOSS_RANK: Attribute.of(0)} if v.ATTRIBUTE_LOSS_RANK in vocabulary.attributes else {}
    devices: dict[Partition, Device] = {}
    for spec, consumed in zip(card.geometry.specs, _counters(card.geometry).consumed, strict=True):
        partition = spec.of(card.uuid)
        device = devices[partition] = Device(
            name=device_name(card, partition),
            attributes={**common, **partition_attributes(card, spec, vocabulary), **rank},
            capacity=capacities(spec, vocabulary),
            consumes_counters=(DeviceCounterConsumption(counter_set=card_name(card), counters=consumed),),
        )
        check_device(device)
    return CardDevices(card=card, node=node, vocabulary=vocabulary, devices=devices)


def _describe_use(
    compiled: CardDevices, taints: Mapping[str, tuple[DeviceTaint, ...]], ranked: PublishOrder | None
) -> Iterator[tuple[Partition, Device]]:
    """Yield the devices of a card with their taints and the ranks of what is in use.

    ``ranked`` has the losses that they say; None: they say none. The devices of a card with more units than
    ``MOST_GRADED_UNITS`` all have the rank 0, so that none is preferred.
    """
    card = compiled.card
    if v.ATTRIBUTE_LOSS_RANK not in compiled.vocabulary.attributes or card.geometry.units > MOST_GRADED_UNITS:
        ranked = None
    for spec, (partition, device) in zip(card.geometry.specs, compiled.devices.items(), strict=True):
        used = device
        if ranked is not None and (rank := _find_rank(card, spec, partition, ranked)):
            used = replace_fields(used, attributes={**used.attributes, v.ATTRIBUTE_LOSS_RANK: Attribute.of(rank)})
        if device.name in taints:
            used = replace_fields(used, taints=taints[device.name])
        yield partition, used


def _find_rank(card: Card, spec: PartitionSpec, partition: Partition, ranked: PublishOrder) -> int:
    """Return the rank of a partition's loss among those of its size; one that is not available has the last."""
    losses, loss = get_unit_map(card).list_losses(spec), ranked.losses.get(partition)
    return len(losses) - 1 if loss is None else losses.index(loss)


def _counter_set(card: Card, reserved: Collection[Partition]) -> CounterSet:
    totals = _counters(card.geometry).totals
    own = {partition for partition in reserved if partition.card_uuid == card.uuid}
    if own:
        consumed = [
            counters
            for spec, counters in zip(card.geometry.specs, _counters(card.geometry).consumed, strict=True)
            if spec.of(card.uuid) in own
        ]
        totals = {
            name: _without(counter, [each[name] for each in consumed if name in each])
            for name, counter in totals.items()
        }
    return CounterSet(name=card_name(card), counters=totals)


def _without(counter: Counter, consumed: Iterable[Counter]) -> Counter:
    """Return what is left of ``counter``, which partitions that overlap would consume more than once."""
    left = counter.value
    for each in consumed:
        left = max(NOTHING, left - each.value)
    return counter if left == counter.value else Counter(value=left)


@lru_cache(maxsize=_GEOMETRIES)
def _counters(geometry: Geometry) -> _GeometryCounters:
    engines = [name for name, _ in geometry.engines]
    units, shares = _unit_counters(geometry)
    totals = {
        **units,
        **{name: Counter(value=Quantity(total)) for name, total in geometry.engines},
        **{name: Counter(value=total) for name, total in quota_totals(geometry).items() if total},
    }
    consumed = tuple(
        {
            **{name: counter for unit, (name, counter) in enumerate(units.items()) if spec.mask >> unit & 1},
            **(shares[spec.placement.layout] if spec.placement is not None else {}),
            **{name: Counter(value=Quantity(n)) for name, n in zip(engines, spec.engines, strict=True) if n},
            **{name: Counter(value=amount) for name, amount in spec.quota if amount},
        }
        for spec in geometry.specs
    )
    return _GeometryCounters(totals=totals, consumed=consumed)


def _unit_counters(geometry: Geometry) -> tuple[dict[str, Counter], dict[str, dict[str, Counter]]]:
    """Return the counters of all units, and what a device of each layout consumes of those of the others."""
    layouts = geometry.all_layouts
    largest = max(layouts, key=lambda layout: layout.units)
    one, most = Counter(value=Quantity(1)), Counter(value=Quantity(largest.units))
    units: dict[str, Counter] = {}
    owners: dict[str, str] = {}
    for layout in layouts:
        prefix = f"{layout.name}-{geometry.unit}" if layout.name else geometry.unit
        names = [f"{prefix}-{unit}" for unit in range(layout.units)]
        units |= dict.fromkeys(names, one if layout is largest else most)
        if layout is not largest:
            owners |= dict.fromkeys(names, layout.name)
    shares = {layout.name: {name: one for name, owner in owners.items() if owner != layout.name} for layout in layouts}
    return units, shares


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
        cards.setdefault(card_name(compiled.card), []).append(compiled.device)
    for card, devices in cards.items():
        yield SliceContent(devices=tuple(devices), shared_counters=(sets[card],))


__all__ = ["CompileError", "CompiledPool", "SliceLayout", "Vocabulary", "build_monitor_slices", "compile_pool"]
