"""Which situations have failed already, up to exchanging what is as good as each other.

From a certain point on a search depends on few things: which requests are left, which devices can still be had, what
the counters and constraints stand at. Where two situations agree in these, what failed in one fails in the other. They
need not agree device by device: exchanging what is as good as each other (``symmetry.py``) changes nothing.

What is worth remembering gets less towards the end of a search, so it is worked out for each position, when something
fails there for the first time: a search that succeeds at once pays nothing.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from driver.allocation.search.assignment import Tally
from driver.allocation.search.constraints import Value, Values
from driver.allocation.search.problem import Question
from driver.allocation.search.symmetry import Block, Builder, Horizon, Side, want_traits
from driver.allocation.semantics.counters import Groups


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


class _View(NamedTuple):
    """What a situation adds to the tally."""

    masks: tuple[int, ...]
    """See ``Memory._masks``."""
    seen: tuple[tuple[int, Values], ...]
    """What constraints have seen, those that have seen anything: by their position in the horizon."""


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
        view = self._view(tally, situation, horizon)
        found = _find(horizon, device)
        if found is None:
            return 1 << device
        alike, side, kind, block, position = found
        local = self._local(tally, block, view)
        of_side = self._side(tally, side, view)
        equal = 0
        for other in alike:
            if other is side or self._side(tally, other, view) == of_side:
                for each in other.kinds[kind]:
                    if each is block or self._local(tally, each, view) == local:
                        equal |= each.twins[position]
        return equal

    def _key(self, tally: Tally, situation: Situation) -> Hashable:
        horizon = self._horizon(situation)
        states = tally.states[horizon.claim]
        view = self._view(tally, situation, horizon)
        return (
            situation.chosen,
            len(tally.placements[horizon.claim]),
            tuple([tuple(sorted([self._side(tally, side, view) for side in alike])) for alike in horizon.sides]),
            tuple(
                [
                    (states[index].devices > 0, states[index].values & common)
                    for index, common in zip(horizon.constraints, horizon.common, strict=True)
                ]
            ),
        )

    def _side(self, tally: Tally, side: Side, view: _View) -> _OfSide:
        return (
            tuple([side.values[position] in values for position, values in view.seen]),
            tuple([tuple(sorted([self._local(tally, block, view) for block in kind])) for kind in side.kinds]),
        )

    def _local(self, tally: Tally, block: Block, view: _View) -> _Local:
        key = (block, *[mask & block.devices for mask in view.masks])
        counts = self._counts.get(key)
        if counts is None:
            counts = tuple([(mask & twins).bit_count() for twins in block.twins for mask in view.masks])
            self._counts[key] = counts
        return (
            counts,
            tuple([tally.remaining[set_] or 0 for set_ in block.sets]),
            tuple([_text(tally.groups[set_]) for set_ in block.sets]),
            tuple([(tally.shares[device] > 0, *sorted(tally.taken[device].items())) for device in block.shared]),
            tuple([_numbers(block.values[position], values) for position, values in view.seen]),
        )

    def _view(self, tally: Tally, situation: Situation, horizon: Horizon) -> _View:
        states = tally.states[horizon.claim]
        seen = [(position, states[index].values) for position, index in enumerate(horizon.constraints)]
        return _View(self._masks(tally, situation, horizon.options), tuple([each for each in seen if each[1]]))

    def _masks(self, tally: Tally, situation: Situation, options: int) -> tuple[int, ...]:
        """What must be equally many of all twins: devices that are gone, and those that the want may still take.

        Admin access looks only at what its own claim has, and may take what is in use; so these matter then, too. Where
        trying a device may fail for good, one that is in use is not tried, but one without counters left is.
        """
        request = self._question.requests[situation.request]
        gone = tally.in_use | tally.blocked
        ahead = 0
        if situation.chosen and situation.want is not None:
            want = request.wants[situation.want]
            left = tally.free(want) if self._question.may_fail else tally.open(want)
            ahead = options & left & -1 << situation.start
        masks = [gone, ahead]
        if self._question.may_fail:
            masks.append(tally.in_use)
        if self._has_admin:
            masks += [tally.claimed[request.claim] | tally.blocked, ahead & tally.in_use]
        return tuple(masks)

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


def _numbers(own: Mapping[Value, int], seen: Values) -> tuple[int, ...]:
    """A block's own values among those that were seen."""
    return tuple(sorted([own[value] for value in seen if value in own])) if own else ()


def _text(groups: Groups | None) -> str:
    """Groups in a form that has an order."""
    return "-" if groups is None else ",".join(sorted(groups))
