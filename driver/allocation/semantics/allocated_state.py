"""What is taken: derived from the claims' status, and never kept anywhere else.

A device is held exclusively, or in shares (KEP-5075), or watched with admin access, which takes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple, Protocol

from api.model.claims import ResourceClaim
from api.model.names import DeviceId, ObjectRef, ShareId
from api.model.quantity import Quantity


class PoolId(NamedTuple):
    """A pool: its name is unique within the driver only."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


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
    """What claims hold as they come and go: the same as an ``AllocatedState`` of all, updated at one claim's cost."""

    def __init__(self) -> None:
        self._claims: dict[ObjectRef, AllocatedState] = {}
        self._parts: dict[PoolId, dict[ObjectRef, Taken]] = defaultdict(dict)
        self._taken: dict[PoolId, Taken] = {}
        self.holders: dict[DeviceId, ObjectRef] = {}

    def of(self, pool: PoolId) -> Taken:
        """What is taken of a pool."""
        return self._taken.get(pool, NOTHING)

    def record(self, claim: ResourceClaim) -> set[PoolId]:
        """Count what ``claim`` holds, in place of what it held before.

        Gives the pools of which other things are taken now.
        """
        changed = self.remove(claim.ref)
        if claim.status.allocation is None:
            return changed
        held = self._claims[claim.ref] = AllocatedState.from_claims([claim])
        self.holders.update(held.holders)
        for pool, part in held.by_pool.items():
            self._parts[pool][claim.ref] = part
            self._add_up(pool)
        return changed | held.by_pool.keys()

    def remove(self, claim: ObjectRef) -> set[PoolId]:
        """Forget a claim. Gives the pools of which other things are taken now."""
        held = self._claims.pop(claim, None)
        if held is None:
            return set()
        for pool in held.by_pool:
            del self._parts[pool][claim]
            self._add_up(pool)
        for id_ in held.holders:
            if self.holders.get(id_) == claim:
                parts = self._parts[PoolId(id_.driver, id_.pool)].items()
                other = next((other for other, part in parts if id_.device in part.names), None)
                if other is None:
                    del self.holders[id_]
                else:
                    self.holders[id_] = other
        return set(held.by_pool)

    def _add_up(self, pool: PoolId) -> None:
        parts = self._parts[pool].values()
        consumed: dict[tuple[str, str], Quantity] = {}
        for device, capacity, quantity in chain.from_iterable(part.consumed for part in parts):
            before = consumed.get((device, capacity))
            consumed[device, capacity] = quantity if before is None else before + quantity
        self._taken[pool] = Taken(
            exclusive=frozenset().union(*(part.exclusive for part in parts)),
            shared=frozenset().union(*(part.shared for part in parts)),
            consumed=frozenset(Amount(*at, quantity) for at, quantity in consumed.items()),
        )
