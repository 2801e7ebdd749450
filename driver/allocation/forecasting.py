"""Bounds that show early that a search cannot succeed.

Every bound is necessary: where one fails, no choice of devices serves the requests, so that cutting there never changes
which solution is found first. They count: how many devices requests need at least, and how many of the devices they may
take can be had together at most.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Final

from driver.allocation.constraining import Value
from driver.allocation.pools import bits
from driver.allocation.questions import MAX_RESULTS, Question, Request, UnanswerableError, Want
from driver.allocation.tallying import Tally

_NOT_COMPARABLE: Final[Value] = ("", "")


class Forecaster:
    """Bounds for one question."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._offer = question.offer
        self._by_want: dict[tuple[Want, int], dict[Value, int]] = {}

    def is_starved(self, tally: Tally, position: int) -> bool:
        """Whether some request from ``position`` on finds too few free devices: the cheapest of the bounds."""
        return any(
            all((want.usable & tally.free(want)).bit_count() < want.count for want in request.wants)
            for request in self._question.requests[position:]
        )

    def can_succeed(self, tally: Tally, position: int) -> bool:
        """Whether nothing speaks against serving the requests from ``position`` on, after what ``tally`` has taken."""
        requests = self._question.requests[position:]
        if not self._within_limit(tally, requests) or not self._enough(tally, requests, allowed=-1):
            return False
        return all(
            self.constraint_can_hold(tally, requests, claim, index)
            for claim in {request.claim for request in requests}
            for index in range(len(self._question.constraints[claim]))
        )

    def _within_limit(self, tally: Tally, requests: Iterable[Request]) -> bool:
        needed: dict[int, int] = defaultdict(int)
        for request in requests:
            needed[request.claim] += request.fewest
        return all(len(tally.placements[claim]) + count <= MAX_RESULTS for claim, count in needed.items())

    def _enough(self, tally: Tally, requests: Sequence[Request], allowed: int) -> bool:
        """Whether ``allowed`` devices are enough for each request, and for all that compete for the same devices."""
        for request in requests:
            free = {want: want.usable & tally.free(want) & allowed for want in request.wants}
            if not any(
                want.count <= devices.bit_count() and want.count <= self.supply(tally, devices)
                for want, devices in free.items()
            ):
                return False
        exclusive = [request for request in requests if not any(want.is_admin for want in request.wants)]
        areas = {want.usable for request in exclusive for want in request.wants}
        return all(
            sum(request.fewest for request in exclusive if all(want.usable & ~area == 0 for want in request.wants))
            <= self.supply(tally, area & ~tally.in_use & allowed)
            for area in areas
        )

    def supply(self, tally: Tally, devices: int) -> float:
        """At most how many times something of ``devices`` can be taken together."""
        if devices & self._offer.shareable:
            return inf
        by_set: dict[int, list[int]] = defaultdict(list)
        supply = 0
        for device in bits(devices):
            uses = self._offer.uses(device)
            if uses and uses[0].amount is not None:
                by_set[uses[0].set].append(uses[0].amount)
            else:
                supply += 1
        return supply + sum(self._from_set(tally, set_, amounts) for set_, amounts in by_set.items())

    def _from_set(self, tally: Tally, set_: int, amounts: Sequence[int]) -> int:
        """How many of the ``amounts`` a counter set can give, if each took no more than the least of any counter."""
        remaining = tally.remaining[set_]
        if remaining is None:
            return 0
        supply = len(amounts)
        for field in self._offer.fields(set_):
            least = min(field.read(amount) for amount in amounts)
            if least:
                supply = min(supply, field.read(remaining) // least)
        return supply

    def constraint_can_hold(self, tally: Tally, requests: Sequence[Request], claim: int, index: int) -> bool:
        """Whether nothing speaks against a constraint of ``claim`` holding over those of ``requests`` it applies to."""
        bound = [
            request
            for request in requests
            if request.claim == claim and request.fewest and all(index in want.constraints for want in request.wants)
        ]
        if not bound:
            return True
        by_value = self._by_value(tally, bound, index)
        state = tally.states[claim][index]
        if self._question.constraints[claim][index].kind == "distinct":
            return sum(request.fewest for request in bound) <= len(by_value.keys() - state.values)
        values = state.values if state.devices else by_value.keys()
        return any(self._enough(tally, bound, by_value.get(value, 0)) for value in values)

    def _by_value(self, tally: Tally, requests: Iterable[Request], constraint: int) -> Mapping[Value, int]:
        """The free devices that ``requests`` may take, by what the constraint compares of them."""
        by_value: dict[Value, int] = defaultdict(int)
        for want in chain.from_iterable(request.wants for request in requests):
            free = tally.free(want)
            for value, devices in self._usable_by_value(want, constraint).items():
                if devices & free:
                    by_value[value] |= devices & free
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
        return values or ((_NOT_COMPARABLE,) if values is not None else ())
