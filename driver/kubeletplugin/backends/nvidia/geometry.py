"""The model of a card from what NVML reports of it. Pure.

The card is the authority: profiles, placements and amounts are its own. Kerf's table gives the model its id, and what
NVML does not report: the engines of the whole card, the profiles while an old driver does not tell them, and the
reference with which the card is compared.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Final

from kerf_dra.driver.families.gpu.model import Engines, GpuModel, Profile
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import CardReading, ProfileReading
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.partitions.slice_limits import MAX_VALUE

_GIB: Final = 2**30
_AMOUNTS: Final = ("compute_slices", "memory_bytes", "multiprocessors", "engines", "placements", "max_instances")
"""The fields of a profile in which card and table are compared."""


def build_model(
    card: CardReading, readings: Sequence[ProfileReading], table: Iterable[GpuModel]
) -> tuple[GpuModel, tuple[str, ...]]:
    """Return the model of ``card``, and in what the card differs from Kerf's table, in words.

    A card that the table does not have gets an id from its product's name; it differs in nothing.
    """
    known = find_table_model(card, readings, table)
    if known is None:
        return _from_card_alone(card, readings), ()
    reported = {(one.enum, one.id): one for one in readings if one.placements}
    if not reported:
        if not readings:
            return replace(known, memory_bytes=card.memory_bytes or known.memory_bytes, profiles=()), ()
        return known, ("the driver does not report placements now, those of the table are used",)
    profiles = sorted(
        (_profile(one, _same_profile(known, one)) for one in reported.values()),
        key=lambda profile: (profile.placements[0].size, profile.compute_slices),
    )
    differences = tuple(_find_differences(known, profiles))
    model = replace(known, profiles=tuple(profiles), memory_bytes=card.memory_bytes or known.memory_bytes)
    return (model if differences or model != known else known), differences


def find_table_model(
    card: CardReading, readings: Sequence[ProfileReading], table: Iterable[GpuModel]
) -> GpuModel | None:
    """Return the model of the table that ``card`` is; None: the table has none.

    The product's name decides, then the PCI device id, which several models may have: of these the one with the most
    profiles of the card.
    """
    models = tuple(table)
    named = [model for model in models if model.product == card.product]
    listed = named or [model for model in models if card.pci_device_id in model.pci_device_ids]
    names = {reading.name for reading in readings}
    return max(listed, key=lambda model: len(names & {one.name for one in model.profiles}), default=None)


def make_model_id(product: str) -> str:
    """Return an id for a product that the table does not have.

    >>> make_model_id("NVIDIA L40S")
    'l40s'
    """
    name = re.sub(r"[^a-z0-9]+", "-", product.lower().removeprefix("nvidia"))
    return name.strip("-")[:MAX_VALUE].strip("-") or "nvidia"


def _from_card_alone(card: CardReading, readings: Sequence[ProfileReading]) -> GpuModel:
    profiles = tuple(
        sorted(
            (_profile(one, None) for one in readings if one.placements),
            key=lambda profile: (profile.placements[0].size, profile.compute_slices),
        )
    )
    units = max((place.start + place.size for one in profiles for place in one.placements), default=1)
    largest = {one.name: max((getattr(p.engines, one.name) for p in profiles), default=0) for one in fields(Engines)}
    whole = Engines(**largest)
    return GpuModel(
        id=make_model_id(card.product),
        product=card.product,
        architecture=card.architecture,
        cuda_compute_capability=card.cuda_compute_capability,
        pci_device_ids=(card.pci_device_id,),
        memory_bytes=card.memory_bytes,
        compute_slices=max((one.compute_slices for one in profiles), default=1),
        memory_slices=units,
        multiprocessors=max((one.multiprocessors for one in profiles), default=0),
        engines=whole,
        exclusive_engines=tuple(_find_exclusive(profiles, whole, Placement(0, units))),
        profiles=profiles,
    )


def _find_exclusive(profiles: Sequence[Profile], whole: Engines, card: Placement) -> Iterable[str]:
    """Yield the engines of which a profile of a part of the card takes all: others cannot be made beside it."""
    parts = [one for one in profiles if card not in one.placements]
    for engine in fields(Engines):
        count = getattr(whole, engine.name)
        if count and any(getattr(one.engines, engine.name) == count for one in parts):
            yield engine.name


def _same_profile(known: GpuModel, reading: ProfileReading) -> Profile | None:
    return next((one for one in known.profiles if one.gi_profile_enum == reading.enum), None)


def _profile(reading: ProfileReading, known: Profile | None) -> Profile:
    name = reading.name or (known.name if known else f"{reading.compute_slices}g.{_nominal(reading)}gb")
    return Profile(
        name=name,
        gi_profile_id=known.gi_profile_id if known and known.gi_profile_id == reading.id else reading.id,
        gi_profile_enum=reading.enum,
        compute_slices=reading.compute_slices,
        memory_bytes=reading.memory_bytes,
        multiprocessors=reading.multiprocessors,
        engines=reading.engines,
        placements=reading.placements,
        max_instances=reading.max_instances,
    )


def _nominal(reading: ProfileReading) -> int:
    return -(-reading.memory_bytes // _GIB)


def _find_differences(known: GpuModel, profiles: Sequence[Profile]) -> Iterable[str]:
    there = {profile.gi_profile_enum: profile for profile in profiles}
    for one in known.profiles:
        if one.gi_profile_enum not in there:
            yield f"it has no {one.name}"
    expected = {profile.gi_profile_enum: profile for profile in known.profiles}
    for profile in profiles:
        entry = expected.get(profile.gi_profile_enum)
        if entry is None:
            yield f"it has {profile.name}, too"
            continue
        if entry.name != profile.name:
            yield f"{entry.name} is called {profile.name}"
        changed = [name for name in _AMOUNTS if getattr(entry, name) != getattr(profile, name)]
        if changed:
            yield f"{profile.name} differs in {', '.join(changed)}"
