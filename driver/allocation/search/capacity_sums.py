"""Whether what is left of counters and shared capacities suffices for all requests together, added up over devices."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from driver.allocation.search.assignment import Tally
from driver.allocation.search.problem import Question, Request, Want
from driver.allocation.semantics.bitset import bits


class _Weight(NamedTuple):
    """Counters that are added up together: all of one name, or all that are equally large."""

    name: str
    total: int


_Weighed = Mapping[_Weight, int]


class Sums:
    """Bounds for one question, as those of ``bounds.py``: a "no" is certain."""

    def __init__(self, question: Question) -> None:
        self._offer = question.offer
        self._least: dict[int, _Weighed] = {}
        self._shares: dict[Want, Mapping[str, int]] = {}
        self._weights: dict[int, Mapping[str, tuple[_Weight, ...]]] = {}
        self._left: dict[tuple[int, int], _Weighed] = {}

    def suffice(self, tally: Tally, requests: Sequence[Request]) -> bool:
        """Whether nothing that is added up is too little for ``requests`` together."""
        return self._counters_suffice(tally, requests) and self._shares_suffice(tally, requests)

    def _counters_suffice(self, tally: Tally, requests: Sequence[Request]) -> bool:
        """Whether all requests together can be served by what is left of counters that are added up."""
        needed: dict[_Weight, int] = defaultdict(int)
        for request in requests:
            least = [
                {weight: want.count * amount for weight, amount in self._weigh(want).items()} for want in request.wants
            ]
            for weight in set.intersection(*(set(each) for each in least)):
                needed[weight] += min(each[weight] for each in least)
        if not needed:
            return True
        left: dict[_Weight, int] = defaultdict(int)
        for set_, remaining in enumerate(tally.remaining):
            if remaining is not None:
                for weight, amount in self._weigh_left(set_, remaining).items():
                    left[weight] += amount
        return all(amount <= left[weight] for weight, amount in needed.items())

    def _shares_suffice(self, tally: Tally, requests: Sequence[Request]) -> bool:
        """Whether all requests together can be served by what is left of capacities that are shared."""
        needed: dict[str, int] = defaultdict(int)
        devices: dict[str, int] = defaultdict(int)
        for request in requests:
            least = [self._least_shares(want) for want in request.wants]
            for name in set.intersection(*(set(each) for each in least)):
                needed[name] += min(want.count * each[name] for want, each in zip(request.wants, least, strict=True))
                for want in request.wants:
                    devices[name] |= want.usable
        return all(
            amount <= sum(self._left_of(tally, device, name) for device in bits(devices[name]))
            for name, amount in needed.items()
        )

    def _least_shares(self, want: Want) -> Mapping[str, int]:
        """The least of each capacity that the want takes, whichever device it gets; without what it may not take."""
        least = self._shares.get(want)
        if least is None:
            demands = [want.demands.get(device) for device in bits(want.usable)]
            amounts = [
                {name: each.nano for name, each in demand.amounts.items()} if demand else {} for demand in demands
            ]
            names = set.intersection(*(set(each) for each in amounts)) if amounts else set[str]()
            least = self._shares[want] = {name: min(each[name] for each in amounts) for name in names}
        return least

    def _left_of(self, tally: Tally, device: int, name: str) -> int:
        """What is left of a capacity of a shared device."""
        value = self._offer.devices[device].capacity[name].value.nano
        return value - self._offer.consumed.get(device, {}).get(name, 0) - tally.taken[device].get(name, 0)

    def _weigh(self, want: Want) -> _Weighed:
        """The least that each of the want's devices takes; without what some device does not take at all."""
        weighed = self._least.get(want.usable)
        if weighed is None:
            least: dict[_Weight, int] | None = None
            for device in bits(want.usable):
                taken = self._weigh_device(device)
                least = (
                    dict(taken)
                    if least is None
                    else {weight: min(amount, taken[weight]) for weight, amount in least.items() if weight in taken}
                )
                if not least:
                    break
            weighed = self._least[want.usable] = least or {}
        return weighed

    def _weigh_device(self, device: int) -> _Weighed:
        taken: dict[_Weight, int] = defaultdict(int)
        if self._offer.shareable >> device & 1:
            return taken  # further shares take nothing
        for use in self._offer.uses(device):
            for name, field in self._offer.fields(use.set).items():
                amount = field.read(use.amount or 0) * field.unit
                for weight in self._weights_of(use.set)[name] if amount else ():
                    taken[weight] += amount
        return taken

    def _weigh_left(self, set_: int, remaining: int) -> _Weighed:
        left = self._left.get((set_, remaining))
        if left is None:
            of_set: dict[_Weight, int] = defaultdict(int)
            for name, field in self._offer.fields(set_).items():
                for weight in self._weights_of(set_)[name]:
                    of_set[weight] += field.read(remaining) * field.unit
            left = self._left[set_, remaining] = of_set
        return left

    def _weights_of(self, set_: int) -> Mapping[str, tuple[_Weight, ...]]:
        weights = self._weights.get(set_)
        if weights is None:
            total = self._offer.total(set_)
            weights = self._weights[set_] = {
                name: (_Weight(name, 0), _Weight("", field.read(total) * field.unit))
                for name, field in self._offer.fields(set_).items()
            }
        return weights
