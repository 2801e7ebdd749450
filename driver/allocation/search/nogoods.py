"""Nogoods: search positions that have failed, recorded up to symmetry.

Problem: a depth-first search meets the same subproblem again and again. A *nogood* (Dechter 1990) is a state without a
solution; recording it in a canonical form of its symmetry class is symmetry breaking via dominance detection (Fahle,
Schamberger, Sellmann 2001). The key of a position is all that the rest of the search depends on: the remaining
requests, the available devices, the remaining counters and shared capacities, the states of constraints. It
names no device, but counts them in each component and sorts components and value groups of one class, so that
positions that differ by exchanging equal ones (``symmetry.py``) have the same key.

Invariant: positions with equal keys have the same outcome, so skipping a recorded one never loses the first
solution. Symmetry is computed for a request when a position there first fails. The store gets one key for each failed
position, so the steps of the budget bound it.

Example, leaving bounds aside: eight equal cards, nine requests of one card each. The failure with one card for the
first request is recorded as "seven of eight are free"; the other seven are not tried at all.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kerf_dra.driver.allocation.search.assignment import PartialAssignment
from kerf_dra.driver.allocation.search.constraints import Value, Values
from kerf_dra.driver.allocation.search.problem import AllocationProblem
from kerf_dra.driver.allocation.search.symmetry import Component, Symmetry, SymmetryBuilder, ValueGroup, symmetry_key
from kerf_dra.driver.allocation.semantics.counters import Groups


class SearchPosition(NamedTuple):
    """A point of the search before the choice of a device for an alternative, or of an alternative of a request."""

    request: int
    alternative: int | None
    """The index of the alternative; None: an alternative is to be chosen."""
    chosen: int
    """The number of devices already assigned to the alternative."""
    start: int
    """The first device that may be chosen next."""


_ComponentState: TypeAlias = tuple[
    tuple[int, ...], tuple[int, ...], tuple[str, ...], tuple[Hashable, ...], tuple[Hashable, ...]
]
"""The state of a component: device counts, counters, groups, shares, values of its own that constraints hold."""

_GroupState: TypeAlias = tuple[tuple[bool, ...], tuple[tuple[_ComponentState, ...], ...]]
"""The state of a value group: whether constraints hold its value, and the states of its components."""


class _Context(NamedTuple):
    """The part of a position's key that is not the state of counters and shares."""

    bitsets: tuple[int, ...]
    """The bitsets of ``NogoodStore._bitsets``."""
    seen: tuple[tuple[int, Values], ...]
    """The values that constraints hold, by the constraint's index in ``Symmetry.constraints``."""


class NogoodStore:
    """The failed positions of one search."""

    def __init__(self, problem: AllocationProblem) -> None:
        self._problem = problem
        self._symmetries: dict[tuple[int, int | None], Symmetry] = {}
        self._built: dict[Hashable, Symmetry] = {}
        self._failed: dict[tuple[int, int | None], set[Hashable]] = defaultdict(set)
        self._counts: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._has_admin = any(each.is_admin for request in problem.requests for each in request.alternatives)

    def record(self, partial: PartialAssignment, position: SearchPosition) -> None:
        """Record that no solution extends ``position``."""
        self._failed[position[:2]].add(self._key(partial, position))

    def is_nogood(self, partial: PartialAssignment, position: SearchPosition) -> bool:
        """Whether a position that is equal up to symmetry has failed."""
        failed = self._failed.get(position[:2])
        return failed is not None and self._key(partial, position) in failed

    def interchangeable_with(self, partial: PartialAssignment, position: SearchPosition, device: int) -> int:
        """The bitset of devices that fail at ``position`` because ``device`` failed there, including ``device``."""
        symmetry = self._symmetry(position)
        context = self._context(partial, position, symmetry)
        found = _find_component(symmetry, device)
        if found is None:
            return 1 << device
        equal_groups, group, class_, component, index = found
        component_state = self._component_state(partial, component, context)
        group_state = self._group_state(partial, group, context)
        equal = 0
        for other in equal_groups:
            if other is group or self._group_state(partial, other, context) == group_state:
                for each in other.classes[class_]:
                    if each is component or self._component_state(partial, each, context) == component_state:
                        equal |= each.interchangeable[index]
        return equal

    def _key(self, partial: PartialAssignment, position: SearchPosition) -> Hashable:
        symmetry = self._symmetry(position)
        states = partial.states[symmetry.claim]
        context = self._context(partial, position, symmetry)
        return (
            position.chosen,
            len(partial.assignments[symmetry.claim]),
            tuple(
                [tuple(sorted([self._group_state(partial, each, context) for each in of])) for of in symmetry.groups]
            ),
            tuple(
                [
                    (states[index].devices > 0, states[index].values & common)
                    for index, common in zip(symmetry.constraints, symmetry.common, strict=True)
                ]
            ),
        )

    def _group_state(self, partial: PartialAssignment, group: ValueGroup, context: _Context) -> _GroupState:
        return (
            tuple([group.values[index] in values for index, values in context.seen]),
            tuple(
                [tuple(sorted([self._component_state(partial, each, context) for each in of])) for of in group.classes]
            ),
        )

    def _component_state(self, partial: PartialAssignment, component: Component, context: _Context) -> _ComponentState:
        key = (component, *[bitset & component.devices for bitset in context.bitsets])
        counts = self._counts.get(key)
        if counts is None:
            devices = component.interchangeable
            counts = tuple([(bitset & each).bit_count() for each in devices for bitset in context.bitsets])
            self._counts[key] = counts
        return (
            counts,
            tuple([partial.remaining[set_] or 0 for set_ in component.sets]),
            tuple([_sortable(partial.groups[set_]) for set_ in component.sets]),
            tuple(
                [(partial.shares[each] > 0, *sorted(partial.consumed[each].items())) for each in component.shareable]
            ),
            tuple([_numbers(component.values[index], values) for index, values in context.seen]),
        )

    def _context(self, partial: PartialAssignment, position: SearchPosition, symmetry: Symmetry) -> _Context:
        states = partial.states[symmetry.claim]
        seen = [(at, states[index].values) for at, index in enumerate(symmetry.constraints)]
        return _Context(self._bitsets(partial, position, symmetry.options), tuple([each for each in seen if each[1]]))

    def _bitsets(self, partial: PartialAssignment, position: SearchPosition, options: int) -> tuple[int, ...]:
        """The bitsets of which only the number of interchangeable devices matters.

        These are the unavailable devices and those that the alternative may still take. With admin access the claim's
        own devices count, and devices in use may be taken. If trying a device may fail permanently, one in use
        is not tried, but one without remaining counters is.
        """
        request = self._problem.requests[position.request]
        ahead = 0
        if position.chosen and position.alternative is not None:
            alternative = request.alternatives[position.alternative]
            left = partial.free(alternative) if self._problem.may_fail else partial.available(alternative)
            ahead = options & left & -1 << position.start
        bitsets = [partial.in_use | partial.blocked, ahead]
        if self._problem.may_fail:
            bitsets.append(partial.in_use)
        if self._has_admin:
            bitsets += [partial.claimed[request.claim] | partial.blocked, ahead & partial.in_use]
        return tuple(bitsets)

    def _symmetry(self, position: SearchPosition) -> Symmetry:
        """The symmetry of the requests that remain at ``position``; one object for equal remainders."""
        request, alternative = position[:2]
        symmetry = self._symmetries.get((request, alternative))
        if symmetry is None:
            requests = self._problem.requests
            current = [] if alternative is None else [requests[request].alternatives[alternative]]
            behind = [each for later in requests[request + len(current) :] for each in later.alternatives]
            different = {symmetry_key(each): each for each in [*current, *behind]}
            options = current[0].candidates | current[0].failing if current else 0
            claim = requests[request].claim
            key = (claim, options, *different)
            symmetry = self._built.get(key)
            if symmetry is None:
                builder = SymmetryBuilder(self._problem, claim, tuple(different.values()))
                symmetry = self._built[key] = builder.build(options)
            self._symmetries[request, alternative] = symmetry
        return symmetry


def _find_component(
    symmetry: Symmetry, device: int
) -> tuple[Sequence[ValueGroup], ValueGroup, int, Component, int] | None:
    """The equal value groups, the group, the index of the class, the component and the index in ``interchangeable``."""
    for equal_groups in symmetry.groups:
        for group in equal_groups:
            for class_, components in enumerate(group.classes):
                for component in components:
                    if component.devices >> device & 1:
                        index = next(at for at, each in enumerate(component.interchangeable) if each >> device & 1)
                        return equal_groups, group, class_, component, index
    return None


def _numbers(own: Mapping[Value, int], seen: Values) -> tuple[int, ...]:
    return tuple(sorted([own[value] for value in seen if value in own])) if own else ()


def _sortable(groups: Groups | None) -> str:
    return "-" if groups is None else ",".join(sorted(groups))
