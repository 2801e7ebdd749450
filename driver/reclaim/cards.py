"""The cards that a node publishes, as far as maintenance needs them: identity, devices, whether they are withheld."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from kerf_dra.api.kerf.card_maintenance import is_named_card
from kerf_dra.api.kerf.card_repairs import CardRepair, choose_repair, parse_repair, repair_taint_key
from kerf_dra.api.model.device_attributes import (
    ATTRIBUTE_CUT,
    ATTRIBUTE_PCI_BUS_ID,
    ATTRIBUTE_UUID,
    MAINTENANCE_IN_USE,
    maintenance_taint_key,
    unhealthy_taint_key,
)
from kerf_dra.api.model.devices import Device, DeviceTaint, ResourceSlice, select_current_slices
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.partitions.device_names import monitored_name, parse_device_name


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainableCard:
    """A card of one node."""

    driver: str
    pool: str
    node: str
    name: str
    """The card's name, such as ``gpu-0``: its devices' names begin with it."""
    uuid: str
    pci_bus_id: str
    """The PCI address; empty: it is not published."""
    is_withheld: bool
    """Whether each of its published devices but the monitor device has the taint of maintenance."""
    is_in_use: bool
    """Whether its node says that something of it is in use; only of meaning while it is withheld."""
    repair: CardRepair | None = None
    """What its node says that it needs; None: nothing."""

    is_unhealthy: bool = False
    """Whether its node says that one of its devices is unhealthy or lost."""

    def __str__(self) -> str:
        return f"card {self.name} ({self.uuid}) of node {self.node}"

    def owns(self, device: DeviceId) -> bool:
        """Whether ``device`` is the card or a part of it, published now or not."""
        parts = parse_device_name(device.device)
        return (
            (device.driver, device.pool) == (self.driver, self.pool) and parts is not None and parts.card == self.name
        )

    @property
    def taint(self) -> DeviceTaint:
        """The taint by which it is withheld, while it is in use."""
        return DeviceTaint(key=maintenance_taint_key(self.driver), value=MAINTENANCE_IN_USE, effect="NoSchedule")


def find_cards(slices: Iterable[ResourceSlice], node: str) -> list[DrainableCard]:
    """Return the cards in the slices of ``node``, by driver, pool and name.

    Of each pool the newest generation counts, once all of its slices are there; until then all slices count: a card is
    not withheld while a slice of before has a device without the taint, and in use while one says so. Only devices that
    Kerf's plugins publish belong to cards: they say which cut of which card they are, and other drivers withhold none.
    """
    of_node = [slice_ for slice_ in slices if slice_.spec.node_name == node]
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for slice_ in of_node:
        pools.setdefault((slice_.spec.driver, slice_.spec.pool.name), []).append(slice_)
    members: dict[tuple[str, str, str], list[Device]] = {}
    for (driver, pool), of_pool in pools.items():
        for device in chain.from_iterable(each.spec.devices for each in select_current_slices(of_pool)):
            parts = parse_device_name(device.name)
            if parts is not None and all(_text(device, driver, name) for name in (ATTRIBUTE_CUT, ATTRIBUTE_UUID)):
                members.setdefault((driver, pool, parts.card), []).append(device)
    return [_build(*key, node, devices) for key, devices in sorted(members.items(), key=lambda item: item[0])]


def find_card(cards: Iterable[DrainableCard], card: str) -> DrainableCard | None:
    """Return the card with this UUID or PCI address; None: the node publishes none, or several."""
    found = [each for each in cards if is_named_card(card, each.uuid, each.pci_bus_id)]
    return found[0] if len(found) == 1 else None


def _build(driver: str, pool: str, name: str, node: str, devices: Sequence[Device]) -> DrainableCard:
    key = maintenance_taint_key(driver)
    taints = [list(_of_key(device, key)) for device in devices if monitored_name(device.name) is None]
    return DrainableCard(
        driver=driver,
        pool=pool,
        node=node,
        name=name,
        uuid=_text(devices[0], driver, ATTRIBUTE_UUID),
        pci_bus_id=_text(devices[0], driver, ATTRIBUTE_PCI_BUS_ID),
        is_withheld=bool(taints) and all(taints),
        is_unhealthy=any(True for each in devices for _ in _of_key(each, unhealthy_taint_key(driver))),
        repair=choose_repair(list_repairs(driver, devices)),
        is_in_use=any(taint.value == MAINTENANCE_IN_USE for each in taints for taint in each),
    )


def list_repairs(driver: str, devices: Iterable[Device]) -> Iterator[CardRepair]:
    """Yield what the devices of ``driver`` say that their cards need."""
    key = repair_taint_key(driver)
    for device in devices:
        for taint in _of_key(device, key):
            if repair := parse_repair(taint.value):
                yield repair


def _of_key(device: Device, key: str) -> Iterator[DeviceTaint]:
    return (taint for taint in device.taints if taint.key == key)


def _text(device: Device, driver: str, name: str) -> str:
    """Return a string attribute of a device, whose name may be written with the driver's domain; empty: it has none."""
    attribute = device.attributes.get(name) or device.attributes.get(f"{driver}/{name}")
    return attribute.value if attribute is not None and isinstance(attribute.value, str) else ""
