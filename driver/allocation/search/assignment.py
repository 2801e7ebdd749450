"""The partial assignment of a search: the devices assigned so far, and the remaining counters and capacities.

``assign`` assigns a device to an alternative or leaves everything as it was; ``undo`` reverts the latest assignment,
which carries the old values that it replaced (the *trail* of constraint solvers).

The checks have the order of ``k8s.io/dynamic-resource-allocation/structured`` (``allocateDevice``), because one of
them, a violated constraint under ``All``, ends the search instead of leading to the next device.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kerf_dra.driver.allocation.search.constraints import INITIAL_STATE, ConstraintState
from kerf_dra.driver.allocation.search.problem import AllocationProblem, RequestAlternative, UnanswerableError
from kerf_dra.driver.allocation.semantics.counters import Groups, fits, join_groups


class CounterUndo(NamedTuple):
    """The state of a counter set before a device consumed from it."""

    set: int
    remaining: int
    groups: Groups | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """One device assigned to one alternative, with the trail that undoes it."""

    alternative: RequestAlternative
    device: int
    trail: Sequence[CounterUndo]
    states: tuple[ConstraintState, ...]
    """The states of the alternative's constraints before the assignment."""


class Solution(NamedTuple):
    """A complete assignment."""

    alternatives: tuple[RequestAlternative, ...]
    """The alternative that was chosen for each request."""
    assignments: Sequence[Sequence[Assignment]]
    """The assignments of each claim, in the order of the allocation result."""


class PartialAssignment:
    """The mutable state of one search."""

    def __init__(self, problem: AllocationProblem) -> None:
        self._problem = problem
        self._node_devices = problem.node_devices
        self.claimed = [0] * len(problem.claims)
        """For each claim of the pod, the bitset of the devices assigned to it exclusively."""
        self.in_use = self._node_devices.held
        """The bitset of devices that are held exclusively, by allocated claims or by claims of the pod."""
        self.remaining = list(self._node_devices.remaining)
        """The remaining counters of each set, as in ``NodeDevices``."""
        self.groups = list(self._node_devices.groups)
        """The compatibility groups on each counter set, as in ``NodeDevices``."""
        self.consumed: dict[int, dict[str, int]] = defaultdict(dict)
        """The consumption of each device by the pod's shares, in units of 1e-9, by the capacity's name."""
        self.shares: dict[int, int] = defaultdict(int)
        """The number of shares of each device that are assigned to the pod."""
        self.states = [[INITIAL_STATE] * len(constraints) for constraints in problem.constraints]
        """The state of each constraint of each claim."""
        self.assignments: list[list[Assignment]] = [[] for _ in problem.claims]
        """The assignments of each claim, the latest last."""
        self._charged = self._node_devices.shareable & self._node_devices.shared
        """The bitset of devices that have a share: their counters are already consumed."""
        self._blocked: int | None = None
        """The cached value of ``blocked``; None: it must be computed again."""

    def free(self, alternative: RequestAlternative) -> int:
        """The bitset of devices that are not in use; with admin access, only the claim's own devices are in use."""
        return ~(self.claimed[alternative.claim] if alternative.is_admin else self.in_use)

    def available(self, alternative: RequestAlternative) -> int:
        """The bitset of devices that are free and for which the counters suffice."""
        return self.free(alternative) & ~self.blocked

    @property
    def available_exclusively(self) -> int:
        """The bitset of devices that are available to every alternative without admin access."""
        return ~self.in_use & ~self.blocked

    @property
    def blocked(self) -> int:
        """The bitset of devices that consume more of some counter set than remains."""
        if self._blocked is None:
            blocked = 0
            for set_, remaining in enumerate(self.remaining):
                if remaining is not None:
                    blocked |= self._node_devices.exceeding(set_, remaining)
            self._blocked = blocked & ~self._charged
        return self._blocked

    def assign(self, alternative: RequestAlternative, device: int) -> Assignment | None:
        """Assign ``device`` to ``alternative``; None: that is not possible.

        Raises UnanswerableError if the device violates a constraint of an alternative with allocation mode ``All``, or
        if an attribute that a constraint compares cannot be evaluated.
        """
        if not (alternative.usable & self.free(alternative)) >> device & 1:
            return None
        has_capacity = self._has_capacity(alternative, device)
        if not has_capacity and not alternative.is_all:
            return None
        trail = self._take_counters(device)
        if trail is None:
            return None
        states = self._constrain(alternative, device)
        if states is None or not has_capacity:
            self._restore_counters(trail)
            return None
        return self._record(alternative, device, trail, states)

    def undo(self, assignment: Assignment) -> None:
        """Revoke ``assignment``, which must be the latest."""
        alternative, device = assignment.alternative, assignment.device
        self.assignments[alternative.claim].pop()
        if self._node_devices.shareable >> device & 1:
            self._add_share(alternative, device, -1)
        else:
            self.claimed[alternative.claim] &= ~(1 << device)
            self.in_use = self._node_devices.held
            for claimed in self.claimed:
                self.in_use |= claimed
        for index, state in zip(alternative.constraints, assignment.states, strict=True):
            self.states[alternative.claim][index] = state
        self._restore_counters(assignment.trail)

    def _has_capacity(self, alternative: RequestAlternative, device: int) -> bool:
        demand = alternative.demands.get(device)
        if demand is None:
            return True
        capacity = self._node_devices.device(device).capacity
        return demand.fits(capacity, self._node_devices.consumed.get(device, {}), self.consumed[device])

    def _take_counters(self, device: int) -> list[CounterUndo] | None:
        """Consume the device's counters and join its compatibility groups; None: that is not possible."""
        node_devices = self._node_devices
        if node_devices.shareable >> device & 1 and (self.shares[device] or node_devices.shared >> device & 1):
            return []  # the first share has taken them
        trail: list[CounterUndo] = []
        self._blocked = None
        for use in node_devices.uses(device):
            remaining = self.remaining[use.set]
            groups = join_groups(self.groups[use.set], use.groups)
            if remaining is None or groups is None or not fits(remaining, use.amount, node_devices.guards[use.set]):
                self._restore_counters(trail)
                return None
            trail.append(CounterUndo(use.set, remaining, self.groups[use.set]))
            self.remaining[use.set] = remaining - (use.amount or 0)
            self.groups[use.set] = groups
        return trail

    def _restore_counters(self, trail: Sequence[CounterUndo]) -> None:
        self._blocked = None
        for undo in reversed(trail):
            self.remaining[undo.set] = undo.remaining
            self.groups[undo.set] = undo.groups

    def _constrain(self, alternative: RequestAlternative, device: int) -> list[ConstraintState] | None:
        """The next states of the alternative's constraints; None: one of them rejects the device."""
        states: list[ConstraintState] = []
        for index in alternative.constraints:
            constraint = self._problem.constraints[alternative.claim][index]
            values = self._problem.values(alternative, index, device)
            state = constraint.admit(self.states[alternative.claim][index], values)
            if state is None and alternative.is_all:
                place = f"claim {self._problem.claims[alternative.claim].ref}, request {alternative.name}"
                id_ = self._node_devices.device(device).id
                raise UnanswerableError(f"{place}: asks for all devices, but {id_} violates {constraint}")
            if state is None:
                return None
            states.append(state)
        return states

    def _record(
        self, alternative: RequestAlternative, device: int, trail: list[CounterUndo], states: list[ConstraintState]
    ) -> Assignment:
        of_claim = self.states[alternative.claim]
        before = tuple(of_claim[index] for index in alternative.constraints)
        assignment = Assignment(alternative, device, trail, before)
        for index, state in zip(alternative.constraints, states, strict=True):
            of_claim[index] = state
        if self._node_devices.shareable >> device & 1:
            self._add_share(alternative, device, 1)
        else:
            self.claimed[alternative.claim] |= 1 << device
            self.in_use |= 1 << device
        self.assignments[alternative.claim].append(assignment)
        return assignment

    def _add_share(self, alternative: RequestAlternative, device: int, sign: int) -> None:
        self.shares[device] += sign
        if self.shares[device]:
            self._charged |= 1 << device
        elif not self._node_devices.shared >> device & 1:
            self._charged &= ~(1 << device)
        self._blocked = None
        demand = alternative.demands.get(device)
        consumed = self.consumed[device]
        for name, amount in demand.amounts.items() if demand else ():
            consumed[name] = consumed.get(name, 0) + sign * amount.nano
