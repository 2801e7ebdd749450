"""Which claims to recreate so that a large partition becomes free.

Claims cannot be moved: a pod must end and be made again. So the advice says which, and where each would find room
again, and both have been tried: the wanted partition is set aside, then the allocator places the claims anew, the
largest first, where their pods may run. A pod's claims go together.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final, NamedTuple

import msgspec

from api.core.v1 import Pod
from api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from api.model.claims import ResourceClaim
from api.model.metadata import ObjectMeta
from api.model.names import DeviceId, ObjectRef
from driver.allocation import Fits
from driver.diagnostics.card_usage import CardUse
from driver.diagnostics.cluster_index import Cluster, Occupancy
from driver.partitions.device_names import device_name
from driver.partitions.geometry import Partition
from driver.partitions.unit_map import get_unit_map
from driver.scheduling.node_filter import explain_filter

WHOLE: Final = "whole"
"""The size of a whole card."""
SLOTS: Final = "slots"
"""The size of FPGA slots without a function."""

_TRIED: Final = 8
"""Places that are tried for one size, the cheapest first: where these fail there is hardly any room elsewhere."""

_replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A claim to recreate."""

    claim: str
    pods: tuple[str, ...]
    """Who uses it, and has to be made again."""
    devices: tuple[str, ...]
    room_at: tuple[str, ...]
    """Where there is room for it: the devices that the allocator gave it in a trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Recreating these claims frees one partition of ``size``."""

    model: str
    size: str
    node: str
    device: str
    """The partition that becomes free."""
    moves: tuple[Move, ...]
    """In the order in which to make them anew: the large before the small, which would take their room. Empty: it is
    free now."""


class _Place(NamedTuple):
    """A partition of the wanted size, and who is in the way there."""

    cost: int
    """Units that have to find room elsewhere."""
    number: int
    """Of the card among all: ties go to the first."""
    card: CardUse
    partition: Partition
    in_the_way: frozenset[ObjectRef]


def advise(cluster: Cluster, cards: Sequence[CardUse], model: str, size: str, room: int) -> Advice | None:
    """How to win one partition of ``size`` on a card of ``model`` with the least recreating; None: no way was found.

    ``room`` is how many units of ``cards`` are free and of use: what takes more need not be tried.
    """
    affordable = (place for place in _places(cards, model, size) if place.cost <= room)
    for place in nsmallest(_TRIED, affordable, key=lambda place: place[:2]):
        groups = _groups(cluster, place.in_the_way)
        device = device_name(place.card.site.card, place.partition)
        moves = _moves(cluster, groups, place.card.site.id_of(device)) if _is_freed(place, groups) else None
        if moves is not None:
            return Advice(model=model, size=size, node=place.card.site.node, device=device, moves=moves)
    return None


def size_of(partition: Partition) -> str:
    """What the size of a partition is called."""
    return WHOLE if partition.is_whole else partition.profile or partition.function or SLOTS


def _places(cards: Sequence[CardUse], model: str, size: str) -> Iterator[_Place]:
    for number, card in enumerate(cards):
        if card.site.model == model:
            for spec in get_unit_map(card.site.card).specs:
                partition = spec.of(card.site.card.uuid)
                if size_of(partition) == size:
                    yield _place(number, card, partition)


def _place(number: int, card: CardUse, partition: Partition) -> _Place:
    held = [name for name, taken in card.taken.items() if taken.overlaps(partition)]
    cost = sum(_units(card, name) for name in held)
    in_the_way = frozenset(ref for name in held for ref in card.holders[name])
    return _Place(cost=cost, number=number, card=card, partition=partition, in_the_way=in_the_way)


def _units(card: CardUse, device: str) -> int:
    placement = card.taken[device].placement
    return placement.size if placement else card.site.card.units


def _is_freed(place: _Place, groups: Iterable[Sequence[ResourceClaim]]) -> bool:
    """Whether the partition can be cut once ``groups`` have gone: engines may be held by others."""
    gone = {claim.ref for group in groups for claim in group}
    card = place.card
    staying = [card.taken[name] for name, refs in card.holders.items() if not gone.issuperset(refs)]
    unit_map = get_unit_map(card.site.card)
    spec = next(spec for spec in unit_map.specs if spec.of(card.site.card.uuid) == place.partition)
    return unit_map.fits(spec, unit_map.free(staying))


def _groups(cluster: Cluster, refs: Iterable[ObjectRef]) -> list[tuple[ResourceClaim, ...]]:
    """The claims ``refs``, with all others that go with them because a pod uses both; large groups first."""
    left, groups = sorted(refs), []
    while left:
        group = [left.pop(0)]
        for ref in group:  # grows as we go
            claim = cluster.claims[ref]
            for user in _users(claim):
                pod = cluster.pods.get(user)
                names = pod.claim_names().values() if pod else ()
                group += [
                    other
                    for name in names
                    if (other := ObjectRef(ref.namespace, name)) in cluster.claims and other not in group
                ]
        left = [ref for ref in left if ref not in group]
        groups.append(tuple(cluster.claims[ref] for ref in group))
    return sorted(groups, key=lambda group: -sum(map(cluster.all_holdings.weight, group)))


def _users(claim: ResourceClaim) -> list[ObjectRef]:
    return [
        ObjectRef(claim.metadata.namespace, user.name) for user in claim.status.reserved_for if user.resource == "pods"
    ]


def _devices(claim: ResourceClaim) -> list[DeviceId]:
    allocation = claim.status.allocation
    return [result.id for result in allocation.devices.results] if allocation else []


def _moves(cluster: Cluster, groups: Sequence[Sequence[ResourceClaim]], wanted: DeviceId) -> tuple[Move, ...] | None:
    """Where everything finds room once ``wanted`` is set aside; None: something does not."""
    occupancy = cluster.occupancy.copy()
    for group in groups:
        for claim in group:
            occupancy.remove(claim)
    occupancy.add(_holding(wanted))
    moves: list[Move] = []
    for group in groups:
        placed = _place_anew(cluster, occupancy, group)
        if placed is None:
            return None
        for before, after in zip(group, placed, strict=True):
            occupancy.add(after)
            moves.append(
                Move(
                    claim=str(before.ref),
                    pods=tuple(map(str, _users(before))),
                    devices=tuple(map(str, _devices(before))),
                    room_at=tuple(map(str, _devices(after))),
                )
            )
    return tuple(moves)


def _place_anew(cluster: Cluster, occupancy: Occupancy, group: Sequence[ResourceClaim]) -> list[ResourceClaim] | None:
    """The claims with new devices, on the first node by name where their pods may run and all fit."""
    claims = [_replace(claim, status=ResourceClaimStatus()) for claim in group]
    pods: list[Pod | None] = [pod for claim in group for ref in _users(claim) if (pod := cluster.pods.get(ref))]
    for node in cluster.nodes:
        if any(explain_filter(pod, (), node) for pod in pods or [None]):
            continue
        outcome = cluster.attempt(claims, node, occupancy.of(cluster.pools(node)))
        if isinstance(outcome, Fits):
            return [
                _replace(claim, status=ResourceClaimStatus(allocation=result))
                for claim, result in zip(claims, outcome.results, strict=True)
            ]
    return None


def _holding(id_: DeviceId) -> ResourceClaim:
    """A claim that nobody made, which keeps a device free of others."""
    result = DeviceRequestAllocationResult(request="", driver=id_.driver, pool=id_.pool, device=id_.device)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    return ResourceClaim(metadata=ObjectMeta(name="set-aside"), status=ResourceClaimStatus(allocation=allocation))
