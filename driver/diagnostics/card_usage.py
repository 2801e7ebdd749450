"""From published devices back to cards: which cards there are, how each can be cut, and what is cut from them.

Kerf's devices say all that this needs (``api.model.device_attributes``). Devices of other drivers have no geometry that
we know, and are left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from api.model import device_attributes as v
from api.model.devices import Attribute, AttributeValue, Device, ResourceSlice
from api.model.names import KERF_DRIVER, DeviceId, ObjectRef
from driver.partitions.catalog import UnknownModelError, gpu_model, shell
from driver.partitions.device_names import card_name
from driver.partitions.geometry import Card, DeviceKind, FpgaCard, GpuCard, Partition, Placement

_ABSENT = Attribute()


@dataclass(frozen=True, slots=True, eq=False)
class PublishedCard:
    """A card of the cluster, and what is published of it."""

    node: str
    pool: str
    card: Card
    devices: Mapping[str, Device]

    @property
    def name(self) -> str:
        """``gpu-0``."""
        return card_name(self.card)

    @property
    def model(self) -> str:
        return self.card.model.id if isinstance(self.card, GpuCard) else self.card.shell.name

    def partition(self, device: str) -> Partition:
        """What one of its devices stands for."""
        return _partition(self.card, self.devices[device])

    def id_of(self, device: str) -> DeviceId:
        return DeviceId(KERF_DRIVER, self.pool, device)


@dataclass(frozen=True, slots=True)
class PublishedCards:
    """The cards of a cluster."""

    known: tuple[PublishedCard, ...]
    """By node and index."""
    unknown: tuple[str, ...]
    """``node/card: model`` of cards whose geometry is in no table of ours."""


@dataclass(frozen=True, slots=True, eq=False)
class CardUse:
    """A card, and who has what of it."""

    site: PublishedCard
    holders: Mapping[str, tuple[ObjectRef, ...]]
    """The claims that have a device, for each device that is in use."""
    taken: Mapping[str, Partition]
    """What each device in use stands for."""


def published_cards(slices: Iterable[ResourceSlice]) -> PublishedCards:
    """The cards that Kerf publishes in ``slices``."""
    known: list[PublishedCard] = []
    unknown: list[str] = []
    for (pool, (kind, index)), devices in sorted(_by_card(_newest(slices)).items()):
        node, example = pool.rpartition("/")[0], next(iter(devices.values()))
        try:
            known.append(PublishedCard(node=node, pool=pool, card=_card(example), devices=devices))
        except UnknownModelError:
            unknown.append(f"{node}/{kind}-{index}: {_text(example, v.ATTRIBUTE_MODEL)}")
    return PublishedCards(tuple(known), tuple(unknown))


def in_use(card: PublishedCard, holders: Mapping[DeviceId, tuple[ObjectRef, ...]]) -> CardUse:
    """What ``holders`` have of a card. What is no longer published, or is held of no card of ours, is passed over."""
    held = {name: holders[id_] for name in card.devices if (id_ := card.id_of(name)) in holders}
    return CardUse(card, held, {name: card.partition(name) for name in held})


def _newest(slices: Iterable[ResourceSlice]) -> Iterator[ResourceSlice]:
    """Of each pool the slices of the newest generation."""
    ours = [slice_ for slice_ in slices if slice_.spec.driver == KERF_DRIVER]
    newest: dict[str, int] = {}
    for slice_ in ours:
        newest[slice_.spec.pool.name] = max(slice_.spec.pool.generation, newest.get(slice_.spec.pool.name, 0))
    return (slice_ for slice_ in ours if slice_.spec.pool.generation == newest[slice_.spec.pool.name])


def _by_card(slices: Iterable[ResourceSlice]) -> dict[tuple[str, tuple[str, int]], dict[str, Device]]:
    """Devices by their name, for each pool, and kind and number of a card."""
    found: dict[tuple[str, tuple[str, int]], dict[str, Device]] = defaultdict(dict)
    for slice_ in slices:
        for device in slice_.spec.devices:
            card = _text(device, v.ATTRIBUTE_KIND), _number(device, v.ATTRIBUTE_INDEX)
            found[slice_.spec.pool.name, card][device.name] = device
    return found


def _card(device: Device) -> Card:
    """The card that a device belongs to. Raises UnknownModelError."""
    uuid, index = _text(device, v.ATTRIBUTE_PARENT), _number(device, v.ATTRIBUTE_INDEX)
    pci_bus_id, numa_node = _text(device, v.ATTRIBUTE_PCI_BUS_ID), _number(device, v.ATTRIBUTE_NUMA_NODE)
    version, model = _text(device, v.ATTRIBUTE_DRIVER_VERSION), _text(device, v.ATTRIBUTE_MODEL)
    if _text(device, v.ATTRIBUTE_KIND) == DeviceKind.FPGA:
        return FpgaCard(
            uuid=uuid,
            index=index,
            shell=shell(model),
            pci_bus_id=pci_bus_id,
            numa_node=numa_node,
            driver_version=version,
            loaded={},
        )
    return GpuCard(
        uuid=uuid,
        index=index,
        model=gpu_model(model),
        pci_bus_id=pci_bus_id,
        numa_node=numa_node,
        driver_version=version,
    )


def _partition(card: Card, device: Device) -> Partition:
    is_whole = _text(device, v.ATTRIBUTE_CUT) == "whole"
    placement = Placement(_number(device, v.ATTRIBUTE_START), _number(device, v.ATTRIBUTE_SIZE))
    return Partition(
        kind=card.kind,
        card_uuid=card.uuid,
        profile=_text(device, v.ATTRIBUTE_PROFILE) or None,
        placement=None if is_whole else placement,
        function=_text(device, v.ATTRIBUTE_FUNCTION) or None,
        shared=_value(device, v.ATTRIBUTE_SHARED) is True,
    )


def _value(device: Device, name: str) -> AttributeValue | None:
    return device.attributes.get(name, _ABSENT).value


def _text(device: Device, name: str) -> str:
    value = _value(device, name)
    return value if isinstance(value, str) else ""


def _number(device: Device, name: str) -> int:
    value = _value(device, name)
    return value if isinstance(value, int) else 0
