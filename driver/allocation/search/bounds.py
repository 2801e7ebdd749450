"""Bounds that show early that a search cannot succeed.

Every bound is necessary: where one fails, no choice of devices serves the requests, so that cutting there never changes
which solution is found first. They count: how many devices requests need at least, and how many of the devices they may
take can be had together at most.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate, chain
from math import inf

from driver.allocation.agreeing import Party, can_agree
from driver.allocation.packing import most
from driver.allocation.pairing import Need, can_pair
from driver.allocation.search.assignment import Tally
from driver.allocation.search.capacity_sums import Sums
from driver.allocation.search.constraints import Value
from driver.allocation.search.problem import MAX_RESULTS, Question, Request, UnanswerableError, Want
from driver.allocation.semantics.bitset import bits
from driver.allocation.spreading import NOT_ANY, Spread, bound_by

_Open = Mapping[Want, int]
"""The devices that each want could be given now, as far as it depends on it alone."""


class Forecaster:
    """Bounds for one question."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._offer = question.offer
        self._requests = question.requests[: question.safe]
        """Those that come before anything that may fail for good: what is behind is not reached without them."""
        self._sums = Sums(question)
        self._spread = Spread(question)
        self._by_want: dict[tuple[Want, int], dict[Value, int]] = {}
        self._packed: dict[tuple[int, tuple[int, ...]], int] = {}

    def is_starved(self, tally: Tally, position: int) -> bool:
        """Whether some request from ``position`` on finds too few devices in nobody's use: the cheapest bound."""
        return any(
            all((want.usable & tally.free(want)).bit_count() < want.count for want in request.wants)
            for request in self._requests[position:]
        )

    def is_exhausted(self, tally: Tally, position: int) -> bool:
        """As ``is_starved``, with an eye on counters and constraints too."""
        return any(
            all(self._open(tally, want).bit_count() < want.count for want in request.wants)
            for request in self._requests[position:]
        )

    def can_succeed(self, tally: Tally, position: int) -> bool:
        """Whether nothing speaks against serving the requests from ``position`` on, after what ``tally`` has taken."""
        requests = self._requests[position:]
        if not self.within_limit(tally, requests):
            return False
        open_ = {want: self._open(tally, want) for request in requests for want in request.wants}
        if not self._enough(tally, requests, open_, allowed=-1):
            return False
        if not self._sums.suffice(tally, requests):
            return False
        return all(
            self._can_hold(tally, requests, open_, claim, index)
            for claim in {request.claim for request in requests}
            for index in range(len(self._question.constraints[claim]))
        ) and self._can_agree(tally, requests, open_)

    def _can_agree(self, tally: Tally, requests: Sequence[Request], open_: _Open) -> bool:
        """Whether all that must match can, at once."""
        parties: dict[str, list[Party]] = defaultdict(list)
        for claim in {request.claim for request in requests}:
            for index, constraint in enumerate(self._question.constraints[claim]):
                bound = bound_by(requests, claim, index) if constraint.kind == "match" else []
                if bound:
                    by_value = self._by_value(bound, open_, index)
                    state = tally.states[claim][index]
                    if state.devices:
                        by_value = {value: mask for value, mask in by_value.items() if value in state.values}
                    parties[constraint.attribute].append(Party(tuple(bound), by_value))
        room = partial(self._sums.room, tally)
        return all(can_agree(each, open_, self._offer.shareable, room) for each in parties.values() if len(each) > 1)

    def within_limit(self, tally: Tally, requests: Iterable[Request], also: int = 0) -> bool:
        """Whether the claims of ``requests`` can stay within their limit; ``also`` counts for the first of them."""
        needed: dict[int, int] = defaultdict(int)
        for request in requests:
            needed[request.claim] += request.fewest + also
            also = 0
        return all(len(tally.placements[claim]) + count <= MAX_RESULTS for claim, count in needed.items())

    def _open(self, tally: Tally, want: Want) -> int:
        devices = want.usable & tally.open(want)
        states = tally.states[want.claim]
        for index in want.constraints:
            state = states[index]
            if not state.devices or not devices:
                continue
            by_value = self._usable_by_value(want, index)
            having = 0
            for value in state.values:
                having |= by_value.get(value, 0)
            devices &= having if self._question.constraints[want.claim][index].kind == "match" else ~having
        return devices

    def _enough(self, tally: Tally, requests: Sequence[Request], open_: _Open, allowed: int) -> bool:
        """Whether ``allowed`` devices are enough for each request, and for all that compete for the same devices."""
        for request in requests:
            if not any(
                want.count <= (open_[want] & allowed).bit_count()
                and (want.count < 2 or want.count <= self.supply(tally, open_[want] & allowed))
                for want in request.wants
            ):
                return False
        exclusive = [request for request in requests if not any(want.is_admin for want in request.wants)]
        areas = {want.usable for request in exclusive for want in request.wants}
        areas |= {request.usable for request in exclusive}
        for area in areas:
            inside = [request for request in exclusive if request.usable & ~area == 0]
            needed = sum(request.fewest for request in inside)
            free = area & tally.open_to_all & allowed
            if needed > free.bit_count() and not free & self._offer.shareable:
                return False
            if needed > self.supply(tally, free):
                return False
        if allowed != -1 and not self._spread.suffices(requests, open_, allowed):  # else each constraint is looked at
            return False
        return self._can_pair(tally, requests, open_, allowed)

    def _can_pair(self, tally: Tally, requests: Sequence[Request], open_: _Open, allowed: int) -> bool:
        groups: dict[int, list[Need]] = defaultdict(list)
        for request in requests:
            devices = 0
            for want in request.wants:
                devices |= open_[want]
            # What watches conflicts with its own claim only.
            watches = any(want.is_admin for want in request.wants)
            groups[request.claim if watches else -1].append(Need(devices & allowed, request.fewest))
        return all(can_pair(needs, self._rooms(tally, needs)) for needs in groups.values())

    def _rooms(self, tally: Tally, needs: Iterable[Need]) -> Mapping[int, int]:
        devices = 0
        for need in needs:
            devices |= need.devices
        return {device: self._room(tally, device) for device in bits(devices & self._offer.shareable)}

    def _room(self, tally: Tally, device: int) -> int:
        """At most how many shares of a device can be taken."""
        smallest = self._smallest_demands.get(device)
        if not smallest:
            return MAX_RESULTS * len(self._question.claims)
        return min(self._sums.left_of(tally, device, name) // amount for name, amount in smallest.items())

    @cached_property
    def _smallest_demands(self) -> Mapping[int, Mapping[str, int]]:
        """The least of each capacity that any want takes of a shared device; without those of which some take none."""
        smallest: dict[int, dict[str, int]] = {}
        for want in chain.from_iterable(request.wants for request in self._question.requests):
            for device in bits(want.usable & self._offer.shareable):
                demand = want.demands.get(device)
                amounts = {name: amount.nano for name, amount in demand.amounts.items()} if demand else {}
                least = smallest.get(device, amounts)
                smallest[device] = {
                    name: min(least[name], amount) for name, amount in amounts.items() if least.get(name) and amount
                }
        return smallest

    def supply(self, tally: Tally, devices: int) -> float:
        """At most how many times something of ``devices`` can be taken together."""
        if devices & self._offer.shareable:
            return inf
        supply = (devices & self._question.unlimited).bit_count()
        for set_, members in self._question.members.items():
            if devices & members:
                supply += self._from_set(set_, tally.remaining[set_], devices & members)
        return min(supply, self._from_linked(tally, devices)) if devices & self._question.linked else supply

    def _from_linked(self, tally: Tally, devices: int) -> int:
        """As ``supply``, with an eye on devices that take from two sets."""
        takers: dict[int, int] = defaultdict(int)
        for device in bits(devices):
            for use in self._offer.uses(device):
                takers[use.set] |= 1 << device
        rooms = {set_: self._from_set(set_, tally.remaining[set_], mask) for set_, mask in takers.items()}
        key = devices, tuple(rooms.values())
        if key not in self._packed:
            things = [[use.set for use in self._offer.uses(device)] for device in bits(devices)]
            self._packed[key] = most(things, rooms)
        return self._packed[key]

    def _from_set(self, set_: int, remaining: int | None, devices: int) -> int:
        """How many of ``devices`` a counter set can give at most, each counter looked at by itself."""
        if remaining is None:
            return 0
        key = (set_, remaining, devices)
        supply = self._question.supplies.get(key)
        if supply is None:
            uses = (use for device in bits(devices) for use in self._offer.uses(device) if use.set == set_)
            fields = self._offer.fields(set_).values()
            amounts = [[field.read(use.amount or 0) * field.unit for field in fields] for use in uses]
            left = [field.read(remaining) * field.unit for field in fields]
            # What bounds each counter bounds their sum, too, and two that are each enough may be too little together.
            columns = [*zip(left, *amounts, strict=True), (sum(left), *map(sum, amounts))]
            supply = min(_fitting(most, sorted(each)) for most, *each in columns)
            self._question.supplies[key] = supply
        return supply

    def constraint_can_hold(self, tally: Tally, requests: Sequence[Request], claim: int, index: int) -> bool:
        """Whether nothing speaks against a constraint of ``claim`` holding over those of ``requests`` it applies to."""
        open_ = {want: self._open(tally, want) for request in requests for want in request.wants}
        return self._can_hold(tally, requests, open_, claim, index)

    def _can_hold(self, tally: Tally, requests: Sequence[Request], open_: _Open, claim: int, index: int) -> bool:
        bound = bound_by(requests, claim, index)
        if not bound:
            return True
        by_value = self._by_value(bound, open_, index)
        state = tally.states[claim][index]
        if self._question.constraints[claim][index].kind == "distinct":
            numbers = {value: number for number, value in enumerate(by_value)}
            return (
                sum(request.fewest for request in bound) <= _hit(by_value)
                and self._can_differ(bound, open_, index, numbers)
                and self._spread.can_differ(bound, open_, index)
            )
        values = state.values if state.devices else by_value.keys()
        return any(self._enough(tally, bound, open_, by_value.get(value, 0)) for value in values)

    def _can_differ(
        self, requests: Iterable[Request], open_: _Open, constraint: int, numbers: Mapping[Value, int]
    ) -> bool:
        """Whether requests can be paired with values, each with values of its own."""
        needs: list[Need] = []
        for request in requests:
            values = 0
            for want in request.wants:
                for value, devices in self._usable_by_value(want, constraint).items():
                    if devices & open_[want]:
                        values |= 1 << numbers[value]
            needs.append(Need(values, request.fewest))
        return can_pair(needs, {})

    def _by_value(self, requests: Iterable[Request], open_: _Open, constraint: int) -> Mapping[Value, int]:
        """The devices that ``requests`` could be given, by what the constraint compares of them."""
        by_value: dict[Value, int] = defaultdict(int)
        for want in chain.from_iterable(request.wants for request in requests):
            for value, devices in self._usable_by_value(want, constraint).items():
                if devices & open_[want]:
                    by_value[value] |= devices & open_[want]
        return by_value

    def _usable_by_value(self, want: Want, constraint: int) -> Mapping[Value, int]:
        by_value = self._by_want.get((want, constraint))
        if by_value is None:
            by_value = self._by_want[want, constraint] = defaultdict(int)
            for device in bits(want.usable):
                for value in self._values(want, constraint, device):
                    by_value[value] |= 1 << device
        return by_value

    def _values(self, want: Want, constraint: int, device: int) -> Iterable[Value]:
        """The values of a device. What cannot be compared may still come first: it counts as one value more."""
        try:
            values = self._question.values(want, constraint, device)
        except UnanswerableError:  # the search will meet it
            return ()
        return values or ((NOT_ANY,) if values is not None else ())


def _hit(by_value: Mapping[Value, int]) -> int:
    """How many values are enough to meet every device: no more devices can differ in all their values.

    Taken greedily, so not the fewest, but with the same certainty.
    """
    missed = 0
    for devices in by_value.values():
        missed |= devices
    hits = 0
    while missed:
        missed &= ~max(by_value.values(), key=lambda devices: (devices & missed).bit_count())
        hits += 1
    return hits


def _fitting(left: int, amounts: Sequence[int]) -> int:
    """How many of ``amounts``, given ascending, fit into ``left`` together."""
    return sum(1 for total in accumulate(amounts) if total <= left)
