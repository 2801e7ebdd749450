"""Whether requests that must agree on a value find one: bounds from ``matchAttribute``, by all that must agree at once.

Requests bound by one match make a *party*. Each party by itself may find a value of which there are enough devices;
here they compete: a NUMA node, a host or a PCIe root has devices for so many parties. A "no" is certain.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from driver.allocation.packing import most
from driver.allocation.pairing import Need, can_pair
from driver.allocation.search.constraints import Value
from driver.allocation.search.problem import Request, Want
from driver.allocation.semantics.bitset import bits

ByValue = Mapping[Value, int]
"""The devices that have each value."""


@dataclass(frozen=True, slots=True)
class Party:
    """Requests that must agree on a value, with the devices that they could be given."""

    requests: tuple[Request, ...]
    by_value: ByValue

    @property
    def fewest(self) -> int:
        return sum(request.fewest for request in self.requests)


Room: TypeAlias = Callable[[Sequence[Sequence[Request]], int], float]
"""At most how many of some parties, each given by its requests, find room on devices that can be shared."""


def can_agree(parties: Sequence[Party], open_: Mapping[Want, int], shareable: int, room_on_shared: Room) -> bool:
    """Whether nothing speaks against each of ``parties``, which compare one attribute, finding a value of its own."""
    parties = list(_apart(parties))
    shared = [_devices(party, open_) & shareable for party in parties]
    if len(parties) < 2 or (any(shared) and any(_devices(party, open_) & ~shareable for party in parties)):
        return True
    options = _options(parties, open_)
    takers: dict[Value, list[Party]] = defaultdict(list)
    for party, values in zip(parties, options, strict=True):
        for value in values:
            takers[value].append(party)
    numbers = {value: number for number, value in enumerate(takers)}
    rooms: dict[int, int] = {}
    for value, taking in takers.items():
        if any(shared):
            devices = _at(taking, open_, value)
            rooms[numbers[value]] = int(min(len(taking), room_on_shared([party.requests for party in taking], devices)))
        else:
            rooms[numbers[value]] = _room(taking, open_, value)
    if not can_pair([Need(sum(1 << numbers[value] for value in values), 1) for values in options], rooms):
        return False
    return any(shared) or len(parties) <= _meetings(
        takers, open_, {value: rooms[number] for value, number in numbers.items()}
    )


def _meetings(takers: Mapping[Value, Sequence[Party]], open_: Mapping[Want, int], rooms: Mapping[Value, int]) -> int:
    """At most how many parties find values at once, where devices have several: a value that needs all its devices
    leaves none of them to others.
    """
    things: list[list[int]] = []
    for value, parties in takers.items():
        devices = _at(parties, open_, value)
        is_whole = devices.bit_count() == min(party.fewest for party in parties)
        things += [list(bits(devices))] if is_whole else [[] for _ in range(rooms[value])]
    return most(things, {})


def _at(parties: Iterable[Party], open_: Mapping[Want, int], value: Value) -> int:
    """The devices of a value that any of ``parties`` could be given."""
    devices = 0
    for party in parties:
        devices |= _devices(party, open_) & party.by_value[value]
    return devices


def _options(parties: Iterable[Party], open_: Mapping[Want, int]) -> list[Sequence[Value]]:
    """The values with enough devices for each party, worked out once for those that are alike."""
    found: dict[object, Sequence[Value]] = {}
    options: list[Sequence[Value]] = []
    for party in parties:
        asked = tuple(tuple((want.count, open_[want]) for want in request.wants) for request in party.requests)
        alike = asked, frozenset(party.by_value.items())
        if alike not in found:
            found[alike] = [value for value, mask in party.by_value.items() if _is_enough(party, open_, mask)]
        options.append(found[alike])
    return options


def _apart(parties: Iterable[Party]) -> Iterator[Party]:
    """Parties without a request in common, and without admin access, which competes with nobody."""
    seen: set[int] = set()
    for party in parties:
        requests = {id(request) for request in party.requests}
        watches = any(want.is_admin for request in party.requests for want in request.wants)
        if not watches and not requests & seen:
            seen |= requests
            yield party


def _devices(party: Party, open_: Mapping[Want, int]) -> int:
    devices = 0
    for request in party.requests:
        for want in request.wants:
            devices |= open_[want]
    return devices


def _is_enough(party: Party, open_: Mapping[Want, int], mask: int) -> bool:
    return (_devices(party, open_) & mask).bit_count() >= party.fewest and all(
        any((open_[want] & mask).bit_count() >= want.count for want in request.wants) for request in party.requests
    )


def _room(parties: Sequence[Party], open_: Mapping[Want, int], value: Value) -> int:
    """At most how many of ``parties`` find devices at a value: of all together, and of each sort that all need."""
    everything = _at(parties, open_, value)
    smallest = sorted(party.fewest for party in parties)
    room = sum(1 for taken in accumulate(smallest) if taken <= everything.bit_count())
    sorts = [_sorts(party, open_) for party in parties]
    for devices in set.intersection(*(set(each) for each in sorts)):
        least = min(each[devices] for each in sorts)
        room = min(room, (devices & everything).bit_count() // least)
    return room


def _sorts(party: Party, open_: Mapping[Want, int]) -> dict[int, int]:
    """How many of some devices a party needs, whichever alternatives are chosen."""
    sorts: dict[int, int] = defaultdict(int)
    for request in party.requests:
        devices = 0
        for want in request.wants:
            devices |= open_[want]
        if request.fewest:
            sorts[devices] += request.fewest
    return sorts
