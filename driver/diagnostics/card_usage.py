"""The cards of published devices, and the partitions of each card that claims hold.

Cards are reconstructed from the attributes of Kerf's devices and from the geometries that families ship: the partition
of a device is the one of this name. That of an FPGA shell is rebuilt from the counters of its devices. Devices of other
drivers are ignored, because their geometry is unknown.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute, Device, ResourceSlice
from kerf_dra.api.model.names import DeviceId, ObjectRef
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.families.registry import installed_families
from kerf_dra.driver.partitions.device_names import card_name, device_name, parse_device_name, shared_name
from kerf_dra.driver.partitions.geometry import Card, Geometry, Partition
from kerf_dra.driver.partitions.published_geometry import rebuild_geometry

_ABSENT = Attribute()


@dataclass(frozen=True, slots=True, eq=False)
class PublishedCard:
    """A card of the cluster with the devices that are published for it."""

    node: str
    driver: str
    pool: str
    card: Card
    devices: frozenset[str]
    """The names of the devices that represent partitions; cards of one kind share them."""

    @property
    def partitions(self) -> Mapping[str, Partition]:
        """The partition that each published device represents, by device name; monitor devices represent none.

        Computed when it is read: a large cluster has half a million.
        """
        return {name: each for name, each in _partitions(self.card) if name in self.devices}

    @property
    def name(self) -> str:
        """The name of the card within its pool, such as ``gpu-0``."""
        return card_name(self.card)

    @property
    def model(self) -> str:
        return self.card.geometry.model

    def id_of(self, device: str) -> DeviceId:
        return DeviceId(self.driver, self.pool, device)


@dataclass(frozen=True, slots=True)
class PublishedCards:
    """The cards that Kerf publishes in a cluster."""

    known: tuple[PublishedCard, ...]
    """The cards of known models, by node and index."""
    unknown: tuple[str, ...]
    """Cards whose model is in no table, and not known by its counters, each as ``node/card: model``."""


@dataclass(frozen=True, slots=True, eq=False)
class CardUsage:
    """A card with the devices of it that claims hold."""

    published: PublishedCard
    holders: Mapping[str, tuple[ObjectRef, ...]]
    """The claims that hold each device in use, by device name."""
    partitions: Mapping[str, Partition]
    """The partition that each device in use represents, by device name."""


class DrawnDevices(Container[DeviceId]):
    """The devices that represent partitions of some cards."""

    def __init__(self, cards: Iterable[PublishedCard]) -> None:
        self._names: dict[tuple[str, str], list[frozenset[str]]] = defaultdict(list)
        for card in cards:
            self._names[card.driver, card.pool].append(card.devices)

    def __contains__(self, id_: object) -> bool:
        assert isinstance(id_, DeviceId)
        return any(id_.device in names for names in self._names.get((id_.driver, id_.pool), ()))


def find_published_cards(slices: Iterable[ResourceSlice]) -> PublishedCards:
    """Return the cards that Kerf publishes in ``slices``."""
    published = InternedSlices.of(slices)
    drivers = {family.driver for family in installed_families().values()}
    known: list[PublishedCard] = []
    unknown: list[str] = []
    equal: dict[frozenset[str], frozenset[str]] = {}
    for pool in sorted(published.by_pool, key=lambda pool: (pool.name, pool.driver)):
        cards = _by_card(published.newest_of_pool(pool)) if pool.driver in drivers else {}
        node = pool.name.rpartition("/")[0]
        for (kind, index), devices in sorted(cards.items()):
            example = next(iter(devices.values()))
            geometry = _shipped_geometries().get((kind, _text(example, v.ATTRIBUTE_MODEL)))
            geometry = geometry or rebuild_geometry(kind, devices)
            if geometry is None:
                unknown.append(f"{node}/{kind}-{index}: {_text(example, v.ATTRIBUTE_MODEL)}")
                continue
            names = _partition_names(geometry, index).intersection(devices)
            known.append(
                PublishedCard(
                    node=node,
                    driver=pool.driver,
                    pool=pool.name,
                    card=_card(geometry, index, example),
                    devices=equal.setdefault(names, names),
                )
            )
    return PublishedCards(tuple(known), tuple(unknown))


def build_usage(card: PublishedCard, holders: Mapping[DeviceId, tuple[ObjectRef, ...]]) -> CardUsage:
    """Return what ``holders`` hold of a card; devices that are no longer published are ignored."""
    held = {name for name in card.devices if card.id_of(name) in holders}
    partitions = {name: each for name, each in card.partitions.items() if name in held} if held else {}
    return CardUsage(card, {name: holders[card.id_of(name)] for name in partitions}, partitions)


def _by_card(slices: Iterable[ResourceSlice]) -> dict[tuple[str, int], dict[str, Device]]:
    """Return the devices of a pool by name, for each card: its family and its number."""
    found: dict[tuple[str, int], dict[str, Device]] = defaultdict(dict)
    for slice_ in slices:
        for device in slice_.spec.devices:
            if parsed := parse_device_name(device.name):
                found[parsed.kind, parsed.index][device.name] = device
    return found


@cache
def _shipped_geometries() -> Mapping[tuple[str, str], Geometry]:
    geometries = (geometry for family in installed_families().values() for geometry in family.geometries())
    return {(geometry.kind, geometry.model): geometry for geometry in geometries}


def _card(geometry: Geometry, index: int, device: Device) -> Card:
    """Return the card of a device, as far as its attributes say what it is."""
    return Card(
        uuid=_text(device, v.ATTRIBUTE_UUID),
        index=index,
        geometry=geometry,
        pci_bus_id=_text(device, v.ATTRIBUTE_PCI_BUS_ID),
        pcie_root=_text(device, v.ATTRIBUTE_PCIE_ROOT),
        numa_node=_number(device, v.ATTRIBUTE_NUMA_NODE),
        driver_version=_text(device, v.ATTRIBUTE_DRIVER_VERSION),
    )


def _partitions(card: Card) -> Iterator[tuple[str, Partition]]:
    """Yield every partition of a card, exclusive and shared, with the name of its device."""
    for spec in card.geometry.specs:
        partition = spec.of(card.uuid)
        name = device_name(card, partition)
        yield name, partition
        yield shared_name(name), replace(partition, shared=True)


@lru_cache(maxsize=256)  # as many as unit maps are kept: cards of one kind and number share one set
def _partition_names(geometry: Geometry, index: int) -> frozenset[str]:
    """Return the names that devices of a card can have."""
    return frozenset(name for name, _ in _partitions(Card(uuid="", index=index, geometry=geometry)))


def _value(device: Device, name: str) -> int | bool | str | None:
    """Return the value of an attribute, of a list the first."""
    value = device.attributes.get(name, _ABSENT).value
    if isinstance(value, tuple):
        return value[0] if value else None
    return value


def _text(device: Device, name: str) -> str:
    value = _value(device, name)
    return value if isinstance(value, str) else ""


def _number(device: Device, name: str) -> int:
    value = _value(device, name)
    return value if isinstance(value, int) else 0
