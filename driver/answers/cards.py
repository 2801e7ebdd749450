"""From published devices back to cards: which cards there are, how each can be cut, and what is cut from them.

Kerf's devices say all that this needs (``api.model.vocabulary``). Devices of other drivers have no geometry that we
know, and are left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from api.model import vocabulary as v
from api.model.claims import ResourceClaim
from api.model.devices import Attribute, AttributeValue, Device, ResourceSlice
from api.model.names import KERF_DRIVER, DeviceId, ObjectRef
from driver.partitions.catalogue import UnknownModelError, gpu_model, shell
from driver.partitions.geometry import Card, DeviceKind, FpgaCard, GpuCard, Partition, Placement
from driver.partitions.naming import card_name

_ABSENT = Attribute()


@dataclass(frozen=True, slots=True, eq=False)
class PublishedCard:
    """A card of the cluster."""

    node: str
    pool: str
    card: Card
    partitions: Mapping[str, Partition]
    """What each published device stands for, by its name."""
    holders: Mapping[str, tuple[ObjectRef, ...]]
    """The claims that have each device, for those that are in use."""

    @property
    def name(self) -> str:
        """``gpu-0``."""
        return card_name(self.card)

    @property
    def model(self) -> str:
        return self.card.model.id if isinstance(self.card, GpuCard) else self.card.shell.name

    @property
    def taken(self) -> list[Partition]:
        """What is in use; also what somebody holds though it is no longer published counts for nothing here."""
        return [self.partitions[device] for device in self.holders]

    def device(self, partition: Partition) -> str | None:
        """The published name of a partition."""
        return next((name for name, each in self.partitions.items() if each == partition), None)

    def id_of(self, device: str) -> DeviceId:
        return DeviceId(KERF_DRIVER, self.pool, device)


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of a cluster."""

    known: tuple[PublishedCard, ...]
    """By node and index."""
    unknown: tuple[str, ...]
    """``node/card: model`` of cards whose geometry is in no table of ours."""


def cards_of(slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]) -> Cards:
    """The cards that Kerf publishes in ``slices``, and what ``claims`` hold of them."""
    holders: dict[DeviceId, list[ObjectRef]] = defaultdict(list)
    for claim in claims:
        for result in claim.status.allocation.devices.results if claim.status.allocation else ():
            if result.driver == KERF_DRIVER and not result.admin_access and claim.ref not in holders[result.id]:
                holders[result.id].append(claim.ref)
    known: list[PublishedCard] = []
    unknown: list[str] = []
    for (pool, _), devices in sorted(_by_card(_newest(slices)).items()):
        node = pool.rpartition("/")[0]
        try:
            card = _card(devices[0])
        except UnknownModelError:
            unknown.append(
                f"{node}/{_text(devices[0], v.ATTRIBUTE_KIND)}-{_number(devices[0], v.ATTRIBUTE_INDEX)}: "
                f"{_text(devices[0], v.ATTRIBUTE_MODEL)}"
            )
            continue
        held = {
            device.name: tuple(holders[id_])
            for device in devices
            if (id_ := DeviceId(KERF_DRIVER, pool, device.name)) in holders and holders[id_]
        }
        known.append(
            PublishedCard(
                node=node,
                pool=pool,
                card=card,
                partitions={device.name: _partition(card, device) for device in devices},
                holders=held,
            )
        )
    return Cards(tuple(known), tuple(unknown))


def _newest(slices: Iterable[ResourceSlice]) -> Iterator[ResourceSlice]:
    """Of each pool the slices of the newest generation."""
    ours = [slice_ for slice_ in slices if slice_.spec.driver == KERF_DRIVER]
    newest: dict[str, int] = {}
    for slice_ in ours:
        newest[slice_.spec.pool.name] = max(slice_.spec.pool.generation, newest.get(slice_.spec.pool.name, 0))
    return (slice_ for slice_ in ours if slice_.spec.pool.generation == newest[slice_.spec.pool.name])


def _by_card(slices: Iterable[ResourceSlice]) -> dict[tuple[str, tuple[str, int]], list[Device]]:
    """Devices by their pool, and the kind and number of their card."""
    found: dict[tuple[str, tuple[str, int]], list[Device]] = defaultdict(list)
    for slice_ in slices:
        for device in slice_.spec.devices:
            card = _text(device, v.ATTRIBUTE_KIND), _number(device, v.ATTRIBUTE_INDEX)
            found[slice_.spec.pool.name, card].append(device)
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
    )


def _value(device: Device, name: str) -> AttributeValue | None:
    return device.attributes.get(name, _ABSENT).value


def _text(device: Device, name: str) -> str:
    value = _value(device, name)
    return value if isinstance(value, str) else ""


def _number(device: Device, name: str) -> int:
    value = _value(device, name)
    return value if isinstance(value, int) else 0
