"""What a node has, from its NodeInventory: cards, the names of their devices, and what is wrong with them. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from api.errors import PermanentError
from api.kerf.node_inventory import (
    InventoryCard,
    InventoryFunction,
    InventoryGpuModel,
    InventoryPlacement,
    InventoryShell,
    NodeInventorySpec,
)
from driver.controller.classic.requirements import numbers_of
from driver.partitions.device_names import card_name, device_name
from driver.partitions.geometry import (
    Card,
    Engines,
    FpgaCard,
    Function,
    GpuCard,
    GpuModel,
    Logic,
    Placement,
    Profile,
    Shell,
)
from driver.partitions.partition_specs import PartitionSpec
from driver.partitions.unit_map import FreeUnits, UnitMap, get_unit_map

WHOLE: Final = ""
"""What the name of a whole card has after the card's."""
_BARRING: Final = frozenset({"NoSchedule", "NoExecute"})


class InventoryError(PermanentError):
    """A NodeInventory contradicts itself."""


class Left(NamedTuple):
    """Of a card while some of its devices are in use."""

    free: FreeUnits
    unknown: tuple[str, ...]
    """Devices that the card does not have, by what their names have after the card's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardModel:
    """A card and what is worked out of it once."""

    card: Card
    unit_map: UnitMap
    name: str
    """What the names of its devices begin with."""
    model: str
    """The name of its model or shell."""
    driver_version: tuple[int, ...]
    """Of the driver on the host; nothing: it is not known."""

    def device(self, cut: PartitionSpec) -> str:
        """The name of the device that ``cut`` of this card is."""
        return device_name(self.card, cut.of(self.card.uuid))

    def find(self, device: str) -> PartitionSpec | None:
        """The cut that a device of this name is."""
        return _CUTS[self.unit_map].get(device.removeprefix(self.name))

    def left(self, parts: Collection[str]) -> Left:
        """What is free of it while its devices are in use whose names have ``parts`` after the card's.

        A part that it does not know takes the whole card.
        """
        return _left(self.unit_map, tuple(sorted(parts)))


_CUTS: Final[WeakKeyDictionary[UnitMap, Mapping[str, PartitionSpec]]] = WeakKeyDictionary()
"""The cuts of a grid, by what their devices' names have after the card's: the same for every card of the grid."""


@lru_cache(maxsize=4096)  # what a cluster's cards have in use: a card of seven units is cut in some hundred ways
def _left(unit_map: UnitMap, parts: tuple[str, ...]) -> Left:
    specs, whole = _CUTS[unit_map], unit_map.specs[-1]
    taken = (specs.get(part, whole).of("") for part in parts)
    return Left(unit_map.free(taken), tuple(part for part in parts if part not in specs))


def split_name(device: str) -> tuple[str, str]:
    """The name of the card that a device of this name is, or is a part of, and what follows (``naming``).

    >>> split_name("gpu-0-1g-10gb-at-0"), split_name("fpga-1")
    (('gpu-0', '-1g-10gb-at-0'), ('fpga-1', ''))
    """
    at = device.find("-", device.find("-") + 1)
    return (device, WHOLE) if at < 0 else (device[:at], device[at:])


@dataclass(frozen=True, slots=True, eq=False)
class Kit:
    """What a node's cards are like. Nodes that have the like share one object, and are compared by it."""

    cards: tuple[tuple[UnitMap, str, tuple[int, ...]], ...]
    """Of each: grid, model, driver version."""


_kit: Final = lru_cache(maxsize=256)(Kit)  # kinds of nodes in a cluster, with room for all orders of cards in them


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """The cards of a node."""

    cards: tuple[CardModel, ...]
    kit: Kit
    tainted: frozenset[str]
    """Names of devices that nobody should get."""

    def card_of(self, device: str) -> CardModel | None:
        """The card that a device of this name is, or is a part of."""
        name, _ = split_name(device)
        return next((card for card in self.cards if card.name == name), None)

    def has(self, device: str) -> bool:
        card = self.card_of(device)
        return card is not None and card.find(device) is not None


def stock_of(spec: NodeInventorySpec) -> Stock:
    """Raises InventoryError when a card is of a model that the inventory does not describe, or appears twice."""
    models = {model.id: _gpu_model(model) for model in spec.gpu_models}
    shells = {shell.name: _shell(shell) for shell in spec.shells}
    try:
        cards = tuple(_card(card, models, shells) for card in spec.cards)
    except KeyError as error:
        raise InventoryError(f"a card is of {error}, which the inventory does not describe") from error
    for identities in ([card.uuid for card in cards], [card_name(card) for card in cards]):
        if twice := _first_repeated(identities):
            raise InventoryError(f"{twice} is there twice")
    tainted = (entry.device for entry in spec.taints if any(taint.effect in _BARRING for taint in entry.taints))
    held = tuple(map(_grid_card, cards))
    kit = _kit(tuple((card.unit_map, card.model, card.driver_version) for card in held))
    return Stock(cards=held, kit=kit, tainted=frozenset(tainted))


def _grid_card(card: Card) -> CardModel:
    unit_map, name = get_unit_map(card), card_name(card)
    if unit_map not in _CUTS:
        _CUTS[unit_map] = {device_name(card, cut.of(card.uuid)).removeprefix(name): cut for cut in unit_map.specs}
    return CardModel(
        card=card,
        unit_map=unit_map,
        name=name,
        model=card.model.id if isinstance(card, GpuCard) else card.shell.name,
        driver_version=numbers_of(card.driver_version),
    )


def _first_repeated(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _card(card: InventoryCard, models: Mapping[str, GpuModel], shells: Mapping[str, Shell]) -> Card:
    if card.kind == "gpu":
        return GpuCard(
            uuid=card.uuid,
            index=card.index,
            model=models[card.model],
            pci_bus_id=card.pci_bus_id,
            numa_node=card.numa_node,
            driver_version=card.driver_version,
        )
    return FpgaCard(
        uuid=card.uuid,
        index=card.index,
        shell=shells[card.model],
        pci_bus_id=card.pci_bus_id,
        numa_node=card.numa_node,
        driver_version=card.driver_version,
        loaded={Placement(held.start, held.size): held.function for held in card.loaded},
    )


@lru_cache(maxsize=256)  # as many geometries as grids are remembered: nodes of one kind share one object
def _gpu_model(wire: InventoryGpuModel) -> GpuModel:
    fields = {
        name: getattr(wire, name)
        for name in (
            "id",
            "product",
            "architecture",
            "pci_device_ids",
            "memory_bytes",
            "compute_slices",
            "memory_slices",
            "multiprocessors",
            "exclusive_engines",
        )
    }
    profiles = tuple(
        Profile(
            name=profile.name,
            gi_profile_id=profile.gi_profile_id,
            gi_profile_enum=profile.gi_profile_enum,
            compute_slices=profile.compute_slices,
            memory_bytes=profile.memory_bytes,
            multiprocessors=profile.multiprocessors,
            engines=msgspec.convert(profile.engines, Engines, from_attributes=True),
            placements=_placements(profile.placements),
            max_instances=profile.max_instances,
        )
        for profile in wire.profiles
    )
    engines = msgspec.convert(wire.engines, Engines, from_attributes=True)
    return GpuModel(**fields, engines=engines, profiles=profiles)


@lru_cache(maxsize=256)
def _shell(wire: InventoryShell) -> Shell:
    slots = tuple(msgspec.convert(slot, Logic, from_attributes=True) for slot in wire.slots)
    functions = tuple(map(_function, wire.functions))
    return Shell(name=wire.name, uuid=wire.uuid, family=wire.family, slots=slots, functions=functions)


def _function(wire: InventoryFunction) -> Function:
    return Function(
        name=wire.name,
        version=wire.version,
        afu_id=wire.afu_id,
        placements=_placements(wire.placements),
        load_s=wire.load_milliseconds / 1000,
    )


def _placements(wire: Iterable[InventoryPlacement]) -> tuple[Placement, ...]:
    return tuple(Placement(placement.start, placement.size) for placement in wire)
