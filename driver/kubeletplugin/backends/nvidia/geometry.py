"""The model of a card from what NVML reports of it. Pure.

The card is the authority: profiles, placements and amounts are its own. Kerf's table gives the model its id, and what
NVML does not report: the engines of the whole card, the profiles while an old driver does not report them, and the
reference with which the card is compared. A card is a model of the table by its name, PCI device id and memory; one
that fits none is the model ``unknown``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Final

from kerf_dra.driver.families.gpu.model import Engines, GpuModel, Profile
from kerf_dra.driver.kubeletplugin.backends.nvidia.readings import CardReading, ProfileReading
from kerf_dra.driver.partitions.geometry import Placement

UNKNOWN_MODEL: Final = "unknown"
"""The id of the model of every card that Kerf's table does not have."""
_MEMORY_TOLERANCE: Final = 0.03
"""The share by which the total memory of one model may differ: drivers before R510 report 1.3 % less of an A30, and
products of one name or PCI device id differ by 15 % and more (cards of one memory size but for a board revision, as
GB200 with 186 and 189 GB, are distinguished by their profiles)."""
_NAME: Final = re.compile(r"(?=.{1,32}$)[0-9a-z]+([.+-][0-9a-z]+)*")
"""What a profile may be called, as ``1g.24gb+me.all``: it is part of its devices' names, which are DNS labels."""
_GIB: Final = 2**30
_MIB: Final = 2**20
_AMOUNTS: Final = ("compute_slices", "memory_bytes", "multiprocessors", "engines", "placements", "max_instances")
"""The fields of a profile in which card and table are compared."""


def build_model(
    card: CardReading, readings: Sequence[ProfileReading], table: Iterable[GpuModel]
) -> tuple[GpuModel, tuple[str, ...]]:
    """Return the model of ``card``, and in what the card differs from Kerf's table, in words.

    A card that the table does not have gets the model ``unknown``; it differs in nothing.
    """
    known = find_table_model(card, readings, table)
    reported = {(one.enum, one.id): one for one in readings if one.placements}
    if known is not None and not reported:
        if not readings:
            return replace(known, memory_bytes=card.memory_bytes or known.memory_bytes, profiles=()), ()
        return known, ("the driver does not report placements now, those of the table are used",)
    profiles, unnamed = _name_profiles([*reported.values()], known)
    if known is None:
        return _from_card_alone(card, profiles), unnamed
    differences = (*unnamed, *_find_differences(known, profiles))
    model = replace(known, profiles=profiles, memory_bytes=card.memory_bytes or known.memory_bytes)
    return (model if differences or model != known else known), differences


def find_table_model(
    card: CardReading, readings: Sequence[ProfileReading], table: Iterable[GpuModel]
) -> GpuModel | None:
    """Return the model of the table that ``card`` is; None: the table has none.

    The product's name decides, and the PCI device id where the table lacks the name. Neither may be another model's,
    and the total memory must be the model's. Of variants that all of this fits, it is the one with the most profiles of
    the card, then the one with the closest memory.
    """
    models = tuple(table)
    named = [model for model in models if card.product in model.products]
    listed = [model for model in models if card.pci_device_id in model.pci_device_ids]
    alike = [model for model in named if model in listed] if named and listed else named or listed
    names = {reading.name for reading in readings}
    return max(
        (model for model in alike if _has_memory_of(card, model)),
        key=lambda model: (
            len(names & {one.name for one in model.profiles}),
            -abs(card.memory_bytes - model.memory_bytes),
        ),
        default=None,
    )


def _has_memory_of(card: CardReading, model: GpuModel) -> bool:
    difference = abs(card.memory_bytes - model.memory_bytes)
    return not card.memory_bytes or difference <= model.memory_bytes * _MEMORY_TOLERANCE


def describe_unknown_model(card: CardReading, model: GpuModel) -> str:
    """Return what an administrator reads of a card that the table does not have."""
    listings = " and the output of `nvidia-smi mig -lgip` and `nvidia-smi mig -lgipp`" if model.profiles else ""
    return (
        f"Kerf's table has no model {card.product!r} with PCI device id {card.pci_device_id} and "
        f"{card.memory_bytes // _MIB} MiB: it is published as model {UNKNOWN_MODEL!r} with what NVML reports, and "
        f"selectors find it by productName. To add it to the table, report this line{listings}"
    )


def _from_card_alone(card: CardReading, profiles: tuple[Profile, ...]) -> GpuModel:
    units = max((place.start + place.size for one in profiles for place in one.placements), default=1)
    largest = {one.name: max((getattr(p.engines, one.name) for p in profiles), default=0) for one in fields(Engines)}
    whole = Engines(**largest)
    return GpuModel(
        id=UNKNOWN_MODEL,
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


def _name_profiles(
    readings: Sequence[ProfileReading], known: GpuModel | None
) -> tuple[tuple[Profile, ...], tuple[str, ...]]:
    """Return the profiles, the smallest first, and what is wrong with the names of some, in words.

    A profile that has no name of its own (``_choose_name``) is left out: its devices could not be distinguished from
    another's.
    """
    times = Counter(reading.name for reading in readings)
    unusable = {one.id for one in readings if times[one.name] > 1 or not _NAME.fullmatch(one.name)}
    found: dict[str, Profile] = {}
    problems: list[str] = []
    for reading in sorted(readings, key=lambda one: one.id in unusable):
        name = reading.name if reading.id not in unusable else _choose_name(reading, _same_profile(known, reading))
        if not name or name in found:
            problems.append(f"profile {reading.id} is left out, because it is called {(name or reading.name)!r}")
            continue
        if reading.name not in ("", name):
            problems.append(f"profile {reading.id} is called {reading.name!r}, which is taken for {name}")
        found[name] = _profile(reading, name, _same_profile(known, reading))
    profiles = sorted(found.values(), key=lambda profile: (profile.placements[0].size, profile.compute_slices))
    return tuple(profiles), tuple(problems)


def _choose_name(reading: ProfileReading, known: Profile | None) -> str:
    """Return a name for a profile whose own is empty, that of several, or no part of a device's name; empty: none."""
    if known is not None:
        return known.name
    return "" if reading.name else f"{reading.compute_slices}g.{_nominal(reading)}gb"


def _same_profile(known: GpuModel | None, reading: ProfileReading) -> Profile | None:
    profiles = known.profiles if known else ()
    return next((one for one in profiles if one.gi_profile_enum == reading.enum), None)


def _profile(reading: ProfileReading, name: str, known: Profile | None) -> Profile:
    return Profile(
        name=name,
        gi_profile_id=reading.id,
        gi_profile_enum=reading.enum,
        compute_slices=reading.compute_slices,
        memory_bytes=reading.memory_bytes,
        multiprocessors=reading.multiprocessors,
        engines=reading.engines,
        placements=reading.placements,
        max_instances=reading.max_instances,
        other_names=known.other_names if known is not None else (),
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
