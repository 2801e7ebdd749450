"""Conversion between cards and their records in the checkpoint, and cards of which a record has only the partitions.

``to_card_record`` and ``from_card_record`` are inverse, except for what is loaded in a card. A record that an older
Kerf wrote does not describe its cards: ``rebuild_card`` makes of the partitions in it a card that has no others, under
the names that they were published with. Attributes and amounts that nothing says have the vocabulary's neutral values.
"""

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kerf_dra.api.model.device_attributes import CAPACITY_COMPUTE_UNIT_PERCENT, CAPACITY_MEMORY
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.model.recorded_cards import CardRecord, LayoutRecord, PlacementRecord, SpecRecord
from kerf_dra.driver.partitions.device_names import (
    device_name,
    exclusive_name,
    list_units,
    monitored_name,
    parse_device_name,
)
from kerf_dra.driver.partitions.geometry import (
    Card,
    Geometry,
    InvalidGeometryError,
    Layout,
    Partition,
    PartitionSpec,
    Placement,
    card_mask,
    order_specs,
)
from kerf_dra.driver.partitions.unit_map import get_unit_map


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDevice:
    """A device in a record: the name that it was published with, and its partition."""

    name: str
    partition: Partition


def without_load(card: Card) -> Card:
    """Return ``card`` as its record describes it: with nothing loaded."""
    return dataclasses.replace(card, loaded={}, layout="") if card.loaded or card.layout else card


def has_devices(card: Card, devices: Iterable[RecordedDevice]) -> bool:
    """Whether ``card`` has each of ``devices``, which are of it, under its name."""
    unit_map = get_unit_map(card)
    return all(
        unit_map.find(device.partition) is not None
        and _exclusive_name(device.name) == device_name(card, dataclasses.replace(device.partition, shared=False))
        for device in devices
    )


def keep_partitions(card: Card, partitions: Collection[Partition]) -> Card:
    """Return ``card`` as one that has only these of its partitions, and itself as a whole."""
    geometry = card.geometry
    specs = tuple(spec for spec in geometry.specs if spec.placement is None or spec.of(card.uuid) in partitions)
    return dataclasses.replace(card, geometry=dataclasses.replace(geometry, specs=specs))


def to_card_record(card: Card) -> CardRecord:
    """Return the record of ``card``."""
    geometry = card.geometry
    return CardRecord(
        kind=card.kind,
        uuid=card.uuid,
        index=card.index,
        pci_bus_id=card.pci_bus_id,
        pcie_root=card.pcie_root,
        numa_node=card.numa_node,
        driver_version=card.driver_version,
        attributes=dict(card.attributes),
        whole_attributes=dict(card.whole_attributes),
        model=geometry.model,
        unit=geometry.unit,
        units=geometry.units,
        layouts=tuple(LayoutRecord(name=layout.name, units=layout.units) for layout in geometry.layouts),
        engines=dict(geometry.engines),
        model_attributes=dict(geometry.attributes),
        shareable=geometry.shareable,
        specs=tuple(map(_to_spec_record, geometry.specs)),
    )


def from_card_record(record: CardRecord) -> Card | None:
    """Return the card of a record; None: it contradicts itself to this version of Kerf, and another one wrote it."""
    try:
        return Card(
            uuid=record.uuid,
            index=record.index,
            geometry=_to_geometry(record),
            pci_bus_id=record.pci_bus_id,
            pcie_root=record.pcie_root,
            numa_node=record.numa_node,
            driver_version=record.driver_version,
            attributes=record.attributes,
            whole_attributes=record.whole_attributes,
        )
    except InvalidGeometryError:
        return None


def rebuild_card(devices: Collection[RecordedDevice]) -> Card | None:
    """Return a card that has exactly the partitions of ``devices``, which are all of one card, and itself as a whole.

    None: their names are not those of a card's devices, or their partitions are not of one card.
    """
    names = [parts for device in devices if (parts := parse_device_name(device.name)) is not None]
    partitions = {dataclasses.replace(device.partition, shared=False): device for device in devices}
    kinds = {(partition.kind, partition.card_uuid) for partition in partitions}
    if len({parts.card for parts in names}) != 1 or len(names) < len(devices) or len(kinds) != 1:
        return None
    ((kind, card_uuid),) = kinds
    cut = {partition: device for partition, device in partitions.items() if partition.placement is not None}
    layouts = _find_layouts(partition.placement for partition in cut)
    shareable = next((_find_divided(device.partition) for device in devices if device.partition.shared), "")
    whole = Partition(kind=kind, card_uuid=card_uuid)
    try:
        geometry = Geometry(
            kind=kind,
            model="",
            unit=next(filter(None, (_find_unit(device) for device in cut.values())), "unit"),
            units=sum(layout.units for layout in layouts),
            layouts=() if layouts == (Layout("", layouts[0].units),) else layouts,
            specs=order_specs(_rebuild_spec(partition, layouts, shareable) for partition in (*cut, whole)),
            shareable=shareable,
        )
    except InvalidGeometryError:
        return None
    return Card(uuid=card_uuid, index=names[0].index, geometry=geometry)


def _to_spec_record(spec: PartitionSpec) -> SpecRecord:
    placement = spec.placement
    return SpecRecord(
        profile=spec.profile,
        function=spec.function,
        placement=None if placement is None else PlacementRecord(**placement._asdict()),
        engines=spec.engines,
        size=spec.size,
        weight=spec.weight,
        capacity=dict(spec.capacity),
        quota=dict(spec.quota),
        load_s=spec.load_s,
        attributes=dict(spec.attributes),
    )


def _to_geometry(record: CardRecord) -> Geometry:
    """Raises InvalidGeometryError."""
    layouts = tuple(Layout(layout.name, layout.units) for layout in record.layouts)
    return Geometry(
        kind=record.kind,
        model=record.model,
        unit=record.unit,
        units=record.units,
        layouts=layouts,
        engines=tuple(record.engines.items()),
        specs=tuple(_to_spec(record, layouts or (Layout("", record.units),), spec) for spec in record.specs),
        attributes=tuple(record.model_attributes.items()),
        shareable=record.shareable,
    )


def _to_spec(record: CardRecord, layouts: Iterable[Layout], spec: SpecRecord) -> PartitionSpec:
    found = spec.placement
    placement = None if found is None else Placement(found.start, found.size, found.gaps, found.layout)
    return PartitionSpec(
        kind=record.kind,
        profile=spec.profile,
        function=spec.function,
        placement=placement,
        mask=card_mask(record.model, layouts, placement),
        engines=spec.engines,
        size=spec.size,
        weight=spec.weight,
        capacity=tuple(spec.capacity.items()),
        quota=tuple(spec.quota.items()),
        load_s=spec.load_s,
        attributes=tuple(spec.attributes.items()),
    )


def _find_layouts(placements: Iterable[Placement | None]) -> tuple[Layout, ...]:
    """Return the least layouts that have all ``placements``."""
    ends: dict[str, int] = {}
    for placement in placements:
        if placement is not None:
            ends[placement.layout] = max(ends.get(placement.layout, 0), placement.end)
    return tuple(Layout(name, units) for name, units in sorted(ends.items())) or (Layout("", 1),)


def _exclusive_name(name: str) -> str:
    """Return the name of the exclusive device of a shared or monitor device, or of itself."""
    return exclusive_name(name) or monitored_name(name) or name


def _find_divided(shared: Partition) -> str:
    """Return the capacity that shares of a partition divide: a function has compute units, all else memory."""
    return CAPACITY_MEMORY if shared.function is None else CAPACITY_COMPUTE_UNIT_PERCENT


def _find_unit(device: RecordedDevice) -> str:
    """Return the name of a unit, which the names of bare sets of units have; empty: the device has a name without."""
    placement, parts = device.partition.placement, parse_device_name(_exclusive_name(device.name))
    if placement is None or parts is None or device.partition.profile or device.partition.function:
        return ""
    noun = parts.suffix.removeprefix("-").removesuffix(f"-{list_units(placement)}")
    return noun if placement.size == 1 else noun.removesuffix("s")


def _rebuild_spec(partition: Partition, layouts: tuple[Layout, ...], shareable: str) -> PartitionSpec:
    mask = card_mask("", layouts, partition.placement)
    units = mask.bit_count()
    return PartitionSpec(
        kind=partition.kind,
        profile=partition.profile,
        function=partition.function,
        placement=partition.placement,
        mask=mask,
        size=(units,),
        weight=units,
        capacity=((shareable, Quantity(units)),) if shareable else (),
    )
