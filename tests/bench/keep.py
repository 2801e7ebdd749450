"""KEEP: a placement policy that loses the least of what could be placed later.

A counter set, such as a card, is worth the sum over its profiles of weight times how many more of that profile still
fit, and a placement's loss is what it takes of that worth. Of several placements the one with the least loss is taken,
of those the fullest set, then the first. Against first fit this accepts some more requests under high load, and more of
the large ones. kube-scheduler has no such order; a driver comes near it by the order in which it publishes
(``kerf_dra.driver.partitions.publish_order``).
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.api.model.allocations import AllocationResult
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim, ResourceClaimSpec
from kerf_dra.api.model.devices import Device
from kerf_dra.driver.allocation.allocator import try_allocate
from kerf_dra.driver.allocation.cluster import ClusterAllocator, ClusterOutcome, NodeAllocation, NoFittingNode
from kerf_dra.driver.allocation.pools.gather import PoolView
from kerf_dra.driver.allocation.pools.node_devices import NodeDevices
from kerf_dra.driver.allocation.pools.template import PoolTemplate, PoolUsage
from kerf_dra.driver.allocation.search.problem import AllocationProblem
from kerf_dra.driver.allocation.semantics.bitset import store_bounded
from kerf_dra.driver.allocation.semantics.counters import fits
from kerf_dra.driver.allocation.semantics.outcomes import Budget, Fits, NodeView

QUOTA: Final = frozenset({"memory", "multiprocessors"})
"""Counters that never keep a device from being allocated: they say nothing of what is left for others."""


class Profile(NamedTuple):
    """The profile of a device; a set is worth its weight for each device of it that still fits."""

    name: str
    weight: int


ProfileOf: TypeAlias = Callable[[Device], Profile | None]
"""The profile of a device; None: it does not count, because it is the same hardware as others that do."""


class _Rank(NamedTuple):
    """The rank of a placement: less is better."""

    loss: int
    left: int
    """What is left of the counter sets it takes from, all counters added up."""


class Keep:
    """The policy, with a cache of its computations."""

    def __init__(self, profile_of: ProfileOf) -> None:
        self._profile_of = profile_of
        self._worths: dict[tuple[PoolTemplate, int, int], int] = {}
        self._orders: dict[tuple[PoolTemplate, PoolUsage], PoolTemplate] = {}
        self._ranks: dict[ResourceClaimSpec, dict[Hashable, _Rank | None]] = {}

    def place(
        self, cluster: ClusterAllocator, nodes: Iterable[NodeView], claim: ResourceClaim, class_: DeviceClass
    ) -> ClusterOutcome:
        """As ``ClusterAllocator.place``, on the node and the devices where the least is lost.

        ``class_`` is that of all requests. The selectors must not tell nodes apart.
        """
        best: tuple[_Rank, NodeDevices] | None = None
        ranks = self._ranks.setdefault(claim.spec, {})
        for node in nodes:
            node_devices = NodeDevices.build(cluster.pool_index, node, cluster.allocated_state, cluster.features)
            key = tuple(
                [(view.template, each) for view, each in zip(node_devices.views, node_devices.usages, strict=True)]
            )
            if key not in ranks:
                found = self._search(node_devices, claim, class_)
                store_bounded(ranks, key, None if found is None else self._rank(node_devices, found.results))
            rank = ranks[key]
            if rank is not None and (best is None or rank < best[0]):
                best = rank, node_devices
        if best is None:
            return NoFittingNode({})
        found = self._search(best[1], claim, class_)
        assert found is not None, "it fitted on a node of the same kind"
        return NodeAllocation(best[1].node.name, found.results)

    def _search(self, node_devices: NodeDevices, claim: ResourceClaim, class_: DeviceClass) -> Fits | None:
        classes = {class_.metadata.name: class_}
        outcome = try_allocate(self._ordered(node_devices), [claim], classes, share_id=str, budget=Budget())
        assert isinstance(outcome, Fits | AllocationProblem)
        return outcome if isinstance(outcome, Fits) else None

    def _ordered(self, node_devices: NodeDevices) -> NodeDevices:
        """The node's devices, the best placements first."""
        views = [
            PoolView(view.id, view.fault, self._order(view.template, usage), view.slices, view.strings)
            for view, usage in zip(node_devices.views, node_devices.usages, strict=True)
        ]
        return NodeDevices(views, node_devices.node, node_devices.allocated, node_devices.features)

    def _order(self, template: PoolTemplate, usage: PoolUsage) -> PoolTemplate:
        ordered = self._orders.get((template, usage))
        if ordered is None:
            sizes = [sum(_units(template, use.set, use.amount or 0) for use in uses) for uses in template.uses]
            ranks = [self._rank_of(template, usage.remaining, index) for index in range(len(template.devices))]
            indices = sorted(range(len(template.devices)), key=lambda index: (sizes[index], ranks[index], index))
            ordered = store_bounded(self._orders, (template, usage), _reordered(template, indices))
        return ordered

    def _rank(self, node_devices: NodeDevices, results: Iterable[AllocationResult]) -> _Rank:
        """The rank of all ``results`` together."""
        loss = left = 0
        remaining = {
            view.id: list(usage.remaining) for view, usage in zip(node_devices.views, node_devices.usages, strict=True)
        }
        templates = {view.id: view.template for view in node_devices.views}
        for given in (each for result in results for each in result.devices.results):
            pool = next(id_ for id_ in templates if (id_.driver, id_.name) == (given.driver, given.pool))
            template, sets = templates[pool], remaining[pool]
            index = template.positions[given.device]
            rank = self._rank_of(template, sets, index)
            loss, left = loss + rank.loss, left + rank.left
            for use in template.uses[index]:
                sets[use.set] = (sets[use.set] or 0) - (use.amount or 0)
        return _Rank(loss, left)

    def _rank_of(self, template: PoolTemplate, remaining: Sequence[int | None], index: int) -> _Rank:
        loss = left = 0
        for use in template.uses[index]:
            before = remaining[use.set]
            assert template.counters is not None
            if before is None or not fits(before, use.amount, template.counters.guards[use.set]):
                continue  # it cannot be had, so its rank does not matter
            after = before - (use.amount or 0)
            loss += self._worth(template, use.set, before) - self._worth(template, use.set, after)
            left += _units(template, use.set, before)
        return _Rank(loss, left)

    def _worth(self, template: PoolTemplate, set_: int, remaining: int) -> int:
        worth = self._worths.get((template, set_, remaining))
        if worth is None:
            assert template.counters is not None
            amounts: dict[Profile, list[int]] = {}
            for device_template, uses in zip(template.devices, template.uses, strict=True):
                profile = self._profile_of(device_template.device) if [use.set for use in uses] == [set_] else None
                if profile is not None and uses[0].amount is not None:
                    amounts.setdefault(profile, []).append(uses[0].amount)
            guards = template.counters.guards[set_]
            worth = sum(profile.weight * _count(each, remaining, guards) for profile, each in amounts.items())
            store_bounded(self._worths, (template, set_, remaining), worth)
        return worth


def _reordered(template: PoolTemplate, indices: Iterable[int]) -> PoolTemplate:
    """The same devices in another order: ``indices`` are those in ``template``."""
    return PoolTemplate(template.driver, [template.devices[index] for index in indices], (), template.counters)


def _units(template: PoolTemplate, set_: int, packed: int) -> int:
    """All counters of a set added up, but for those that are for quotas."""
    assert template.counters is not None
    fields = template.counters.fields[set_]
    return sum(field.read(packed) for name, field in fields.items() if name not in QUOTA)


def _count(amounts: Iterable[int], remaining: int, guards: int) -> int:
    """How many of ``amounts`` fit together: the one that ends first, first, which is best for equal rows of units."""
    count = 0
    for amount in sorted(amounts):
        if fits(remaining, amount, guards):
            remaining -= amount
            count += 1
    return count
