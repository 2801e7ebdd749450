"""Bounds that show early that a search cannot succeed.

Every bound is necessary: where one fails, no choice of devices serves the requests, so that cutting there never changes
which solution is found first. They count: how many devices requests need at least, and how many of the devices they may
take can be had together at most.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from math import inf
from typing import Final

from driver.allocation.search.assignment import Tally
from driver.allocation.search.capacity_sums import Sums
from driver.allocation.search.constraints import Value
from driver.allocation.search.problem import MAX_RESULTS, Question, Request, UnanswerableError, Want
from driver.allocation.semantics.bitset import bits

_Open = Mapping[Want, int]
"""The devices that each want could be given now, as far as it depends on it alone."""

_NOT_ANY: Final[Value] = ("", "")
"""Stands for no value at all: such a device can come first, but only one."""


class Forecaster:
    """Bounds for one question."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._offer = question.offer
        self._requests = question.requests[: question.safe]
        """Those that come before anything that may fail for good: what is behind is not reached without them."""
        self._sums = Sums(question)
        self._by_want: dict[tuple[Want, int], dict[Value, int]] = {}

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
        )

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
        return True

    def supply(self, tally: Tally, devices: int) -> float:
        """At most how many times something of ``devices`` can be taken together."""
        if devices & self._offer.shareable:
            return inf
        supply = (devices & self._question.unlimited).bit_count()
        for set_, members in self._question.members.items():
            if devices & members:
                supply += self._from_set(set_, tally.remaining[set_], devices & members)
        return supply

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
        bound = _bound_by(requests, claim, index)
        if not bound:
            return True
        by_value = self._by_value(bound, open_, index)
        state = tally.states[claim][index]
        if self._question.constraints[claim][index].kind == "distinct":
            return sum(request.fewest for request in bound) <= _hit(by_value)
        values = state.values if state.devices else by_value.keys()
        return any(self._enough(tally, bound, open_, by_value.get(value, 0)) for value in values)

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
        return values or ((_NOT_ANY,) if values is not None else ())


def _bound_by(requests: Iterable[Request], claim: int, constraint: int) -> list[Request]:
    """The requests of a claim for which a constraint holds whatever is chosen for them."""
    return [
        request
        for request in requests
        if request.claim == claim and request.fewest and all(constraint in want.constraints for want in request.wants)
    ]


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
