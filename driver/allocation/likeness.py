"""What is alike at one point of a look ahead: as good as what failed, or as what has been looked at.

Blocks of devices that share nothing with others can be exchanged for each other, and sides (all blocks of one value of
what must match) with them, when they look alike and stand alike (``terrain``, ``ground``).
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from driver.allocation.ground import Ground
from driver.allocation.search.constraints import Values
from driver.allocation.semantics.counters import Groups
from driver.allocation.terrain import Compared, Place, Side, Terrain

_Amounts: TypeAlias = tuple[tuple[int, ...], ...]
_Local: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...], _Amounts, _Amounts]
"""How a block stands: what of it is open to each line, counters, groups, capacities of devices that can be shared,
values that several devices have in common."""
_OfSide: TypeAlias = tuple[tuple[bool, ...], tuple[tuple[_Local, ...], ...]]
"""How a side stands: whether its value is in common, and how its blocks do."""


class _View(NamedTuple):
    """What blocks are compared by."""

    open: Sequence[int]
    """The devices open to each line that may still want some."""
    common: Sequence[tuple[str, Values]]
    """By attribute, where more than one value is left in common: a single one shows in what is open."""


class Likeness:
    """Compares devices, lines and grounds of one terrain."""

    def __init__(self, terrain: Terrain) -> None:
        self._terrain = terrain
        self._attributes = {rule.constraint: rule.attribute for line in terrain.lines for rule in line.rules}

    def peers(self, ground: Ground, line: int) -> list[int]:
        """The same line of claims that are alike and stand alike."""
        own = next((lines for lines in self._terrain.party_of.get(line, ()) if line in lines), ())
        stand = [self._stand(ground, each) for each in own]
        return [
            lines[own.index(line)]
            for lines in self._terrain.party_of.get(line, ())
            if lines is not own and [self._stand(ground, each) for each in lines] == stand
        ]

    def _stand(self, ground: Ground, line: int) -> Hashable:
        ask = self._terrain.ask_with[line]
        common = [ground.common.get(rule.constraint) for rule in self._terrain.lines[line].rules]
        return ground.needs[line], ground.devices[line], ground.pending[ask], ground.open[ask], common

    def as_good_as(self, ground: Ground, device: int) -> int:
        """The devices that would fail because ``device`` did, itself among them."""
        terrain, view = self._terrain, self._view(ground)
        place = terrain.place_of[device]
        local = self._local(ground, place, view)
        at = device - place.first
        traits, left = terrain.traits[device], ground.left.get(device)
        twins = [
            other
            for other in range(place.size)
            if other == at
            or (
                terrain.traits[place.first + other] == traits
                and ground.left.get(place.first + other) == left
                and (ground.drawn >> place.first + other ^ ground.drawn >> device) & 1 == 0
                and all((part >> other ^ part >> at) & 1 == 0 for part in local[0])
            )
        ]
        side = terrain.side_of[place]
        kind = next(number for number, places in enumerate(side.kinds) if place in places)
        status = self._status(ground, side, view) if len(terrain.alike_of[side]) > 1 else None
        alike = 0
        for other in terrain.alike_of[side]:
            if other is side or self._status(ground, other, view) == status:
                for each in other.kinds[kind]:
                    if each is place or self._local(ground, each, view) == local:
                        alike |= sum([1 << each.first + twin for twin in twins])
        return alike

    def _view(self, ground: Ground) -> _View:
        pending = {line for ask, each in enumerate(ground.pending) if each for line in self._terrain.asks[ask]}
        return _View(
            [
                devices & ~ground.gone
                for line, devices in enumerate(ground.devices)
                if ground.needs[line] or line in pending
            ],
            [(self._attributes[each], values) for each, values in sorted(ground.common.items()) if len(values) > 1],
        )

    def _status(self, ground: Ground, side: Side, view: _View) -> _OfSide:
        """How a side stands."""
        return (
            tuple([side.value in {(attribute, value) for value in values} for attribute, values in view.common]),
            tuple([tuple(sorted([self._local(ground, place, view) for place in places])) for places in side.kinds]),
        )

    def _local(self, ground: Ground, place: Place, view: _View) -> _Local:
        """How a block stands."""
        return (
            tuple([place.part(devices) for devices in view.open]),
            tuple([ground.remaining[set_] or 0 for set_ in place.sets]),
            tuple([_text(ground.groups[set_]) for set_ in place.sets]) if self._terrain.has_groups else (),
            tuple([(ground.drawn >> device & 1, *ground.left[device]) for device in place.shared]),
            tuple([_numbers(place.own, attribute, values) for attribute, values in view.common]),
        )

    def key(self, ground: Ground, latest: int) -> Hashable:
        """The same for grounds on which the same can be had, up to exchanging what is alike.

        ``latest``: the line of the want that the search is at.
        """
        terrain, view = self._terrain, self._view(ground)
        common = [
            (constraint, attribute, values)
            for constraint, values in sorted(ground.common.items())
            for attribute in [self._attributes[constraint]]
            if len(values) > 1
        ]
        return (
            tuple(ground.needs),
            tuple(ground.pending),
            tuple([pending and open_ for pending, open_ in zip(ground.pending, ground.open, strict=True)]),
            latest,
            tuple([tuple(sorted([self._status(ground, side, view) for side in alike])) for alike in terrain.sides]),
            tuple(
                [
                    (constraint, frozenset([value for value in values if (attribute, value) in terrain.common]))
                    for constraint, attribute, values in common
                ]
            ),
        )


def _numbers(own: Mapping[Compared, int], attribute: str, values: Values) -> tuple[int, ...]:
    """A block's own values among those in common."""
    return tuple(sorted([own[attribute, value] for value in values if (attribute, value) in own])) if own else ()


def _text(groups: Groups | None) -> str:
    """Groups in a form that has an order."""
    return "-" if groups is None else ",".join(sorted(groups))
