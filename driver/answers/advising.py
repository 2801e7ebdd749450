"""Which claims to recreate so that a large partition becomes free.

Claims cannot be moved: a pod must end and be made again. So the advice says which, and where each would find room
again, and both have been tried: the wanted partition is set aside, then the allocator places the claims anew, the
largest first, where their pods may run. A pod's claims go together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from driver.answers.cards import PublishedCard
from driver.answers.cluster import Cluster, Occupancy
from driver.answers.filtering import node_obstacle
from driver.partitions.geometry import Partition
from driver.partitions.grids import grid_of

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
    """Empty: it is free now."""


class _Place(NamedTuple):
    """A partition of the wanted size, and the claims that would have to go."""

    card: PublishedCard
    device: str
    groups: tuple[tuple[ResourceClaim, ...], ...]
    """What goes together, the largest first."""
    cost: int
    """Units that have to find room elsewhere."""


def advise(cluster: Cluster, cards: Sequence[PublishedCard], model: str, size: str) -> Advice | None:
    """How to win one partition of ``size`` on a card of ``model`` with the least recreating; None: no way was found."""
    units = {(card.pool, device): _units(card, device) for card in cards for device in card.holders}
    of_model = [card for card in cards if card.model == model]
    places = sorted(
        _places(cluster, of_model, size, units), key=lambda place: (place.cost, place.card.node, place.device)
    )
    for place in places[:_TRIED]:
        moves = _moves(cluster, place)
        if moves is not None:
            return Advice(model=model, size=size, node=place.card.node, device=place.device, moves=moves)
    return None


def size_of(partition: Partition) -> str:
    """What the size of a partition is called."""
    return WHOLE if partition.is_whole else partition.profile or partition.function or SLOTS


def _places(
    cluster: Cluster, cards: Iterable[PublishedCard], size: str, units: Mapping[tuple[str, str], int]
) -> Iterator[_Place]:
    for card in cards:
        cuts = {cut.of(card.card.uuid): cut for cut in grid_of(card.card).cuts}
        seen: set[Partition] = set()
        for device, partition in card.partitions.items():
            if size_of(partition) != size or partition in seen or partition not in cuts:
                continue
            seen.add(partition)
            in_the_way = {
                ref for name, refs in card.holders.items() if card.partitions[name].overlaps(partition) for ref in refs
            }
            groups = _groups(cluster, in_the_way)
            gone = {claim.ref for group in groups for claim in group}
            staying = [card.partitions[name] for name, refs in card.holders.items() if not gone.issuperset(refs)]
            if grid_of(card.card).fits(cuts[partition], grid_of(card.card).free(staying)):
                ordered = sorted(groups, key=lambda group: -_cost(group, units))
                yield _Place(card, device, tuple(ordered), sum(_cost(group, units) for group in groups))


def _groups(cluster: Cluster, refs: Iterable[ObjectRef]) -> list[tuple[ResourceClaim, ...]]:
    """The claims ``refs``, with all others that go with them because a pod uses both."""
    left, groups = sorted(refs), []
    while left:
        group = [left.pop(0)]
        for ref in group:
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
    return groups


def _users(claim: ResourceClaim) -> list[ObjectRef]:
    return [
        ObjectRef(claim.metadata.namespace, user.name) for user in claim.status.reserved_for if user.resource == "pods"
    ]


def _cost(group: Iterable[ResourceClaim], units: Mapping[tuple[str, str], int]) -> int:
    return sum(units.get((id_.pool, id_.device), 1) for claim in group for id_ in _devices(claim))


def _units(card: PublishedCard, device: str) -> int:
    placement = card.partitions[device].placement
    return placement.size if placement else card.card.units


def _devices(claim: ResourceClaim) -> list[DeviceId]:
    allocation = claim.status.allocation
    return [result.id for result in allocation.devices.results] if allocation else []


def _moves(cluster: Cluster, place: _Place) -> tuple[Move, ...] | None:
    """Where everything finds room once ``place`` is set aside; None: something does not."""
    occupancy = cluster.occupancy.copy()
    for group in place.groups:
        for claim in group:
            occupancy.remove(claim)
    occupancy.add(_holding(place.card.id_of(place.device)))
    moves: list[Move] = []
    for group in place.groups:
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
        if any(node_obstacle(pod, (), node) for pod in pods or [None]):
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
