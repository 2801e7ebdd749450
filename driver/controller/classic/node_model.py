"""The model of a node's cards, built from its NodeInventory: cards, their partitions by device name, taints. Pure.

A device's name is its card's name and a suffix that identifies the partition (``driver.partitions.device_names``);
the suffix of a whole card is empty. Cards of one geometry share their suffixes, so a result for one set of suffixes in
use is computed once and cached for all such cards of the cluster.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import asdict

from api.errors import PermanentError
from api.kerf.node_inventory import (
    InventoryCard,
    InventoryFunction,
    InventoryGpuModel,
    InventoryPlacement,
    InventoryProfile,
    InventoryShell,
    NodeInventorySpec,
)
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
"""The suffix of a whole card's device name."""
_NUMBERS: Final = re.compile(r"\d+")
_TAINT_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep a device from being allocated (KEP-5055)."""


class InventoryError(PermanentError):
    """A NodeInventory contradicts itself."""


class CardAvailability(NamedTuple):
    """The free units of a card while some of its devices are in use."""

    free: FreeUnits
    unknown: tuple[str, ...]
    """The suffixes of devices in use that the card does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCard:
    """One card of a node, with the values that are computed once."""

    card: Card
    unit_map: UnitMap
    name: str
    """The card's name, which is the prefix of its devices' names."""
    model: str
    """The name of its model or shell."""
    driver_version: tuple[int, ...]
    """The version of the driver on the host; empty: unknown."""

    def device(self, cut: PartitionSpec) -> str:
        """Return the name of the device for the partition spec ``cut`` of this card."""
        return device_name(self.card, cut.of(self.card.uuid))

    def find(self, device: str) -> PartitionSpec | None:
        """The partition spec of the device of this name; None: the card has no such device."""
        return _CUTS[self.unit_map].get(device.removeprefix(self.name))

    def availability(self, suffixes: Collection[str]) -> CardAvailability:
        """Return the free units of the card while its devices with ``suffixes`` are in use.

        A suffix that the card does not have takes the whole card.
        """
        return _availability(self.unit_map, tuple(sorted(suffixes)))


_CUTS: Final[WeakKeyDictionary[UnitMap, Mapping[str, PartitionSpec]]] = WeakKeyDictionary()
"""The partition specs of each geometry by suffix."""


@lru_cache(maxsize=4096)  # sets in use on a cluster's cards: a card of seven units has some hundred of them
def _availability(unit_map: UnitMap, suffixes: tuple[str, ...]) -> CardAvailability:
    specs, whole = _CUTS[unit_map], unit_map.specs[-1]
    taken = (specs.get(suffix, whole).of("") for suffix in suffixes)
    return CardAvailability(unit_map.free(taken), tuple(suffix for suffix in suffixes if suffix not in specs))


def split_name(device: str) -> tuple[str, str]:
    """Split a device's name into its card's name and its suffix.

    >>> split_name("gpu-0-1g-10gb-at-0"), split_name("fpga-1")
    (('gpu-0', '-1g-10gb-at-0'), ('fpga-1', ''))
    """
    at = device.find("-", device.find("-") + 1)
    return (device, WHOLE) if at < 0 else (device[:at], device[at:])


@lru_cache(maxsize=256)  # driver versions in a cluster, parsed for every card
def parse_driver_version(version: str) -> tuple[int, ...]:
    """Parse a driver's version for comparison; an unknown one is empty, which is older than any other.

    >>> parse_driver_version("535.104.05") < parse_driver_version("550.54"), parse_driver_version("")
    (True, ())
    """
    return tuple(int(number) for number in _NUMBERS.findall(version))


@dataclass(frozen=True, slots=True, eq=False)
class NodeHardware:
    """The kinds of a node's cards, in order. Nodes with equal hardware share one object, compared by identity."""

    cards: tuple[tuple[UnitMap, str, tuple[int, ...]], ...]
    """Geometry, model and driver version of each card."""


_intern_hardware: Final = lru_cache(maxsize=256)(NodeHardware)  # kinds of nodes in a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInventoryModel:
    """The cards of one node and the taints of their devices."""

    cards: tuple[NodeCard, ...]
    hardware: NodeHardware
    tainted: frozenset[str]
    """The names of devices with a taint that keeps them from being allocated."""

    def card_of(self, device: str) -> NodeCard | None:
        """The card to which the device of this name belongs; None: the node has no such card."""
        name, _ = split_name(device)
        return next((card for card in self.cards if card.name == name), None)

    def has(self, device: str) -> bool:
        card = self.card_of(device)
        return card is not None and card.find(device) is not None


def build_node_model(spec: NodeInventorySpec) -> NodeInventoryModel:
    """Build a node's model. Raises InventoryError when a card's model is not described, or a card appears twice."""
    models = {model.id: _gpu_model(model) for model in spec.gpu_models}
    shells = {shell.name: _shell(shell) for shell in spec.shells}
    try:
        cards = tuple(_card(card, models, shells) for card in spec.cards)
    except KeyError as error:
        raise InventoryError(f"a card is of {error}, which the inventory does not describe") from error
    for identities in ([card.uuid for card in cards], [card_name(card) for card in cards]):
        if twice := _first_repeated(identities):
            raise InventoryError(f"{twice} occurs twice")
    tainted = (entry.device for entry in spec.taints if any(taint.effect in _TAINT_EFFECTS for taint in entry.taints))
    node_cards = tuple(map(_node_card, cards))
    hardware = _intern_hardware(tuple((card.unit_map, card.model, card.driver_version) for card in node_cards))
    return NodeInventoryModel(cards=node_cards, hardware=hardware, tainted=frozenset(tainted))


def join_node_models(models: Sequence[NodeInventoryModel]) -> NodeInventoryModel:
    """Join the models of a node's drivers. Their cards have names of their own, which begin with the family."""
    if len(models) == 1:
        return models[0]
    cards = tuple(card for model in models for card in model.cards)
    hardware = _intern_hardware(tuple(kind for model in models for kind in model.hardware.cards))
    tainted = frozenset(device for model in models for device in model.tainted)
    return NodeInventoryModel(cards=cards, hardware=hardware, tainted=tainted)


def _node_card(card: Card) -> NodeCard:
    unit_map, name = get_unit_map(card), card_name(card)
    if unit_map not in _CUTS:
        _CUTS[unit_map] = {device_name(card, cut.of(card.uuid)).removeprefix(name): cut for cut in unit_map.specs}
    return NodeCard(
        card=card,
        unit_map=unit_map,
        name=name,
        model=card.model.id if isinstance(card, GpuCard) else card.shell.name,
        driver_version=parse_driver_version(card.driver_version),
    )


def _first_repeated(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _card(card: InventoryCard, models: Mapping[str, GpuModel], shells: Mapping[str, Shell]) -> Card:
    fields = {name: getattr(card, name) for name in ("uuid", "index", "pci_bus_id", "numa_node", "driver_version")}
    if card.kind == "gpu":
        return GpuCard(**fields, model=models[card.model])
    loaded = {Placement(function.start, function.size): function.function for function in card.loaded}
    return FpgaCard(**fields, shell=shells[card.model], loaded=loaded)


@lru_cache(maxsize=256)  # as many as unit maps are kept: nodes of one kind share one object
def _gpu_model(wire: InventoryGpuModel) -> GpuModel:
    engines, profiles = (
        msgspec.convert(wire.engines, Engines, from_attributes=True),
        tuple(map(_profile, wire.profiles)),
    )
    return GpuModel(**asdict(wire) | {"engines": engines, "profiles": profiles})


def _profile(wire: InventoryProfile) -> Profile:
    engines = msgspec.convert(wire.engines, Engines, from_attributes=True)
    return Profile(**asdict(wire) | {"engines": engines, "placements": _placements(wire.placements)})


@lru_cache(maxsize=256)
def _shell(wire: InventoryShell) -> Shell:
    slots = tuple(msgspec.convert(slot, Logic, from_attributes=True) for slot in wire.slots)
    return Shell(**asdict(wire) | {"slots": slots, "functions": tuple(map(_function, wire.functions))})


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
