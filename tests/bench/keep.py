"""KEEP: placing where the least is lost of what could be placed later; a strategy beside the scheduler's order.

A counter set, such as a card, is worth the sum over its profiles of weight times how many more of that profile still
fit. A placement's loss is what it takes of that worth. Of several places the one with the least loss is taken, of those
the fullest set, then the first. Against the first fit this accepts some more requests under high load, and more of the
large ones; kube-scheduler knows no such order, so a driver gets it by the order in which it publishes
(``driver.partitions.publish_order``), and who places himself gets it here.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from api.model.allocations import AllocationResult
from api.model.claims import DeviceClass, ResourceClaim, ResourceClaimSpec
from api.model.devices import Device
from driver.allocation.cluster import ClusterAllocator, ClusterOutcome, NodeAllocation, NoFittingNode
from driver.allocation.pools.node_devices import Offer
from driver.allocation.pools.pool_view import PoolView
from driver.allocation.pools.template import Layout, Standing
from driver.allocation.search.backtracking import search
from driver.allocation.search.problem import Question
from driver.allocation.semantics.bitset import keep
from driver.allocation.semantics.counters import fits
from driver.allocation.semantics.outcomes import Budget, Fits, NodeView


class Profile(NamedTuple):
    """What a device is one of; a set is worth its weight for each that still fits."""

    name: str
    weight: int


ProfileOf: TypeAlias = Callable[[Device], Profile | None]
"""None: the device does not count, because it is the same hardware as others that do."""


class _Rank(NamedTuple):
    """How good a place is: less is better."""

    loss: int
    left: int
    """What is left of the sets that are drawn from, in whatever they count."""


class Keep:
    """The strategy, and what it has worked out so far."""

    def __init__(self, profile_of: ProfileOf) -> None:
        self._profile_of = profile_of
        self._worths: dict[tuple[Layout, int, int], int] = {}
        self._orders: dict[tuple[Layout, Standing], Layout] = {}
        self._ranks: dict[ResourceClaimSpec, dict[Hashable, _Rank | None]] = {}

    def place(
        self, cluster: ClusterAllocator, nodes: Iterable[NodeView], claim: ResourceClaim, class_: DeviceClass
    ) -> ClusterOutcome:
        """As ``ClusterAllocator.place``, on the node and the devices where the least is lost.

        ``class_`` is that of all requests. The selectors must not tell nodes apart.
        """
        best: tuple[_Rank, Offer] | None = None
        ranks = self._ranks.setdefault(claim.spec, {})
        for node in nodes:
            offer = Offer.build(cluster.inventory, node, cluster.ledger, cluster.features)
            key = tuple([(view.layout, each) for view, each in zip(offer.views, offer.standings, strict=True)])
            if key not in ranks:
                found = self._search(offer, claim, class_)
                keep(ranks, key, None if found is None else self._rank(offer, found.results))
            rank = ranks[key]
            if rank is not None and (best is None or rank < best[0]):
                best = rank, offer
        if best is None:
            return NoFittingNode({})
        found = self._search(best[1], claim, class_)
        assert found is not None, "it fitted on a node of the same kind"
        return NodeAllocation(best[1].node.name, found.results)

    def _search(self, offer: Offer, claim: ResourceClaim, class_: DeviceClass) -> Fits | None:
        classes = {class_.metadata.name: class_}
        answer = search(self._ordered(offer), [claim], classes, share_id=str, budget=Budget())
        assert isinstance(answer, Fits | Question)
        return answer if isinstance(answer, Fits) else None

    def _ordered(self, offer: Offer) -> Offer:
        """What the node offers, the best places first."""
        views = [
            PoolView(view.id, view.problem, self._order(view.layout, standing), view.slices, view.texts)
            for view, standing in zip(offer.views, offer.standings, strict=True)
        ]
        return Offer(views, offer.node, offer.allocated, offer.features)

    def _order(self, layout: Layout, standing: Standing) -> Layout:
        ordered = self._orders.get((layout, standing))
        if ordered is None:
            sizes = [sum(_units(layout, use.set, use.amount or 0) for use in uses) for uses in layout.uses]
            ranks = [self._rank_of(layout, standing.remaining, index) for index in range(len(layout.templates))]
            indices = sorted(range(len(layout.templates)), key=lambda index: (sizes[index], ranks[index], index))
            ordered = keep(self._orders, (layout, standing), _reordered(layout, indices))
        return ordered

    def _rank(self, offer: Offer, results: Iterable[AllocationResult]) -> _Rank:
        """Of all that is given together."""
        loss = left = 0
        remaining = {
            view.id: list(standing.remaining) for view, standing in zip(offer.views, offer.standings, strict=True)
        }
        layouts = {view.id: view.layout for view in offer.views}
        for given in (each for result in results for each in result.devices.results):
            pool = next(id_ for id_ in layouts if (id_.driver, id_.name) == (given.driver, given.pool))
            layout, sets = layouts[pool], remaining[pool]
            index = layout.positions[given.device]
            rank = self._rank_of(layout, sets, index)
            loss, left = loss + rank.loss, left + rank.left
            for use in layout.uses[index]:
                sets[use.set] = (sets[use.set] or 0) - (use.amount or 0)
        return _Rank(loss, left)

    def _rank_of(self, layout: Layout, remaining: Sequence[int | None], index: int) -> _Rank:
        loss = left = 0
        for use in layout.uses[index]:
            before = remaining[use.set]
            assert layout.counters is not None
            if before is None or not fits(before, use.amount, layout.counters.guards[use.set]):
                continue  # it cannot be had, so its rank does not matter
            after = before - (use.amount or 0)
            loss += self._worth(layout, use.set, before) - self._worth(layout, use.set, after)
            left += _units(layout, use.set, before)
        return _Rank(loss, left)

    def _worth(self, layout: Layout, set_: int, remaining: int) -> int:
        worth = self._worths.get((layout, set_, remaining))
        if worth is None:
            assert layout.counters is not None
            amounts: dict[Profile, list[int]] = {}
            for template, uses in zip(layout.templates, layout.uses, strict=True):
                profile = self._profile_of(template.device) if [use.set for use in uses] == [set_] else None
                if profile is not None and uses[0].amount is not None:
                    amounts.setdefault(profile, []).append(uses[0].amount)
            guards = layout.counters.guards[set_]
            worth = sum(profile.weight * _count(each, remaining, guards) for profile, each in amounts.items())
            keep(self._worths, (layout, set_, remaining), worth)
        return worth


def _reordered(layout: Layout, indices: Iterable[int]) -> Layout:
    """The same devices in another order: ``indices`` are their places in ``layout``."""
    return Layout(layout.driver, [layout.templates[index] for index in indices], (), layout.counters)


def _units(layout: Layout, set_: int, packed: int) -> int:
    """All counters of a set added up."""
    assert layout.counters is not None
    return sum(field.read(packed) for field in layout.counters.fields[set_].values())


def _count(amounts: Iterable[int], remaining: int, guards: int) -> int:
    """How many of ``amounts`` fit together: the one that ends first, first, which is best for equal rows of units."""
    count = 0
    for amount in sorted(amounts):
        if fits(remaining, amount, guards):
            remaining -= amount
            count += 1
    return count
