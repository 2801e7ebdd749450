"""The spec of a NodeInventory made from cards, where a controller allocates (Kubernetes 1.27 to 1.31). Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from kerf_dra.api.kerf.node_inventory import (
    InventoryAmount,
    InventoryAttribute,
    InventoryCard,
    InventoryEngines,
    InventoryGeometry,
    InventoryLayout,
    InventoryLoaded,
    InventoryPartitions,
    InventoryPlacement,
    InventoryTaints,
    NodeInventorySpec,
)
from kerf_dra.api.model.device_attributes import ATTRIBUTE_MODEL
from kerf_dra.api.model.devices import Attribute, DeviceTaint
from kerf_dra.driver.partitions.geometry import Amounts, Card, Geometry, PartitionSpec, Placement


def build_inventory_spec(
    driver: str,
    node: str,
    cards: Sequence[Card],
    taints: Mapping[str, tuple[DeviceTaint, ...]],
    *,
    ready: bool,
    renewed_at: str,
) -> NodeInventorySpec:
    """Build the spec of ``cards``; ``taints`` are by device name."""
    names = _name_geometries(cards)
    return NodeInventorySpec(
        driver=driver,
        node=node,
        ready=ready,
        renewed_at=renewed_at,
        geometries=tuple(_geometry(geometry, name) for geometry, name in names.items()),
        cards=tuple(_card(card, names[card.geometry]) for card in cards),
        taints=tuple(InventoryTaints(device=device, taints=held) for device, held in sorted(taints.items())),
    )


def _name_geometries(cards: Iterable[Card]) -> dict[Geometry, str]:
    """Return the name of each geometry: its model, and a number where cards of one model are cut differently."""
    names: dict[Geometry, str] = {}
    found: Counter[tuple[str, str]] = Counter()
    for geometry in dict.fromkeys(card.geometry for card in cards):
        found[geometry.kind, geometry.model] += 1
        number = found[geometry.kind, geometry.model]
        names[geometry] = geometry.model if number == 1 else f"{geometry.model}#{number}"
    return names


def _card(card: Card, geometry: str) -> InventoryCard:
    """Build a card of the geometry of this name; its attribute ``model`` has no number."""
    model = {ATTRIBUTE_MODEL: Attribute.of(card.geometry.model)} if geometry != card.geometry.model else {}
    return InventoryCard(
        kind=card.kind,
        uuid=card.uuid,
        index=card.index,
        model=geometry,
        pci_bus_id=card.pci_bus_id,
        pcie_root=card.pcie_root,
        numa_node=card.numa_node,
        driver_version=card.driver_version,
        attributes=_attributes({**model, **card.attributes}.items()),
        loaded=tuple(
            InventoryLoaded(
                function=function,
                start=placement.start,
                size=placement.size,
                gaps=placement.gaps,
                layout=placement.layout,
            )
            for placement, function in sorted(card.loaded.items())
        ),
        layout=card.layout,
    )


@lru_cache(maxsize=16)  # models on one node: an inventory is built again for each report
def _geometry(geometry: Geometry, name: str) -> InventoryGeometry:
    groups: dict[PartitionSpec, list[Placement]] = {}
    for spec in geometry.specs:
        if spec.placement is None:
            groups[spec] = []
        else:
            groups.setdefault(replace(spec, placement=None, mask=0), []).append(spec.placement)
    return InventoryGeometry(
        kind=geometry.kind,
        model=name,
        unit=geometry.unit,
        units=geometry.units,
        layouts=tuple(InventoryLayout(name=layout.name, units=layout.units) for layout in geometry.layouts),
        engines=tuple(InventoryEngines(name=name, total=total) for name, total in geometry.engines),
        partitions=tuple(_partitions(spec, placements) for spec, placements in groups.items()),
        attributes=_attributes(geometry.attributes),
        shareable=geometry.shareable,
    )


def _partitions(spec: PartitionSpec, placements: Iterable[Placement]) -> InventoryPartitions:
    return InventoryPartitions(
        profile=spec.profile or "",
        function=spec.function or "",
        placements=tuple(InventoryPlacement(**placement._asdict()) for placement in placements),
        engines=spec.engines,
        size=spec.size,
        weight=spec.weight,
        capacity=_amounts(spec.capacity),
        quota=_amounts(spec.quota),
        load_milliseconds=round(spec.load_s * 1000),
        attributes=_attributes(spec.attributes),
    )


def _amounts(amounts: Amounts) -> tuple[InventoryAmount, ...]:
    return tuple(InventoryAmount(name=name, amount=amount) for name, amount in amounts)


def _attributes(attributes: Iterable[tuple[str, Attribute]]) -> tuple[InventoryAttribute, ...]:
    return tuple(InventoryAttribute(name=name, value=value) for name, value in attributes)
