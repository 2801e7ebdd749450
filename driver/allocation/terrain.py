"""What a question looks like to a scout (``scouting.py``): requests that are alike together, devices block by block.

A *line* is what requests that are alike want of devices; one with alternatives stands in several lines. Devices are
numbered anew, so that those of a block (``symmetry.py``) are neighbours and a block's part of a mask is one shift away.

Left out is what depends on the order in which devices are taken: admin access, and the counters of devices that can be
shared. So a terrain may look easier than the question is, never harder.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from driver.allocation.search.constraints import NOT_COMPARABLE, Value, Values
from driver.allocation.search.problem import Question, Request, Want
from driver.allocation.search.symmetry import want_traits
from driver.allocation.semantics.bitset import bits
from driver.allocation.semantics.counters import Groups, Use, admitted

ConstraintId: TypeAlias = tuple[int, int]
"""Position of the claim, position of the constraint in it."""
Compared: TypeAlias = tuple[str, Value]
"""A value of an attribute."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A constraint, as a line sees it."""

    constraint: ConstraintId
    attribute: str
    is_match: bool
    values: Mapping[int, Values]
    """Of each device of the line."""
    by_value: Mapping[Value, int]


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """What requests that are alike want."""

    want: Want
    """Of one of them."""
    devices: int
    is_single: bool
    """Only one request wants it, so that it takes no device twice."""
    amounts: Mapping[int, tuple[int, ...]]
    """What it takes of the capacities of each device that is shared, in units of 1e-9."""
    rules: tuple[Rule, ...]
    weight: float
    """The largest part of a counter set or of a capacity that it takes with one device."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A block of devices."""

    first: int
    size: int
    kind: Hashable
    """The same for blocks that differ in names only."""
    sets: tuple[int, ...]
    shared: tuple[int, ...]
    own: Mapping[Compared, int]
    """The values that no other block has, numbered."""

    def part(self, mask: int) -> int:
        """What a mask has of it, counted from its first device."""
        return mask >> self.first & (1 << self.size) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Blocks that have a value in common, or those that have none."""

    kinds: tuple[tuple[Place, ...], ...]
    """Those of a kind together, in the same order on all sides that are alike."""
    value: Compared | None


class Terrain:
    """All that does not change while a question is looked into."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._offer = question.offer
        served = [request for request in question.requests[: question.safe] if not _watches(request)]
        members = self._members(served)
        self.devices = [device for block in members for device in block]
        """Their numbers in the offer."""
        self._numbers = {device: number for number, device in enumerate(self.devices)}
        self.shareable = self.converted(self._offer.shareable)
        self.uses: list[tuple[Use, ...]] = [
            () if self.shareable >> number & 1 else self._offer.uses(device)
            for number, device in enumerate(self.devices)
        ]
        self.has_groups = any(use.groups for device in self.devices for use in self._offer.uses(device))
        self.lines: list[Line] = []
        self.is_ordered = False
        """Whether some device may come first under a constraint and not later."""
        self.line_of: dict[Want, int] = {}
        self.asks: list[tuple[int, ...]] = []
        """The lines of each sort of requests, one for each alternative."""
        self.ask_of: dict[int, int] = {}
        """The sort of each request, by its position."""
        self._register(question.requests, served)
        self.takers: dict[int, int] = defaultdict(int)
        """The devices that take from each counter set."""
        for number, uses in enumerate(self.uses):
            for use in uses:
                self.takers[use.set] |= 1 << number
        self._beyond: dict[tuple[int, int], int] = {}
        self._apart: dict[tuple[int, Groups], int] = {}
        self.ask_with = {line: ask for ask, lines in enumerate(self.asks) for line in lines}
        self.parties = self._parties()
        """The lines of claims that are alike: any two of these claims can change places."""
        self.party_of = {line: party for party in self.parties for lines in party for line in lines}
        self.traits: list[Hashable] = []
        """What tells a device from others of its block."""
        self.place_of: list[Place] = []
        self.side_of: dict[Place, Side] = {}
        self.alike_of: dict[Side, Sequence[Side]] = {}
        self.common: frozenset[Compared] = frozenset()
        """The values that several blocks have, where sides cross."""
        self._arrange(members)
        self.sides = list({id(alike): alike for alike in self.alike_of.values()}.values())
        """Those that are alike together."""

    def number(self, device: int) -> int | None:
        """The number here of a device of the offer; None: no request wants it."""
        return self._numbers.get(device)

    def converted(self, mask: int) -> int:
        """A mask of the offer's devices by their numbers here, without devices that no request wants."""
        return sum([1 << self._numbers[device] for device in bits(mask) if device in self._numbers])

    def beyond(self, set_: int, remaining: int) -> int:
        """Devices that take more from a set than ``remaining``."""
        key = set_, remaining
        mask = self._beyond.get(key)
        if mask is None:
            beyond = self._offer.beyond(set_, remaining)
            mask = sum([1 << number for number in bits(self.takers[set_]) if beyond >> self.devices[number] & 1])
            self._beyond[key] = mask
        return mask

    def apart(self, set_: int, groups: Groups | None) -> int:
        """Devices of a set that must not join ``groups``, those of the devices on it."""
        if groups is None:
            return 0
        mask = self._apart.get((set_, groups))
        if mask is None:
            mask = 0
            for number in bits(self.takers[set_]):
                if any(use.set == set_ and admitted(groups, use.groups) is None for use in self.uses[number]):
                    mask |= 1 << number
            self._apart[set_, groups] = mask
        return mask

    def left_of(self, number: int, taken: Mapping[str, int]) -> tuple[int, ...]:
        """What is left of the capacities of a device beside ``taken``."""
        device = self.devices[number]
        consumed = self._offer.consumed.get(device, {})
        capacity = self._offer.devices[device].device.capacity
        return tuple(
            [capacity[name].value.nano - consumed.get(name, 0) - taken.get(name, 0) for name in sorted(capacity)]
        )

    def capacities(self, number: int) -> list[tuple[str, int]]:
        """The capacities of a device, with what is left of each before the search."""
        names = sorted(self._offer.devices[self.devices[number]].device.capacity)
        return list(zip(names, self.left_of(number, {}), strict=True))

    def _members(self, served: Iterable[Request]) -> list[list[int]]:
        """The devices of each block that some request wants, ascending; by the offer's numbers."""
        wanted = 0
        for request in served:
            wanted |= request.usable
        up: dict[int, int] = {}

        def root(set_: int) -> int:
            while (above := up.setdefault(set_, set_)) != set_:
                set_ = above
            return set_

        for device in bits(wanted):
            first, *others = [use.set for use in self._offer.uses(device)] or [-1]
            for other in others:
                up[root(other)] = root(first)
        members: dict[tuple[int, int], list[int]] = defaultdict(list)
        for device in bits(wanted):
            uses = self._offer.uses(device)
            members[(root(uses[0].set), 0) if uses else (-1, device)].append(device)
        return list(members.values())

    def _register(self, requests: Sequence[Request], served: Iterable[Request]) -> None:
        positions = {id(request): position for position, request in enumerate(requests)}
        alike: dict[Hashable, list[Request]] = defaultdict(list)
        for request in served:
            alike[tuple((want.count, _traits(want)) for want in request.wants)].append(request)
        for group in alike.values():
            first = len(self.lines)
            for want in group[0].wants:
                self.lines.append(self._line(want, is_single=len(group) == 1))
            for request in group:
                self.ask_of[positions[id(request)]] = len(self.asks)
                self.line_of |= {want: first + index for index, want in enumerate(request.wants)}
            self.asks.append(tuple(range(first, len(self.lines))))

    def _line(self, want: Want, *, is_single: bool) -> Line:
        devices = self.converted(want.usable)
        rules: list[Rule] = []
        for index in want.constraints:
            rule = self._rule(want, index, devices)
            for number in bits(devices):
                if not rule.values.get(number):
                    devices &= ~(1 << number)
            rules.append(rule)
        amounts = {number: self._amounts(want, number) for number in bits(devices & self.shareable)}
        return Line(want, devices, is_single, amounts, tuple(rules), self._weight(devices, amounts))

    def _rule(self, want: Want, index: int, devices: int) -> Rule:
        values: dict[int, Values] = {}
        for number in bits(devices):
            compared = self._question.values(want, index, self.devices[number])
            values[number] = compared or NOT_COMPARABLE
            self.is_ordered |= compared == NOT_COMPARABLE and not self._offer.features.list_type_attributes
        by_value: dict[Value, int] = defaultdict(int)
        for number, of_device in values.items():
            for value in of_device:
                by_value[value] |= 1 << number
        constraint = self._question.constraints[want.claim][index]
        return Rule((want.claim, index), constraint.attribute, constraint.kind == "match", values, by_value)

    def _amounts(self, want: Want, number: int) -> tuple[int, ...]:
        device = self.devices[number]
        demand = want.demands.get(device)
        names = sorted(self._offer.devices[device].device.capacity)
        return tuple([demand.amounts[name].nano for name in names]) if demand else (0,) * len(names)

    def _weight(self, devices: int, amounts: Mapping[int, tuple[int, ...]]) -> float:
        heaviest = 0.0
        for number in bits(devices):
            if number in amounts:
                parts = zip(amounts[number], self.left_of(number, {}), strict=True)
                heaviest = max([heaviest, *(amount / left for amount, left in parts if left)])
            for use in self.uses[number]:
                total = self._offer.total(use.set)
                for field in self._offer.fields(use.set).values():
                    if field.read(total):
                        heaviest = max(heaviest, field.read(use.amount or 0) / field.read(total))
        return heaviest

    def _parties(self) -> list[list[tuple[int, ...]]]:
        lines_of: dict[int, list[int]] = defaultdict(list)
        for number, line in enumerate(self.lines):
            if line.rules:
                lines_of[line.want.claim].append(number)
        alike: dict[Hashable, list[tuple[int, ...]]] = defaultdict(list)
        for claim, numbers in lines_of.items():
            rules = [(each.kind, each.attribute) for each in self._question.constraints[claim]]
            alike[tuple(rules), tuple([self._sort(number) for number in numbers])].append(tuple(numbers))
        return [party for party in alike.values() if len(party) > 1]

    def _sort(self, line: int) -> Hashable:
        """What a line is, without its claim."""
        want = self.lines[line].want
        ask = self.asks[self.ask_with[line]]
        return len(ask), ask.index(line), want.count, want.is_all, want_traits(want, with_claim=False)

    def _arrange(self, members: Sequence[Sequence[int]]) -> None:
        homes, common = self._homes(members)
        has_sides = all(len(values) == 1 for values in common.values())
        if not has_sides:
            self.common = frozenset(value for value, home in homes.items() if home is None)
        sides: dict[Compared | None, dict[Hashable, list[Place]]] = defaultdict(lambda: defaultdict(list))
        first = 0
        for number, block in enumerate(members):
            place = self._place(number, range(first, first + len(block)), homes, has_sides=has_sides)
            value = next(iter(common[number])) if has_sides and number in common else None
            sides[value][place.kind].append(place)
            self.place_of += [place] * len(block)
            first += len(block)
        alike: dict[Hashable, tuple[list[Hashable], list[Side]]] = {}
        for value, kinds in sides.items():
            key = value and value[0], frozenset((kind, len(places)) for kind, places in kinds.items())
            order, together = alike.setdefault(key, (list(kinds), []))
            side = Side(tuple(tuple(kinds[kind]) for kind in order), value)
            together.append(side)
            self.alike_of[side] = together
            self.side_of |= {place: side for places in side.kinds for place in places}

    def _homes(
        self, members: Sequence[Sequence[int]]
    ) -> tuple[Mapping[Compared, int | None], Mapping[int, set[Compared]]]:
        """The block that alone has a value, None where several have it; and such values, by block."""
        block_of = [number for number, block in enumerate(members) for _ in block]
        homes: dict[Compared, int | None] = {}
        having: dict[Compared, set[int]] = defaultdict(set)
        for line in self.lines:
            for rule in line.rules:
                for device, values in rule.values.items():
                    for value in values:
                        having[rule.attribute, value].add(block_of[device])
        common: dict[int, set[Compared]] = defaultdict(set)
        for compared, blocks in having.items():
            homes[compared] = next(iter(blocks)) if len(blocks) == 1 else None
            for block in blocks if len(blocks) > 1 else ():
                common[block].add(compared)
        return homes, common

    def _place(self, block: int, devices: range, homes: Mapping[Compared, int | None], *, has_sides: bool) -> Place:
        sets: dict[int, int] = {}
        own: dict[Compared, int] = {}

        def named(compared: Compared) -> Hashable:
            if homes[compared] == block:
                return own.setdefault(compared, len(own))
            return None if has_sides else compared  # which side it is does not matter

        for device in devices:
            self.traits.append(
                (
                    tuple(
                        [
                            (sets.setdefault(use.set, len(sets)), use.amount, use.groups)
                            for use in self._offer.uses(self.devices[device])
                        ]
                    ),
                    tuple([line.devices >> device & 1 and line.amounts.get(device, ()) for line in self.lines]),
                    tuple(
                        [
                            frozenset([named((rule.attribute, value)) for value in sorted(values, key=str)])
                            for line in self.lines
                            for rule in line.rules
                            for values in [rule.values.get(device, NOT_COMPARABLE)]
                        ]
                    ),
                )
            )
        fields = tuple(tuple(self._offer.fields(set_).items()) for set_ in sets)
        return Place(
            first=devices.start,
            size=len(devices),
            kind=(tuple(self.traits[devices.start :]), fields),
            sets=tuple(sets),
            shared=tuple(device for device in devices if self.shareable >> device & 1),
            own=own,
        )


def _watches(request: Request) -> bool:
    return any(want.is_admin for want in request.wants)


def _traits(want: Want) -> Hashable:
    """All that tells a want from others; unconstrained, it does not matter of which claim it is."""
    return want.is_all, want_traits(want, with_claim=bool(want.constraints))
