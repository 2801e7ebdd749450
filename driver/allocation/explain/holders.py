"""Who holds what: devices and counters by the claims that have them, for answers to people.

``AllocatedState`` says what is taken, which is all that allocating needs; this says by whom.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from api.model.claims import ResourceClaim
from api.model.devices import Device, ResourceSlice
from api.model.names import DeviceId, ObjectRef
from api.model.quantity import NANO
from driver.allocation.semantics.allocated_state import AllocatedState

PoolKey: TypeAlias = tuple[str, str]
"""Driver and pool."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Hardware that somebody else has."""

    pool: str
    """``driver/pool``."""
    card: str
    """The counter set, or the device itself where it takes from none."""
    counters: tuple[str, ...]
    """Which counters are short; empty: the devices themselves are in use."""
    claims: tuple[ObjectRef, ...]
    """Who has them, in order of names. Empty: nobody, there are not more."""


class Holdings:
    """What claims hold of some pools. Immutable."""

    def __init__(self, slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]) -> None:
        self.claims = tuple(claim for claim in claims if claim.status.allocation is not None)
        self._slices: dict[PoolKey, list[ResourceSlice]] = defaultdict(list)
        for slice_ in slices:
            self._slices[slice_.spec.driver, slice_.spec.pool.name].append(slice_)
        self._pools: dict[PoolKey, _PoolHoldings] = {}

    @cached_property
    def allocated(self) -> AllocatedState:
        """The same as allocating wants it."""
        return AllocatedState.from_claims(self.claims)

    @cached_property
    def holders(self) -> Mapping[DeviceId, tuple[ObjectRef, ...]]:
        """The claims that have each device, or a share of it."""
        found: dict[DeviceId, list[ObjectRef]] = defaultdict(list)
        for claim in self.claims:
            for result in claim.status.allocation.devices.results if claim.status.allocation else ():
                if not result.admin_access and claim.ref not in found[result.id]:
                    found[result.id].append(claim.ref)
        return {id_: tuple(refs) for id_, refs in found.items() if refs}

    def blockers(self, devices: Iterable[DeviceId]) -> tuple[Blocker, ...]:
        """What keeps ``devices`` from being had, card by card: those in use, and the counters that are short."""
        found: dict[tuple[PoolKey, str], tuple[set[str], set[ObjectRef]]] = {}
        for id_ in devices:
            pool = id_.driver, id_.pool
            for card, counters, claims in self._pool(pool).in_the_way(id_.device, self.holders.get(id_, ())):
                short, by = found.setdefault((pool, card), (set(), set()))
                short.update(counters)
                by.update(claims)
        return tuple(
            Blocker("/".join(pool), card, tuple(sorted(counters)), tuple(sorted(claims)))
            for (pool, card), (counters, claims) in found.items()
        )

    def weight(self, claim: ResourceClaim) -> int:
        """How much of all counters the claim takes, or how many devices where there are no counters; to compare."""
        results = claim.status.allocation.devices.results if claim.status.allocation else ()
        return sum(self._pool((each.driver, each.pool)).weight(each.device) for each in results)

    def _pool(self, id_: PoolKey) -> "_PoolHoldings":
        pool = self._pools.get(id_)
        if pool is None:
            pool = self._pools[id_] = _PoolHoldings(self._slices.get(id_, ()), self._holders_in(id_))
        return pool

    def _holders_in(self, pool: PoolKey) -> dict[str, tuple[ObjectRef, ...]]:
        return {id_.device: refs for id_, refs in self.holders.items() if (id_.driver, id_.pool) == pool}


class _PoolHoldings:
    """One pool: what its counters have left, and who takes from them."""

    def __init__(self, slices: Sequence[ResourceSlice], holders: Mapping[str, tuple[ObjectRef, ...]]) -> None:
        newest = max((slice_.spec.pool.generation for slice_ in slices), default=0)
        current = [slice_ for slice_ in slices if slice_.spec.pool.generation == newest]
        self._devices = {device.name: device for slice_ in current for device in slice_.spec.devices}
        self._left = {
            (set_.name, name): counter.value.nano
            for slice_ in current
            for set_ in slice_.spec.shared_counters
            for name, counter in set_.counters.items()
        }
        self._takers: dict[tuple[str, str], list[ObjectRef]] = defaultdict(list)
        for device, refs in holders.items():
            for key, amount in _uses(self._devices.get(device)):
                self._left[key] = self._left.get(key, 0) - amount
                self._takers[key] += refs

    def weight(self, device: str) -> int:
        return sum(amount for _, amount in _uses(self._devices.get(device))) or NANO

    def in_the_way(
        self, device: str, holders: Sequence[ObjectRef]
    ) -> Iterator[tuple[str, Sequence[str], Sequence[ObjectRef]]]:
        """Card, short counters and holders, for everything that keeps ``device`` from being had."""
        uses = list(_uses(self._devices.get(device)))
        if holders:
            yield next((set_ for (set_, _), _ in uses), device), (), holders
            return
        for (set_, counter), amount in uses:
            if amount > self._left.get((set_, counter), 0):
                yield set_, (counter,), self._takers.get((set_, counter), ())


def _uses(device: Device | None) -> Iterator[tuple[tuple[str, str], int]]:
    for consumption in device.consumes_counters if device else ():
        for name, counter in consumption.counters.items():
            yield (consumption.counter_set, name), counter.value.nano
