"""Which situations have failed already, up to exchanging devices that are as good as each other.

From a certain point on a search depends on few things: which requests are left, how many devices of each kind are free,
what the counters and constraints stand at. Where two situations agree in these, what failed in one fails in the other.
Devices are of one kind when no request that is left, no constraint on one and no counter tells them apart.

Kinds get fewer towards the end of a search, so they are worked out for each position, when something fails there for
the first time: a search that succeeds at once pays nothing.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from driver.allocation.pools import bits
from driver.allocation.questions import Question, UnanswerableError, Want
from driver.allocation.tallying import Tally


class Situation(NamedTuple):
    """A point of the search: before choosing a device for a want, or (``want`` None) before choosing a want."""

    request: int
    want: int | None
    chosen: int
    """How many devices the want has."""
    start: int
    """Where in the row of devices it goes on."""


@dataclass(frozen=True, slots=True)
class _Horizon:
    """What the rest of a search can depend on."""

    kinds: tuple[int, ...]
    """Kinds of several devices."""
    singles: int
    """Devices without an equal."""
    sets: tuple[int, ...]
    constraints: tuple[int, ...]
    """Of the current claim."""
    shared: tuple[int, ...]
    options: int
    """Devices that the current want tries."""


class Memory:
    """The failures of one search."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._horizons: dict[tuple[int, int | None], _Horizon] = {}
        self._failed: dict[tuple[int, int | None], set[Hashable]] = defaultdict(set)
        self._has_admin = any(want.is_admin for request in question.requests for want in request.wants)

    def record(self, tally: Tally, situation: Situation) -> None:
        """Note that nothing comes of ``situation``."""
        self._failed[situation[:2]].add(self._key(tally, situation))

    def has_failed(self, tally: Tally, situation: Situation) -> bool:
        """Whether an equal situation has failed."""
        failed = self._failed.get(situation[:2])
        return failed is not None and self._key(tally, situation) in failed

    def _key(self, tally: Tally, situation: Situation) -> Hashable:
        horizon = self._horizon(situation)
        claim = self._question.requests[situation.request].claim
        states = tally.states[claim]
        masks = self._masks(tally, situation, horizon.options)
        return (
            situation.chosen,
            len(tally.placements[claim]),
            tuple([mask & horizon.singles for mask in masks]),
            tuple([(mask & kind).bit_count() for kind in horizon.kinds for mask in masks]),
            tuple([tally.remaining[set_] for set_ in horizon.sets]),
            tuple([tally.groups[set_] for set_ in horizon.sets]),
            tuple([states[index] for index in horizon.constraints]),
            tuple([(tally.shares[device], *sorted(tally.taken[device].items())) for device in horizon.shared]),
        )

    def _masks(self, tally: Tally, situation: Situation, options: int) -> tuple[int, ...]:
        """What must be equally many of each kind: devices in use, and those that the current want may still take.

        Admin access looks only at what its own claim has, and may take what is in use; so these matter then, too.
        """
        request = self._question.requests[situation.request]
        ahead = 0
        if situation.chosen and situation.want is not None:
            ahead = options & tally.free(request.wants[situation.want]) & -1 << situation.start
        if not self._has_admin:
            return tally.in_use, ahead
        return tally.in_use, tally.claimed[request.claim], ahead, ahead & tally.in_use

    def _horizon(self, situation: Situation) -> _Horizon:
        horizon = self._horizons.get(situation[:2])
        if horizon is None:
            horizon = self._horizons[situation[:2]] = self._build(*situation[:2])
        return horizon

    def _build(self, position: int, want: int | None) -> _Horizon:
        requests = self._question.requests
        wants = [each for request in requests[position + (want is not None) :] for each in request.wants]
        current = requests[position].wants[want] if want is not None else None
        if current is not None:
            wants.insert(0, current)
        options = {each: each.candidates | each.failing_mask for each in wants}
        relevant = 0
        for mask in options.values():
            relevant |= mask
        kinds: dict[Hashable, int] = defaultdict(int)
        for device in bits(relevant):
            kinds[self._kind(wants, device)] |= 1 << device
        claim = requests[position].claim
        offer = self._question.offer
        constraints = {index for each in wants if each.claim == claim for index in each.constraints}
        return _Horizon(
            kinds=tuple(kind for kind in kinds.values() if kind.bit_count() > 1),
            singles=sum(kind for kind in kinds.values() if kind.bit_count() == 1),
            sets=tuple(sorted({use.set for device in bits(relevant) for use in offer.uses(device)})),
            constraints=tuple(sorted(constraints)),
            shared=tuple(bits(relevant & offer.shareable)),
            options=options[current] if current is not None else 0,
        )

    def _kind(self, wants: Iterable[Want], device: int) -> Hashable:
        """What can be told of a device from here on."""
        offer = self._question.offer
        # The order in which devices are tried may decide between two failures: then none stands for another.
        if self._question.may_fail or offer.shareable >> device & 1:
            return device
        return (
            offer.uses(device),
            tuple(
                (
                    want.candidates >> device & 1,
                    want.usable >> device & 1,
                    device in want.failing,
                    self._seen(want, device),
                )
                for want in wants
            ),
        )

    def _seen(self, want: Want, device: int) -> Hashable:
        """What the want's constraints compare of the device."""
        if not want.candidates >> device & 1:
            return ()
        seen: list[Hashable] = []
        for constraint in want.constraints:
            try:
                seen.append(self._question.values(want, constraint, device))
            except UnanswerableError:
                seen.append("fails")
        return tuple(seen)
