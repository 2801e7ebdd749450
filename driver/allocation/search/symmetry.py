"""Which devices are as good as each other for the rest of a search: twins, blocks of one kind, sides that are alike.

- Devices are *twins* when no request that is left, no constraint on one and no counter tells them apart.
- Devices that take from the same counters make a *block*: a card with its partitions, or a device by itself. Blocks
  are of one kind when they differ in names only. Exchanging two such blocks as a whole changes nothing either, even
  where constraints compare values that a block has for itself, such as the card's UUID.
- Blocks with a value in common that constraints compare, such as a NUMA node, make a *side*. Two sides with blocks of
  the same kinds can be exchanged, too; as long as each block has only one such value, so that sides do not cross.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from driver.allocation.search.constraints import NOT_COMPARABLE, Value, Values
from driver.allocation.search.problem import Comparison, Question, UnanswerableError, Want
from driver.allocation.semantics.bitset import bits


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Devices that take from the same counter sets."""

    devices: int
    twins: tuple[int, ...]
    """Masks of the devices that are twins, in the same order in all blocks of a kind."""
    sets: tuple[int, ...]
    shared: tuple[int, ...]
    """Those that can be shared."""
    values: tuple[Mapping[Value, int], ...]
    """For each constraint of the current claim: the values that no other block has, numbered."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """Blocks that have a value in common, or those that have none."""

    kinds: tuple[tuple[Block, ...], ...]
    """In the same order in all sides that are alike."""
    values: tuple[Value | None, ...]
    """For each constraint of the current claim: the value, if that is what it compares."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """What the rest of a search can depend on."""

    sides: tuple[tuple[Side, ...], ...]
    """Those that are alike together."""
    claim: int
    constraints: tuple[int, ...]
    """Of that claim."""
    common: tuple[frozenset[Value], ...]
    """For each of these: the values that several blocks have, where sides cross."""
    options: int
    """Devices that the current want tries."""


def want_traits(want: Want) -> Hashable:
    """All of a want that the devices' twins depend on."""
    asked = want.ask.capacity.requests if want.ask.capacity else {}
    return (
        want.claim,
        want.candidates,
        want.usable,
        want.failing_mask,
        want.constraints,
        want.ask.derived_attributes if want.constraints else (),
        tuple(sorted(asked.items())),
    )


class Builder:
    """Works out the blocks of one horizon."""

    def __init__(self, question: Question, claim: int, wants: Sequence[Want]) -> None:
        self._question = question
        self._offer = question.offer
        self._claim = claim
        self._wants = wants
        self._devices = 0
        for want in wants:
            self._devices |= want.candidates | want.failing_mask
        self._block_of: dict[int, int] = {}
        self._compared_by: dict[Comparison, tuple[Want, int, int]] = {}
        """For each comparison a want and its constraint that make it, and the devices on which any does."""
        for want in wants:
            for index in want.constraints:
                comparison = question.comparison(want, index)
                first, its_index, devices = self._compared_by.get(comparison, (want, index, 0))
                self._compared_by[comparison] = first, its_index, devices | want.candidates | want.failing_mask
        self._home: dict[str, dict[Value, int | None]] = defaultdict(dict)
        """The block that alone has a value of an attribute; None: several have it."""
        self._side_of: dict[int, tuple[str, Value]] = {}
        """The side of each block that is on one; empty where sides cross."""

    def build(self, options: int) -> Horizon:
        members = self._members()
        for number, devices in enumerate(members):
            self._block_of |= dict.fromkeys(devices, number)
        self._find_homes()
        self._find_sides()
        sides: dict[tuple[str, Value] | None, dict[Hashable, list[Block]]] = defaultdict(lambda: defaultdict(list))
        constraints = tuple(
            sorted({index for want in self._wants if want.claim == self._claim for index in want.constraints})
        )
        for number, devices in enumerate(members):
            kind, block = self._block(number, devices, constraints)
            sides[self._side_of.get(number)][kind].append(block)
        homes = (self._home[attribute] for attribute in self._attributes(constraints))
        return Horizon(
            sides=self._alike(sides, self._attributes(constraints)),
            claim=self._claim,
            constraints=constraints,
            common=tuple(
                frozenset(value for value, home in of.items() if home is None and not self._side_of) for of in homes
            ),
            options=options,
        )

    def _alike(
        self, sides: Mapping[tuple[str, Value] | None, Mapping[Hashable, list[Block]]], attributes: Sequence[str]
    ) -> tuple[tuple[Side, ...], ...]:
        """The sides, those together that have the same kinds of blocks."""
        alike: dict[Hashable, tuple[Sequence[Hashable], list[Side]]] = {}
        for name, kinds in sides.items():
            attribute, value = name or ("", None)
            key = attribute, frozenset((kind, len(blocks)) for kind, blocks in kinds.items())
            order, together = alike.setdefault(key, (list(kinds), []))
            values = tuple(value if each == attribute else None for each in attributes)
            together.append(Side(tuple(tuple(kinds[kind]) for kind in order), values))
        return tuple(tuple(together) for _, together in alike.values())

    def _members(self) -> list[list[int]]:
        """The devices of each block, ascending."""
        joined: dict[int, int] = {}

        def root(set_: int) -> int:
            while (up := joined.setdefault(set_, set_)) != set_:
                set_ = up
            return set_

        for device in bits(self._devices):
            first, *others = [use.set for use in self._offer.uses(device)] or [-1]
            for other in others:
                joined[root(other)] = root(first)
        members: dict[tuple[int, int], list[int]] = defaultdict(list)
        for device in bits(self._devices):
            uses = self._offer.uses(device)
            members[(root(uses[0].set), 0) if uses else (-1, device)].append(device)
        return list(members.values())

    def _find_homes(self) -> None:
        for device in bits(self._devices):
            block = self._block_of[device]
            for comparison, values in self._compared(device):
                homes = self._home[comparison.attribute]
                for value in values or ():
                    if homes.setdefault(value, block) != block or self._question.may_fail:
                        homes[value] = None

    def _find_sides(self) -> None:
        common: dict[int, set[tuple[str, Value]]] = defaultdict(set)
        for device in bits(self._devices):
            for comparison, values in self._compared(device):
                for value in values or ():
                    if self._home[comparison.attribute][value] is None:
                        common[self._block_of[device]].add((comparison.attribute, value))
        if not self._question.may_fail and all(len(sides) == 1 for sides in common.values()):
            self._side_of = {block: side for block, (side,) in common.items()}

    def _attributes(self, constraints: Iterable[int]) -> list[str]:
        """What constraints of the current claim compare."""
        return [self._question.constraints[self._claim][index].attribute for index in constraints]

    def _compared(self, device: int) -> Iterator[tuple[Comparison, Values | None]]:
        """What the constraints on all wants compare of a device."""
        for comparison, (want, index, devices) in self._compared_by.items():
            if devices >> device & 1:
                try:
                    yield comparison, self._question.values(want, index, device)
                except UnanswerableError:  # the search will meet it
                    yield comparison, NOT_COMPARABLE

    def _block(self, number: int, devices: Sequence[int], constraints: Iterable[int]) -> tuple[Hashable, Block]:
        """What tells its kind from others, and the block."""
        sets: dict[int, int] = {}
        own: dict[str, dict[Value, int]] = defaultdict(dict)
        twins: dict[Hashable, int] = defaultdict(int)
        for device in devices:
            twins[self._description(number, device, sets, own)] |= 1 << device
        kind = (
            tuple((description, mask.bit_count()) for description, mask in twins.items()),
            tuple(tuple(self._offer.fields(set_).items()) for set_ in sets),
        )
        return kind, Block(
            devices=sum(1 << device for device in devices),
            twins=tuple(twins.values()),
            sets=tuple(sets),
            shared=tuple(device for device in devices if self._offer.shareable >> device & 1),
            values=tuple(own[attribute] for attribute in self._attributes(constraints)),
        )

    def _description(self, block: int, device: int, sets: dict[int, int], own: dict[str, dict[Value, int]]) -> Hashable:
        """All that can be told of a device from here on; sets and values of the block alone by their numbers."""
        # The order in which devices are tried may decide between two failures: then none stands for another.
        if self._question.may_fail:
            for use in self._offer.uses(device):
                sets.setdefault(use.set, len(sets))
            return device
        compared: list[Hashable] = []
        for comparison, values in self._compared(device):
            names: list[Hashable] = []
            home, numbers = self._home[comparison.attribute], own[comparison.attribute]
            for value in sorted(values or (), key=str):
                if home[value] == block:
                    names.append(numbers.setdefault(value, len(numbers)))
                else:
                    names.append(None if self._side_of else value)  # which side it is does not matter
            compared.append((comparison, None if values is None else frozenset(names)))
        return (
            tuple([(sets.setdefault(use.set, len(sets)), use.amount, use.groups) for use in self._offer.uses(device)]),
            tuple([(want.candidates >> device & 1, want.usable >> device & 1) for want in self._wants]),
            tuple(compared),
            self._shares(device) if self._offer.shareable >> device & 1 else None,
        )

    def _shares(self, device: int) -> Hashable:
        offer = self._offer
        consumed = offer.consumed.get(device, {})
        left = [
            (name, each.value.nano - consumed.get(name, 0)) for name, each in offer.devices[device].capacity.items()
        ]
        demands = (want.demands.get(device) for want in self._wants)
        taken = [demand and tuple(sorted(demand.amounts.items())) for demand in demands]
        return offer.shared >> device & 1, tuple(left), tuple(taken)
