"""Which situations have failed already, up to exchanging what is as good as each other.

From a certain point on a search depends on few things: which requests are left, which devices can still be had, what
the counters and constraints stand at. Where two situations agree in these, what failed in one fails in the other. They
need not agree device by device:

- Devices are *twins* when no request that is left, no constraint on one and no counter tells them apart.
- Devices that take from the same counters make a *block*: a card with its partitions, or a device by itself. Blocks
  are of one kind when they differ in names only. Exchanging two such blocks as a whole changes nothing either, even
  where constraints compare values that a block has for itself, such as the card's UUID.

What is worth remembering gets less towards the end of a search, so it is worked out for each position, when something
fails there for the first time: a search that succeeds at once pays nothing.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from driver.allocation.constraining import NOT_COMPARABLE, Value, Values
from driver.allocation.counting import Groups
from driver.allocation.pools import bits
from driver.allocation.questions import Question, UnanswerableError, Want
from driver.allocation.tallying import Tally

_ConstraintId: TypeAlias = tuple[int, int]
"""Position of the claim, and of the constraint in it."""


class Situation(NamedTuple):
    """A point of the search: before choosing a device for a want, or (``want`` None) before choosing a want."""

    request: int
    want: int | None
    chosen: int
    """How many devices the want has."""
    start: int
    """Where in the row of devices it goes on."""


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Devices that take from the same counter sets."""

    devices: int
    twins: tuple[int, ...]
    """Masks of the devices that are twins, in the same order in all blocks of a kind."""
    sets: tuple[int, ...]
    shared: tuple[int, ...]
    """Those that can be shared."""
    values: tuple[Mapping[Value, int], ...]
    """For each constraint of the current claim: the values that no other block has, numbered."""


@dataclass(frozen=True, slots=True)
class _Horizon:
    """What the rest of a search can depend on."""

    kinds: tuple[tuple[_Block, ...], ...]
    claim: int
    constraints: tuple[int, ...]
    """Of that claim."""
    common: tuple[frozenset[Value], ...]
    """For each of these: the values that several blocks have."""
    options: int
    """Devices that the current want tries."""


_Local: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...], tuple[Hashable, ...], tuple[Hashable, ...]]
"""How a block stands: twins, counters, groups, shares, values that constraints have seen."""


class Memory:
    """The failures of one search."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._offer = question.offer
        self._horizons: dict[tuple[int, int | None], _Horizon] = {}
        self._built: dict[Hashable, _Horizon] = {}
        self._failed: dict[tuple[int, int | None], set[Hashable]] = defaultdict(set)
        self._counts: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._has_admin = any(want.is_admin for request in question.requests for want in request.wants)

    def record(self, tally: Tally, situation: Situation) -> None:
        """Note that nothing comes of ``situation``."""
        self._failed[situation[:2]].add(self._key(tally, situation))

    def has_failed(self, tally: Tally, situation: Situation) -> bool:
        """Whether an equal situation has failed."""
        failed = self._failed.get(situation[:2])
        return failed is not None and self._key(tally, situation) in failed

    def as_good_as(self, tally: Tally, situation: Situation, device: int) -> int:
        """The devices that would fail at ``situation`` because ``device`` did, itself among them."""
        horizon = self._horizon(situation)
        masks = self._masks(tally, situation, horizon.options)
        for blocks in horizon.kinds:
            for block in blocks:
                for position, twins in enumerate(block.twins):
                    if twins >> device & 1:
                        local = self._local(tally, horizon, block, masks)
                        equal = twins
                        for other in blocks:
                            if other is not block and self._local(tally, horizon, other, masks) == local:
                                equal |= other.twins[position]
                        return equal
        return 1 << device

    def _key(self, tally: Tally, situation: Situation) -> Hashable:
        horizon = self._horizon(situation)
        states = tally.states[horizon.claim]
        masks = self._masks(tally, situation, horizon.options)
        return (
            situation.chosen,
            len(tally.placements[horizon.claim]),
            tuple(
                [
                    tuple(sorted([self._local(tally, horizon, block, masks) for block in blocks]))
                    for blocks in horizon.kinds
                ]
            ),
            tuple(
                [
                    (states[index].devices > 0, states[index].values & common)
                    for index, common in zip(horizon.constraints, horizon.common, strict=True)
                ]
            ),
        )

    def _local(self, tally: Tally, horizon: _Horizon, block: _Block, masks: Sequence[int]) -> _Local:
        states = tally.states[horizon.claim]
        key = (block, *[mask & block.devices for mask in masks])
        counts = self._counts.get(key)
        if counts is None:
            counts = tuple([(mask & twins).bit_count() for twins in block.twins for mask in masks])
            self._counts[key] = counts
        return (
            counts,
            tuple([tally.remaining[set_] or 0 for set_ in block.sets]),
            tuple([_text(tally.groups[set_]) for set_ in block.sets]),
            tuple([(tally.shares[device] > 0, *sorted(tally.taken[device].items())) for device in block.shared]),
            tuple(
                [
                    tuple(sorted([values[value] for value in states[index].values if value in values]))
                    for index, values in zip(horizon.constraints, block.values, strict=True)
                ]
            ),
        )

    def _masks(self, tally: Tally, situation: Situation, options: int) -> tuple[int, ...]:
        """What must be equally many of all twins: devices that are gone, and those that the want may still take.

        Admin access looks only at what its own claim has, and may take what is in use; so these matter then, too.
        """
        request = self._question.requests[situation.request]
        gone = tally.in_use | tally.blocked
        ahead = 0
        if situation.chosen and situation.want is not None:
            ahead = options & tally.open(request.wants[situation.want]) & -1 << situation.start
        if not self._has_admin:
            return gone, ahead
        return gone, tally.claimed[request.claim] | tally.blocked, ahead, ahead & tally.in_use

    def _horizon(self, situation: Situation) -> _Horizon:
        horizon = self._horizons.get(situation[:2])
        if horizon is None:
            position, want = situation[:2]
            requests = self._question.requests
            current = requests[position].wants[want] if want is not None else None
            wants = [each for request in requests[position + (want is not None) :] for each in request.wants]
            different = {_traits(each): each for each in ([current, *wants] if current is not None else wants)}
            options = current.candidates | current.failing_mask if current is not None else 0
            claim = requests[position].claim
            key = (claim, options, *different)
            horizon = self._built.get(key)
            if horizon is None:
                horizon = self._built[key] = _Builder(self._question, claim, tuple(different.values())).build(options)
            self._horizons[situation[:2]] = horizon
        return horizon


def _traits(want: Want) -> Hashable:
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


def _text(groups: Groups | None) -> str:
    """Groups in a form that has an order."""
    return "-" if groups is None else ",".join(sorted(groups))


class _Builder:
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
        self._home: dict[_ConstraintId, dict[Value, int | None]] = defaultdict(dict)
        """The block that alone has a value; None: several have it."""

    def build(self, options: int) -> _Horizon:
        members = self._members()
        for number, devices in enumerate(members):
            self._block_of |= dict.fromkeys(devices, number)
        self._find_homes()
        kinds: dict[Hashable, list[_Block]] = defaultdict(list)
        constraints = tuple(
            sorted({index for want in self._wants if want.claim == self._claim for index in want.constraints})
        )
        for number, devices in enumerate(members):
            kind, block = self._block(number, devices, constraints)
            kinds[kind].append(block)
        homes = (self._home[self._claim, index] for index in constraints)
        return _Horizon(
            kinds=tuple(map(tuple, kinds.values())),
            claim=self._claim,
            constraints=constraints,
            common=tuple(frozenset(value for value, home in of.items() if home is None) for of in homes),
            options=options,
        )

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
            for id_, values in self._compared(device):
                homes = self._home[id_]
                for value in values or ():
                    if homes.setdefault(value, block) != block:
                        homes[value] = None

    def _compared(self, device: int) -> Iterator[tuple[_ConstraintId, Values | None]]:
        """What the constraints on all wants compare of a device."""
        for want in self._wants:
            if (want.candidates | want.failing_mask) >> device & 1:
                for index in want.constraints:
                    try:
                        yield (want.claim, index), self._question.values(want, index, device)
                    except UnanswerableError:  # the search will meet it
                        yield (want.claim, index), NOT_COMPARABLE

    def _block(self, number: int, devices: Sequence[int], constraints: Iterable[int]) -> tuple[Hashable, _Block]:
        """What tells its kind from others, and the block."""
        sets: dict[int, int] = {}
        own: dict[_ConstraintId, dict[Value, int]] = defaultdict(dict)
        twins: dict[Hashable, int] = defaultdict(int)
        for device in devices:
            twins[self._description(number, device, sets, own)] |= 1 << device
        kind = (
            tuple((description, mask.bit_count()) for description, mask in twins.items()),
            tuple(tuple(self._offer.fields(set_).items()) for set_ in sets),
        )
        return kind, _Block(
            devices=sum(1 << device for device in devices),
            twins=tuple(twins.values()),
            sets=tuple(sets),
            shared=tuple(device for device in devices if self._offer.shareable >> device & 1),
            values=tuple(own[self._claim, index] for index in constraints),
        )

    def _description(
        self, block: int, device: int, sets: dict[int, int], own: dict[_ConstraintId, dict[Value, int]]
    ) -> Hashable:
        """All that can be told of a device from here on; sets and values of the block alone by their numbers."""
        # The order in which devices are tried may decide between two failures: then none stands for another.
        if self._question.may_fail:
            for use in self._offer.uses(device):
                sets.setdefault(use.set, len(sets))
            return device
        compared: list[Hashable] = []
        for id_, values in self._compared(device):
            names: list[Hashable] = []
            for value in sorted(values or (), key=str):
                is_own = self._home[id_][value] == block
                names.append(own[id_].setdefault(value, len(own[id_])) if is_own else value)
            compared.append((id_, None if values is None else frozenset(names)))
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
