"""What is taken: derived from the claims' status, and never kept anywhere else.

A device is held exclusively, or in shares (KEP-5075), or watched with admin access, which takes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple, Protocol

from api.model.claims import ResourceClaim
from api.model.devices import ResourceSlice
from api.model.names import DeviceId, ObjectRef, ShareId
from api.model.quantity import Quantity


class PoolId(NamedTuple):
    """A pool: its name is unique within the driver only."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"

    @classmethod
    def of(cls, slice_: ResourceSlice) -> "PoolId":
        """The pool of a slice."""
        return cls(slice_.spec.driver, slice_.spec.pool.name)


class Amount(NamedTuple):
    """What the shares of a device take of one of its capacities together; names as in the claims."""

    device: str
    capacity: str
    quantity: Quantity


class Taken(NamedTuple):
    """What is taken of one pool, by names of devices."""

    exclusive: frozenset[str]
    shared: frozenset[str]
    """Devices of which some share is held."""
    consumed: frozenset[Amount]

    @property
    def names(self) -> frozenset[str]:
        return self.exclusive | self.shared


NOTHING: Final = Taken(exclusive=frozenset(), shared=frozenset(), consumed=frozenset())


class Allocated(Protocol):
    """What all claims of a cluster hold together."""

    @property
    def holders(self) -> Mapping[DeviceId, ObjectRef]:
        """The claim that holds a device, or one of several; for messages only."""

    def of(self, pool: PoolId) -> Taken:
        """What is taken of a pool."""


@dataclass(frozen=True, kw_only=True)
class AllocatedState:
    """What claims hold at one moment."""

    exclusive: frozenset[DeviceId] = frozenset()
    shares: frozenset[ShareId] = frozenset()
    consumed: Mapping[DeviceId, Mapping[str, Quantity]] = field(default_factory=dict)
    """The sum over the shares of a device for each capacity, by name as in the claims."""
    holders: Mapping[DeviceId, ObjectRef] = field(default_factory=dict)

    @classmethod
    def from_claims(cls, claims: Iterable[ResourceClaim]) -> "AllocatedState":
        """What ``claims`` hold. Claims without an allocation hold nothing."""
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
        """Devices of which some share is held."""
        return frozenset({share.id for share in self.shares} | self.consumed.keys())

    def of(self, pool: PoolId) -> Taken:
        """What is taken of a pool."""
        return self.by_pool.get(pool, NOTHING)

    @cached_property
    def by_pool(self) -> Mapping[PoolId, Taken]:
        exclusive: dict[PoolId, set[str]] = defaultdict(set)
        shared: dict[PoolId, set[str]] = defaultdict(set)
        consumed: dict[PoolId, set[Amount]] = defaultdict(set)
        for id_ in self.exclusive:
            exclusive[PoolId(id_.driver, id_.pool)].add(id_.device)
        for id_ in self.shared:
            pool = PoolId(id_.driver, id_.pool)
            shared[pool].add(id_.device)
            amounts = self.consumed.get(id_, {})
            consumed[pool].update(Amount(id_.device, name, amount) for name, amount in amounts.items())
        return {
            pool: Taken(frozenset(exclusive[pool]), frozenset(shared[pool]), frozenset(consumed[pool]))
            for pool in {*exclusive, *shared}
        }


class Ledger:
    """What claims hold as they come and go: the same as an ``AllocatedState`` of all, worked out pool by pool."""

    def __init__(self) -> None:
        self._claims: dict[ObjectRef, ResourceClaim] = {}
        """Those that hold something."""
        self._by_pool: dict[PoolId, dict[ObjectRef, ResourceClaim]] = defaultdict(dict)
        self._taken: dict[PoolId, Taken] = {}
        """Of pools that have not changed since somebody asked."""
        self.holders: dict[DeviceId, ObjectRef] = {}

    def of(self, pool: PoolId) -> Taken:
        """What is taken of a pool."""
        taken = self._taken.get(pool)
        if taken is None:
            claims = self._by_pool.get(pool, {})
            taken = self._taken[pool] = AllocatedState.from_claims(claims.values()).of(pool)
        return taken

    def record(self, claim: ResourceClaim) -> set[PoolId]:
        """Count what ``claim`` holds, in place of what it held before.

        Gives the pools of which other things are taken now.
        """
        changed = self.remove(claim.ref)
        devices = _held(claim)
        if not devices:
            return changed
        self._claims[claim.ref] = claim
        self.holders |= dict.fromkeys(devices, claim.ref)
        pools = {PoolId(id_.driver, id_.pool) for id_ in devices}
        for pool in pools:
            self._by_pool[pool][claim.ref] = claim
            self._taken.pop(pool, None)
        return changed | pools

    def remove(self, claim: ObjectRef) -> set[PoolId]:
        """Forget a claim. Gives the pools of which other things are taken now."""
        held = self._claims.pop(claim, None)
        devices = () if held is None else _held(held)
        pools = {PoolId(id_.driver, id_.pool) for id_ in devices}
        for pool in pools:
            del self._by_pool[pool][claim]
            self._taken.pop(pool, None)
        for id_ in devices:
            if self.holders.get(id_) == claim:
                others = self._by_pool[PoolId(id_.driver, id_.pool)].items()
                other = next((other for other, its in others if id_ in _held(its)), None)
                if other is None:
                    del self.holders[id_]
                else:
                    self.holders[id_] = other
        return pools


def _held(claim: ResourceClaim) -> list[DeviceId]:
    """The devices of which a claim holds something."""
    allocation = claim.status.allocation
    return [result.id for result in allocation.devices.results if not result.admin_access] if allocation else []
