"""What is taken: derived from the claims' status, never kept.

A device is held exclusively, or in shares (KEP-5075), or watched with admin access, which takes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from api.model.claims import ResourceClaim
from api.model.names import DeviceId, ObjectRef, ShareId
from api.model.quantity import Quantity
from driver.allocation.pools import PoolId


@dataclass(frozen=True, kw_only=True)
class AllocatedState:
    """The devices, shares and amounts that all allocated claims of the cluster hold together."""

    exclusive: frozenset[DeviceId] = frozenset()
    shares: frozenset[ShareId] = frozenset()
    consumed: Mapping[DeviceId, Mapping[str, Quantity]] = field(default_factory=dict)
    """The sum over the shares of a device for each capacity, by name as in the claims."""
    holders: Mapping[DeviceId, ObjectRef] = field(default_factory=dict)
    """The claim that holds a device, or the first of several; for messages only."""

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

    @cached_property
    def by_pool(self) -> Mapping[PoolId, frozenset[str]]:
        """The names of all devices in use, exclusively or shared, in each pool."""
        names: dict[PoolId, set[str]] = defaultdict(set)
        for id_ in self.exclusive | self.shared:
            names[PoolId(id_.driver, id_.pool)].add(id_.device)
        return {pool: frozenset(devices) for pool, devices in names.items()}
