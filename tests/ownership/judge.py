"""Judges a history: the first thing that must never happen, whatever befalls the node. Pure.

A claim *holds* its devices from the answer of its prepare until the kubelet asks for its unprepare, or the node boots:
in between its containers may use them, also while no process of the plugin runs. Two things end a hold without that.
The hardware is taken away by a reset, or by a person: then the containers have nothing left, until the plugin makes it
again at its place, as it may without a call. And the API server has said for ``grace_s`` seconds that the claim has
ended, or has other devices, while the kubelet lists no pod that uses it: then the plugin may take the devices back by
itself.

A claim may be allocated otherwise while its containers run with what it had before: the kubelet, once it was restarted,
calls for its claims again, and a call says neither for which pod nor for which devices. Such a call ends nothing. But
from then on the pods that the kubelet lists, by the claim's name, may be those that wait for the other devices: what
the claim held *earlier* may be taken ``grace_s`` seconds after the API server has given it others, whoever is listed.

An answer counts for the whole time of its call: the claim must have had just these devices at some moment of it. A
call that the kubelet has given up goes on, so the next one of its claim counts from its beginning. Where a prepare and
an unprepare of one claim overlap, nobody can say who came last, and the claim holds nothing.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import singledispatchmethod
from typing import Final

from kerf_dra.driver.partitions.geometry import Partition
from tests.ownership.history import (
    Actor,
    Allocated,
    Answered,
    Appeared,
    Booted,
    Called,
    Died,
    Disappeared,
    End,
    Ended,
    Event,
    Given,
    Named,
    Operation,
    Outcome,
    Rested,
    Started,
    Unnamed,
    Used,
)

LATEST: Final = 400
"""Events that are kept to be shown with a violation."""
SHOWN: Final = 25
"""Of these, the last ones that concern what the violation is about."""


class Rule(StrEnum):
    """What must hold."""

    ONE_OWNER = "no two claims hold the same hardware"
    CLAIMED = "what a prepare gives is what its claim was allocated"
    EXISTING = "what a prepare gives is there, at exactly its place"
    KEPT = "what a claim holds is not taken from it"
    FOREIGN_KEPT = "what somebody else has made is never removed"
    FOREIGN_WITHHELD = "what somebody else has made is never given to a claim"
    ASKED_FOR = "a partition is made only for a claim that is being prepared with it, or that has lost it"
    NOTHING_LEAKED = "at rest every partition that the plugin has made is held by a claim"
    NOTHING_LOST = "at rest every claim that can have its devices has them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """The first violation of a history."""

    rule: Rule
    message: str
    event: Event
    """The event at which it shows."""
    excerpt: tuple[Event, ...]
    """The events before it that concern the same claims, cards or partitions, and what befell the whole node."""

    def __str__(self) -> str:
        lines = [f"violated: {self.rule}", self.message, *map(str, self.excerpt), f"here: {self.event}"]
        return "\n  ".join(lines)


class ViolationError(AssertionError):
    """A history has a violation."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


@dataclass(slots=True, kw_only=True)
class _Call:
    operation: Operation
    claim: str
    begun: int
    """The number of the event with which it, or the work that it joins, has begun."""
    allocations: list[frozenset[Partition]]
    """What the claim was allocated in its time."""
    is_disturbed: bool = False
    """Whether a call of the other kind for the claim overlaps with it."""


@dataclass(slots=True, kw_only=True)
class _Partition:
    place: Partition
    by: Actor
    appeared: int
    uuid: str = ""


@dataclass(slots=True, kw_only=True)
class _Hold:
    places: dict[Partition, str | None]
    """The identity of the partition at each place; None: a whole card, which is no partition."""
    ended_at: float | None
    """Since when the API server says that the claim has ended, or no longer has these devices."""
    is_bereft: bool = False
    """Whether the hardware was taken away from it."""


@dataclass(slots=True, kw_only=True)
class Judge:
    """The judge of one history, event by event; it keeps what is needed for the next ones only."""

    grace_s: float
    latest: deque[Event] = field(default_factory=lambda: deque(maxlen=LATEST))
    _number: int = 0
    _allocated: dict[str, frozenset[Partition]] = field(default_factory=dict)
    _allocated_at: dict[str, float] = field(default_factory=dict)
    _ended_at: dict[str, float] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    _calls: dict[int, _Call] = field(default_factory=dict)
    _given_up: dict[str, _Call] = field(default_factory=dict)
    """Prepares whose work may go on though no caller waits, by claim."""
    _partitions: dict[str, _Partition] = field(default_factory=dict)
    _taken_away: dict[Partition, int] = field(default_factory=dict)
    """The number of the last event with which the machine, or a hand, has taken what was at a place."""
    _holds: dict[str, _Hold] = field(default_factory=dict)
    _earlier: dict[str, list[_Hold]] = field(default_factory=dict)
    """What claims held before the kubelet called for other devices that they have been allocated since."""
    _left: dict[str, _Hold] = field(default_factory=dict)
    """What claims held before something of it was taken away and the kubelet called again: pods may use the rest."""
    _late: dict[str, set[str]] = field(default_factory=dict)
    """What was made for claims in prepares whose answer the kubelet did not get, as it did not wait or the plugin died:
    they may have it."""
    _late_losses: dict[str, set[Partition]] = field(default_factory=dict)
    """The places of such partitions: what is taken away there may be made again."""
    _unanswered: dict[str, set[tuple[object, ...]]] = field(default_factory=dict)
    """What claims held whose unprepare or end the plugin may not know of, so that it may make it again, by claim."""
    _remade: set[str] = field(default_factory=set)
    """What the plugin has made in place of what was taken away from claims."""

    @property
    def holders(self) -> frozenset[str]:
        """The claims that hold devices now."""
        return frozenset(self._holds)

    def note(self, event: Event) -> None:
        """Take an event into account. Raises ViolationError."""
        self._number += 1
        found = next(self._judge(event), None)
        if found is not None:
            rule, message, subjects = found
            excerpt = tuple(self._select(subjects))[-SHOWN:]
            raise ViolationError(Violation(rule=rule, message=message, event=event, excerpt=excerpt))
        self.latest.append(event)

    @singledispatchmethod
    def _judge(self, event: Event) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        """Take the event into account, and yield violations with the names of what they are about."""
        raise NotImplementedError(type(event).__name__)

    # The API server and the kubelet

    @_judge.register
    def _(self, event: Allocated) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        if self._allocated.get(event.claim) != event.places:
            self._allocated_at[event.claim] = event.at
        self._allocated[event.claim] = event.places
        self._ended_at.pop(event.claim, None)
        for call in self._open_calls(event.claim):
            call.allocations.append(event.places)
        hold = self._holds.get(event.claim)
        if hold is not None and event.places == hold.places.keys():
            hold.ended_at = None
        yield from ()

    @_judge.register
    def _(self, event: Ended) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        if event.how is not End.UNRESERVED:
            self._allocated.pop(event.claim, None)
        self._ended_at.setdefault(event.claim, event.at)
        hold = self._holds.get(event.claim)
        if hold is not None and hold.ended_at is None:
            hold.ended_at = event.at
        self._forget(event.claim)
        yield from ()

    @_judge.register
    def _(self, event: Used) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        (self._used.add if event.is_used else self._used.discard)(event.claim)
        yield from ()

    @_judge.register
    def _(self, event: Called) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        claim = event.claim
        allocated = self._allocated.get(claim)
        call = _Call(
            operation=event.operation,
            claim=claim,
            begun=self._number,
            allocations=[] if allocated is None else [allocated],
        )
        for other in self._open_calls(claim):
            if other.operation is not call.operation:
                other.is_disturbed = call.is_disturbed = True
            elif other.operation is Operation.PREPARE:  # this call joins its work
                call.begun = min(call.begun, other.begun)
                call.allocations = [*other.allocations, *call.allocations]
                call.is_disturbed |= other.is_disturbed
        self._calls[event.call] = call
        hold = self._holds.get(claim)
        if event.operation is Operation.UNPREPARE:
            ended = [each for each in (hold, self._left.pop(claim, None)) if each is not None]
            self._unanswered.setdefault(claim, set()).update(_shape(place) for each in ended for place in each.places)
            self._earlier.pop(claim, None)
            self._late.pop(claim, None)
            self._late_losses.pop(claim, None)
        elif hold is not None and hold.is_bereft:
            self._left[claim] = hold
        elif hold is not None and self._is_allocated_otherwise(claim, hold):
            self._earlier.setdefault(claim, []).append(self._holds.pop(claim))
        if event.operation is Operation.UNPREPARE or (hold is not None and hold.is_bereft):
            self._holds.pop(claim, None)
        yield from ()

    @_judge.register
    def _(self, event: Answered) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        call = self._calls.pop(event.call, None)
        if call is None:
            return
        if call.operation is not Operation.PREPARE:
            if event.outcome is Outcome.DONE:  # it waits for what was begun for the claim before it
                self._given_up.pop(call.claim, None)
            if event.outcome is not Outcome.UNKNOWN:
                self._unanswered.pop(call.claim, None)
            self._forget(call.claim)
            return
        if event.outcome is Outcome.UNKNOWN:
            self._given_up[call.claim] = call
            self._note_made(call)
            self._late_losses.setdefault(call.claim, set()).update(*call.allocations)
            return
        if not any(other.claim == call.claim for other in self._calls.values()):
            self._given_up.pop(call.claim, None)
        if event.outcome is Outcome.DONE:
            self._late.pop(call.claim, None)
        if event.outcome is Outcome.DONE and call.is_disturbed:  # which of the two was last, only the plugin knows
            self._note_made(call)
            self._late_losses.setdefault(call.claim, set()).update(one.place for one in event.given)
        elif event.outcome is Outcome.DONE:
            yield from self._judge_gift(call, event.given, event.at)
        self._forget(call.claim)

    @_judge.register
    def _(self, event: Started) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        yield from ()

    @_judge.register
    def _(self, event: Died) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        for call in self._calls.values():
            if call.operation is Operation.PREPARE:  # the next process finishes it, or releases it
                self._note_made(call)
        self._calls.clear()
        self._given_up.clear()
        self._taken_away.clear()
        yield from ()

    @_judge.register
    def _(self, event: Booted) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        self._holds.clear()
        self._earlier.clear()
        self._left.clear()
        self._late.clear()
        self._late_losses.clear()
        self._unanswered.clear()
        self._used.clear()
        yield from ()

    # The hardware

    @_judge.register
    def _(self, event: Appeared) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        self._partitions[event.partition] = _Partition(place=event.place, by=event.by, appeared=self._number)
        is_asked_for = any(event.place in places for call in self._all_calls() for places in call.allocations)
        if event.by is Actor.PLUGIN and not self._restore(event) and not is_asked_for:
            yield Rule.ASKED_FOR, f"{event.partition} appeared, and no claim asks for it", _names(event.place)
        if event.by is Actor.PLUGIN:
            for call in self._given_up.values():
                self._note_late(call, event.partition)

    @_judge.register
    def _(self, event: Named) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        self._partitions[event.partition].uuid = event.uuid
        yield from ()

    @_judge.register
    def _(self, event: Unnamed) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        if event.by is not Actor.PLUGIN:
            for _, hold in self._all_holds():
                hold.is_bereft |= event.partition in hold.places.values()
        yield from ()

    @_judge.register
    def _(self, event: Disappeared) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        holders = [(claim, hold) for claim, hold in self._all_holds() if event.partition in hold.places.values()]
        whole = {claim for claim, hold in holders if self._is_whole(hold)}
        gone = self._partitions.pop(event.partition)
        if event.by is not Actor.PLUGIN:
            self._taken_away[gone.place] = self._number
            for _, hold in holders:
                hold.is_bereft = True
            for claim, made in self._late.items():
                if event.partition in made:
                    self._late_losses.setdefault(claim, set()).add(gone.place)
            return
        if gone.by is Actor.HAND:
            yield Rule.FOREIGN_KEPT, f"the plugin has removed {event.partition}", _names(gone.place)
        for claim, hold in holders:
            if event.partition in self._remade and claim not in whole:
                hold.is_bereft = True  # what was begun again could not be finished: nothing can run with it
                continue
            if not self._may_be_taken(claim, hold, event.at):
                message = f"the plugin has removed {event.partition}, which claim {claim} holds"
                yield Rule.KEPT, message, _names(gone.place) | {claim}
            self._end_hold(claim, hold)

    @_judge.register
    def _(self, event: Rested) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        there = self._used | (self._allocated.keys() - self._ended_at.keys())
        left = [hold for claim, hold in self._left.items() if claim in there]
        holds = [*(hold for _, hold in self._all_holds()), *left]
        late = (one for claim, made in self._late.items() if claim in there for one in made)
        held = {*(identity for hold in holds for identity in hold.places.values()), *late}
        for identity, found in self._partitions.items():
            if found.by is Actor.PLUGIN and identity not in held:
                yield Rule.NOTHING_LEAKED, f"{identity} is still there", _names(found.place)
        for claim in sorted(event.wanted):
            hold = self._holds.get(claim)
            if hold is None or hold.is_bereft:
                yield Rule.NOTHING_LOST, f"claim {claim} has no devices", frozenset({claim})

    def _restore(self, event: Appeared) -> bool:
        """Give a partition that the plugin has made to the claims that have lost theirs at its place; returns whether
        there are any. One that has ended gets none that another claim is being prepared with.
        """
        identity, place = event.partition, event.place
        wanted_by = {call.claim for call in self._all_calls() if any(place in places for places in call.allocations)}
        late = [claim for claim, lost in self._late_losses.items() if place in lost]
        for claim in late:
            self._late.setdefault(claim, set()).add(identity)
        lost = [
            (claim, hold, own)
            for claim, hold in (*self._all_holds(), *self._left.items())
            for own, known in hold.places.items()
            if _shape(own) == _shape(place) and known not in self._partitions
        ]
        if lost:
            self._remade.add(identity)
        for claim, hold, own in lost:
            if hold.ended_at is None or not wanted_by - {claim}:
                hold.places[own] = identity
                hold.is_bereft = not self._partitions.keys() >= {*hold.places.values()} - {None}
        return bool(late or lost or any(_shape(place) in shapes for shapes in self._unanswered.values()))

    def _is_whole(self, hold: _Hold) -> bool:
        """Whether all that a claim holds is there, and has a name by which a container gets it."""
        found = [self._partitions.get(identity) for identity in hold.places.values() if identity is not None]
        return all(one is not None and one.uuid for one in found)

    def _note_made(self, call: _Call) -> None:
        """Note what a call has made whose answer the kubelet never gets."""
        for identity, found in self._partitions.items():
            if found.by is Actor.PLUGIN and found.appeared >= call.begun:
                self._note_late(call, identity)

    def _note_late(self, call: _Call, identity: str) -> None:
        place = self._partitions[identity].place
        if any(place in places for places in call.allocations):
            self._late.setdefault(call.claim, set()).add(identity)

    # What a claim gets

    def _judge_gift(
        self, call: _Call, given: tuple[Given, ...], at: float
    ) -> Iterator[tuple[Rule, str, frozenset[str]]]:
        claim, places = call.claim, frozenset(one.place for one in given)
        subjects = frozenset({claim}).union(*map(_names, places))
        if places not in call.allocations:
            yield Rule.CLAIMED, f"claim {claim} was given {_describe(places)}, which it was not allocated", subjects
        hold = _Hold(places={}, ended_at=self._ended_at.get(claim))
        if hold.ended_at is None and places != self._allocated.get(claim):
            hold.ended_at = self._allocated_at.get(claim)
        for one in given:
            identity = self._find(one)
            hold.places[one.place] = identity
            was_taken = self._taken_away.get(one.place, 0) >= call.begun
            hold.is_bereft |= identity is None and not one.place.is_whole
            if identity is None and not one.place.is_whole and not was_taken:
                yield Rule.EXISTING, f"claim {claim} was given {one.uuid}, which is not at its place", subjects
            foreign = [identity] if identity is not None else self._list_on(one.place) if one.place.is_whole else []
            for name in foreign:
                there = self._partitions[name]
                if there.by is Actor.HAND and there.appeared < call.begun:
                    yield Rule.FOREIGN_WITHHELD, f"claim {claim} was given what {name} has", subjects
        for other_claim, other in self._all_holds():
            if other_claim != claim and self._is_shared_wrongly(hold, other, other_claim, at):
                message = f"claim {claim} was given {_describe(places)} while claim {other_claim} holds the same"
                yield Rule.ONE_OWNER, message, subjects | {other_claim}
        before = self._holds.get(claim)
        if before is not None and not before.is_bereft and before.places.keys() != hold.places.keys():
            self._earlier.setdefault(claim, []).append(before)
        self._left.pop(claim, None)
        self._holds[claim] = hold

    def _is_shared_wrongly(self, hold: _Hold, other: _Hold, other_claim: str, at: float) -> bool:
        for place, identity in hold.places.items():
            for other_place, other_identity in other.places.items():
                if not place.overlaps(other_place) or (place == other_place and place.shared):
                    continue
                if identity is not None and identity == other_identity:
                    return True
                if not other.is_bereft and not self._may_be_taken(other_claim, other, at):
                    return True
        return False

    def _may_be_taken(self, claim: str, hold: _Hold, at: float) -> bool:
        is_used = claim in self._used and self._holds.get(claim) is hold
        return hold.ended_at is not None and at - hold.ended_at >= self.grace_s and not is_used

    def _is_allocated_otherwise(self, claim: str, hold: _Hold) -> bool:
        return claim in self._allocated and self._allocated[claim] != hold.places.keys()

    def _all_holds(self) -> list[tuple[str, _Hold]]:
        earlier = [(claim, hold) for claim, holds in self._earlier.items() for hold in holds]
        return [*self._holds.items(), *earlier]

    def _end_hold(self, claim: str, hold: _Hold) -> None:
        if self._holds.get(claim) is hold:
            del self._holds[claim]
        else:
            self._earlier[claim].remove(hold)
        self._forget(claim)

    def _find(self, given: Given) -> str | None:
        """Return the identity of the partition at exactly the place of what was given, with its UUID."""
        for identity, there in self._partitions.items():
            if there.uuid == given.uuid and _shape(there.place) == _shape(given.place):
                return identity
        return None

    def _list_on(self, whole: Partition) -> list[str]:
        return [name for name, there in self._partitions.items() if there.place.card_uuid == whole.card_uuid]

    # Calls

    def _open_calls(self, claim: str) -> list[_Call]:
        return [call for call in self._all_calls() if call.claim == claim]

    def _all_calls(self) -> list[_Call]:
        return [*self._calls.values(), *self._given_up.values()]

    def _forget(self, claim: str) -> None:
        """Forget a claim that was deleted and that nothing concerns any more."""
        is_held = claim in self._holds or self._earlier.get(claim) or (claim in self._left and claim in self._used)
        if claim not in self._allocated and not is_held and not self._open_calls(claim):
            self._ended_at.pop(claim, None)
            self._allocated_at.pop(claim, None)
            self._earlier.pop(claim, None)
            if (left := self._left.pop(claim, None)) is not None:  # the plugin may not have learned of its end yet
                self._unanswered.setdefault(claim, set()).update(map(_shape, left.places))
            self._used.discard(claim)

    def _select(self, subjects: frozenset[str]) -> Iterator[Event]:
        """Yield the latest events that concern the claims and cards of these names, or the whole node."""
        calls: set[int] = set()
        partitions: set[str] = set()
        for event in self.latest:
            match event:
                case Called(claim=claim, call=call) if claim in subjects:
                    calls.add(call)
                    yield event
                case Answered(call=call) if call in calls:
                    yield event
                case Appeared(partition=name, place=place) if place.card_uuid in subjects:
                    partitions.add(name)
                    yield event
                case Named(partition=name) | Unnamed(partition=name) | Disappeared(partition=name) if (
                    name in partitions
                ):
                    yield event
                case Allocated(claim=claim) | Ended(claim=claim) | Used(claim=claim) if claim in subjects:
                    yield event
                case Started() | Died() | Booted() | Rested():
                    yield event
                case _:
                    continue


def judge(history: Iterable[Event], *, grace_s: float = 60.0) -> Violation | None:
    """Return the first violation of a history; None: there is none.

    ``grace_s`` is the time in seconds for which a claim must have ended before the plugin takes its devices by itself.
    """
    one = Judge(grace_s=grace_s)
    for event in history:
        try:
            one.note(event)
        except ViolationError as error:
            return error.violation
    return None


def _names(place: Partition) -> frozenset[str]:
    return frozenset({place.card_uuid})


def _shape(place: Partition) -> tuple[object, ...]:
    """Return what a partition on a card is, whoever shares it."""
    return (place.card_uuid, place.profile, place.placement)


def _describe(places: Iterable[Partition]) -> str:
    return ", ".join(sorted(f"{one.profile or one.function or 'the card'} of {one.card_uuid}" for one in places))
