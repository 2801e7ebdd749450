"""``HolderIndex``: which claims hold devices and counters.

``AllocatedState`` says what is allocated, which suffices to allocate; a ``HolderIndex`` adds the holders, for messages.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import Device, ResourceSlice
from kerf_dra.api.model.names import DeviceId, ObjectRef
from kerf_dra.api.model.quantity import NANO
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.allocation.semantics.allocated_state import AllocatedState, PoolId

PoolKey: TypeAlias = tuple[str, str]
"""The driver and the name of a pool."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Hardware that is not free, with the claims that hold it."""

    pool: str
    """``driver/pool``."""
    card: str
    """The name of the counter set, or of the device itself if it consumes no counters."""
    counters: tuple[str, ...]
    """The names of the counters that do not suffice, or of the capacities that shares take; empty: the devices
    themselves are in use."""
    claims: tuple[ObjectRef, ...]
    """The claims that hold the hardware, by name; empty: no claim does, the pool never had enough."""


class HolderIndex:
    """The holdings of claims in some pools; immutable."""

    def __init__(self, slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]) -> None:
        self.claims = tuple(claim for claim in claims if claim.status.allocation is not None)
        self._slices = InternedSlices.of(slices)
        self._pools: dict[PoolKey, _PoolHolders] = {}

    @cached_property
    def allocated(self) -> AllocatedState:
        """The allocated devices in the form that the allocator reads."""
        return AllocatedState.from_claims(self.claims)

    @cached_property
    def holders(self) -> Mapping[DeviceId, tuple[ObjectRef, ...]]:
        """The claims that hold each device or a share of it."""
        found: dict[DeviceId, list[ObjectRef]] = defaultdict(list)
        for claim in self.claims:
            for result in claim.status.allocation.devices.results if claim.status.allocation else ():
                if not result.admin_access and claim.ref not in found[result.id]:
                    found[result.id].append(claim.ref)
        return {id_: tuple(refs) for id_, refs in found.items() if refs}

    def blockers(self, devices: Iterable[DeviceId]) -> tuple[Blocker, ...]:
        """Return the hardware that keeps ``devices`` from being allocated, by card: devices or counters in use."""
        found: dict[tuple[PoolKey, str], tuple[set[str], set[ObjectRef]]] = {}
        for id_ in devices:
            pool = id_.driver, id_.pool
            for card, counters, claims in self._pool(pool).blockers_of(id_.device, self.holders.get(id_, ())):
                short, by = found.setdefault((pool, card), (set(), set()))
                short.update(counters)
                by.update(claims)
        return tuple(
            Blocker("/".join(pool), card, tuple(sorted(counters)), tuple(sorted(claims)))
            for (pool, card), (counters, claims) in found.items()
        )

    def share_blocker(self, id_: DeviceId, taken: Mapping[str, int]) -> Blocker:
        """Return a device of which claims have shares, with the names of the capacities of which some is ``taken``."""
        pool = id_.driver, id_.pool
        return Blocker(
            pool="/".join(pool),
            card=self._pool(pool).card_of(id_.device),
            counters=tuple(sorted(name for name, amount in taken.items() if amount)),
            claims=tuple(sorted(self.holders.get(id_, ()))),
        )

    def weight(self, claim: ResourceClaim) -> int:
        """The amount that the claim takes of all counters, or its number of devices without any; to compare claims."""
        results = claim.status.allocation.devices.results if claim.status.allocation else ()
        return sum(self._pool((each.driver, each.pool)).weight(each.device) for each in results)

    def _pool(self, id_: PoolKey) -> "_PoolHolders":
        pool = self._pools.get(id_)
        if pool is None:
            pool = self._pools[id_] = _PoolHolders(self._slices.newest_of_pool(PoolId(*id_)), self._holders_in(id_))
        return pool

    def _holders_in(self, pool: PoolKey) -> dict[str, tuple[ObjectRef, ...]]:
        return {id_.device: refs for id_, refs in self.holders.items() if (id_.driver, id_.pool) == pool}


class _PoolHolders:
    """The remaining counters of one pool, and the claims that take from them."""

    def __init__(self, slices: Sequence[ResourceSlice], holders: Mapping[str, tuple[ObjectRef, ...]]) -> None:
        self._devices = {device.name: device for slice_ in slices for device in slice_.spec.devices}
        self._left = {
            (set_.name, name): counter.value.nano
            for slice_ in slices
            for set_ in slice_.spec.shared_counters
            for name, counter in set_.counters.items()
        }
        self._claims: dict[tuple[str, str], list[ObjectRef]] = defaultdict(list)
        for device, refs in holders.items():
            for key, amount in _uses(self._devices.get(device)):
                self._left[key] = self._left.get(key, 0) - amount
                self._claims[key] += refs

    def weight(self, device: str) -> int:
        return sum(amount for _, amount in _uses(self._devices.get(device))) or NANO

    def card_of(self, device: str) -> str:
        """Return the name of the first counter set of a device, or of the device itself without one."""
        return next((set_ for (set_, _), _ in _uses(self._devices.get(device))), device)

    def blockers_of(
        self, device: str, holders: Sequence[ObjectRef]
    ) -> Iterator[tuple[str, Sequence[str], Sequence[ObjectRef]]]:
        """Yield card, counters and claims for everything that keeps ``device`` from being allocated."""
        uses = list(_uses(self._devices.get(device)))
        if holders:
            yield self.card_of(device), (), holders
            return
        for (set_, counter), amount in uses:
            if amount > self._left.get((set_, counter), 0):
                yield set_, (counter,), self._claims.get((set_, counter), ())


def _uses(device: Device | None) -> Iterator[tuple[tuple[str, str], int]]:
    for consumption in device.consumes_counters if device else ():
        for name, counter in consumption.counters.items():
            yield (consumption.counter_set, name), counter.value.nano
