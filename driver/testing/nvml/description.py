"""The description of a machine with NVIDIA cards, and the state that follows from it and Kerf's table of models."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.families.gpu.model import Engines, GpuModel, Profile
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.testing.nvml.layout import (
    MAGIC,
    MAX_CARDS,
    MAX_COMPUTE_INSTANCES,
    MAX_GPU_INSTANCES,
    MAX_MINORS,
    MAX_NVLINKS,
    NVSWITCH,
    CardLayout,
    EnginesLayout,
    ProfileLayout,
    StateLayout,
    assign,
)

DRIVER_VERSION: Final = "580.95.05"
"""A version of NVIDIA's production branch of 2025, which has every function that the stand-in has."""
CUDA_VERSION: Final = 13000
"""CUDA 13.0, as that driver reports it: 1000 for each major version, 10 for each minor one."""
_ARCHITECTURES: Final = {"ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
"""NVML_DEVICE_ARCH_*."""
_BRAND: Final = 14
"""NVML_BRAND_NVIDIA: what data center cards report."""
_NOT_CAPABLE, _NEEDS_RESET, _IMMEDIATE = 0, 1, 2
"""``enum mig_switch`` of ``state.h``."""
_NEEDING_RESET: Final = frozenset({"ampere"})
"""Architectures whose MIG mode changes with a reset only (MIG User Guide); all later ones change at once."""
_WITH_OWN_MEMORY_NODE: Final = ("GH200", "GB200", "GB300")
"""Products whose memory is a NUMA node of the machine (Grace)."""
_NVIDIA: Final = 0x10DE
"""PCI vendor id."""
_UNKNOWN_DEVICE: Final = 0x2FFF
"""The PCI device id of models of which the table has none."""
_UNKNOWN_PROFILE_ID: Final = 100
"""Plus the enum: the id of a profile for which no source states one. No known id is as large."""
_COMPUTE_ENUMS: Final = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""NVML_COMPUTE_INSTANCE_PROFILE_* by compute slices, as cards list them; the ids are the same numbers."""
_COMPUTE_REV1: Final = 7
"""NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1: nvidia-smi was seen to use it in 1g with double memory (GH200)."""
_MEMORY_DOUBLED_ENUM: Final = 9
"""NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2: 1g with double memory."""
_SOCKETS: Final = 2
_FIRST_BUS: Final = (0x01, 0x81)
"""The PCI bus of the first card of each socket."""
_NAMESPACE: Final = uuid.UUID("5b1c7a52-3a0c-5e8a-9d5b-0f2b6f0a7d11")
"""The namespace of the UUIDs of stand-in cards (RFC 9562, version 5)."""


class UnsuitableDescriptionError(PermanentError):
    """A description names more cards than the stand-in has, two with one minor number, or NVLinks that end nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardDescription:
    """A card of the machine."""

    model: str
    """A model of Kerf's table, as ``gpu_model`` finds it."""
    minor: int | None = None
    """The minor number of its device node; None: its number on the machine."""
    minor_after_reset: int | None = None
    """The minor number after a reset, which switching MIG mode of an Ampere card is; None: the same."""
    is_mig_capable: bool = True
    is_mig_on: bool = False
    is_passthrough: bool = False
    """Whether the machine is a virtual one, whose driver cannot reset the card."""
    is_persistent: bool = True
    """Whether persistence mode is on after a boot, as where nvidia-persistenced is a service of the machine."""
    product: str = ""
    """The product's name; empty: the model's."""
    pci_device_id: str = ""
    """The PCI device id, four hexadecimal digits; empty: the model's first."""
    memory_bytes: int | None = None
    """The total memory; None: the model's."""
    nvlinks: tuple[int, ...] = ()
    """Where each NVLink ends: at the card with this number on the machine, or at a switch (``NVSWITCH``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineDescription:
    """A machine with NVIDIA cards."""

    cards: tuple[CardDescription, ...]
    driver_version: str = DRIVER_VERSION
    cuda_version: int = CUDA_VERSION
    seed: str = ""
    """The seed of the cards' UUIDs: machines with different seeds have different cards."""


def build_state(description: MachineDescription) -> StateLayout:
    """Return the state of a machine that has just booted for the first time.

    Raises UnknownModelError and UnsuitableDescriptionError.
    """
    minors = [card.minor if card.minor is not None else i for i, card in enumerate(description.cards)]
    later = [card.minor_after_reset for card in description.cards if card.minor_after_reset is not None]
    if len(minors) > MAX_CARDS or any(not 0 <= minor < MAX_MINORS for minor in (*minors, *later)):
        raise UnsuitableDescriptionError(f"the stand-in has at most {MAX_CARDS} cards, with minor numbers below 32")
    if len({*minors}) < len(minors):
        raise UnsuitableDescriptionError(f"two cards have one minor number: {minors}")
    _check_nvlinks(description.cards)
    state = StateLayout(magic=MAGIC, is_loaded=1, loads=1, is_tree_stale=1)
    assign(
        state,
        n_cards=len(minors),
        cuda_version=description.cuda_version,
        driver_version=description.driver_version,
        kernel_version=description.driver_version,
        nvml_version=f"{description.cuda_version // 1000}.{description.driver_version}",
    )
    for number, card in enumerate(description.cards):
        _fill_card(state.cards[number], number, minors[number], card, description.seed)
    return state


def _check_nvlinks(cards: tuple[CardDescription, ...]) -> None:
    """Check that each link between two cards is one of both. Raises UnsuitableDescriptionError."""
    for number, card in enumerate(cards):
        if len(card.nvlinks) > MAX_NVLINKS:
            raise UnsuitableDescriptionError(f"card {number} has {len(card.nvlinks)} NVLinks of at most {MAX_NVLINKS}")
        for remote in {*card.nvlinks} - {NVSWITCH}:
            is_other = 0 <= remote < len(cards) and remote != number
            if not is_other or card.nvlinks.count(remote) != cards[remote].nvlinks.count(number):
                raise UnsuitableDescriptionError(f"card {number} has NVLinks to {remote}, which does not have as many")


def find_instance_id(model: GpuModel, placement: Placement) -> int:
    """Return the id of a GPU instance at ``placement``, as listings show it: the largest size is 0, then the places of
    each smaller size in order. With eight slices 7g is 0, 3g and 4g 1-2, two slices 3-6, one slice 7-13.
    """
    return model.memory_slices // placement.size - 1 + placement.start // placement.size


def _fill_card(row: CardLayout, number: int, minor: int, card: CardDescription, seed: str) -> None:
    model = gpu_model(card.model)
    card_uuid = uuid.uuid5(_NAMESPACE, f"{seed}/{number}")
    major, _, less = model.cuda_compute_capability.partition(".")
    device = next((int(id_, 16) for id_ in (card.pci_device_id, *model.pci_device_ids) if id_), _UNKNOWN_DEVICE)
    has_own_node = any(name in model.product for name in _WITH_OWN_MEMORY_NODE)
    is_on = card.is_mig_capable and card.is_mig_on
    assign(
        row,
        mig_switch=_mig_switch(model, card),
        is_passthrough=card.is_passthrough,
        mig_current=is_on,
        mig_pending=is_on,
        minor=minor,
        minor_after_reset=minor if card.minor_after_reset is None else card.minor_after_reset,
        architecture=_ARCHITECTURES[model.architecture],
        cuda_major=int(major),
        cuda_minor=int(less),
        brand=_BRAND,
        is_persistent=card.is_persistent,
        is_persistent_at_load=card.is_persistent,
        numa_node=number % _SOCKETS,
        memory_node=_SOCKETS + number if has_own_node else -1,
        pci_bus=_FIRST_BUS[number % _SOCKETS] + number // _SOCKETS,
        pci_device_id=device << 16 | _NVIDIA,
        pci_subsystem_id=device << 16 | _NVIDIA,
        compute_slices=model.compute_slices,
        multiprocessors=model.multiprocessors,
        memory_bytes=model.memory_bytes if card.memory_bytes is None else card.memory_bytes,
        uuid=f"GPU-{card_uuid}",
        name=card.product or model.product,
        n_nvlinks=len(card.nvlinks),
    )
    for link, remote in zip(row.nvlinks, card.nvlinks, strict=False):
        assign(link, is_on=1, remote=remote)
    _fill_engines(row.engines, model.engines)
    assign(row.exclusive, **dict.fromkeys(model.exclusive_engines, 1))
    if card.is_mig_capable:
        row.n_profiles = len(model.profiles)
        for profile_row, profile in zip(row.profiles, model.profiles, strict=False):
            _fill_profile(profile_row, model, profile)
    for gpu_instance in range(MAX_GPU_INSTANCES):
        for compute_instance in range(MAX_COMPUTE_INSTANCES):
            # Listings show version 5: a partition made again at its old place has its old UUID.
            name = f"MIG-{uuid.uuid5(card_uuid, f'{gpu_instance}/{compute_instance}')}"
            row.mig_uuids[gpu_instance][compute_instance].value = name.encode()


def _mig_switch(model: GpuModel, card: CardDescription) -> int:
    if not card.is_mig_capable:
        return _NOT_CAPABLE
    return _NEEDS_RESET if model.architecture in _NEEDING_RESET else _IMMEDIATE


def _fill_engines(row: EnginesLayout, engines: Engines) -> None:
    assign(
        row,
        copy=engines.copy,
        decoders=engines.decoders,
        encoders=engines.encoders,
        jpeg=engines.jpeg,
        ofa=engines.ofa,
    )


def _fill_profile(row: ProfileLayout, model: GpuModel, profile: Profile) -> None:
    computes = list(_compute_profiles(model, profile))
    assign(
        row,
        profile_enum=profile.gi_profile_enum,
        id=_UNKNOWN_PROFILE_ID + profile.gi_profile_enum if profile.gi_profile_id is None else profile.gi_profile_id,
        slices=profile.compute_slices,
        max_instances=profile.max_instances,
        multiprocessors=profile.multiprocessors,
        n_placements=len(profile.placements),
        n_compute_profiles=len(computes),
        memory_mib=profile.memory_bytes >> 20,
        name=profile.name,
    )
    _fill_engines(row.engines, profile.engines)
    for place_row, place in zip(row.placements, profile.placements, strict=False):
        assign(place_row, start=place.start, size=place.size, instance_id=find_instance_id(model, place))
    for order, place in enumerate(_order_of_tries(model, profile)):
        row.order[order] = profile.placements.index(place)
    for compute_row, (enum, slices, multiprocessors) in zip(row.compute_profiles, computes, strict=False):
        name = f"MIG {'' if slices == profile.compute_slices else f'{slices}c.'}{profile.name}"
        assign(compute_row, profile_enum=enum, id=enum, slices=slices, multiprocessors=multiprocessors, name=name)


def _compute_profiles(model: GpuModel, profile: Profile) -> Iterator[tuple[int, int, int]]:
    """Yield enum, compute slices and multiprocessors of each; the one that fills the GPU instance is the last."""
    ordinary = min((one.multiprocessors for one in model.profiles if one.compute_slices == 1), default=0)
    if profile.gi_profile_enum == _MEMORY_DOUBLED_ENUM and profile.multiprocessors > ordinary:
        yield _COMPUTE_REV1, 1, profile.multiprocessors
        return
    for slices, enum in sorted(_COMPUTE_ENUMS.items()):
        if slices <= profile.compute_slices:
            yield enum, slices, profile.multiprocessors * slices // profile.compute_slices


def _order_of_tries(model: GpuModel, profile: Profile) -> list[Placement]:
    """Return the placements in the order in which the driver takes them where the caller names none.

    Seven 1g on an H100 came at 6, 4, 5, 0, 1, 2, 3: the right half first, and there what leaves a pair whole.
    """
    half = model.memory_slices // 2
    last = max(place.start for place in profile.placements)
    return sorted(
        profile.placements,
        key=lambda place: (place.start < half, place.start != last, place.start),
    )
