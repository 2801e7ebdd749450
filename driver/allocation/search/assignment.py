"""What an attempt has taken so far: devices, counters, capacities and the state of constraints.

``place`` takes a device for a want or leaves everything as it was; ``remove`` undoes the latest ``place`` that still
stands. The checks come in the order of ``k8s.io/dynamic-resource-allocation/structured`` (allocateDevice), because one
of them, a violated constraint under ``All``, ends the attempt instead of leading to the next device.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from driver.allocation.search.constraints import EMPTY, State
from driver.allocation.search.problem import Question, UnanswerableError, Want
from driver.allocation.semantics.counters import Groups, admitted, fits


class Drawing(NamedTuple):
    """A counter set that was drawn from, as it was before."""

    set: int
    remaining: int
    groups: Groups | None


@dataclass(frozen=True, slots=True)
class Placement:
    """A device taken for a want, with what it replaced."""

    want: Want
    device: int
    drawings: Sequence[Drawing]
    states: tuple[State, ...]
    """Of the want's constraints, before."""


class Tally:
    """The mutable state of one attempt."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._offer = question.offer
        self.claimed = [0] * len(question.claims)
        """Devices that each claim of the pod has taken for itself."""
        self.in_use = self._offer.held
        """Devices held by anybody: allocated claims, or claims of the pod."""
        self.remaining = list(self._offer.counters.remaining)
        self.groups = list(self._offer.counters.groups)
        self.taken: dict[int, dict[str, int]] = defaultdict(dict)
        """Capacity taken of shared devices, in units of 1e-9."""
        self.shares: dict[int, int] = defaultdict(int)
        """How many shares of a device the attempt has taken."""
        self.states = [[EMPTY] * len(constraints) for constraints in question.constraints]
        self.placements: list[list[Placement]] = [[] for _ in question.claims]
        """In the order of the results, for each claim."""
        self.drawn = self._offer.shareable & self._offer.shared
        """Devices of which a share exists: they have taken their counters."""
        self._blocked: int | None = None

    def free(self, want: Want) -> int:
        """Devices that are not in use, as the want sees it: admin access looks at its own claim only."""
        return ~(self.claimed[want.claim] if want.is_admin else self.in_use)

    def open(self, want: Want) -> int:
        """Devices that are free, and for which the counters suffice."""
        return self.free(want) & ~self.blocked

    @property
    def open_to_all(self) -> int:
        """Devices that nobody uses, and for which the counters suffice."""
        return ~self.in_use & ~self.blocked

    @property
    def blocked(self) -> int:
        """Devices that take more from some counter set than it has left."""
        if self._blocked is None:
            blocked = 0
            for set_, remaining in enumerate(self.remaining):
                if remaining is not None:
                    blocked |= self._offer.beyond(set_, remaining)
            self._blocked = blocked & ~self.drawn
        return self._blocked

    def place(self, want: Want, device: int) -> Placement | None:
        """Take ``device`` for ``want``; None: it cannot be taken. Raises UnanswerableError."""
        if not (want.usable & self.free(want)) >> device & 1:
            return None
        has_capacity = self._has_capacity(want, device)
        if not has_capacity and not want.is_all:
            return None
        drawings = self._draw(device)
        if drawings is None:
            return None
        states = self._constrain(want, device)
        if states is None or not has_capacity:
            self._put_back(drawings)
            return None
        return self._record(want, device, drawings, states)

    def _has_capacity(self, want: Want, device: int) -> bool:
        demand = want.demands.get(device)
        if demand is None:
            return True
        capacity = self._offer.devices[device].device.capacity
        return demand.fits(capacity, self._offer.consumed.get(device, {}), self.taken[device])

    def _draw(self, device: int) -> list[Drawing] | None:
        """Take the device's counters and join its groups; None: it cannot."""
        offer = self._offer
        if offer.shareable >> device & 1 and (self.shares[device] or offer.shared >> device & 1):
            return []  # the first share has taken them
        drawings: list[Drawing] = []
        self._blocked = None
        for use in offer.uses(device):
            remaining = self.remaining[use.set]
            groups = admitted(self.groups[use.set], use.groups)
            if remaining is None or groups is None or not fits(remaining, use.amount, offer.counters.guards[use.set]):
                self._put_back(drawings)
                return None
            drawings.append(Drawing(use.set, remaining, self.groups[use.set]))
            self.remaining[use.set] = remaining - (use.amount or 0)
            self.groups[use.set] = groups
        return drawings

    def _put_back(self, drawings: Sequence[Drawing]) -> None:
        self._blocked = None
        for drawing in reversed(drawings):
            self.remaining[drawing.set] = drawing.remaining
            self.groups[drawing.set] = drawing.groups

    def _constrain(self, want: Want, device: int) -> list[State] | None:
        """The next states of the want's constraints; None: one of them refuses the device."""
        states: list[State] = []
        for index in want.constraints:
            constraint = self._question.constraints[want.claim][index]
            values = self._question.values(want, index, device)
            state = constraint.admit(self.states[want.claim][index], values)
            if state is None and want.is_all:
                place = f"claim {self._question.claims[want.claim].ref}, request {want.name}"
                raise UnanswerableError(
                    f"{place}: asks for all devices, but {self._offer.devices[device].id} violates {constraint}"
                )
            if state is None:
                return None
            states.append(state)
        return states

    def _record(self, want: Want, device: int, drawings: list[Drawing], states: list[State]) -> Placement:
        of_claim = self.states[want.claim]
        placement = Placement(want, device, drawings, tuple(of_claim[index] for index in want.constraints))
        for index, state in zip(want.constraints, states, strict=True):
            of_claim[index] = state
        if self._offer.shareable >> device & 1:
            self._share(want, device, 1)
        else:
            self.claimed[want.claim] |= 1 << device
            self.in_use |= 1 << device
        self.placements[want.claim].append(placement)
        return placement

    def _share(self, want: Want, device: int, sign: int) -> None:
        self.shares[device] += sign
        if self.shares[device]:
            self.drawn |= 1 << device
        elif not self._offer.shared >> device & 1:
            self.drawn &= ~(1 << device)
        self._blocked = None
        demand = want.demands.get(device)
        for name, amount in demand.amounts.items() if demand else ():
            self.taken[device][name] = self.taken[device].get(name, 0) + sign * amount.nano

    def remove(self, placement: Placement) -> None:
        """Undo ``place``."""
        want, device = placement.want, placement.device
        self.placements[want.claim].pop()
        if self._offer.shareable >> device & 1:
            self._share(want, device, -1)
        else:
            self.claimed[want.claim] &= ~(1 << device)
            self.in_use = self._offer.held
            for claimed in self.claimed:
                self.in_use |= claimed
        for index, state in zip(want.constraints, placement.states, strict=True):
            self.states[want.claim][index] = state
        self._put_back(placement.drawings)
