"""What a node has, from its NodeInventory: cards, the names of their devices, and what is wrong with them. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from api.errors import PermanentError
from api.kerf.inventory import (
    InventoryCard,
    InventoryFunction,
    InventoryGpuModel,
    InventoryPlacement,
    InventoryShell,
    NodeInventorySpec,
)
from driver.controller.classic.asking import numbers_of
from driver.partitions.cuts import Cut
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
from driver.partitions.grids import Grid, grid_of
from driver.partitions.naming import card_name, device_name

_DEVICE: Final = re.compile(r"((?:gpu|fpga)-\d+)(-.+)?")
"""A card's name, and what follows it in the names of its partitions (``driver.partitions.naming``)."""
_BARRING: Final = frozenset({"NoSchedule", "NoExecute"})


class InventoryError(PermanentError):
    """A NodeInventory contradicts itself."""


@dataclass(frozen=True, slots=True)
class GridCard:
    """A card, its grid and its model, looked up once."""

    card: Card
    grid: Grid
    model: str
    """The name of its model or shell."""

    @property
    def driver_version(self) -> tuple[int, ...]:
        """Of the driver on the host; nothing: it is not known."""
        return numbers_of(self.card.driver_version)

    def device(self, cut: Cut) -> str:
        """The name of the device that ``cut`` of this card is."""
        return device_name(self.card, cut.of(self.card.uuid))

    def find(self, device: str) -> Cut | None:
        """The cut that a device of this name is."""
        cuts = _CUTS.get(self.grid)
        if cuts is None:
            prefix = card_name(self.card)
            cuts = _CUTS[self.grid] = {self.device(cut).removeprefix(prefix): cut for cut in self.grid.cuts}
        return cuts.get(device.removeprefix(card_name(self.card)))


_CUTS: Final[WeakKeyDictionary[Grid, Mapping[str, Cut]]] = WeakKeyDictionary()
"""The cuts of a grid, by what their devices' names have after the card's: the same for every card of the grid."""


@dataclass(frozen=True)
class Stock:
    """The cards of a node."""

    cards: tuple[GridCard, ...]
    tainted: frozenset[str]
    """Names of devices that nobody should get."""

    @cached_property
    def _by_name(self) -> Mapping[str, GridCard]:
        return {card_name(held.card): held for held in self.cards}

    def card_of(self, device: str) -> GridCard | None:
        """The card that a device of this name is, or is a part of."""
        match = _DEVICE.fullmatch(device)
        return self._by_name.get(match[1]) if match else None

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
    return Stock(cards=tuple(map(_grid_card, cards)), tainted=frozenset(tainted))


def _grid_card(card: Card) -> GridCard:
    return GridCard(card, grid_of(card), card.model.id if isinstance(card, GpuCard) else card.shell.name)


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
