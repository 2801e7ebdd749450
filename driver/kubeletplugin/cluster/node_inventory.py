"""The spec of a NodeInventory made from cards, where a controller allocates (Kubernetes 1.27 to 1.31). Pure."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from api.kerf.node_inventory import (
    InventoryCard,
    InventoryEngines,
    InventoryFunction,
    InventoryGpuModel,
    InventoryLoaded,
    InventoryLogic,
    InventoryPlacement,
    InventoryProfile,
    InventoryShell,
    InventoryTaints,
    NodeInventorySpec,
)
from api.model.devices import DeviceTaint
from driver.partitions.geometry import Card, Function, GpuCard, GpuModel, Placement, Profile, Shell


def build_inventory_spec(
    driver: str,
    node: str,
    cards: Sequence[Card],
    taints: Mapping[str, tuple[DeviceTaint, ...]],
    *,
    ready: bool,
    renewed_at: str,
) -> NodeInventorySpec:
    """Build the spec of the driver's ``cards`` on ``node``; ``taints`` are by device name."""
    models = {card.model.id: card.model for card in cards if isinstance(card, GpuCard)}
    shells = {card.shell.name: card.shell for card in cards if not isinstance(card, GpuCard)}
    return NodeInventorySpec(
        driver=driver,
        node=node,
        ready=ready,
        renewed_at=renewed_at,
        gpu_models=tuple(map(_gpu_model, models.values())),
        shells=tuple(map(_shell, shells.values())),
        cards=tuple(map(_card, cards)),
        taints=tuple(InventoryTaints(device=device, taints=held) for device, held in sorted(taints.items())),
    )


def _card(card: Card) -> InventoryCard:
    loaded = () if isinstance(card, GpuCard) else sorted(card.loaded.items())
    return InventoryCard(
        kind=card.kind.value,
        uuid=card.uuid,
        index=card.index,
        model=card.model.id if isinstance(card, GpuCard) else card.shell.name,
        pci_bus_id=card.pci_bus_id,
        numa_node=card.numa_node,
        driver_version=card.driver_version,
        loaded=tuple(
            InventoryLoaded(function=function, start=placement.start, size=placement.size)
            for placement, function in loaded
        ),
    )


def _gpu_model(model: GpuModel) -> InventoryGpuModel:
    return InventoryGpuModel(
        id=model.id,
        product=model.product,
        architecture=model.architecture,
        pci_device_ids=model.pci_device_ids,
        memory_bytes=model.memory_bytes,
        compute_slices=model.compute_slices,
        memory_slices=model.memory_slices,
        multiprocessors=model.multiprocessors,
        engines=_engines(model),
        exclusive_engines=model.exclusive_engines,
        profiles=tuple(map(_profile, model.profiles)),
    )


def _profile(profile: Profile) -> InventoryProfile:
    return InventoryProfile(
        name=profile.name,
        gi_profile_id=profile.gi_profile_id,
        gi_profile_enum=profile.gi_profile_enum,
        compute_slices=profile.compute_slices,
        memory_bytes=profile.memory_bytes,
        multiprocessors=profile.multiprocessors,
        engines=_engines(profile),
        placements=_placements(profile.placements),
        max_instances=profile.max_instances,
    )


def _engines(owner: GpuModel | Profile) -> InventoryEngines:
    return msgspec.convert(owner.engines, InventoryEngines, from_attributes=True)


def _shell(shell: Shell) -> InventoryShell:
    return InventoryShell(
        name=shell.name,
        uuid=shell.uuid,
        family=shell.family,
        slots=tuple(msgspec.convert(slot, InventoryLogic, from_attributes=True) for slot in shell.slots),
        functions=tuple(map(_function, shell.functions)),
    )


def _function(function: Function) -> InventoryFunction:
    return InventoryFunction(
        name=function.name,
        version=function.version,
        afu_id=function.afu_id,
        placements=_placements(function.placements),
        load_milliseconds=round(function.load_s * 1000),
    )


def _placements(placements: Iterable[Placement]) -> tuple[InventoryPlacement, ...]:
    return tuple(InventoryPlacement(start=placement.start, size=placement.size) for placement in placements)
