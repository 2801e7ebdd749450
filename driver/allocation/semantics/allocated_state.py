"""The allocated devices, derived from the claims' status and recorded nowhere else.

A device is held exclusively or in shares (KEP-5075). A device with admin access is not held at all (KEP-5018).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple, Protocol

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import DeviceId, ObjectRef, ShareId
from kerf_dra.api.model.quantity import Quantity


class PoolId(NamedTuple):
    """A pool; its name is unique within the driver only."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"

    @classmethod
    def of(cls, slice_: ResourceSlice) -> "PoolId":
        """The pool of a slice."""
        return cls(slice_.spec.driver, slice_.spec.pool.name)


class ConsumedAmount(NamedTuple):
    """The amount that all shares of a device take of one capacity; names as in the claims."""

    device: str
    capacity: str
    quantity: Quantity


class PoolAllocations(NamedTuple):
    """The allocations of one pool, by names of devices."""

    exclusive: frozenset[str]
    """The devices that are held exclusively."""
    shared: frozenset[str]
    """The devices of which at least one share is held."""
    consumed: frozenset[ConsumedAmount]

    @property
    def names(self) -> frozenset[str]:
        """The devices that are held exclusively or in shares."""
        return self.exclusive | self.shared


NO_ALLOCATIONS: Final = PoolAllocations(exclusive=frozenset(), shared=frozenset(), consumed=frozenset())


class AllocatedDevices(Protocol):
    """The allocations of all claims of a cluster."""

    @property
    def holders(self) -> Mapping[DeviceId, ObjectRef]:
        """The claim that holds each device, or one of several; for messages only."""

    def of(self, pool: PoolId) -> PoolAllocations:
        """Return the allocations of a pool."""


@dataclass(frozen=True, kw_only=True)
class AllocatedState:
    """The allocations of claims at one moment."""

    exclusive: frozenset[DeviceId] = frozenset()
    shares: frozenset[ShareId] = frozenset()
    consumed: Mapping[DeviceId, Mapping[str, Quantity]] = field(default_factory=dict)
    """The sum over the shares of each device, by the capacity's name as in the claims."""
    holders: Mapping[DeviceId, ObjectRef] = field(default_factory=dict)

    @classmethod
    def from_claims(cls, claims: Iterable[ResourceClaim]) -> "AllocatedState":
        """Return the allocations of ``claims``; a claim without an allocation holds nothing."""
        exclusive: set[DeviceId] = set()
        shares: set[ShareId] = set()
        consumed: dict[DeviceId, dict[str, Quantity]] = defaultdict(dict)
        holders: dict[DeviceId, ObjectRef] = {}
        for claim in claims:
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation else ():
                if result.admin_access:
                    continue
                holders.setdefault(result.id, claim.ref)
                if result.share_id is None:
                    exclusive.add(result.id)
                    continue
                shares.add(result.share)
                of_device = consumed[result.id]
                for name, amount in result.consumed_capacity.items():
                    of_device[name] = of_device[name] + amount if name in of_device else amount
        return cls(exclusive=frozenset(exclusive), shares=frozenset(shares), consumed=dict(consumed), holders=holders)

    @cached_property
    def shared(self) -> frozenset[DeviceId]:
        """The devices of which at least one share is held."""
        return frozenset({share.id for share in self.shares} | self.consumed.keys())

    def of(self, pool: PoolId) -> PoolAllocations:
        return self.by_pool.get(pool, NO_ALLOCATIONS)

    @cached_property
    def by_pool(self) -> Mapping[PoolId, PoolAllocations]:
        """The allocations of each pool."""
        exclusive: dict[PoolId, set[str]] = defaultdict(set)
        shared: dict[PoolId, set[str]] = defaultdict(set)
        consumed: dict[PoolId, set[ConsumedAmount]] = defaultdict(set)
        for id_ in self.exclusive:
            exclusive[PoolId(id_.driver, id_.pool)].add(id_.device)
        for id_ in self.shared:
            pool = PoolId(id_.driver, id_.pool)
            shared[pool].add(id_.device)
            amounts = self.consumed.get(id_, {})
            consumed[pool].update(ConsumedAmount(id_.device, name, amount) for name, amount in amounts.items())
        return {
            pool: PoolAllocations(frozenset(exclusive[pool]), frozenset(shared[pool]), frozenset(consumed[pool]))
            for pool in {*exclusive, *shared}
        }


class AllocatedStateTracker:
    """The allocations of changing claims: equal to an ``AllocatedState`` of all claims, kept pool by pool."""

    def __init__(self) -> None:
        self._claims: dict[ObjectRef, ResourceClaim] = {}
        """The claims that hold devices."""
        self._by_pool: dict[PoolId, dict[ObjectRef, ResourceClaim]] = defaultdict(dict)
        self._allocations: dict[PoolId, PoolAllocations] = {}
        """The cached allocations of pools that have not changed since the last read."""
        self._holders: dict[DeviceId, ObjectRef] | None = None

    @property
    def holders(self) -> Mapping[DeviceId, ObjectRef]:
        if self._holders is None:
            self._holders = {id_: ref for ref, claim in self._claims.items() for id_ in _held(claim)}
        return self._holders

    def of(self, pool: PoolId) -> PoolAllocations:
        allocations = self._allocations.get(pool)
        if allocations is None:
            claims = self._by_pool.get(pool, {})
            allocations = self._allocations[pool] = AllocatedState.from_claims(claims.values()).of(pool)
        return allocations

    def record(self, claim: ResourceClaim) -> set[PoolId]:
        """Replace the recorded allocation of ``claim``, and return the pools that this changes."""
        changed = self.remove(claim.ref)
        pools = _pools(claim)
        if pools:
            self._claims[claim.ref] = claim
        for pool in pools:
            self._by_pool[pool][claim.ref] = claim
            self._allocations.pop(pool, None)
        return changed | pools

    def remove(self, claim: ObjectRef) -> set[PoolId]:
        """Remove the allocation of a claim, and return the pools that this changes."""
        removed = self._claims.pop(claim, None)
        self._holders = None
        pools = set[PoolId]() if removed is None else _pools(removed)
        for pool in pools:
            del self._by_pool[pool][claim]
            self._allocations.pop(pool, None)
        return pools


def _pools(claim: ResourceClaim) -> set[PoolId]:
    return {PoolId(id_.driver, id_.pool) for id_ in _held(claim)}


def _held(claim: ResourceClaim) -> list[DeviceId]:
    allocation = claim.status.allocation
    return [result.id for result in allocation.devices.results if not result.admin_access] if allocation else []
