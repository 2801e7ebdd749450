"""Which situations have failed already, up to exchanging what is as good as each other.

From a certain point on a search depends on few things: which requests are left, which devices can still be had, what
the counters and constraints stand at. Where two situations agree in these, what failed in one fails in the other. They
need not agree device by device: exchanging what is as good as each other (``blocks.py``) changes nothing.

What is worth remembering gets less towards the end of a search, so it is worked out for each position, when something
fails there for the first time: a search that succeeds at once pays nothing.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

from driver.allocation.blocks import Block, Builder, Horizon, Side, want_traits
from driver.allocation.counting import Groups
from driver.allocation.questions import Question
from driver.allocation.tallying import Tally


class Situation(NamedTuple):
    """A point of the search: before choosing a device for a want, or (``want`` None) before choosing a want."""

    request: int
    want: int | None
    chosen: int
    """How many devices the want has."""
    start: int
    """Where in the row of devices it goes on."""


_Local: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...], tuple[Hashable, ...], tuple[Hashable, ...]]
"""How a block stands: twins, counters, groups, shares, values that constraints have seen."""

_OfSide: TypeAlias = tuple[tuple[bool, ...], tuple[tuple[_Local, ...], ...]]
"""How a side stands: whether constraints have seen it, and how its blocks do."""


class Memory:
    """The failures of one search."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._offer = question.offer
        self._horizons: dict[tuple[int, int | None], Horizon] = {}
        self._built: dict[Hashable, Horizon] = {}
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
        found = _find(horizon, device)
        if found is None:
            return 1 << device
        alike, side, kind, block, position = found
        local = self._local(tally, horizon, block, masks)
        of_side = self._side(tally, horizon, side, masks)
        equal = 0
        for other in alike:
            if other is side or self._side(tally, horizon, other, masks) == of_side:
                for each in other.kinds[kind]:
                    if each is block or self._local(tally, horizon, each, masks) == local:
                        equal |= each.twins[position]
        return equal

    def _key(self, tally: Tally, situation: Situation) -> Hashable:
        horizon = self._horizon(situation)
        states = tally.states[horizon.claim]
        masks = self._masks(tally, situation, horizon.options)
        return (
            situation.chosen,
            len(tally.placements[horizon.claim]),
            tuple(
                [tuple(sorted([self._side(tally, horizon, side, masks) for side in sides])) for sides in horizon.sides]
            ),
            tuple(
                [
                    (states[index].devices > 0, states[index].values & common)
                    for index, common in zip(horizon.constraints, horizon.common, strict=True)
                ]
            ),
        )

    def _side(self, tally: Tally, horizon: Horizon, side: Side, masks: Sequence[int]) -> _OfSide:
        states = tally.states[horizon.claim]
        return (
            tuple(
                [value in states[index].values for index, value in zip(horizon.constraints, side.values, strict=True)]
            ),
            tuple([tuple(sorted([self._local(tally, horizon, each, masks) for each in kind])) for kind in side.kinds]),
        )

    def _local(self, tally: Tally, horizon: Horizon, block: Block, masks: Sequence[int]) -> _Local:
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

    def _horizon(self, situation: Situation) -> Horizon:
        horizon = self._horizons.get(situation[:2])
        if horizon is None:
            position, want = situation[:2]
            requests = self._question.requests
            current = requests[position].wants[want] if want is not None else None
            wants = [each for request in requests[position + (want is not None) :] for each in request.wants]
            different = {want_traits(each): each for each in ([current, *wants] if current is not None else wants)}
            options = current.candidates | current.failing_mask if current is not None else 0
            claim = requests[position].claim
            key = (claim, options, *different)
            horizon = self._built.get(key)
            if horizon is None:
                horizon = self._built[key] = Builder(self._question, claim, tuple(different.values())).build(options)
            self._horizons[situation[:2]] = horizon
        return horizon


def _find(horizon: Horizon, device: int) -> tuple[Sequence[Side], Side, int, Block, int] | None:
    """Where a device is: its side among those alike, its block with its kind's number, the number of its twins."""
    for alike in horizon.sides:
        for side in alike:
            for kind, blocks in enumerate(side.kinds):
                for block in blocks:
                    if block.devices >> device & 1:
                        position = next(at for at, twins in enumerate(block.twins) if twins >> device & 1)
                        return alike, side, kind, block, position
    return None


def _text(groups: Groups | None) -> str:
    """Groups in a form that has an order."""
    return "-" if groups is None else ",".join(sorted(groups))
