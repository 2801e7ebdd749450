"""How full devices and counter sets can become: whether amounts of fixed sizes fit into what is left, added up.

Amounts are not divisible: of what is left of a card, only sums of amounts that are asked for can be used. All these
sums are the bits of one number. What cannot be used anywhere is lost; where too little is left without it, there is no
way. A "no" is certain.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Final

from driver.allocation.pools.node_devices import Offer
from driver.allocation.semantics.bitset import bits
from driver.allocation.semantics.counters import Field
from driver.allocation.terrain import Line, Terrain

_FINEST: Final = 50_000
"""Units in the largest bin: a number of so many bits is shifted in microseconds. What is finer is not looked at."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Amounts of one name, and the bins they are taken from."""

    amounts: Sequence[int]
    """What each line takes with one device, in ``unit``; 0: not always the same."""
    unit: int
    sets: Sequence[tuple[int, Field]]
    devices: Sequence[tuple[int, int]]
    """Devices that can be shared, with the position of the capacity."""


class Filling:
    """Bounds for one question."""

    def __init__(self, offer: Offer, terrain: Terrain) -> None:
        self._offer = offer
        self._terrain = terrain
        self._kinds = [kind for kind in (*self._of_counters(), *self._of_capacities()) if kind]

    def suffices(
        self, needs: Sequence[int], remaining: Sequence[int | None], left: Mapping[int, Sequence[int]]
    ) -> bool:
        """Whether nothing speaks against taking the devices that lines need from what is left."""
        for kind in self._kinds:
            wanted: dict[int, int] = {}
            for need, amount in zip(needs, kind.amounts, strict=False):
                if need and amount:
                    wanted[amount] = wanted.get(amount, 0) + need
            bins = [field.read(remaining[set_] or 0) * field.unit // kind.unit for set_, field in kind.sets]
            bins += [left[device][position] // kind.unit for device, position in kind.devices]
            if wanted and not fill(wanted, bins):
                return False
        return True

    def _of_counters(self) -> list[_Kind | None]:
        names = {name for set_ in self._terrain.takers for name in self._offer.fields(set_)}
        kinds = []
        for name in sorted(names):
            amounts = [self._counted(line, name) for line in self._terrain.lines]
            sets = [
                (set_, self._offer.fields(set_)[name])
                for set_ in self._terrain.takers
                if name in self._offer.fields(set_)
            ]
            totals = [field.read(self._offer.total(set_)) * field.unit for set_, field in sets]
            kinds.append(_kind(amounts, totals, sets, ()))
        return kinds

    def _of_capacities(self) -> list[_Kind | None]:
        devices: dict[str, list[tuple[int, int]]] = {}
        totals: dict[str, list[int]] = {}
        for device in bits(self._terrain.shareable):
            for position, (name, left) in enumerate(self._terrain.capacities(device)):
                devices.setdefault(name, []).append((device, position))
                totals.setdefault(name, []).append(left)
        kinds = []
        for name, bins in sorted(devices.items()):
            positions = dict(bins)
            amounts = [self._shared(line, positions) for line in self._terrain.lines]
            kinds.append(_kind(amounts, totals[name], (), bins))
        return kinds

    def _counted(self, line: Line, name: str) -> int:
        """What the line takes of the counters of a name; 0: not always the same, or of several sets."""
        amounts: set[int] = set()
        for device in bits(line.devices):
            fields = [(use, self._offer.fields(use.set).get(name)) for use in self._terrain.uses[device]]
            taken = [field.read(use.amount or 0) * field.unit for use, field in fields if field]
            amounts.add(sum(taken) if sum(map(bool, taken)) == 1 else 0)
        return amounts.pop() if len(amounts) == 1 else 0

    def _shared(self, line: Line, positions: Mapping[int, int]) -> int:
        """The same of a capacity, given by its position in each device."""
        amounts = {
            line.amounts[device][positions[device]] if device in positions else 0 for device in bits(line.devices)
        }
        return amounts.pop() if len(amounts) == 1 else 0


def _kind(
    amounts: Sequence[int], totals: Sequence[int], sets: Sequence[tuple[int, Field]], devices: Sequence[tuple[int, int]]
) -> _Kind | None:
    unit = reduce(gcd, amounts, 0)
    if not unit or not 1 < max(totals) // unit <= _FINEST:  # what is taken whole is counted elsewhere
        return None
    return _Kind([amount // unit for amount in amounts], unit, sets, devices)


def fill(wanted: Mapping[int, int], bins: Sequence[int]) -> bool:
    """Whether so many of each amount do not exceed what sums of them can fill of each bin."""
    largest = max(bins)
    within = (1 << largest + 1) - 1
    sums = 1
    for amount, number in wanted.items():
        for _ in range(min(number, largest // amount)):
            sums |= sums << amount & within
    needed = sum(amount * number for amount, number in wanted.items())
    for bin_ in bins:
        needed -= (sums & (1 << bin_ + 1) - 1).bit_length() - 1
    return needed <= 0
