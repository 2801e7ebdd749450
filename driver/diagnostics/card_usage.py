"""The cards of published devices, and the partitions of each card that claims hold.

Cards are reconstructed from the attributes of Kerf's devices (``api.model.device_attributes``). Devices of other
drivers are ignored, because their geometry is unknown.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from api.model import device_attributes as v
from api.model.devices import Attribute, AttributeValue, Device, ResourceSlice
from api.model.names import DeviceId, ObjectRef
from driver.families.registry import BUILT_IN_BY_DRIVER, BUILT_IN_BY_NAME
from driver.partitions.catalog import UnknownModelError, gpu_model, shell
from driver.partitions.device_names import card_name
from driver.partitions.geometry import Card, DeviceKind, FpgaCard, GpuCard, Partition, Placement

_ABSENT = Attribute()


@dataclass(frozen=True, slots=True, eq=False)
class PublishedCard:
    """A card of the cluster with the devices that are published for it."""

    node: str
    pool: str
    card: Card
    devices: Mapping[str, Device]

    @property
    def name(self) -> str:
        """The name of the card within its pool, such as ``gpu-0``."""
        return card_name(self.card)

    @property
    def model(self) -> str:
        return self.card.model.id if isinstance(self.card, GpuCard) else self.card.shell.name

    def partition(self, device: str) -> Partition:
        """Return the partition that ``device`` represents."""
        return _partition(self.card, self.devices[device])

    def id_of(self, device: str) -> DeviceId:
        return DeviceId(BUILT_IN_BY_NAME[self.card.kind].driver, self.pool, device)


@dataclass(frozen=True, slots=True)
class PublishedCards:
    """The cards that Kerf publishes in a cluster."""

    known: tuple[PublishedCard, ...]
    """The cards of known models, by node and index."""
    unknown: tuple[str, ...]
    """Cards whose model is in no table, each as ``node/card: model``."""


@dataclass(frozen=True, slots=True, eq=False)
class CardUsage:
    """A card with the devices of it that claims hold."""

    published: PublishedCard
    holders: Mapping[str, tuple[ObjectRef, ...]]
    """The claims that hold each device in use, by device name."""
    partitions: Mapping[str, Partition]
    """The partition that each device in use represents, by device name."""


def find_published_cards(slices: Iterable[ResourceSlice]) -> PublishedCards:
    """Return the cards that Kerf publishes in ``slices``."""
    known: list[PublishedCard] = []
    unknown: list[str] = []
    for (pool, (kind, index)), devices in sorted(_by_card(_newest(slices)).items()):
        node, example = pool.rpartition("/")[0], next(iter(devices.values()))
        try:
            known.append(PublishedCard(node=node, pool=pool, card=_card(example), devices=devices))
        except UnknownModelError:
            unknown.append(f"{node}/{kind}-{index}: {_text(example, v.ATTRIBUTE_MODEL)}")
    return PublishedCards(tuple(known), tuple(unknown))


def build_usage(card: PublishedCard, holders: Mapping[DeviceId, tuple[ObjectRef, ...]]) -> CardUsage:
    """Return what ``holders`` hold of a card; devices that are no longer published are ignored."""
    held = {name: holders[id_] for name in card.devices if (id_ := card.id_of(name)) in holders}
    return CardUsage(card, held, {name: card.partition(name) for name in held})


def _newest(slices: Iterable[ResourceSlice]) -> Iterator[ResourceSlice]:
    """Yield the slices of the newest generation of each of Kerf's pools."""
    ours = [slice_ for slice_ in slices if slice_.spec.driver in BUILT_IN_BY_DRIVER]
    newest: dict[str, int] = {}
    for slice_ in ours:
        newest[slice_.spec.pool.name] = max(slice_.spec.pool.generation, newest.get(slice_.spec.pool.name, 0))
    return (slice_ for slice_ in ours if slice_.spec.pool.generation == newest[slice_.spec.pool.name])


def _by_card(slices: Iterable[ResourceSlice]) -> dict[tuple[str, tuple[str, int]], dict[str, Device]]:
    """Return the devices by name, for each card: its pool, its kind and its index."""
    found: dict[tuple[str, tuple[str, int]], dict[str, Device]] = defaultdict(dict)
    for slice_ in slices:
        for device in slice_.spec.devices:
            card = _text(device, v.ATTRIBUTE_KIND), _number(device, v.ATTRIBUTE_INDEX)
            found[slice_.spec.pool.name, card][device.name] = device
    return found


def _card(device: Device) -> Card:
    """Return the card of a device. Raises UnknownModelError when no table has its model."""
    uuid, index = _text(device, v.ATTRIBUTE_UUID), _number(device, v.ATTRIBUTE_INDEX)
    pci, numa = _text(device, v.ATTRIBUTE_PCI_BUS_ID), _number(device, v.ATTRIBUTE_NUMA_NODE)
    version, model = _text(device, v.ATTRIBUTE_DRIVER_VERSION), _text(device, v.ATTRIBUTE_MODEL)
    if _text(device, v.ATTRIBUTE_KIND) == DeviceKind.FPGA:
        return FpgaCard(
            uuid=uuid,
            index=index,
            shell=shell(model),
            pci_bus_id=pci,
            numa_node=numa,
            driver_version=version,
            loaded={},
        )
    return GpuCard(
        uuid=uuid, index=index, model=gpu_model(model), pci_bus_id=pci, numa_node=numa, driver_version=version
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
