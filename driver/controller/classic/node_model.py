"""The model of a node's cards, built from its NodeInventory: cards, their partitions by device name, taints. Pure.

A device's name is its card's name and a suffix that identifies the partition
(``kerf_dra.driver.partitions.device_names``); the suffix of a whole card is empty. Cards of one geometry share their
suffixes, so a result for one set of suffixes in use is computed once and cached for all such cards of the cluster.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.kerf.node_inventory import (
    InventoryAmount,
    InventoryCard,
    InventoryGeometry,
    InventoryLoaded,
    InventoryPartitions,
    InventoryPlacement,
    NodeInventorySpec,
)
from kerf_dra.api.model.device_attributes import ATTRIBUTE_MODEL
from kerf_dra.api.model.semver import version_numbers
from kerf_dra.driver.partitions.device_names import card_name, device_name, parse_device_name
from kerf_dra.driver.partitions.geometry import (
    Amounts,
    Card,
    Geometry,
    InvalidGeometryError,
    Layout,
    PartitionSpec,
    Placement,
    card_mask,
    order_specs,
)
from kerf_dra.driver.partitions.unit_map import FreeUnits, UnitMap, get_unit_map

WHOLE: Final = ""
"""The suffix of a whole card's device name."""
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
    """The name of its model."""
    driver_version: tuple[int, ...]
    """The version of the driver on the host; empty: unknown."""
    abilities: frozenset[str]
    """Its boolean attributes that are true, such as ``timeSlicing``."""

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


@dataclass(frozen=True, slots=True, eq=False)
class NodeHardware:
    """The kinds of a node's cards, in order. Nodes with equal hardware share one object, compared by identity."""

    cards: tuple[tuple[UnitMap, str, tuple[int, ...], frozenset[str]], ...]
    """Geometry, model, driver version and abilities of each card."""


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
        parsed = parse_device_name(device)
        return next((card for card in self.cards if parsed and card.name == parsed.card), None)

    def has(self, device: str) -> bool:
        card = self.card_of(device)
        return card is not None and card.find(device) is not None


def build_node_model(spec: NodeInventorySpec) -> NodeInventoryModel:
    """Build a node's model. Raises InventoryError when it contradicts itself."""
    try:
        geometries = {(geometry.kind, geometry.model): _geometry(geometry) for geometry in spec.geometries}
        cards = tuple(_card(card, geometries) for card in spec.cards)
    except KeyError as error:
        raise InventoryError(f"a card is of {error}, which the inventory does not describe") from error
    except InvalidGeometryError as error:
        raise InventoryError(str(error)) from error
    for identities in ([card.uuid for card in cards], [card_name(card) for card in cards]):
        if twice := _first_repeated(identities):
            raise InventoryError(f"{twice} occurs twice")
    tainted = (entry.device for entry in spec.taints if any(taint.effect in _TAINT_EFFECTS for taint in entry.taints))
    node_cards = tuple(map(_node_card, cards))
    hardware = _intern_hardware(
        tuple((card.unit_map, card.model, card.driver_version, card.abilities) for card in node_cards)
    )
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
    attributes = {**dict(card.geometry.attributes), **card.attributes}
    if unit_map not in _CUTS:
        _CUTS[unit_map] = {device_name(card, cut.of(card.uuid)).removeprefix(name): cut for cut in unit_map.specs}
    return NodeCard(
        card=card,
        unit_map=unit_map,
        name=name,
        model=card.geometry.model,
        driver_version=version_numbers(card.driver_version),
        abilities=frozenset(name for name, attribute in attributes.items() if attribute.value is True),
    )


def _first_repeated(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _card(card: InventoryCard, geometries: Mapping[tuple[str, str], Geometry]) -> Card:
    attributes = {attribute.name: attribute.value for attribute in card.attributes}
    geometry, model = geometries[card.kind, card.model], attributes.get(ATTRIBUTE_MODEL)
    if model is not None and model.string and model.string != geometry.model:
        geometry = _name_model(geometry, model.string)
    return Card(
        uuid=card.uuid,
        index=card.index,
        geometry=geometry,
        pci_bus_id=card.pci_bus_id,
        pcie_root=card.pcie_root,
        numa_node=card.numa_node,
        driver_version=card.driver_version,
        attributes=attributes,
        loaded={_placement(loaded): loaded.function for loaded in card.loaded},
        layout=card.layout,
    )


@lru_cache(maxsize=256)  # as below
def _name_model(geometry: Geometry, model: str) -> Geometry:
    """Return the geometry with the model of its cards, from which its name in the inventory differs by a number."""
    return replace(geometry, model=model)


@lru_cache(maxsize=256)  # as many as unit maps are kept: nodes of one kind share one object
def _geometry(wire: InventoryGeometry) -> Geometry:
    return Geometry(
        kind=wire.kind,
        model=wire.model,
        unit=wire.unit,
        units=wire.units,
        layouts=_layouts(wire),
        engines=tuple((engines.name, engines.total) for engines in wire.engines),
        specs=order_specs(spec for partitions in wire.partitions for spec in _specs(wire, partitions)),
        attributes=tuple((attribute.name, attribute.value) for attribute in wire.attributes),
        shareable=wire.shareable,
    )


def _specs(geometry: InventoryGeometry, partitions: InventoryPartitions) -> Iterator[PartitionSpec]:
    layouts = _layouts(geometry) or (Layout("", geometry.units),)
    placements: list[Placement | None] = [_placement(each) for each in partitions.placements]
    for placement in placements or [None]:
        yield PartitionSpec(
            kind=geometry.kind,
            profile=partitions.profile or None,
            function=partitions.function or None,
            placement=placement,
            mask=card_mask(geometry.model, layouts, placement),
            engines=partitions.engines,
            size=partitions.size,
            weight=partitions.weight,
            capacity=_amounts(partitions.capacity),
            quota=_amounts(partitions.quota),
            load_s=partitions.load_milliseconds / 1000,
            attributes=tuple((attribute.name, attribute.value) for attribute in partitions.attributes),
        )


def _layouts(geometry: InventoryGeometry) -> tuple[Layout, ...]:
    return tuple(Layout(layout.name, layout.units) for layout in geometry.layouts)


def _placement(wire: InventoryPlacement | InventoryLoaded) -> Placement:
    return Placement(wire.start, wire.size, wire.gaps, wire.layout)


def _amounts(wire: Iterable[InventoryAmount]) -> Amounts:
    return tuple((each.name, each.amount) for each in wire)
