"""What this node offers: every published device, what it stands for, and whose backend prepares it. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from api.errors import PermanentError
from api.model.devices import Attribute, DeviceTaint, Pool, SliceContent
from api.model.names import DeviceId, DriverName
from api.model.vocabulary import pool_name
from driver.kubeletplugin.health import HealthBoard
from driver.partitions.compiling import CompiledPool, compile_pool
from driver.partitions.geometry import Card, DeviceKind, Partition
from driver.partitions.limits import MAX_DEVICES, SliceLayout
from driver.partitions.naming import device_name
from driver.partitions.ordering import PublishOrder, needs_republish, publish_order


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDevice:
    """A published device."""

    partition: Partition
    backend: str
    """Name of the backend that prepares it."""
    attributes: dict[str, Attribute]
    """As published."""


class Source(NamedTuple):
    """All that the published devices of one kind follow from."""

    place: Place
    cards: tuple[Card, ...]
    backends: tuple[str, ...]
    """Of each card."""
    order: PublishOrder
    taints: Mapping[str, tuple[DeviceTaint, ...]]
    """By device name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """The devices of one kind, and what they were compiled from."""

    source: Source
    pool: Pool
    """As published, in the order in which the scheduler should take devices."""
    devices: Mapping[DeviceId, OfferedDevice]
    """Everything that a claim may have been given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """One state of the node's devices."""

    stocks: Mapping[DeviceKind, Stock] = field(default_factory=dict)

    @property
    def pools(self) -> tuple[Pool, ...]:
        return tuple(stock.pool for stock in self.stocks.values())

    def find(self, device: DeviceId) -> OfferedDevice | None:
        return next((stock.devices[device] for stock in self.stocks.values() if device in stock.devices), None)


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
    source = Source(place, cards, backends, order, _taints(cards, order, board))
    return previous if previous is not None and previous.source == source else _compile(source)


def _compile(source: Source) -> Stock:
    place, cards, backends, order, taints = source
    name = pool_name(place.node, cards[0].kind)
    compiled = compile_pool(name, place.node, cards, layout=place.layout, order=order, taints=taints)
    of_card = {card.uuid: backend for card, backend in zip(cards, backends, strict=True)}
    devices = {
        DeviceId(place.driver, name, device.name): OfferedDevice(
            partition=(partition := compiled.partitions[device.name]),
            backend=of_card[partition.card_uuid],
            attributes=device.attributes,
        )
        for content in compiled.pool.slices
        for device in content.devices
    }
    pool = compiled.pool if place.keeps_counters else _whole_cards(compiled)
    return Stock(source=source, pool=pool, devices=devices)


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
    if not board.ailments:
        return {}
    by_uuid = {card.uuid: card for card in cards}
    return {
        device_name(by_uuid[partition.card_uuid], partition): taints
        for partition in order.partitions
        if (taints := board.taints(partition))
    }
