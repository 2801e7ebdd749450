"""What this node offers: every published device, what it stands for, and whose backend prepares it. Pure."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from api.errors import PermanentError
from api.model.device_attributes import ATTRIBUTE_CUT, ATTRIBUTE_SHARED, pool_name
from api.model.devices import Attribute, DeviceTaint, Pool, SliceContent
from api.model.names import DeviceId, DriverName
from driver.kubeletplugin.inventory.binding_conditions import Conditions, loads_slowly, with_conditions
from driver.kubeletplugin.inventory.health import HealthBoard
from driver.kubeletplugin.inventory.optional_devices import Offers
from driver.partitions.device_names import device_name, exclusive_name, monitored_name
from driver.partitions.geometry import Card, DeviceKind, Partition
from driver.partitions.pool_compiler import CompiledPool, build_monitor_slices, compile_pool
from driver.partitions.publish_order import PublishOrder, needs_republish, publish_order
from driver.partitions.shared_devices import order_shared_partitions
from driver.partitions.slice_limits import MAX_DEVICES, SliceLayout


class AmbiguousCardError(PermanentError):
    """Two backends offer one card, or two cards have one name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the devices are published."""

    driver: DriverName
    node: str
    layout: SliceLayout
    keeps_counters: bool = True
    """False: the API server drops shared counters (its gate DRAPartitionableDevices is off). Partitions of one card
    would look free of one another to the scheduler, so only whole cards are offered."""
    offers: Offers = Offers()  # noqa: RUF009  (frozen)
    """What is published because classes ask for it."""
    keeps_shares: bool = True
    """False: the API server drops what makes devices shareable (its gate DRAConsumableCapacity is off)."""

    early_load_s: float | None = None
    """Functions that take so long to load are published with binding conditions (KEP-5007); None: none is."""
    keeps_conditions: bool = True
    """False: the API server drops binding conditions (its gate DRADeviceBindingConditions is off)."""

    @property
    def can_share(self) -> bool:
        return self.keeps_counters and self.keeps_shares and self.layout is SliceLayout.SPLIT


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDevice:
    """A published device."""

    partition: Partition
    backend: str
    """Name of the backend that prepares it."""
    attributes: dict[str, Attribute]
    """As published."""
    is_monitor: bool = False
    """It stands for a card to look at: only for claims with admin access (KEP-5018)."""


class Source(NamedTuple):
    """All that the published devices of one kind follow from."""

    place: Place
    cards: tuple[Card, ...]
    backends: tuple[str, ...]
    """Of each card."""
    order: PublishOrder
    shared: tuple[Partition, ...]
    """What is offered in shares too, in its own order."""
    taints: Mapping[str, tuple[DeviceTaint, ...]]
    """By device name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """The devices of one kind, and what they were compiled from."""

    source: Source
    pool: Pool
    """As published, in the order in which the scheduler should take devices."""
    devices: Mapping[DeviceId, OfferedDevice]
    """Everything that a claim may have been given for itself."""

    def find(self, device: DeviceId) -> OfferedDevice | None:
        """What ``device`` stands for; one in shares, or to look at, whether or not it is offered now."""
        if (name := exclusive_name(device.device)) is not None:
            offered = self.devices.get(device._replace(device=name))
            return None if offered is None else _in_shares(offered)
        if (name := monitored_name(device.device)) is not None:
            offered = self.devices.get(device._replace(device=name))
            return None if offered is None else _to_look_at(offered)
        return self.devices.get(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """One state of the node's devices."""

    stocks: Mapping[DeviceKind, Stock] = field(default_factory=dict)

    @property
    def pools(self) -> tuple[Pool, ...]:
        return tuple(stock.pool for stock in self.stocks.values())

    def loads_slowly(self, at_least_s: float | None) -> bool:
        """Whether making any of the devices ready may take so long; None: for ever."""
        if at_least_s is None:
            return False
        sources = (stock.source for stock in self.stocks.values())
        return any(
            loads_slowly(card, Partition(kind=card.kind, card_uuid=card.uuid), at_least_s)
            for source in sources
            for card in source.cards
        )

    def find(self, device: DeviceId) -> OfferedDevice | None:
        found = (stock.find(device) for stock in self.stocks.values())
        return next((offered for offered in found if offered is not None), None)


def take_stock(
    place: Place,
    cards: Mapping[str, Sequence[Card]],
    taken: Collection[Partition],
    board: HealthBoard,
    previous: Inventory,
) -> Inventory:
    """The inventory of ``cards`` (by backend) while ``taken`` are in use.

    The order of ``previous`` is kept where a new one would change nothing that the scheduler could choose now, and its
    devices where nothing changed at all. Raises AmbiguousCardError and CompileError.
    """
    _refuse_ambiguous(cards)
    stocks = {}
    for kind in DeviceKind:
        members = [(card, backend) for backend, held in cards.items() for card in held if card.kind is kind]
        if members:
            stocks[kind] = _stock(place, members, taken, board, previous.stocks.get(kind))
    return Inventory(stocks=stocks)


def _stock(
    place: Place,
    members: Sequence[tuple[Card, str]],
    taken: Collection[Partition],
    board: HealthBoard,
    previous: Stock | None,
) -> Stock:
    cards = tuple(card for card, _ in members)
    order = publish_order(cards, taken)
    if previous is not None and not needs_republish(previous.source.order, order):
        order = previous.source.order
    backends = tuple(backend for _, backend in members)
    shared = order_shared_partitions(cards, order.partitions, place.offers.shareable, taken) if place.can_share else ()
    source = Source(place, cards, backends, order, shared, _taints(cards, order, board))
    return previous if previous is not None and previous.source == source else _compile(source)


def _compile(source: Source) -> Stock:
    place, cards, backends, order, shared, taints = source
    name = pool_name(place.node, cards[0].kind)
    compiled = compile_pool(name, place.node, cards, layout=place.layout, order=order, shared=shared, taints=taints)
    of_card = {card.uuid: backend for card, backend in zip(cards, backends, strict=True)}
    devices = {
        DeviceId(place.driver, name, device.name): OfferedDevice(
            partition=(partition := compiled.partitions[device.name]),
            backend=of_card[partition.card_uuid],
            attributes=device.attributes,
        )
        for content in compiled.pool.slices
        for device in content.devices
        if not compiled.partitions[device.name].shared
    }
    pool = compiled.pool if place.keeps_counters else _whole_cards(compiled)
    if place.early_load_s is not None and place.keeps_conditions:
        slow = _slow_devices(cards, compiled, place.early_load_s)
        pool = with_conditions(pool, slow, Conditions.of(place.driver))
    if cards[0].kind in place.offers.monitors:
        pool = replace(pool, slices=(*pool.slices, *build_monitor_slices(cards, place.node)))
    return Stock(source=source, pool=pool, devices=devices)


def _slow_devices(cards: Iterable[Card], compiled: CompiledPool, at_least_s: float) -> set[str]:
    by_uuid = {card.uuid: card for card in cards}
    return {
        device
        for device, partition in compiled.partitions.items()
        if loads_slowly(by_uuid[partition.card_uuid], partition, at_least_s)
    }


def _in_shares(offered: OfferedDevice) -> OfferedDevice:
    attributes = offered.attributes | {ATTRIBUTE_SHARED: Attribute.of(True)}
    partition = dataclasses.replace(offered.partition, shared=True)
    return dataclasses.replace(offered, partition=partition, attributes=attributes)


def _to_look_at(offered: OfferedDevice) -> OfferedDevice:
    attributes = offered.attributes | {ATTRIBUTE_CUT: Attribute.of("monitor")}
    return dataclasses.replace(offered, attributes=attributes, is_monitor=True)


def _whole_cards(compiled: CompiledPool) -> Pool:
    """The pool without partitions and counters."""
    devices = (device for slice_ in compiled.pool.slices for device in slice_.devices)
    whole = [replace(device, consumes_counters=()) for device in devices if compiled.partitions[device.name].is_whole]
    slices = [SliceContent(devices=tuple(whole[at : at + MAX_DEVICES])) for at in range(0, len(whole), MAX_DEVICES)]
    return Pool(name=compiled.pool.name, slices=tuple(slices))


def _refuse_ambiguous(cards: Mapping[str, Sequence[Card]]) -> None:
    owners: dict[str, str] = {}
    for backend, held in cards.items():
        for card in held:
            if (other := owners.setdefault(card.uuid, backend)) != backend:
                raise AmbiguousCardError(
                    f"card {card.uuid} is offered by two backends, {other} and {backend}: drop one"
                )


def _taints(cards: Sequence[Card], order: PublishOrder, board: HealthBoard) -> dict[str, tuple[DeviceTaint, ...]]:
    if board.is_clear:
        return {}
    by_uuid = {card.uuid: card for card in cards}
    return {
        device_name(by_uuid[partition.card_uuid], partition): taints
        for partition in order.partitions
        if (taints := board.taints(partition))
    }
