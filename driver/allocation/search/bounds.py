"""Bounds: necessary conditions that prove early that a search cannot succeed.

Problem: a depth-first search discovers late that too little remains for all requests together. A bound proves it early
by comparing the devices, counters or capacity that the remaining requests need at least with what is left at most.
The devices that earlier choices leave to an alternative are its filtered domain (forward checking, Haralick and Elliott
1980); requests that compete for the same devices need enough of them together (Hall's condition, 1935).

Invariant: where a bound fails, no choice of devices serves the requests, so that pruning there never changes which
solution is found first. From the cheapest to the most expensive: ``has_empty_domain``, ``has_empty_filtered_domain``,
``can_succeed``. Each is a pass over requests, alternatives and counter sets; none searches.

Example: three requests of one partition of four slices each, on two cards with seven slices each. Each request finds a
partition, but a card gives one such partition at most, which makes two for three requests.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import accumulate, chain
from math import inf
from operator import or_
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.driver.allocation.search.assignment import PartialAssignment
from kerf_dra.driver.allocation.search.constraints import Value
from kerf_dra.driver.allocation.search.problem import (
    MAX_RESULTS,
    AllocationProblem,
    Request,
    RequestAlternative,
    UnanswerableError,
)
from kerf_dra.driver.allocation.semantics.bitset import iter_bits

_Domains: TypeAlias = Mapping[RequestAlternative, int]
"""The bitset of devices that could be assigned to each alternative now, taken alone."""

_NO_VALUE: Final[Value] = ("", "")
"""A stand-in for the value of devices without comparable values: one of them can be chosen first, but only one."""


class Bounds:
    """The bounds of one problem. ``request`` is the index of the first request that is not served yet."""

    def __init__(self, problem: AllocationProblem) -> None:
        self._problem = problem
        self._node_devices = problem.node_devices
        self._requests = problem.requests[: problem.safe_requests]
        """The requests before any that may fail permanently: the search reaches the others only through these."""
        self._capacity_sums = CapacitySums(problem)
        self._devices_by_value: dict[tuple[RequestAlternative, int], Mapping[Value, int]] = {}

    def has_empty_domain(self, partial: PartialAssignment, request: int) -> bool:
        """Whether some request has fewer devices that are not in use than it needs."""
        return any(
            all((each.usable & partial.free(each)).bit_count() < each.count for each in request_.alternatives)
            for request_ in self._requests[request:]
        )

    def has_empty_filtered_domain(self, partial: PartialAssignment, request: int) -> bool:
        """Whether some request has fewer devices than it needs once counters and constraints are considered."""
        return any(
            all(self._domain(partial, each).bit_count() < each.count for each in request_.alternatives)
            for request_ in self._requests[request:]
        )

    def can_succeed(self, partial: PartialAssignment, request: int) -> bool:
        """Whether no bound fails for the requests from ``request`` on."""
        requests = self._requests[request:]
        if not self.within_limit(partial, requests):
            return False
        domains = self._domains(partial, requests)
        if not self._suffice(partial, requests, domains, allowed=-1):
            return False
        if not self._capacity_sums.suffice(partial, requests):
            return False
        return all(
            self._can_hold(partial, requests, domains, claim, index)
            for claim in {each.claim for each in requests}
            for index in range(len(self._problem.constraints[claim]))
        )

    def within_limit(self, partial: PartialAssignment, requests: Iterable[Request], also: int = 0) -> bool:
        """Whether the claims of ``requests`` can keep to MAX_RESULTS; ``also`` is added to the first of them."""
        needed: dict[int, int] = defaultdict(int)
        for request in requests:
            needed[request.claim] += request.fewest + also
            also = 0
        return all(len(partial.assignments[claim]) + count <= MAX_RESULTS for claim, count in needed.items())

    def _domains(self, partial: PartialAssignment, requests: Iterable[Request]) -> _Domains:
        return {each: self._domain(partial, each) for request in requests for each in request.alternatives}

    def _domain(self, partial: PartialAssignment, alternative: RequestAlternative) -> int:
        devices = alternative.usable & partial.available(alternative)
        states = partial.states[alternative.claim]
        for index in alternative.constraints:
            state = states[index]
            if not state.devices or not devices:
                continue
            by_value = self._usable_by_value(alternative, index)
            having = reduce(or_, (by_value.get(value, 0) for value in state.values), 0)
            devices &= having if self._problem.constraints[alternative.claim][index].kind == "match" else ~having
        return devices

    def _suffice(
        self, partial: PartialAssignment, requests: Sequence[Request], domains: _Domains, allowed: int
    ) -> bool:
        """Whether ``allowed`` devices suffice for each request, and for all that compete for the same devices."""
        for request in requests:
            if not any(
                each.count <= (domains[each] & allowed).bit_count()
                and (each.count < 2 or each.count <= self.supply(partial, domains[each] & allowed))
                for each in request.alternatives
            ):
                return False
        exclusive = [request for request in requests if not any(each.is_admin for each in request.alternatives)]
        areas = {each.usable for request in exclusive for each in request.alternatives}
        areas |= {request.usable for request in exclusive}
        for area in areas:
            needed = sum(request.fewest for request in exclusive if request.usable & ~area == 0)
            free = area & partial.available_exclusively & allowed
            if needed > free.bit_count() and not free & self._node_devices.shareable:
                return False
            if needed > self.supply(partial, free):
                return False
        return True

    def supply(self, partial: PartialAssignment, devices: int) -> float:
        """An upper bound on how many of ``devices`` can be taken together; infinity if one is shareable."""
        if devices & self._node_devices.shareable:
            return inf
        supply = (devices & self._problem.unlimited).bit_count()
        for set_, members in self._problem.members.items():
            if devices & members:
                supply += self._supply_of_set(set_, partial.remaining[set_], devices & members)
        return supply

    def supply_now(self, devices: int) -> float:
        """An upper bound on how many of ``devices`` can be taken together before any request is served."""
        return self.supply(PartialAssignment(self._problem), devices)

    def supplies_of_empty_sets(self, devices: int) -> list[int]:
        """An upper bound for each counter set on how many of ``devices`` it supplies while nothing is allocated.

        Devices are counted by the first set that they consume from; there are none for shareable devices.
        """
        members: dict[int, int] = defaultdict(int)
        for device in iter_bits(devices & ~self._node_devices.shareable):
            uses = self._node_devices.uses(device)
            if uses and uses[0].amount is not None:
                members[uses[0].set] |= 1 << device
        return [self._supply_of_set(set_, self._node_devices.total(set_), each) for set_, each in members.items()]

    def supply_of_empty_node(self, devices: int) -> float:
        """An upper bound on how many of ``devices`` can be taken while nothing is allocated on the node."""
        if devices & self._node_devices.shareable:
            return inf
        counted = [uses for device in iter_bits(devices) if (uses := self._node_devices.uses(device))]
        return devices.bit_count() - len(counted) + sum(self.supplies_of_empty_sets(devices))

    def _supply_of_set(self, set_: int, remaining: int | None, devices: int) -> int:
        """An upper bound on how many of ``devices`` a counter set can supply, each counter taken by itself."""
        if remaining is None:
            return 0
        key = (set_, remaining, devices)
        supply = self._problem.supplies.get(key)
        if supply is None:
            uses = (use for device in iter_bits(devices) for use in self._node_devices.uses(device) if use.set == set_)
            fields = self._node_devices.fields(set_).values()
            amounts = [[field.read(use.amount or 0) * field.unit for field in fields] for use in uses]
            left = [field.read(remaining) * field.unit for field in fields]
            # What bounds each counter bounds their sum, too, and two that are each enough may be too little together.
            columns = [*zip(left, *amounts, strict=True), (sum(left), *map(sum, amounts))]
            supply = min(_count_fitting(most, sorted(each)) for most, *each in columns)
            self._problem.supplies[key] = supply
        return supply

    def constraint_can_hold(
        self, partial: PartialAssignment, requests: Sequence[Request], claim: int, index: int
    ) -> bool:
        """Whether no bound fails for a constraint of ``claim`` over those of ``requests`` that it applies to."""
        return self._can_hold(partial, requests, self._domains(partial, requests), claim, index)

    def _can_hold(
        self, partial: PartialAssignment, requests: Sequence[Request], domains: _Domains, claim: int, index: int
    ) -> bool:
        constrained = _constrained(requests, claim, index)
        if not constrained:
            return True
        by_value = self._domains_by_value(constrained, domains, index)
        state = partial.states[claim][index]
        if self._problem.constraints[claim][index].kind == "distinct":
            return sum(request.fewest for request in constrained) <= _count_hits(by_value)
        values = state.values if state.devices else by_value.keys()
        return any(self._suffice(partial, constrained, domains, by_value.get(value, 0)) for value in values)

    def _domains_by_value(self, requests: Iterable[Request], domains: _Domains, constraint: int) -> Mapping[Value, int]:
        """The devices that could be assigned to ``requests``, by the value that the constraint compares."""
        by_value: dict[Value, int] = defaultdict(int)
        for alternative in chain.from_iterable(request.alternatives for request in requests):
            for value, devices in self._usable_by_value(alternative, constraint).items():
                if devices & domains[alternative]:
                    by_value[value] |= devices & domains[alternative]
        return by_value

    def _usable_by_value(self, alternative: RequestAlternative, constraint: int) -> Mapping[Value, int]:
        by_value = self._devices_by_value.get((alternative, constraint))
        if by_value is None:
            found: dict[Value, int] = defaultdict(int)
            for device in iter_bits(alternative.usable):
                for value in self._values(alternative, constraint, device):
                    found[value] |= 1 << device
            by_value = self._devices_by_value[alternative, constraint] = found
        return by_value

    def _values(self, alternative: RequestAlternative, constraint: int, device: int) -> Iterable[Value]:
        """The values of a device. One that cannot be compared may still come first: it counts as one value more."""
        try:
            values = self._problem.values(alternative, constraint, device)
        except UnanswerableError:  # the search will meet it
            return ()
        return values or ((_NO_VALUE,) if values is not None else ())


def _constrained(requests: Iterable[Request], claim: int, constraint: int) -> list[Request]:
    """The requests of a claim to which a constraint applies whichever alternative is chosen."""
    return [
        request
        for request in requests
        if request.claim == claim
        and request.fewest
        and all(constraint in each.constraints for each in request.alternatives)
    ]


def _count_hits(by_value: Mapping[Value, int]) -> int:
    """The size of a hitting set: values that cover every device, so that no more devices can differ in all values.

    The set is found greedily; it may not be the smallest, but it is a valid bound.
    """
    missed = reduce(or_, by_value.values(), 0)
    hits = 0
    while missed:
        missed &= ~max(by_value.values(), key=lambda devices: (devices & missed).bit_count())
        hits += 1
    return hits


def _count_fitting(left: int, amounts: Sequence[int]) -> int:
    return sum(1 for total in accumulate(amounts) if total <= left)


class _SumKey(NamedTuple):
    """The counters that are added up together: all of one name, or all of one size."""

    name: str
    total: int


_Sums: TypeAlias = Mapping[_SumKey, int]


class CapacitySums:
    """Bounds by sums over all devices: the remaining counters and shared capacities against the needed ones."""

    def __init__(self, problem: AllocationProblem) -> None:
        self._node_devices = problem.node_devices
        self._least_counters: dict[int, _Sums] = {}
        self._least_shares: dict[RequestAlternative, Mapping[str, int]] = {}
        self._keys: dict[int, Mapping[str, tuple[_SumKey, ...]]] = {}
        self._left: dict[tuple[int, int], _Sums] = {}

    def suffice(self, partial: PartialAssignment, requests: Sequence[Request]) -> bool:
        """Whether no sum is too small for ``requests`` together."""
        return self._counters_suffice(partial, requests) and self._shares_suffice(partial, requests)

    def _counters_suffice(self, partial: PartialAssignment, requests: Sequence[Request]) -> bool:
        needed: dict[_SumKey, int] = defaultdict(int)
        for request in requests:
            least = [
                {key: each.count * amount for key, amount in self._least_counters_of(each.usable).items()}
                for each in request.alternatives
            ]
            for key in set.intersection(*(set(each) for each in least)):
                needed[key] += min(each[key] for each in least)
        if not needed:
            return True
        left: dict[_SumKey, int] = defaultdict(int)
        for set_, remaining in enumerate(partial.remaining):
            if remaining is not None:
                for key, amount in self._left_of_set(set_, remaining).items():
                    left[key] += amount
        return all(amount <= left[key] for key, amount in needed.items())

    def _shares_suffice(self, partial: PartialAssignment, requests: Sequence[Request]) -> bool:
        needed: dict[str, int] = defaultdict(int)
        devices: dict[str, int] = defaultdict(int)
        for request in requests:
            least = [self._least_shares_of(each) for each in request.alternatives]
            for name in set.intersection(*(set(each) for each in least)):
                pairs = zip(request.alternatives, least, strict=True)
                needed[name] += min(alternative.count * each[name] for alternative, each in pairs)
                devices[name] |= request.usable
        return all(
            amount <= sum(self._left_of_device(partial, device, name) for device in iter_bits(devices[name]))
            for name, amount in needed.items()
        )

    def _least_shares_of(self, alternative: RequestAlternative) -> Mapping[str, int]:
        """The least amount of each capacity that the alternative takes of any device; optional ones are left out."""
        least = self._least_shares.get(alternative)
        if least is None:
            demands = [alternative.demands.get(device) for device in iter_bits(alternative.usable)]
            amounts = [
                {name: each.nano for name, each in demand.amounts.items()} if demand else {} for demand in demands
            ]
            names = set.intersection(*(set(each) for each in amounts)) if amounts else set[str]()
            least = self._least_shares[alternative] = {name: min(each[name] for each in amounts) for name in names}
        return least

    def _left_of_device(self, partial: PartialAssignment, device: int, name: str) -> int:
        """The remaining amount of a capacity of a shareable device, in units of 1e-9."""
        value = self._node_devices.device(device).capacity[name].value.nano
        return value - self._node_devices.consumed.get(device, {}).get(name, 0) - partial.consumed[device].get(name, 0)

    def _least_counters_of(self, devices: int) -> _Sums:
        """The least amounts that each of ``devices`` takes; sums from which some device takes nothing are left out."""
        least = self._least_counters.get(devices)
        if least is None:
            least = {}
            for number, device in enumerate(iter_bits(devices)):
                taken = self._counters_of_device(device)
                least = {
                    key: min(amount, least.get(key, amount))
                    for key, amount in taken.items()
                    if not number or key in least
                }
                if not least:
                    break
            self._least_counters[devices] = least
        return least

    def _counters_of_device(self, device: int) -> _Sums:
        taken: dict[_SumKey, int] = defaultdict(int)
        if self._node_devices.shareable >> device & 1:
            return taken  # further shares take nothing
        for use in self._node_devices.uses(device):
            for name, field in self._node_devices.fields(use.set).items():
                amount = field.read(use.amount or 0) * field.unit
                for key in self._keys_of_set(use.set)[name] if amount else ():
                    taken[key] += amount
        return taken

    def _left_of_set(self, set_: int, remaining: int) -> _Sums:
        left = self._left.get((set_, remaining))
        if left is None:
            of_set: dict[_SumKey, int] = defaultdict(int)
            for name, field in self._node_devices.fields(set_).items():
                for key in self._keys_of_set(set_)[name]:
                    of_set[key] += field.read(remaining) * field.unit
            left = self._left[set_, remaining] = of_set
        return left

    def _keys_of_set(self, set_: int) -> Mapping[str, tuple[_SumKey, ...]]:
        keys = self._keys.get(set_)
        if keys is None:
            total = self._node_devices.total(set_)
            keys = self._keys[set_] = {
                name: (_SumKey(name, 0), _SumKey("", field.read(total) * field.unit))
                for name, field in self._node_devices.fields(set_).items()
            }
        return keys
