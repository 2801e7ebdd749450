"""Defragmentation: which claims to recreate so that a large partition becomes free.

An allocated claim cannot be moved, only recreated together with its pod. The problem is to choose the partition of the
requested size whose occupants need the fewest units elsewhere. The search is greedy: it tries target partitions from
the cheapest; for each it reserves the partition and lets the allocator place the occupants again, the largest first, on
nodes where their pods may run. All claims of a pod are recreated together. Example: a card holds a claim of one slice
at position 0, which blocks ``4g.40gb``; the advice is to recreate that claim, which fits at another position.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DeviceId, ObjectRef
from kerf_dra.driver.allocation import Fits
from kerf_dra.driver.diagnostics.card_usage import CardUsage
from kerf_dra.driver.diagnostics.cluster_index import ClaimsByPool, ClusterIndex, pods_of
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.partitions.unit_map import get_unit_map
from kerf_dra.driver.scheduling.node_filter import explain_filter

WHOLE: Final = "whole"
"""The size name of a whole card."""
SLOTS: Final = "slots"
"""The size name of FPGA slots without a function."""

_MOST_TARGETS: Final = 8
"""Target partitions that are tried for one size: if the cheapest fail, others hardly fit elsewhere either."""

_replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreation:
    """A claim that has to be recreated."""

    claim: str
    pods: tuple[str, ...]
    """The pods that use the claim and have to be recreated, too."""
    devices: tuple[str, ...]
    """The devices that the claim holds."""
    room_at: tuple[str, ...]
    """The devices that the allocator gave the claim in the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The claims whose recreation frees one partition of ``size``."""

    model: str
    size: str
    node: str
    device: str
    """The partition that becomes free."""
    moves: tuple[Recreation, ...]
    """The claims in the order of recreation, large before small; empty when the partition is free now."""


class _Target(NamedTuple):
    """A partition of the requested size with the claims that occupy it."""

    cost: int
    """The number of units that the occupants need elsewhere."""
    number: int
    """The position of the card among all, which breaks ties."""
    card: CardUsage
    partition: Partition
    occupants: frozenset[ObjectRef]


def find_advice(
    cluster: ClusterIndex, cards: Sequence[CardUsage], model: str, size: str, usable_units: int
) -> Advice | None:
    """Return how to free one partition of ``size`` on a card of ``model`` most cheaply; None when no way is found.

    ``usable_units`` is the number of free units of ``cards`` that partitions can use, which bounds the cost.
    """
    affordable = (target for target in _find_targets(cards, model, size) if target.cost <= usable_units)
    for target in nsmallest(_MOST_TARGETS, affordable, key=lambda target: (target.cost, target.number)):
        published = target.card.published
        groups = group_claims(cluster, target.occupants)
        device = device_name(published.card, target.partition)
        moves = _recreate(cluster, groups, published.id_of(device)) if _is_freed(target, groups) else None
        if moves is not None:
            return Advice(model=model, size=size, node=published.node, device=device, moves=moves)
    return None


def _size_name(partition: Partition) -> str:
    return WHOLE if partition.is_whole else partition.profile or partition.function or SLOTS


def _find_targets(cards: Sequence[CardUsage], model: str, size: str) -> Iterator[_Target]:
    for number, card in enumerate(cards):
        if card.published.model != model:
            continue
        for spec in get_unit_map(card.published.card).specs:
            partition = spec.of(card.published.card.uuid)
            if _size_name(partition) == size:
                overlapping = {name: each for name, each in card.partitions.items() if each.overlaps(partition)}
                whole = card.published.card.units
                units = (each.placement.size if each.placement else whole for each in overlapping.values())
                occupants = frozenset(ref for name in overlapping for ref in card.holders[name])
                yield _Target(cost=sum(units), number=number, card=card, partition=partition, occupants=occupants)


def _is_freed(target: _Target, groups: Iterable[Sequence[ResourceClaim]]) -> bool:
    """Return whether the partition can be created once ``groups`` have ended: other claims may hold its engines."""
    gone = {claim.ref for claim in chain.from_iterable(groups)}
    card = target.card
    staying = [card.partitions[name] for name, refs in card.holders.items() if not gone.issuperset(refs)]
    unit_map = get_unit_map(card.published.card)
    spec = next(spec for spec in unit_map.specs if spec.of(card.published.card.uuid) == target.partition)
    return unit_map.fits(spec, unit_map.free(staying))


def group_claims(cluster: ClusterIndex, refs: Iterable[ObjectRef]) -> list[tuple[ResourceClaim, ...]]:
    """Return the claims ``refs``, grouped with all claims that share a pod with them; large groups first."""
    left, groups = sorted(refs), []
    while left:
        group = [left.pop(0)]
        for ref in group:  # the list grows in the loop
            pods = (cluster.pods[user] for user in pods_of(cluster.claims[ref]) if user in cluster.pods)
            others = (ObjectRef(ref.namespace, name) for pod in pods for name in pod.claim_names().values())
            group += [other for other in dict.fromkeys(others) if other in cluster.claims and other not in group]
        left = [ref for ref in left if ref not in group]
        groups.append(tuple(cluster.claims[ref] for ref in group))
    return sorted(groups, key=lambda group: -sum(map(cluster.all_holdings.weight, group)))


def _devices(claim: ResourceClaim) -> list[DeviceId]:
    allocation = claim.status.allocation
    return [result.id for result in allocation.devices.results] if allocation else []


def _recreate(
    cluster: ClusterIndex, groups: Sequence[Sequence[ResourceClaim]], wanted: DeviceId
) -> tuple[Recreation, ...] | None:
    """Return where the claims fit once ``wanted`` is reserved; None when one of them fits nowhere."""
    claims_by_pool = cluster.claims_by_pool.copy()
    for claim in chain.from_iterable(groups):
        claims_by_pool.remove(claim)
    claims_by_pool.add(_reserve(wanted))
    moves: list[Recreation] = []
    for group in groups:
        placed = _place_group(cluster, claims_by_pool, group)
        if placed is None:
            return None
        for before, after in zip(group, placed, strict=True):
            claims_by_pool.add(after)
            moves.append(
                Recreation(
                    claim=str(before.ref),
                    pods=tuple(map(str, pods_of(before))),
                    devices=tuple(map(str, _devices(before))),
                    room_at=tuple(map(str, _devices(after))),
                )
            )
    return tuple(moves)


def _place_group(
    cluster: ClusterIndex, claims_by_pool: ClaimsByPool, group: Sequence[ResourceClaim]
) -> list[ResourceClaim] | None:
    """Return the claims with new devices on the first node by name that fits, or None."""
    claims = [_replace(claim, status=ResourceClaimStatus()) for claim in group]
    pods: list[Pod | None] = [pod for claim in group for ref in pods_of(claim) if (pod := cluster.pods.get(ref))]
    for node in cluster.nodes:
        if any(explain_filter(pod, (), node) for pod in pods or [None]):
            continue
        outcome = cluster.attempt(claims, node, claims_by_pool.find(cluster.pools(node)))
        if isinstance(outcome, Fits):
            return [
                _replace(claim, status=ResourceClaimStatus(allocation=result))
                for claim, result in zip(claims, outcome.results, strict=True)
            ]
    return None


def _reserve(id_: DeviceId) -> ResourceClaim:
    """Return a fictitious claim that holds a device."""
    result = DeviceRequestAllocationResult(request="", driver=id_.driver, pool=id_.pool, device=id_.device)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    return ResourceClaim(metadata=ObjectMeta(name="reserved"), status=ResourceClaimStatus(allocation=allocation))
