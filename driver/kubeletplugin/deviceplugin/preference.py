"""GetPreferredAllocation: which of the free devices a container should get. Pure.

Devices of one container are best near to each other: on one card, behind one PCIe root complex, on one NUMA node. Of
the groups at the nearest level that can hold the whole container the smallest is taken, so that larger ones stay whole
for larger containers. *Spread* wants many cards, and asks for nearness only beyond the card. The kubelet may choose
otherwise: it must, where its topology manager has decided.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kerf_dra.api.deviceplugin.v1beta1 import PreferenceRequest
from kerf_dra.api.kerf.v1alpha1 import PreferredDevices


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlace:
    """Where a device is."""

    card: str
    pcie_root: str
    """Empty: unknown."""
    numa_node: int
    is_prepared: bool = False
    """Whether it is still prepared for a container that has ended: another one costs less to begin with."""


def choose_devices(
    request: PreferenceRequest, places: Mapping[str, DevicePlace], preferred: PreferredDevices
) -> tuple[str, ...]:
    """Return the IDs of the devices for one container: ``request.size`` available ones, those it must have first.

    ``places`` are by ID; IDs without a place come last. Where fewer are available than wanted, all of them are
    returned, and no more than ``size`` in any case.
    """
    must = list(dict.fromkeys(each for each in request.must_include if each in request.available))[: request.size]
    free = [each for each in dict.fromkeys(request.available) if each not in must]
    free.sort(key=lambda each: (each not in places, each in places and places[each].is_prepared))
    near = _nearest_group(must, free, request.size, places, preferred)
    rest = [each for each in free if each not in near]
    chosen = list(must)
    for candidates in (near, rest):
        _fill(chosen, candidates, request.size, places, preferred)
    return tuple(chosen)


def _nearest_group(
    must: Sequence[str], free: Sequence[str], size: int, places: Mapping[str, DevicePlace], preferred: PreferredDevices
) -> list[str]:
    """Return the free devices of the smallest group, at the nearest level, that holds ``must`` and has ``size``."""
    for level in range(1 if preferred == "Spread" else 0, 3):
        groups: dict[object, list[str]] = {}
        for each in free:
            if each in places:
                groups.setdefault(_group(places[each], level), []).append(each)
        needed = {_group(places[each], level) for each in must if each in places}
        able = [
            members
            for group, members in groups.items()
            if group is not None and needed <= {group} and len(must) + len(members) >= size
        ]
        if able:
            return min(able, key=len)
    return list(free)


def _group(place: DevicePlace, level: int) -> object:
    """Return the card, PCIe root complex or NUMA node of a device; None: it is unknown."""
    if level == 0:
        return place.card
    if level == 1:
        return place.pcie_root or None
    return place.numa_node


def _fill(
    chosen: list[str],
    candidates: Sequence[str],
    size: int,
    places: Mapping[str, DevicePlace],
    preferred: PreferredDevices,
) -> None:
    """Add to ``chosen``, up to ``size``: one of the card that has most (Packed) or fewest (Spread) of them, again and
    again; of cards that have as many, one with few or many free devices, and then in the order of ``candidates``.
    """
    left = list(candidates)
    sign = 1 if preferred == "Spread" else -1
    while left and len(chosen) < size:
        had = Counter(places[each].card for each in chosen if each in places)
        open_ = Counter(places[each].card for each in left if each in places)

        def rank(each: str, had: Counter[str] = had, open_: Counter[str] = open_) -> tuple[bool, bool, int, int]:
            place = places.get(each)
            if place is None:
                return (True, False, 0, 0)
            return (False, place.is_prepared, sign * had[place.card], -sign * open_[place.card])

        best = min(left, key=rank)
        left.remove(best)
        chosen.append(best)
