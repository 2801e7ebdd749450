"""An exhaustive allocator: a depth-first search without any pruning, for small cases.

It knows selectors of one form only (``device.attributes["<driver>"].<id> == <number>``), which it reads itself, so that
it shares no code with what it judges. A device without the attribute makes the whole attempt fail.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kerf_dra.api.model.claims import DeviceConstraint, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from kerf_dra.api.model.devices import Device, ResourceSlice
from kerf_dra.api.model.names import DeviceId
from kerf_dra.driver.allocation import AllocatedState
from tests.allocation.result_check import attribute_values

MAX_RESULTS = 32
_SELECTOR = re.compile(r'device\.attributes\["(?P<domain>[^"]+)"\]\.(?P<id>\w+) == (?P<value>\d+)')

RequestSpec = ExactDeviceRequest | DeviceSubRequest


class FatalError(Exception):
    """The attempt fails as a whole."""


class Chosen(NamedTuple):
    claim: int
    request: str
    device: DeviceId


@dataclass
class Exhaustive:
    """One allocation problem: all slices are for the node and of one complete generation."""

    slices: Sequence[ResourceSlice]
    claims: Sequence[ResourceClaim]
    allocated: AllocatedState
    _chosen: list[Chosen] = field(default_factory=list)

    def first(self) -> list[Chosen] | None:
        """The first complete choice, None when there is none. Raises FatalError."""
        for claim in self.claims:
            for request in claim.spec.devices.requests:
                for ask in (request.exactly, *request.first_available):
                    if ask is not None and ask.allocation_mode == "All":
                        self._listed(ask)
        return next(self._serve(0, 0), None)

    def _listed(self, ask: RequestSpec) -> list[tuple[DeviceId, Device]]:
        """Return the devices that a request for all devices gets."""
        return [each for each in self._devices() if _selected(ask, *each)]

    def _devices(self) -> list[tuple[DeviceId, Device]]:
        ordered = sorted(self.slices, key=lambda each: (each.spec.driver, each.spec.pool.name, each.metadata.name))
        return [
            (DeviceId(each.spec.driver, each.spec.pool.name, device.name), device)
            for each in ordered
            for device in each.spec.devices
        ]

    def _serve(self, claim: int, request: int) -> Iterator[list[Chosen]]:
        if claim == len(self.claims):
            yield list(self._chosen)
            return
        requests = self.claims[claim].spec.devices.requests
        if request == len(requests):
            yield from self._serve(claim + 1, 0)
            return
        asked = requests[request]
        if asked.exactly is not None:
            yield from self._place(claim, request, asked.name, asked.exactly, 0, 0)
        for each in asked.first_available:
            yield from self._place(claim, request, f"{asked.name}/{each.name}", each, 0, 0)

    def _place(
        self, claim: int, request: int, name: str, ask: RequestSpec, done: int, start: int
    ) -> Iterator[list[Chosen]]:
        is_all = ask.allocation_mode == "All"
        listed = self._listed(ask) if is_all else self._devices()[start:]
        count = len(listed) if is_all else ask.count or 1
        if is_all and not listed:
            return
        if done == count:
            yield from self._serve(claim, request + 1)
            return
        if sum(each.claim == claim for each in self._chosen) + count - done > MAX_RESULTS:
            return
        for offset, (id_, device) in enumerate(listed[done : done + 1] if is_all else listed):
            if self._in_use(id_) or not _selected(ask, id_, device):
                continue
            self._chosen.append(Chosen(claim, name, id_))
            if self._is_allowed():
                if not self._constraints_hold(claim):
                    if is_all:
                        raise FatalError
                else:
                    yield from self._place(claim, request, name, ask, done + 1, start + offset + 1)
            self._chosen.pop()

    def _in_use(self, id_: DeviceId) -> bool:
        return id_ in self.allocated.exclusive or any(each.device == id_ for each in self._chosen)

    def _is_allowed(self) -> bool:
        """Whether the counters suffice for all that is held, allocated or chosen."""
        devices = dict(self._devices())
        left = {
            (each.spec.driver, each.spec.pool.name, set_.name, name): counter.value.nano
            for each in self.slices
            for set_ in each.spec.shared_counters
            for name, counter in set_.counters.items()
        }
        for id_ in [*self.allocated.exclusive, *(each.device for each in self._chosen)]:
            for use in devices[id_].consumes_counters:
                for name, counter in use.counters.items():
                    left[id_.driver, id_.pool, use.counter_set, name] -= counter.value.nano
        last = self._chosen[-1].device
        of_pool = [amount for key, amount in left.items() if key[:2] == last[:2]]
        return not devices[last].consumes_counters or min(of_pool) >= 0

    def _constraints_hold(self, claim: int) -> bool:
        return all(self._holds(claim, constraint) for constraint in self.claims[claim].spec.devices.constraints)

    def _holds(self, claim: int, constraint: DeviceConstraint) -> bool:
        devices = dict(self._devices())
        name = constraint.match_attribute or constraint.distinct_attribute or ""
        seen: list[set[tuple[str, object]]] = []
        for each in self._chosen:
            names = {each.request, each.request.partition("/")[0]}
            if each.claim != claim or (constraint.requests and not names & set(constraint.requests)):
                continue
            values = attribute_values(each.device.driver, devices[each.device], name)
            if values is None:
                return False
            seen.append(values)
        if constraint.match_attribute:
            return not seen or bool(set.intersection(*seen))
        return sum(map(len, seen)) == len(set().union(*seen))


def _selected(ask: RequestSpec, id_: DeviceId, device: Device) -> bool:
    for selector in ask.selectors:
        assert selector.cel is not None
        match = _SELECTOR.fullmatch(selector.cel.expression)
        assert match is not None
        values = attribute_values(id_.driver, device, f"{match['domain']}/{match['id']}")
        if values is None:
            raise FatalError
        if values != {("int", int(match["value"]))}:
            return False
    return True
